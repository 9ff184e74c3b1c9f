"""A snapshot by its URL: what lies at a path that a user has named.

    <url>/manifest.json               a savepoint: a folder that can be moved and copied as a whole
    <url>/data/chk-<checkpoint>/...   its rows and elements, as Parquet; no native files and no increments

    <url>/history/0000000042.json     a job's folder: its newest checkpoint, or ``open_snapshot(url, checkpoint=7)``
    <url>/<job>/history/              a checkpoint location: that of its only job
    <url> = .../history/<n>.json      one checkpoint, by its entry in the history

Paths in a manifest are relative to its folder. A savepoint exists when ``manifest.json`` does: it is written last and
by one atomic step. Nothing that was read here is believed before its checksum fits.

Which checkpoint counts is said by ``protocol/recovery.py``, as for a restart. Nothing is claimed: a running job does
not notice.
"""

from __future__ import annotations

import re
import uuid

import msgspec

from moorline.errors import BlobMissing, InvalidArgument, SnapshotCorrupt, SnapshotNotFound, StorageError
from moorline.model.manifest import Manifest, NativeHandle
from moorline.protocol.recovery import RestoreFrom, StartEmpty, choose
from moorline.storage import entries
from moorline.storage.blobs import BlobStore
from moorline.storage.layout import DATA, HISTORY
from moorline.storage.log import read_history
from moorline.storage.stores.open import open_store

MANIFEST = "manifest.json"
_ENTRY = re.compile(r"(?P<root>.+)/history/(?P<number>[0-9]{10})\.json")


def open_snapshot(url: str, checkpoint: int | None = None) -> tuple[Manifest, BlobStore]:
    """The snapshot at ``url``, and the store that its paths belong to.

    ``checkpoint`` names one of a job's checkpoints; without it, the newest that a restart would use.

    >>> from moorline.storage.stores.open import open_store
    >>> store = open_store("memory://nightly")
    >>> write_savepoint(store, Manifest("orders", attempt=1, checkpoint=7, created_ms=0, operators=[]))
    >>> manifest, _ = open_snapshot("memory://nightly")
    >>> manifest.job, manifest.checkpoint
    ('orders', 7)
    """
    if (entry := _ENTRY.fullmatch(url)) is not None:
        store = open_store(entry["root"])
        return _entry(store, int(entry["number"])), store
    store = open_store(url)
    try:
        # A byte more than a manifest can have, so that a larger file is seen and not loaded.
        data = store.get_range(MANIFEST, 0, entries.MAX_ENTRY_BYTES + 1)
    except BlobMissing:
        store = _only_job(store)
        return newest(store) if checkpoint is None else _checkpoint(store, checkpoint), store
    manifest = _savepoint(store, data)
    if checkpoint not in (None, manifest.checkpoint):
        raise SnapshotNotFound(store.url, f"it is a savepoint, of checkpoint {manifest.checkpoint}, not {checkpoint}")
    return manifest, store


def folder_at(url: str) -> BlobStore:
    """The folder of a savepoint or of a job: at ``url``, or that of the only job below it."""
    store = open_store(url)
    is_one = has_savepoint(store) or store.list(HISTORY) or store.list(DATA)
    return store if is_one else _only_job(store)


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
            if isinstance(handle, NativeHandle) or handle.increment:
                names = ", ".join(name for name, _, _ in handle.states)
                raise ValueError(f"state {names!r} of {operator.uid!r} is not in the form of a savepoint")
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


def newest(store: BlobStore) -> Manifest:
    """The checkpoint in a job's folder that a restart of the job would begin with. Nothing is claimed."""
    records = read_history(store)
    decision = choose([r.fact for r in records], {})
    if isinstance(decision, RestoreFrom):
        return decision.manifest
    for record in records:
        if record.damage:
            raise SnapshotCorrupt(f"{store.url}/{record.path}", record.damage)
    if isinstance(decision, StartEmpty) and decision.savepoint:
        raise SnapshotNotFound(store.url, f"a restart of the job begins with {decision.savepoint}: name that")
    raise SnapshotNotFound(store.url, "the job has no complete checkpoint yet")


def job_folders(store: BlobStore) -> list[str]:
    """The folders of jobs: this one, or those in it."""
    if store.list(HISTORY):
        return [store.url]
    jobs = {blob.path.partition("/")[0] for blob in store.list() if blob.path.split("/")[1:2] == ["history"]}
    return [f"{store.url}/{name}" for name in sorted(jobs)]


def savepoint_folders(store: BlobStore) -> list[str]:
    """The folders of savepoints: this one, or those in it."""
    if has_savepoint(store):
        return [store.url]
    return [f"{store.url}/{b.path.partition('/')[0]}" for b in store.list() if b.path.split("/")[1:] == [MANIFEST]]


def _only_job(store: BlobStore) -> BlobStore:
    folders = job_folders(store)
    if not folders:
        raise SnapshotNotFound(store.url, "there is neither a manifest.json nor a history, here or one folder below")
    if len(folders) > 1:
        names = ", ".join(folder.rpartition("/")[2] for folder in folders)
        raise SnapshotNotFound(store.url, f"there are several jobs: {names}. Name the folder of one")
    return open_store(folders[0])


def _checkpoint(store: BlobStore, checkpoint: int) -> Manifest:
    records = read_history(store)
    manifests = {r.entry.checkpoint: r.entry for r in records if isinstance(r.entry, Manifest)}
    if checkpoint not in manifests:
        have = f"it has {', '.join(map(str, manifests))}" if manifests else "it has none at all"
        damage = "".join(f" ({r.path}: {r.damage})" for r in records if r.damage)
        raise SnapshotNotFound(store.url, f"it has no checkpoint {checkpoint}; {have}{damage}")
    return manifests[checkpoint]


def _entry(store: BlobStore, number: int) -> Manifest:
    for record in read_history(store):
        if record.seq == number:
            if record.damage:
                raise SnapshotCorrupt(f"{store.url}/{record.path}", record.damage)
            if isinstance(record.entry, Manifest):
                return record.entry
            raise SnapshotNotFound(f"{store.url}/{record.path}", "it is a claim, which has no state")
    raise SnapshotNotFound(store.url, f"its history has no entry {number}")
