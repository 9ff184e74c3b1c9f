"""What lies at a path: a savepoint, the checkpoints of a job, or the jobs of a checkpoint location.

    <path>/manifest.json             a savepoint: the snapshot is this one
    <path>/history/0000000042.json   one checkpoint of a job, by its entry
    <path>/history/                  the folder of a job: its newest checkpoint that can be restored
    <path>/<job>/history/            a checkpoint location: that of its only job

Reads and decides nothing of its own: which checkpoint counts is said by ``protocol/recovery.py``, as for a restore.
Nothing is claimed, so a running job does not notice. Used for queries and by the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from moorline.errors import BlobMissing, SnapshotCorrupt, StorageError
from moorline.model.manifest import Manifest
from moorline.protocol.recovery import Found, RestoreFrom, choose
from moorline.storage import entries
from moorline.storage.blobs import BlobStore
from moorline.storage.checkpoints import History
from moorline.storage.layout import HISTORY
from moorline.storage.open import open_store

#: The one file that makes a folder a savepoint.
MANIFEST = "manifest.json"
#: A manifest of a savepoint has no number in a history, so its attempt cannot be above it.
_NO_NUMBER = 1 << 62

_ENTRY = re.compile(r"(?P<root>.+)/history/(?P<number>[0-9]{10})\.json")


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint or savepoint, and the folder that the paths in its manifest are relative to."""

    store: BlobStore
    manifest: Manifest
    is_savepoint: bool

    def __str__(self) -> str:
        what = "savepoint" if self.is_savepoint else f"checkpoint {self.manifest.checkpoint}"
        return f"{what} in {self.store.url}"


@dataclass(frozen=True)
class JobAt:
    """A job that has checkpoints below a location."""

    url: str
    job: str
    #: Complete checkpoints that can be read, oldest first.
    checkpoints: list[Manifest]
    attempts: int
    #: What cannot be read, and why.
    damaged: list[str]


def open_snapshot(path: str) -> Snapshot:
    """The snapshot at a path. Raises :class:`StorageError` if there is none, SnapshotCorrupt if it cannot be read."""
    entry = _ENTRY.fullmatch(path)
    if entry is not None:
        store = open_store(entry["root"])
        return Snapshot(store, _manifest(store, f"history/{entry['number']}.json", int(entry["number"])), False)
    store = open_store(path)
    listed = {blob.path for blob in store.list(MANIFEST)}
    if MANIFEST in listed:
        return Snapshot(store, _manifest(store, MANIFEST, _NO_NUMBER), True)
    roots = list(_roots(store))
    if not roots:
        cause = "there is no manifest.json of a savepoint and no history of a job there or one folder below"
        raise StorageError(store.url, "find a snapshot in", cause)
    if len(roots) > 1:
        names = ", ".join(root.rpartition("/")[2] for root in roots)
        raise StorageError(store.url, "tell which job is meant in", f"there are several: {names}. Name one's folder.")
    return newest(open_store(roots[0]))


def newest(store: BlobStore) -> Snapshot:
    """The checkpoint in a job's folder that a restart of the job would begin with."""
    records = History(store, _job(store)).read()
    decision = choose([Found(r.path, r.entry, r.damage) for r in records], {})
    if isinstance(decision, RestoreFrom):
        return Snapshot(store, decision.manifest, False)
    damaged = [f"{r.path}: {r.damage}" for r in records if r.damage]
    if damaged:
        raise SnapshotCorrupt(f"{store.url}/{damaged[0].partition(':')[0]}", damaged[0].partition(": ")[2])
    raise StorageError(store.url, "find a checkpoint in", "the job has not completed one yet")


def jobs_at(location: str) -> list[JobAt]:
    """The jobs that have a history at a location or one folder below it."""
    return [_job_at(open_store(root)) for root in _roots(open_store(location))]


def _roots(store: BlobStore) -> Iterator[str]:
    """The folders of jobs: this one, or those in it."""
    if store.list(HISTORY):
        yield store.url
        return
    found = {blob.path.partition("/")[0] for blob in store.list() if blob.path.split("/")[1:2] == ["history"]}
    for name in sorted(found):
        yield f"{store.url}/{name}"


def _job_at(store: BlobStore) -> JobAt:
    job = _job(store)
    records = History(store, job).read()
    manifests = [r.entry for r in records if isinstance(r.entry, Manifest)]
    damaged = [f"{r.path}: {r.damage}" for r in records if r.damage]
    return JobAt(store.url, job, manifests, max((r.attempt for r in records), default=0), damaged)


def _job(store: BlobStore) -> str:
    """Whose history this is: what the newest entry that can be read says."""
    cause = "no entry is there"
    for blob in reversed(store.list(HISTORY)):
        if blob.size <= entries.MAX_ENTRY_BYTES:
            try:
                return entries.job_of(store.get(blob.path))
            except (BlobMissing, SnapshotCorrupt) as error:
                cause = error.cause
    raise SnapshotCorrupt(f"{store.url}/{HISTORY}", cause)


def _manifest(store: BlobStore, path: str, number: int) -> Manifest:
    where = f"{store.url}/{path}"
    data = store.get(path)
    if len(data) > entries.MAX_ENTRY_BYTES:
        raise SnapshotCorrupt(where, f"{len(data):,} bytes are more than a manifest can have")
    try:
        entry = entries.decode(data, entries.job_of(data), number)
    except SnapshotCorrupt as error:
        raise SnapshotCorrupt(where, f"{error.path}: {error.cause}" if error.path else error.cause) from error
    if not isinstance(entry, Manifest):
        raise StorageError(where, "find a checkpoint in", "it is a claim, which has no state")
    return entry
