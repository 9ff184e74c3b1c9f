"""The check of snapshots: is every file there, is it what was written, and is there anything else?

For a job's folder that is every checkpoint in its history, for a savepoint its one manifest. Of each file that one of
them names:

    missing       it is not there
    wrong size    it is there, longer or shorter than it was
    wrong bytes   a segment does not have its checksum
    unreadable    the checksums fit, but what they vouch for is no Parquet file of ours, would take more memory than its
                  manifest declares, or does not hold the rows that it says (``read``)

The history itself is checked by ``storage/chain.py``: every entry stands where it was written, and is the one that the
newest entry names.

    damaged entry    it cannot be read, or another has taken its place
    missing entry    the newest entry names it, or the history has come further than there are entries
    stray entry      no entry names it: it is never restored, and goes with the next checkpoint
    unknown attempt  there are data files of an attempt that no entry knows: the end of the history is lost

And of each file that none of them names, by ``protocol/housekeeping.py``:

    abandoned     it will never be named; :func:`sweep` deletes it when it is older than a grace time
    pending       an upload may be under way, and only the driver knows: it is left alone

Looks, and changes nothing but by :func:`sweep`, which is safe beside a running driver: what is abandoned stays so.
Files are listed before the history is read, so whatever was named meanwhile is found named. ``mo.fsck``
calls, and the command of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from moorline.errors import BlobMissing, SnapshotCorrupt, StorageError
from moorline.model.manifest import Manifest, SnapshotFile
from moorline.snapshots.findings import Checked, Kind, Leftover, Problem, Progress, Report, Verdict
from moorline.snapshots.inventory import Inventory, take_inventory
from moorline.storage import segments
from moorline.storage.blobs import Blob, BlobStore
from moorline.storage.layout import DATA

__all__ = ["Checked", "Kind", "Leftover", "Problem", "Progress", "Report", "Verdict", "check", "sweep"]

#: Reads a Parquet file through, and raises SnapshotCorrupt if it is not what it should be.
Reader = Callable[[BlobStore, SnapshotFile], object]

#: How many files are read at the same time: an object store takes its time for each.
READERS = 4


def check(
    store: BlobStore,
    now_ms: int,
    *,
    grace_ms: int = 600_000,
    contents: bool = True,
    progress: Callable[[Progress], None] | None = None,
    read: Callable[[list[Manifest]], Reader] = lambda manifests: segments.read_through,
) -> Report:
    """Check everything in a job's folder or in a savepoint. ``contents=False`` looks at names and sizes alone.

    ``read`` makes what reads the Parquet files of these manifests (``snapshots/contents.py``). ``progress`` is called
    from this thread, once for each file. Raises :class:`SnapshotNotFound` if there is nothing to
    check, and StorageError if storage does not answer: that says nothing about the files.

    >>> from moorline.storage.stores.memory import MemoryStore
    >>> check(MemoryStore("nothing"), 0)
    Traceback (most recent call last):
    moorline.errors.SnapshotNotFound: there is no snapshot to use in memory://nothing: there is neither ...
    """
    listed = {blob.path: blob for blob in store.list(DATA)}
    inventory = take_inventory(store)
    manifests = inventory.manifests
    files = {file.path: file for manifest in manifests for file in manifest.files()}
    # What a running job adds while we look is not in the list: those are looked for once more.
    if not files.keys() <= listed.keys():
        listed |= {blob.path: blob for blob in store.list(DATA) if blob.path in files}
    leftovers = _leftovers(store, inventory, [b for b in listed.values() if b.path not in files], now_ms)
    problems = _check_files(store, files, listed, read(manifests) if contents else None, progress)
    if problems:
        # What a running job has removed meanwhile is not missing.
        still_there = {manifest.checkpoint for manifest in take_inventory(store).manifests}
        manifests = [m for m in manifests if m.checkpoint in still_there]
    problems = [*filter(None, (_needed(problem, manifests) for problem in problems))]
    snapshots = _checked(manifests, {problem.path for problem in problems}, inventory.given_up)
    unknown = inventory.unknown_attempts(listed)
    newest, is_lost = inventory.restart({s.checkpoint for s in snapshots if not s.is_whole})
    return Report(
        store.url,
        inventory.job,
        inventory.kind,
        grace_ms,
        snapshots,
        [*inventory.damaged, *unknown, *problems],
        leftovers,
        newest,
        is_lost or (newest is None and bool(unknown)),
    )


def sweep(store: BlobStore, now_ms: int, *, grace_ms: int) -> list[Leftover]:
    """Delete files that no snapshot will ever name and that are older than ``grace_ms``. Safe beside a running job."""
    report = check(store, now_ms, grace_ms=grace_ms, contents=False)
    store.delete(left.path for left in report.unreferenced)
    return report.unreferenced


def _needed(problem: Problem, manifests: list[Manifest]) -> Problem | None:
    """The problem with the checkpoints that need its file; None if none does."""
    needed_by = tuple(m.checkpoint for m in manifests if problem.path in _paths(m))
    return replace(problem, needed_by=needed_by) if needed_by else None


def _checked(manifests: list[Manifest], broken: set[str], given_up: frozenset[int]) -> list[Checked]:
    return [
        Checked(
            m.checkpoint,
            m.attempt,
            m.created_ms,
            len(_paths(m)),
            m.size,
            not _paths(m) & broken,
            m.checkpoint in given_up,
        )
        for m in manifests
    ]


def _paths(manifest: Manifest) -> set[str]:
    return {file.path for file in manifest.files()}


def _leftovers(store: BlobStore, inventory: Inventory, blobs: Iterable[Blob], now_ms: int) -> list[Leftover]:
    leftovers = []
    for blob in blobs:
        try:
            age_ms = now_ms - store.modified_ms(blob.path)
        except BlobMissing:
            continue  # its driver was faster
        leftovers.append(Leftover(blob.path, blob.size, age_ms, inventory.is_abandoned(blob.path)))
    return leftovers


# --- what is in it ----------------------------------------------------------------------------


def _check_files(
    store: BlobStore,
    files: dict[str, SnapshotFile],
    listed: dict[str, Blob],
    read: Reader | None,
    progress: Callable[[Progress], None] | None,
) -> list[Problem]:
    problems: list[Problem] = []
    size, of_size = 0, sum(file.size for file in files.values())
    with ThreadPoolExecutor(READERS, thread_name_prefix="moorline-fsck") as readers:
        judged = readers.map(lambda file: _judge(store, file, listed.get(file.path), read), files.values())
        for number, (file, problem) in enumerate(zip(files.values(), judged), 1):
            if problem is not None:
                problems.append(problem)
            size += file.size
            if progress is not None:
                progress(Progress(number, len(files), size, of_size))
    return problems


def _judge(store: BlobStore, file: SnapshotFile, blob: Blob | None, read: Reader | None) -> Problem | None:
    if blob is None:
        return Problem(file.path, Kind.MISSING, "it is not there")
    if blob.size != file.size:
        return Problem(file.path, Kind.SIZE, f"{blob.size:,} bytes instead of {file.size:,}")
    if read is None:
        return None
    try:
        (read if file.path.endswith(".parquet") else segments.verify)(store, file)
    except SnapshotCorrupt as error:
        return Problem(file.path, _kind(store, file), error.cause)
    return None


def _kind(store: BlobStore, file: SnapshotFile) -> Kind:
    """The damage of a file that could not be read."""
    try:
        segments.verify(store, file)
    except BlobMissing:
        return Kind.MISSING
    except SnapshotCorrupt as error:
        return Kind.MISSING if isinstance(error.__cause__, BlobMissing) else Kind.DIGEST
    except StorageError:
        return Kind.UNREADABLE
    return Kind.UNREADABLE
