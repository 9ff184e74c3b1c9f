"""The contents of a path: a snapshot and its kind, or the jobs of a checkpoint location.

Reads and decides nothing of its own: ``snapshots/folders.py`` says what a path names. Used for queries and by
the command line.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorline.model.manifest import Manifest
from moorline.snapshots.folders import has_savepoint, job_folders, open_snapshot
from moorline.storage.blobs import BlobStore
from moorline.storage.log import read_history
from moorline.storage.stores.open import open_store


@dataclass(frozen=True)
class LocatedSnapshot:
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


def look_at(path: str) -> LocatedSnapshot:
    """The snapshot at a path, as ``open_snapshot`` finds it."""
    manifest, store = open_snapshot(path)
    return LocatedSnapshot(store, manifest, has_savepoint(store))


def jobs_at(location: str) -> list[JobAt]:
    """The jobs that have a history at a location or one folder below it."""
    return [job_at(open_store(root)) for root in job_folders(open_store(location))]


def job_at(store: BlobStore) -> JobAt:
    """The job whose folder a store is."""
    records = read_history(store)
    entries = [r.entry for r in records if r.entry is not None]
    manifests = [entry for entry in entries if isinstance(entry, Manifest)]
    damaged = [f"{r.path}: {r.damage}" for r in records if r.damage]
    job = entries[-1].job if entries else store.url.rpartition("/")[2]
    return JobAt(store.url, job, manifests, max((r.attempt for r in records), default=0), damaged)
