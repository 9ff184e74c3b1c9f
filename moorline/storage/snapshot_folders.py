"""Snapshots that people point at: a savepoint, or a checkpoint in the folder of a job.

    <savepoint>/manifest.json       written last: before it there is no savepoint
    <savepoint>/data/...            its files; paths in the manifest are relative, so the folder can be moved or copied

A savepoint is self-contained: rows in Parquet, no increments, no files of a backend's own kind. It is never deleted by
us, unless a job was told to take it over. Used by the driver, and by everything that reads snapshots.
"""

from __future__ import annotations

from moorline.errors import BlobMissing, InvalidArgument, SnapshotCorrupt, SnapshotNotFound, StorageError
from moorline.model.manifest import Manifest
from moorline.protocol.recovery import Found, RestoreFrom, choose
from moorline.storage import entries
from moorline.storage.blobs import BlobStore
from moorline.storage.checkpoints import read_history
from moorline.storage.layout import HISTORY
from moorline.storage.open import open_store

MANIFEST = "manifest.json"


def new_folder(url: str) -> str:
    """``url`` as workers will open it, if a savepoint can go there: nothing may be there yet."""
    store = open_store(url)
    if store.list():
        raise InvalidArgument("savepoint", url, "There is something there already: give a folder that is new or empty.")
    return store.url


def write_savepoint(store: BlobStore, manifest: Manifest) -> None:
    """Make a savepoint exist. Its files are durable already."""
    if not store.put_if_absent(MANIFEST, entries.encode(manifest, "", "")):
        raise StorageError(store.url, "write a savepoint to", "there is one already")


def delete_savepoint(store: BlobStore) -> None:
    """Remove a savepoint that was taken over: first what makes it one, then its files."""
    store.delete([MANIFEST])
    store.delete([blob.path for blob in store.list("data/")])


def open_snapshot(url: str, checkpoint: int | None = None) -> tuple[Manifest, BlobStore]:
    """The manifest of a savepoint, or of a checkpoint in a job's folder: the newest whole one, or the one named.

    Raises :class:`SnapshotNotFound`, or :class:`SnapshotCorrupt` if what is there cannot be used.
    """
    store = open_store(url)
    try:
        data = store.get(MANIFEST)
    except BlobMissing:
        return _checkpoint(store, url, checkpoint), store
    return _savepoint(data, url, checkpoint), store


def _savepoint(data: bytes, url: str, checkpoint: int | None) -> Manifest:
    try:
        # A savepoint belongs to whoever restores it: the job it came from is told, not asked for.
        entry = entries.decode(data, None, 1 << 62)
    except SnapshotCorrupt as error:
        raise SnapshotCorrupt(f"{url}/{MANIFEST}", error.cause) from error
    if not isinstance(entry, Manifest) or (checkpoint is not None and entry.checkpoint != checkpoint):
        raise SnapshotNotFound(url, "it is a savepoint" if isinstance(entry, Manifest) else "its manifest is a claim")
    return entry


def _checkpoint(store: BlobStore, url: str, checkpoint: int | None) -> Manifest:
    if not store.list(HISTORY):
        raise SnapshotNotFound(url, "there is neither a manifest.json nor a history")
    records = [Found(r.path, r.entry, r.damage) for r in read_history(store)]
    if checkpoint is None:
        decision = choose(records, {})
        if isinstance(decision, RestoreFrom):
            return decision.manifest
        raise SnapshotNotFound(url, str(decision))
    for record in records:
        if isinstance(record.entry, Manifest) and record.entry.checkpoint == checkpoint:
            return record.entry
    there = [r.entry.checkpoint for r in records if isinstance(r.entry, Manifest)]
    raise SnapshotNotFound(url, f"it has the checkpoints {there}, and not {checkpoint}")
