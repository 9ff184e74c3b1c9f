"""A sink and a source for tests: output that can be audited, and input with crashes in it."""

from __future__ import annotations

import random
from typing import Any

from moorline.api.sinks import (
    CommitterContext,
    GlobalCommitter,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
    is_meant,
)
from moorline.api.sources import Source, SourceContext, SourceReader


class Ledger:
    """The outside world: the entries that were committed, and by which attempt.

    An entry is booked once, however often it is committed.
    """

    _open: dict[str, Ledger] = {}

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[str, list[Any]] = {}
        #: Staged and not yet booked, like files in a staging folder.
        self.staged: dict[str, list[Any]] = {}
        #: The checkpoint, operator and lineage of every entry.
        self.origins: dict[str, tuple[int, str, str]] = {}
        #: By operator, lineage and slot: the last checkpoint that was committed, as a server would have it.
        self.marks: dict[tuple[str, str, int], int] = {}
        self._chance = random.Random(name)
        self._faults = 2

    def next_fault(self) -> str:
        """The fault of the commit that is just being made, if any. Twice at most: a third time ends a job."""
        fault = self._chance.choice(["before", "after", *[""] * 10])
        self._faults -= bool(fault)
        return fault if self._faults >= 0 else ""

    @classmethod
    def of(cls, name: str) -> Ledger:
        """The ledger of that name in this process."""
        return cls._open.setdefault(name, cls(name))

    @classmethod
    def forget(cls, name: str) -> None:
        cls._open.pop(name, None)

    def records(self) -> list[Any]:
        return [r for records in self.entries.values() for r in records]


class LedgerSink(Sink):
    """A sink that stages and commits to a :class:`Ledger` of this process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, ctx: SinkContext) -> SinkWriter:
        return _LedgerWriter(self.name, ctx)

    def commit(self, committables: list[Any]) -> None:
        ledger = Ledger.of(self.name)
        for entry in committables:
            if entry in ledger.staged:
                ledger.entries[entry] = ledger.staged.pop(entry)
            elif entry not in ledger.entries:
                raise LookupError(f"{entry} is neither staged nor booked")

    def roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...] = ()) -> None:
        ledger = Ledger.of(self.name)
        for entry, (n, operator, lineage) in list(ledger.origins.items()):
            if n > checkpoint and operator == uid and is_meant(lineage, lineages):
                ledger.staged.pop(entry, None)
                ledger.entries.pop(entry, None)


class LedgerTable(LedgerSink):
    """A sink that the driver commits, into a :class:`Ledger` of this process: one entry for each checkpoint.

    Now and then a commit fails, before or after it has taken effect.
    """

    commits_on_driver = True

    def commit(self, committables: list[Any]) -> None:
        raise AssertionError("a worker must not commit for a sink that the driver commits")

    def open_committer(self, ctx: CommitterContext) -> GlobalCommitter:
        return _LedgerCommitter(self.name, ctx)


class _LedgerCommitter(GlobalCommitter):
    def __init__(self, name: str, ctx: CommitterContext) -> None:
        self._name, self._uid = name, ctx.uid

    def commit(self, lineage: str, checkpoint: int, committables: list[Any]) -> None:
        ledger = Ledger.of(self._name)
        fault = ledger.next_fault()
        if fault == "before":
            raise ConnectionError("the table cannot be reached")
        version = f"{self._uid}-{lineage}-{checkpoint}"
        if version not in ledger.entries:
            missing = [entry for entry in committables if entry not in ledger.staged]
            if missing:
                raise LookupError(f"{missing} are not staged")
            ledger.entries[version] = [r for entry in committables for r in ledger.staged.pop(entry)]
            ledger.origins[version] = (checkpoint, self._uid, lineage)
        if fault == "after":
            raise ConnectionError("the table has not answered")


class LedgerServer(LedgerSink):
    """A sink whose subtasks commit in the background, to a :class:`Ledger` that keeps marks as a server would.

    The records are in the committables. A mark goes forward only, so commits of a slot that came out of order would
    lose some. Now and then a commit fails, before or after it has taken effect.
    """

    commits_in_background = True

    def open(self, ctx: SinkContext) -> SinkWriter:
        return _ServerWriter(ctx)

    def open_subtask_committer(self, ctx: SinkContext) -> SinkCommitter:
        return _ServerCommitter(self.name, ctx.uid)


class _ServerWriter(SinkWriter):
    def __init__(self, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._records: list[Any] = []

    def write(self, records: list[Any]) -> None:
        self._records += records

    def prepare(self, checkpoint: int) -> list[Any]:
        records, self._records = self._records, []
        return [[self._ctx.lineage, self._ctx.subtask, checkpoint, records]] if records else []


class _ServerCommitter(SinkCommitter):
    def __init__(self, name: str, uid: str) -> None:
        self._name, self._uid = name, uid

    def commit(self, committables: list[Any]) -> None:
        ledger = Ledger.of(self._name)
        for lineage, slot, checkpoint, records in committables:
            fault = ledger.next_fault()
            if fault == "before":
                raise ConnectionError("the server cannot be reached")
            mark = (self._uid, lineage, slot)
            if ledger.marks.get(mark, 0) < checkpoint:
                ledger.marks[mark] = checkpoint
                entry = f"{self._uid}-{lineage}-{slot}-{checkpoint}"
                ledger.entries[entry] = [tuple(r) if isinstance(r, list) else r for r in records]
                ledger.origins[entry] = (checkpoint, self._uid, lineage)
            if fault == "after":
                raise ConnectionError("the server has not answered")


class _LedgerWriter(SinkWriter):
    def __init__(self, name: str, ctx: SinkContext) -> None:
        self._name, self._ctx = name, ctx
        self._records: list[Any] = []

    def write(self, records: list[Any]) -> None:
        self._records += records

    def prepare(self, checkpoint: int) -> list[Any]:
        if not self._records:
            return []
        records, self._records = self._records, []
        entry = f"{self._ctx.uid}-{checkpoint}-{self._ctx.subtask}-{self._ctx.attempt}"
        ledger = Ledger.of(self._name)
        ledger.staged[entry] = records
        ledger.origins[entry] = (checkpoint, self._ctx.uid, self._ctx.lineage)
        return [entry]


class _Crash:
    """A mark among the items of a :class:`ScriptedSource`: fail here, once."""

    def __repr__(self) -> str:
        return "CRASH"


CRASH = _Crash()


class ScriptedCrash(RuntimeError):
    """The script says so."""


class ScriptedSource(Source):
    """Items with crashes among them: the n-th ``CRASH`` fails the job in its n-th attempt, and only then.

    >>> source = ScriptedSource([1, 2, CRASH, 3])
    """

    def __init__(self, items: list[Any], *, batch: int = 1) -> None:
        # Markers are distinguished by where they stand, not by what they are: they are pickled on the way.
        self._items = [item for item in items if not isinstance(item, _Crash)]
        self._crashes = []
        seen = 0
        for item in items:
            if isinstance(item, _Crash):
                self._crashes.append(seen)
            else:
                seen += 1
        self._batch = batch

    def open(self, ctx: SourceContext) -> SourceReader:
        return _ScriptedReader(self._items, self._crashes, self._batch, ctx)


class _ScriptedReader(SourceReader):
    def __init__(self, items: list[Any], crashes: list[int], batch: int, ctx: SourceContext) -> None:
        self._items, self._batch, self._mine = items, batch, ctx.owns(0)
        self._at: int = ctx.positions.get(0, 0)
        # Attempt n goes through the crashes of the attempts before it unharmed.
        self._crash = crashes[ctx.attempt - 1] if ctx.attempt <= len(crashes) else None

    def read(self, limit: int) -> list[Any] | None:
        if not self._mine:
            return None
        if self._at == self._crash:
            raise ScriptedCrash(f"scripted crash after {self._at} items")
        if self._at == len(self._items):
            return None
        end = min(self._at + min(limit, self._batch), len(self._items))
        if self._crash is not None and self._at < self._crash:
            end = min(end, self._crash)
        records, self._at = self._items[self._at : end], end
        return records

    def positions(self) -> dict[int | str, Any]:
        return {0: self._at} if self._mine else {}
