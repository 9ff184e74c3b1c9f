"""The checkpoints of a job in its history: publishing them, giving them up, removing them, and their files.

The log itself, and who may write to it, is in ``log.py``. Here is the order in which things come and go:

    publish    files, then the entry that names them; the same entry names those that go because of it
    remove     an entry that names what goes, if the newest does not do so already; the entries; their files
    end        an entry that says how the job has ended: a new start need not ask whether it still runs

Reports facts and performs orders. Which checkpoint to restore is for ``protocol/recovery.py``, which ones to drop for
``protocol/retention.py``. Used by the driver, from one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from moorline.errors import InvalidTransition, StorageError
from moorline.failpoints import failpoint
from moorline.model.facts import UnnamedFile
from moorline.model.manifest import Claim, Manifest, SnapshotFile, next_checkpoint
from moorline.storage.chain import HistoryLook, Record, superseded
from moorline.storage.layout import DATA, attempt_of, origin_of
from moorline.storage.log import HistoryLog, look_at_history, read_history

__all__ = ["History", "Record", "look_at_history", "read_history"]


class History(HistoryLog):
    """The history of ``job`` in ``store``, and our place in it once we have claimed one."""

    def publish(self, manifest: Manifest, going: Collection[int] = ()) -> None:
        """Make a checkpoint exist. Its files are durable already. ``going``: those that are removed because of it.

        Raises Fenced if another attempt has taken over: then it does not exist. After a StorageError it may or may
        not, so its files must be left alone; the next attempt sweeps them if no entry names them.
        """
        if (manifest.attempt, manifest.job) != (self.attempt, self._job):
            ours = f"attempt {self.attempt} of {self._job!r}"
            raise InvalidTransition("history", ours, f"publish for attempt {manifest.attempt} of {manifest.job!r}")
        self._write(manifest, self._superseded(going, manifest))

    def _superseded(self, checkpoints: Collection[int], entry: Manifest | Claim) -> list[Record]:
        """Entries that are not needed any more once ``entry`` is written and ``checkpoints`` are gone."""
        planned = Record(self._known_records[-1].seq + 1, "", entry)
        return superseded([*self._known_records, planned], checkpoints)

    def give_up(self, checkpoints: list[int], now_ms: int, entries: Collection[int] = ()) -> None:
        """Put on record, durably, that these are never to be restored again.

        ``entries``: numbers of the history whose contents are unknown, because they cannot be read or are missing. One
        of them may have had older entries removed, so what is missing below the newest of them is given up with it.
        """
        missing = [r for r in self._known_records if r.is_missing and r.seq <= max(entries, default=0)]
        numbers = sorted({*entries, *(r.seq for r in missing)})
        self._write(self._own_claim(now_ms, checkpoints, given_up_entries=numbers), missing)
        self._forget(r.seq for r in missing)

    def end(self, outcome: str, now_ms: int, savepoint: str = "", stopped_at: int = 0) -> None:
        """Put on record that the job has ended here, and how. ``savepoint``: it was stopped with, with its number."""
        claim = self._own_claim(now_ms, ended=outcome, savepoint=savepoint, stopped_at=stopped_at)
        self._write(claim, [r for r in self._superseded((), claim) if isinstance(r.entry, Claim)])
        self._remove_claims()

    def _own_claim(self, now_ms: int, given_up: Iterable[int] = (), **more: Any) -> Claim:
        """A further claim of our attempt."""
        used = next_checkpoint([r.entry for r in self._known_records if r.entry is not None])
        return self._claim(self.attempt, now_ms, False, used, given_up, **more)

    # --- removing -----------------------------------------------------------------------------

    def remove(self, checkpoint_ids: Iterable[int], now_ms: int = 0) -> None:
        """Remove these checkpoints, oldest first, and the entries that are not needed any more.

        The entry goes before its files: a crash in between leaves files that no entry names, which :meth:`sweep` finds.
        The other way round it would leave a checkpoint that cannot be restored. Files that another readable
        checkpoint names stay. What the newest entry does not name among those that go is named by a new claim first.
        """
        look = self._look_as_owner()
        wanted = set(checkpoint_ids)
        going = superseded(look.records, wanted)
        self._announce(going, look, now_ms)
        doomed = {r.seq for r in going}
        staying = [r for r in look.records if r.seq not in doomed]
        checkpoints = [r for r in going if isinstance(r.entry, Manifest)]
        for number, record in enumerate(checkpoints):
            self._store.delete([record.path])
            failpoint("retention.between")
            # What those have in common that go later goes with the last of them: each is whole as long as it is there.
            kept = _named(staying + checkpoints[number + 1 :])
            self._store.delete(sorted(_named([record]) - kept))
        others = [r for r in going if r not in checkpoints and not r.is_missing]
        strays = [r for r in look.strays if self._last is not None and r.seq < self._last.number]
        if others or strays:
            self._store.delete([r.path for r in [*others, *strays]])
        self._forget(doomed)

    def _announce(self, going: list[Record], look: HistoryLook, now_ms: int) -> None:
        """Name what goes in an entry of ours, unless the newest does so already."""
        assert self._last is not None and self._last.place is not None
        unnamed = [r for r in going if r.seq in self._last.place.stays or r.seq == self._last.number]
        if not unnamed:
            return
        lost = {r.seq for r in going if isinstance(r.entry, Manifest)}
        fresh = max((r.seq for r in look.records if isinstance(r.entry, Claim) and r.entry.fresh), default=0)
        ours = [r for r in look.records if r.seq > fresh and not isinstance(r.entry, Claim)]
        is_emptied = bool(lost) and all(r.seq in lost for r in ours)
        # The clock of the newest entry will do: nothing is decided by it.
        clock = now_ms or max((r.entry.created_ms for r in look.records if r.entry is not None), default=0)
        self._write(self._own_claim(clock, emptied=is_emptied), unnamed)

    def discard(self, files: Iterable[SnapshotFile]) -> None:
        """Delete files of a checkpoint that was never published and never will be."""
        self._store.delete(file.path for file in files)

    def sweep(self, attempt: int) -> int:
        """Delete what attempts before ``attempt`` wrote and no checkpoint names. How many files was that?

        Safe because those attempts are fenced: what they have not published they never will. A damaged or lost entry
        may name files that we would take for garbage, so with one about, nothing is swept.
        """
        if attempt > self.attempt:
            raise InvalidTransition("history", f"attempt {self.attempt}", f"sweep before attempt {attempt}")
        records = self._look_as_owner().records
        if any(r.damage for r in records):
            return 0
        named = _named(records)
        garbage = [
            blob.path
            for blob in self._store.list(DATA)
            if (wrote := attempt_of(blob.path)) is not None and wrote < attempt and blob.path not in named
        ]
        self._store.delete(garbage)
        return len(garbage)

    def unnamed(self) -> list[UnnamedFile] | None:
        """The data files that no checkpoint names, if this is still ours to look after.

        None: it cannot be told, because a damaged or lost entry may name files that we would take for unnamed.
        """
        records = self._look_as_owner().records
        if any(r.damage for r in records):
            return None
        named = _named(records)
        unnamed = [(blob.path, origin_of(blob.path)) for blob in self._store.list(DATA) if blob.path not in named]
        return [UnnamedFile(path, *origin) for path, origin in unnamed if origin is not None]

    def written(self) -> list[tuple[int, int]]:
        """Checkpoint and attempt of every data file that is there, whether or not anything names it."""
        return sorted({origin for blob in self._store.list(DATA) if (origin := origin_of(blob.path)) is not None})

    def drop(self, paths: Iterable[str]) -> None:
        """Delete files that :meth:`unnamed` has just found and nothing needs."""
        self._store.delete(paths)

    def _look_as_owner(self) -> HistoryLook:
        """The history, if it is still ours to change. A driver that was taken over deletes nothing."""
        ours, look = self.attempt, self.look()
        if any(r.attempt > ours for r in look.records):
            raise self._fenced(look.records)
        assert self._last is not None
        for record in look.records:
            if record.seq > self._last.number and record.damage:
                raise StorageError(record.path, "remove checkpoints beside", f"it is damaged: {record.damage}")
        return look


def _named(records: Iterable[Record]) -> set[str]:
    """The files that checkpoints name."""
    return {file.path for r in records if isinstance(r.entry, Manifest) for file in r.entry.files()}
