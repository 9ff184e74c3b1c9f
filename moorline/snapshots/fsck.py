"""Is everything there that a snapshot needs, is it what was written, and is there anything else?

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
Files are listed before the history is read, so whatever was named meanwhile is found named. The verdict is worked out
from the facts in the :class:`Report` alone. ``mo.fsck`` calls, and the command of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum

from moorline.errors import BlobMissing, SnapshotCorrupt, SnapshotNotFound, StorageError
from moorline.model.manifest import Claim, Manifest, SnapshotFile
from moorline.protocol.housekeeping import Unnamed, is_abandoned
from moorline.protocol.recovery import Refuse, RestoreFrom, choose
from moorline.snapshots.folders import MANIFEST
from moorline.storage import entries
from moorline.storage import segments as snapshots
from moorline.storage.blobs import Blob, BlobStore
from moorline.storage.chain import Look, Record
from moorline.storage.layout import DATA, HEAD, HISTORY, origin_of
from moorline.storage.log import look_at_history

#: Reads a Parquet file through, and raises SnapshotCorrupt if it is not what it should be.
Reader = Callable[[BlobStore, SnapshotFile], object]

#: How many files are read at the same time: an object store takes its time for each.
READERS = 4


class Kind(Enum):
    """A kind of damage of a file."""

    MISSING = "missing"
    SIZE = "wrong size"
    DIGEST = "wrong bytes"
    UNREADABLE = "unreadable"
    ENTRY = "damaged entry"
    GAP = "missing entry"
    STRAY = "stray entry"
    UNKNOWN = "unknown attempt"


class Verdict(Enum):
    """The outcome of a check, in a word."""

    SOUND = "sound"
    #: All snapshots are whole, but there are stray entries, or abandoned files older than the grace time.
    UNTIDY = "untidy"
    #: Some snapshot is not whole; the newest whole one can be restored.
    DAMAGED = "damaged"
    #: There are or were snapshots, and a restart would refuse to begin from any of them.
    LOST = "lost"


@dataclass(frozen=True)
class Problem:
    """One file that is not what it should be, and the checkpoints that need it."""

    path: str
    kind: Kind
    detail: str
    needed_by: tuple[int, ...] = ()

    def __str__(self) -> str:
        needed = f" (needed by checkpoint {', '.join(map(str, self.needed_by))})" if self.needed_by else ""
        return f"{self.kind.value}: {self.path}: {self.detail}{needed}"


@dataclass(frozen=True)
class Leftover:
    """A file that no snapshot names."""

    path: str
    size: int
    age_ms: int
    #: No snapshot will ever name it. Otherwise an upload may be under way.
    is_abandoned: bool


@dataclass(frozen=True)
class Checked:
    """One snapshot: a checkpoint of a job, or a savepoint."""

    checkpoint: int
    attempt: int
    created_ms: int
    files: int
    size: int
    is_whole: bool
    #: It was passed over once, and is never restored again.
    is_given_up: bool = False


@dataclass(frozen=True)
class Progress:
    """The progress of a check."""

    files: int
    of_files: int
    size: int
    of_size: int


@dataclass(frozen=True)
class Report:
    """The findings of a check. ``print`` it, or ask it."""

    url: str
    job: str
    #: "job" for a folder of checkpoints, else "savepoint".
    kind: str
    grace_ms: int
    snapshots: list[Checked] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    #: The checkpoint that a restart would begin from, by the rules of a restart; None if it would begin without.
    newest_whole: int | None = None
    #: There was state, and a restart would refuse.
    is_lost: bool = False

    @property
    def unreferenced(self) -> list[Leftover]:
        """Files that no snapshot needs and no driver has deleted within the grace time."""
        return [left for left in self.leftovers if left.is_abandoned and left.age_ms >= self.grace_ms]

    @property
    def verdict(self) -> Verdict:
        if self.is_lost:
            return Verdict.LOST
        if any(p.kind is not Kind.STRAY for p in self.problems):
            return Verdict.DAMAGED
        return Verdict.UNTIDY if self.unreferenced or self.problems else Verdict.SOUND

    def __str__(self) -> str:
        lines = [f"{self.url}: {self.kind} {self.job!r}: {self.verdict.value}"]
        for s in self.snapshots:
            state = "whole" if s.is_whole else "NOT WHOLE"
            given_up = ", given up" if s.is_given_up else ""
            lines.append(f"  checkpoint {s.checkpoint}: {s.files} files, {s.size:,} bytes, {state}{given_up}")
        lines += [f"  {problem}" for problem in self.problems]
        if self.unreferenced:
            size = sum(left.size for left in self.unreferenced)
            lines.append(f"  {len(self.unreferenced)} files that nobody needs, {size:,} bytes: mo.sweep deletes them")
        if pending := [left for left in self.leftovers if not left.is_abandoned]:
            lines.append(f"  {len(pending)} files of uploads that may be under way")
        return "\n".join(lines)


def check(
    store: BlobStore,
    now_ms: int,
    *,
    grace_ms: int = 600_000,
    contents: bool = True,
    progress: Callable[[Progress], None] | None = None,
    read: Callable[[list[Manifest]], Reader] = lambda manifests: snapshots.read_through,
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
    found = _look(store)
    manifests = found.manifests
    files = {file.path: file for manifest in manifests for file in manifest.files()}
    # What a running job adds while we look is not in the list: those are looked for once more.
    if not files.keys() <= listed.keys():
        listed |= {blob.path: blob for blob in store.list(DATA) if blob.path in files}
    leftovers = _leftovers(store, found, [b for b in listed.values() if b.path not in files], now_ms)
    problems = _check_files(store, files, listed, read(manifests) if contents else None, progress)
    if problems:
        # What a running job has removed meanwhile is not missing.
        still_there = {manifest.checkpoint for manifest in _look(store).manifests}
        manifests = [m for m in manifests if m.checkpoint in still_there]
    needed = {path: tuple(m.checkpoint for m in manifests if path in _paths(m)) for path in problems}
    problems = {path: problem for path, problem in problems.items() if needed[path]}
    snapshots_found = [
        Checked(
            m.checkpoint,
            m.attempt,
            m.created_ms,
            len(_paths(m)),
            m.size,
            not _paths(m) & problems.keys(),
            m.checkpoint in found.given_up,
        )
        for m in manifests
    ]
    told = [Problem(p.path, p.kind, p.detail, needed[p.path]) for p in problems.values()]
    unknown = _unknown_attempts(found, listed)
    newest, is_lost = found.restart({s.checkpoint for s in snapshots_found if not s.is_whole})
    return Report(
        store.url,
        found.job,
        found.kind,
        grace_ms,
        snapshots_found,
        [*found.damaged, *unknown, *told],
        leftovers,
        newest,
        is_lost or (newest is None and bool(unknown)),
    )


def sweep(store: BlobStore, now_ms: int, *, grace_ms: int) -> list[Leftover]:
    """Delete files that no snapshot will ever name and that are older than ``grace_ms``. Safe beside a running job."""
    report = check(store, now_ms, grace_ms=grace_ms, contents=False)
    store.delete(left.path for left in report.unreferenced)
    return report.unreferenced


# --- what there is ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """The manifests of a folder, and what it takes to judge what they do not name."""

    kind: str
    job: str
    manifests: list[Manifest]
    damaged: list[Problem]
    given_up: frozenset[int] = frozenset()
    #: The newest, and the last complete checkpoint of it.
    attempt: int = 0
    completed: int = 0
    #: The history, as a restart would find it.
    records: list[Record] = field(default_factory=list)

    def restart(self, not_whole: set[int]) -> tuple[int | None, bool]:
        """The checkpoint that a restart would begin from, and whether it would refuse."""
        if self.kind == "savepoint":
            whole = [m.checkpoint for m in self.manifests if m.checkpoint not in not_whole]
            return (whole[0] if whole else None), not whole
        decision = choose([r.found for r in self.records], dict.fromkeys(not_whole, "it is not whole"))
        newest = decision.manifest.checkpoint if isinstance(decision, RestoreFrom) else None
        return newest, isinstance(decision, Refuse)

    def is_abandoned(self, path: str) -> bool:
        origin = origin_of(path)
        if origin is None or self.damaged or any(r.damage for r in self.records):
            # Not ours; or a damaged entry may name it.
            return False
        # A savepoint is complete with its manifest: nothing is added to it.
        return self.kind == "savepoint" or is_abandoned(Unnamed(path, *origin), self.attempt, self.completed)


def _look(store: BlobStore) -> _Found:
    try:
        return _savepoint(store.get(MANIFEST))
    except BlobMissing:
        if store.list(HISTORY) or store.list(HEAD):
            return _history(look_at_history(store))
    cause = "there is neither a manifest.json nor a history"
    if left := store.list(DATA):
        cause += f", but {len(left)} files of a savepoint that is being written or was given up"
    raise SnapshotNotFound(store.url, cause)


def _savepoint(data: bytes) -> _Found:
    try:
        entry = entries.decode(data, None, 1)
    except SnapshotCorrupt as error:
        return _Found("savepoint", "", [], [Problem(MANIFEST, Kind.ENTRY, error.cause)])
    if not isinstance(entry, Manifest):
        return _Found("savepoint", entry.job, [], [Problem(MANIFEST, Kind.ENTRY, "it is a claim and no manifest")])
    return _Found("savepoint", entry.job, [entry], [])


def _history(look: Look) -> _Found:
    records = look.records
    manifests = [r.entry for r in records if isinstance(r.entry, Manifest)]
    claims = [r.entry for r in records if isinstance(r.entry, Claim)]
    given_up = {n for claim in claims for n in claim.given_up}
    entries_given_up = {n for claim in claims for n in claim.given_up_entries}
    attempt = max((r.attempt for r in records), default=0)
    damaged = [
        Problem(r.path, Kind.GAP if r.is_missing else Kind.ENTRY, r.damage)
        for r in records
        if r.damage and r.seq not in entries_given_up
    ]
    strays = [Problem(r.path, Kind.STRAY, r.damage or "no other entry names it") for r in look.strays]
    return _Found(
        "job",
        next((r.entry.job for r in reversed(records) if r.entry is not None), ""),
        manifests,
        damaged + strays,
        frozenset(given_up),
        attempt,
        max((m.checkpoint for m in manifests if m.attempt == attempt), default=0),
        records,
    )


def _unknown_attempts(found: _Found, listed: Iterable[str]) -> list[Problem]:
    """Data of attempts that no entry knows of. A claim is there before the first file of its attempt."""
    if found.kind == "savepoint":
        return []
    origins = {path: origin for path in listed if (origin := origin_of(path)) is not None}
    unknown = {attempt: path for path, (_, attempt) in origins.items() if attempt > found.attempt}
    detail = "attempt {} wrote it, and no entry of the history knows that attempt"
    return [Problem(path, Kind.UNKNOWN, detail.format(attempt)) for attempt, path in sorted(unknown.items())]


def _paths(manifest: Manifest) -> set[str]:
    return {file.path for file in manifest.files()}


def _leftovers(store: BlobStore, found: _Found, blobs: Iterable[Blob], now_ms: int) -> list[Leftover]:
    leftovers = []
    for blob in blobs:
        try:
            age_ms = now_ms - store.modified_ms(blob.path)
        except BlobMissing:
            continue  # its driver was faster
        leftovers.append(Leftover(blob.path, blob.size, age_ms, found.is_abandoned(blob.path)))
    return leftovers


# --- what is in it ----------------------------------------------------------------------------


def _check_files(
    store: BlobStore,
    files: dict[str, SnapshotFile],
    listed: dict[str, Blob],
    read: Reader | None,
    progress: Callable[[Progress], None] | None,
) -> dict[str, Problem]:
    problems: dict[str, Problem] = {}
    size, of_size = 0, sum(file.size for file in files.values())
    with ThreadPoolExecutor(READERS, thread_name_prefix="moorline-fsck") as readers:
        judged = readers.map(lambda file: _judge(store, file, listed.get(file.path), read), files.values())
        for number, (file, problem) in enumerate(zip(files.values(), judged), 1):
            if problem is not None:
                problems[file.path] = problem
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
        (read if file.path.endswith(".parquet") else snapshots.verify)(store, file)
    except SnapshotCorrupt as error:
        return Problem(file.path, _kind(store, file), error.cause)
    return None


def _kind(store: BlobStore, file: SnapshotFile) -> Kind:
    """The damage of a file that could not be read."""
    try:
        snapshots.verify(store, file)
    except BlobMissing:
        return Kind.MISSING
    except SnapshotCorrupt as error:
        return Kind.MISSING if isinstance(error.__cause__, BlobMissing) else Kind.DIGEST
    except StorageError:
        return Kind.UNREADABLE
    return Kind.UNREADABLE
