"""A snapshot by its URL: a savepoint folder, or the newest checkpoint in a job's folder.

    <savepoint>/                                a folder that can be moved and copied as a whole
      manifest.json                             envelope and manifest as in an entry of the history, number 1
      data/chk-<checkpoint>/<uid>/<state>-...   rows and elements, as Parquet; no native files and no increments

    <location>/<job>/history/0000000001.json    a job's checkpoints; ``open_snapshot(url, checkpoint=7)`` names one

Paths in a manifest are relative to its folder. A savepoint exists when ``manifest.json`` does: it is written last and
by one atomic step. Nothing that was read here is believed before its checksum fits.

Reading a job's history from outside must not disturb it, so nothing is claimed: entries are looked at from the newest
one downwards, until the first that does.
"""

from __future__ import annotations

import uuid

import msgspec

from moorline.errors import BlobMissing, InvalidArgument, SnapshotCorrupt, SnapshotNotFound, StorageError
from moorline.model.manifest import Claim, Manifest
from moorline.storage import entries
from moorline.storage.blobs import BlobStore
from moorline.storage.layout import DATA, HISTORY, entry_number
from moorline.storage.open import open_store

MANIFEST = "manifest.json"


def open_snapshot(url: str, checkpoint: int | None = None) -> tuple[Manifest, BlobStore]:
    """The snapshot at ``url``, and the store that its paths belong to.

    ``checkpoint`` names one of a job's checkpoints; without it, the newest that a restart would use.

    >>> from moorline.storage.open import open_store
    >>> store = open_store("memory://nightly")
    >>> write_savepoint(store, Manifest("orders", attempt=1, checkpoint=7, created_ms=0, operators=[]))
    >>> manifest, _ = open_snapshot("memory://nightly")
    >>> manifest.job, manifest.checkpoint
    ('orders', 7)
    """
    store = open_store(url)
    try:
        # A byte more than a manifest can have, so that a larger file is seen and not loaded.
        data = store.get_range(MANIFEST, 0, entries.MAX_ENTRY_BYTES + 1)
    except BlobMissing:
        return _from_history(store, checkpoint), store
    manifest = _savepoint(store, data)
    if checkpoint not in (None, manifest.checkpoint):
        raise SnapshotNotFound(store.url, f"it is a savepoint, of checkpoint {manifest.checkpoint}, not {checkpoint}")
    return manifest, store


def new_folder(url: str) -> str:
    """``url`` as workers will open it, if a savepoint can go there: nothing may be there yet."""
    store = open_store(url)
    if store.list():
        raise InvalidArgument("savepoint", url, "There is something there already: give a folder that is new or empty.")
    return store.url


def has_savepoint(store: BlobStore) -> bool:
    """Is there a savepoint in this folder?"""
    try:
        store.get_range(MANIFEST, 0, 1)
        return True
    except BlobMissing:
        return False


def write_savepoint(store: BlobStore, manifest: Manifest) -> None:
    """Make a savepoint exist. Its files are durable in ``store`` already. Raises if there is one in that folder."""
    for operator in manifest.operators:
        for handle in (h for subtask in operator.subtasks for h in subtask.keyed):
            if handle.increment or handle.files or handle.kind == "native":
                raise ValueError(f"state {handle.state!r} of {operator.uid!r} is not in the form of a savepoint")
    if manifest.in_flight:
        raise ValueError("a savepoint is aligned, and these are records in flight")
    if any(not file.path.startswith(DATA) for file in manifest.files()):
        raise ValueError("the files of a savepoint lie below data/")
    # A savepoint is number 1 of a history of its own, and an attempt is never above its number.
    manifest = msgspec.structs.replace(manifest, attempt=1)
    data = entries.encode(manifest, uuid.uuid4().hex, "")
    if len(data) > entries.MAX_ENTRY_BYTES:
        cause = f"its manifest has {len(data):,} bytes, and {entries.MAX_ENTRY_BYTES:,} are the limit"
        raise StorageError(store.url, "write a savepoint to", cause)
    if not store.put_if_absent(MANIFEST, data):
        raise StorageError(store.url, "write a savepoint to", "there is one already. Name a folder that is new")


def delete_savepoint(store: BlobStore) -> None:
    """Remove a savepoint that was taken over: first what makes it one, then its files."""
    store.delete([MANIFEST])
    store.delete([blob.path for blob in store.list(DATA)])


def _savepoint(store: BlobStore, data: bytes) -> Manifest:
    path = f"{store.url}/{MANIFEST}"
    if len(data) > entries.MAX_ENTRY_BYTES:
        raise SnapshotCorrupt(path, f"it has more than {entries.MAX_ENTRY_BYTES:,} bytes")
    try:
        entry = entries.decode(data, None, 1)
    except SnapshotCorrupt as error:
        raise SnapshotCorrupt(path, f"{error.path}: {error.cause}" if error.path else error.cause) from error
    if not isinstance(entry, Manifest):
        raise SnapshotCorrupt(path, "it is no manifest")
    if entry.in_flight:
        raise SnapshotCorrupt(path, "it has records in flight, and a savepoint never has")
    return entry


def _from_history(store: BlobStore, checkpoint: int | None) -> Manifest:
    numbered = ((entry_number(blob.path), blob) for blob in store.list(HISTORY))
    found = sorted(((n, blob) for n, blob in numbered if n is not None), reverse=True)
    if not found:
        raise SnapshotNotFound(store.url, "there is neither a manifest.json nor a history")
    job: str | None = None
    given_up: set[int] = set()
    present: list[int] = []
    damage = ""
    for number, blob in found:
        if blob.size > entries.MAX_ENTRY_BYTES:
            damage = damage or f"{blob.path}: {blob.size:,} bytes are more than an entry can have"
            continue
        try:
            entry = entries.decode(store.get(blob.path), job, number)
        except BlobMissing:  # removed since it was listed
            continue
        except SnapshotCorrupt as error:
            damage = damage or f"{blob.path}: {error.cause}"
            continue
        job = entry.job
        if isinstance(entry, Manifest):
            present.append(entry.checkpoint)
            if entry.checkpoint == checkpoint or (checkpoint is None and entry.checkpoint not in given_up):
                return entry
        elif isinstance(entry, Claim):
            given_up |= set(entry.given_up)
            if entry.fresh and checkpoint is None:  # the ones before are not of this run
                break
    damaged = f" ({damage})" if damage else ""
    if checkpoint is not None:
        have = f"it has {', '.join(map(str, sorted(present)))}" if present else "it has none at all"
        raise SnapshotNotFound(store.url, f"it has no checkpoint {checkpoint}; {have}{damaged}")
    if damage:
        raise SnapshotCorrupt(store.url, damage)
    raise SnapshotNotFound(store.url, f"job {job!r} has no complete checkpoint yet")
