"""The changes of transactions, one message after the other: which come out, and where the log then stands.

Driven by ``follower.py``, which has the messages and asks PostgreSQL for the order of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from moorline.connectors.postgres.changes import pgoutput
from moorline.connectors.postgres.changes.batches import ChangeBatch, Undecoded
from moorline.connectors.postgres.changes.first_load import FirstLoad, Treatment
from moorline.connectors.postgres.changes.position import Key, Position, lsn_text
from moorline.connectors.postgres.changes.rows import ChangeDecoder, Undecodable
from moorline.connectors.row_changes import Change
from moorline.errors import StorageError

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_MS = 946_684_800_000
#: For each key: is it not after the last one that was read; is it after the start of the page?
Compare = Callable[[str, list[Key]], list[tuple[bool, bool]]]
RowMessage = pgoutput.Insert | pgoutput.Update | pgoutput.Delete


@dataclass
class _Transaction:
    """The transaction that is being read."""

    begin: pgoutput.Begin
    #: So many of its changes were read before.
    skip: int
    #: So many of its changes have come.
    count: int = 0
    #: Those that have not been looked at yet, with their numbers.
    waiting: list[tuple[int, ChangeDecoder, RowMessage]] = field(default_factory=list)
    #: Those that come out, with their numbers.
    records: list[Change | Undecoded] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    @property
    def committed_at(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.begin.committed)


class Transactions:
    """The log from one position on. What comes out is given to ``emit``, with the position after it."""

    def __init__(
        self,
        position: Position,
        load: FirstLoad | None,
        compare: Compare,
        emit: Callable[[ChangeBatch], None],
        where: str,
    ) -> None:
        self.position = position
        self._load, self._compare, self._emit, self._where = load, compare, emit, where
        self._current: _Transaction | None = None

    @property
    def is_between(self) -> bool:
        """Is no transaction being read?"""
        return self._current is None

    def begin(self, message: pgoutput.Begin) -> None:
        skip = 0
        if self.position.transaction is not None:
            commit_lsn, skip = self.position.transaction
            if commit_lsn != message.commit_lsn:
                cause = (
                    f"the transaction that ends at {lsn_text(commit_lsn)} was read in part, and the log goes on with "
                    f"the one that ends at {lsn_text(message.commit_lsn)}"
                )
                raise StorageError(self._where, "go on with the changes of", cause, can_pass=False)
        self._current = _Transaction(message, skip)
        if self._load is not None:
            self._load.log_reached(message.commit_lsn)
            self._load.begin(message.xid)
        self.position = self._at(replace(self.position, transaction=(message.commit_lsn, skip)))

    def change(self, decoder: ChangeDecoder | None, message: RowMessage) -> None:
        """A row has changed, of a table that is read (with a decoder) or not."""
        current = self._open()
        current.count += 1
        if decoder is not None and current.count > current.skip:
            current.waiting.append((current.count, decoder, message))

    def truncate(self, tables: list[str | None]) -> None:
        """Tables were emptied; None stands for one that is not read."""
        current = self._open()
        for table in tables:
            current.count += 1
            if table is None or current.count <= current.skip:
                continue
            self._look()
            if self._load is None or self._load.truncated(table):
                current.records.append(
                    Change("truncate", table, None, None, current.begin.commit_lsn, current.committed_at)
                )
                current.counts.append(current.count)
            self.flush()

    def commit(self, message: pgoutput.Commit) -> None:
        self._open()
        self._look()
        if self._load is not None:
            self._load.log_reached(message.end_lsn)
        self._out(self._at(replace(self.position, lsn=message.end_lsn, transaction=None)))
        self._current = None

    def reached(self, lsn: int) -> None:
        """There are no transactions up to here."""
        if self._current is None and lsn > self.position.lsn and self.position.transaction is None:
            if self._load is not None:
                self._load.log_reached(lsn)
            self.position = self._at(replace(self.position, lsn=lsn))
            self._emit(ChangeBatch(self.position))

    def flush(self) -> None:
        """Have everything come out that has come."""
        current = self._current
        if current is not None and (current.waiting or current.records):
            self._look()
            count = max(current.count, current.skip)
            self._out(self._at(replace(self.position, transaction=(current.begin.commit_lsn, count))))

    @property
    def waiting(self) -> int:
        return 0 if self._current is None else len(self._current.waiting)

    def _open(self) -> _Transaction:
        if self._current is None:
            raise pgoutput.Malformed("there is a change outside of a transaction")
        return self._current

    def _at(self, position: Position) -> Position:
        return position if self._load is None else replace(position, load=self._load.state)

    def _out(self, after: Position) -> None:
        current = self._open()
        before, self.position = self.position, after
        timestamp = current.begin.committed // 1000 + _EPOCH_MS
        if current.records or after.transaction is None:
            self._emit(ChangeBatch(after, current.records, current.counts, [], before, timestamp))
        current.records, current.counts = [], []

    # --- which of them come out ------------------------------------------------------------------

    def _look(self) -> None:
        current = self._open()
        waiting, current.waiting = current.waiting, []
        by_key: dict[int, tuple[bool, bool]] = {}
        if self._load is not None and waiting:
            by_key = self._by_key(waiting)
        for count, decoder, message in waiting:
            out = by_key.get(count, (True, True))
            record = self._record(decoder, message, *out)
            if record is not None:
                current.records.append(record)
                current.counts.append(count)

    def _by_key(self, waiting: list[tuple[int, ChangeDecoder, RowMessage]]) -> dict[int, tuple[bool, bool]]:
        """By the number of a change: does what it does to the old key come out, and what it does to the new?"""
        assert self._load is not None
        xid = self._open().begin.xid
        found: dict[int, tuple[bool, bool]] = {}
        asked: list[tuple[int, Key | None, Key | None]] = []
        for count, decoder, message in waiting:
            match self._load.treatment(decoder.relation.table):
                case Treatment.COMES_OUT:
                    continue
                case Treatment.PASSED_OVER:
                    found[count] = (False, False)
                case Treatment.BY_KEY:
                    asked.append((count, *decoder.keys(message)))
        if asked:
            table = self._load.state.table
            assert table is not None
            keys = [key for _, old, new in asked for key in (old, new) if key is not None]
            places = iter(self._compare(table, keys))
            load = self._load
            for count, old, new in asked:
                old_out = load.comes_out(xid, *next(places)) if old is not None else False
                new_out = load.comes_out(xid, *next(places)) if new is not None else False
                found[count] = old_out, new_out
        return found

    def _record(
        self, decoder: ChangeDecoder, message: RowMessage, old_out: bool, new_out: bool
    ) -> Change | Undecoded | None:
        begin, table = self._open().begin, decoder.relation.table
        where: tuple[Any, ...] = begin.commit_lsn, self._open().committed_at
        try:
            match message:
                case pgoutput.Insert(_, new):
                    return Change("insert", table, None, decoder.new(new), *where) if new_out else None
                case pgoutput.Delete(_, kind, old):
                    return Change("delete", table, decoder.old(kind, old), None, *where) if old_out else None
                case pgoutput.Update(_, kind, old, new):
                    if not old_out and not new_out:
                        return None
                    if not new_out:
                        return Change("delete", table, decoder.old(kind, old), None, *where)
                    row = decoder.new(new, kind, old)
                    if old_out:
                        return Change("update", table, decoder.old(kind, old), row, *where)
                    return self._moved(decoder, message, Change("insert", table, None, row, *where))
        except Undecodable as error:
            return Undecoded(table, begin.commit_lsn, str(error))

    def _moved(self, decoder: ChangeDecoder, message: pgoutput.Update, change: Change) -> Change:
        """A row that was not read yet has got a key of the part that was read: it is new there."""
        if ... in message.new and message.old_kind != "O":
            cause = (
                f"while {decoder.relation.table} was loaded, a row with a large value was given another key, and the "
                "value is not in the log. ALTER TABLE … REPLICA IDENTITY FULL, and begin anew"
            )
            raise StorageError(self._where, "load", cause, can_pass=False)
        return change
