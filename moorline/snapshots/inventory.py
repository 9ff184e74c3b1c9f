"""The manifests of a folder, and what it takes to judge the files that they do not name.

A folder is that of a job, with a history, or a savepoint, with one manifest. ``snapshots/inspection.py`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moorline.errors import BlobMissing, SnapshotCorrupt, SnapshotNotFound
from moorline.model.facts import UnnamedFile
from moorline.model.manifest import Claim, Manifest
from moorline.protocol.housekeeping import is_abandoned
from moorline.protocol.recovery import Refuse, RestoreFrom, choose
from moorline.snapshots.findings import Kind, Problem
from moorline.snapshots.folders import MANIFEST
from moorline.storage import entries
from moorline.storage.blobs import BlobStore
from moorline.storage.chain import HistoryLook, Record
from moorline.storage.layout import DATA, HEAD, HISTORY, origin_of
from moorline.storage.log import look_at_history


@dataclass(frozen=True)
class SavepointInventory:
    """A savepoint: the one manifest, if it can be read."""

    job: str
    manifests: list[Manifest]
    damaged: list[Problem]
    given_up: frozenset[int] = frozenset()

    kind = "savepoint"

    def restart(self, not_whole: set[int]) -> tuple[int | None, bool]:
        """The checkpoint that a restart would begin from, and whether it would refuse."""
        whole = [m.checkpoint for m in self.manifests if m.checkpoint not in not_whole]
        return (whole[0] if whole else None), not whole

    def is_abandoned(self, path: str) -> bool:
        """Will no snapshot ever name the file? A savepoint is complete with its manifest: nothing is added to it."""
        return origin_of(path) is not None and not self.damaged

    def unknown_attempts(self, listed: Iterable[str]) -> list[Problem]:
        return []


@dataclass(frozen=True)
class HistoryInventory:
    """The folder of a job: its history, as a restart would find it."""

    job: str
    manifests: list[Manifest]
    damaged: list[Problem]
    given_up: frozenset[int]
    #: The newest, and the last complete checkpoint of it.
    attempt: int
    completed: int
    records: list[Record]

    kind = "job"

    @classmethod
    def of(cls, look: HistoryLook) -> HistoryInventory:
        records = look.records
        manifests = [r.entry for r in records if isinstance(r.entry, Manifest)]
        claims = [r.entry for r in records if isinstance(r.entry, Claim)]
        entries_given_up = {n for claim in claims for n in claim.given_up_entries}
        attempt = max((r.attempt for r in records), default=0)
        damaged = [
            Problem(r.path, Kind.GAP if r.is_missing else Kind.ENTRY, r.damage)
            for r in records
            if r.damage and r.seq not in entries_given_up
        ]
        strays = [Problem(r.path, Kind.STRAY, r.damage or "no other entry names it") for r in look.strays]
        return cls(
            next((r.entry.job for r in reversed(records) if r.entry is not None), ""),
            manifests,
            damaged + strays,
            frozenset(n for claim in claims for n in claim.given_up),
            attempt,
            max((m.checkpoint for m in manifests if m.attempt == attempt), default=0),
            records,
        )

    def restart(self, not_whole: set[int]) -> tuple[int | None, bool]:
        """The checkpoint that a restart would begin from, and whether it would refuse."""
        decision = choose([r.fact for r in self.records], dict.fromkeys(not_whole, "it is not whole"))
        newest = decision.manifest.checkpoint if isinstance(decision, RestoreFrom) else None
        return newest, isinstance(decision, Refuse)

    def is_abandoned(self, path: str) -> bool:
        """Will no snapshot ever name the file? Not if it is not ours, or a damaged entry may name it."""
        origin = origin_of(path)
        if origin is None or self.damaged or any(r.damage for r in self.records):
            return False
        return is_abandoned(UnnamedFile(path, *origin), self.attempt, self.completed)

    def unknown_attempts(self, listed: Iterable[str]) -> list[Problem]:
        """Data of attempts that no entry knows of. A claim is there before the first file of its attempt."""
        origins = {path: origin for path in listed if (origin := origin_of(path)) is not None}
        unknown = {attempt: path for path, (_, attempt) in origins.items() if attempt > self.attempt}
        detail = "attempt {} wrote it, and no entry of the history knows that attempt"
        return [Problem(path, Kind.UNKNOWN, detail.format(attempt)) for attempt, path in sorted(unknown.items())]


Inventory = SavepointInventory | HistoryInventory


def take_inventory(store: BlobStore) -> Inventory:
    """Read the history of a job, or the manifest of a savepoint. Raises :class:`SnapshotNotFound`."""
    try:
        return _savepoint(store.get(MANIFEST))
    except BlobMissing:
        if store.list(HISTORY) or store.list(HEAD):
            return HistoryInventory.of(look_at_history(store))
    cause = "there is neither a manifest.json nor a history"
    if left := store.list(DATA):
        cause += f", but {len(left)} files of a savepoint that is being written or was given up"
    raise SnapshotNotFound(store.url, cause)


def _savepoint(data: bytes) -> SavepointInventory:
    try:
        entry = entries.decode(data, None, 1)
    except SnapshotCorrupt as error:
        return SavepointInventory("", [], [Problem(MANIFEST, Kind.ENTRY, error.cause)])
    if not isinstance(entry, Manifest):
        return SavepointInventory(entry.job, [], [Problem(MANIFEST, Kind.ENTRY, "it is a claim and no manifest")])
    return SavepointInventory(entry.job, [entry], [])
