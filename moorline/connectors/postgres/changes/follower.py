"""The thread that follows the log: connections, pages of the first load, messages, and what the server may forget.

    connect      look at the slot; make it, at the first start; refuse a position that it cannot go on from
    load         a page, if one is due (``first_load.py``), and then the log until the page's window is over
    follow       the log, for good

When the server goes away, it begins again at its own position, which is ahead of what the subtask has read. It answers
the server also while nobody takes what it has. All that it knows is in its position, so nothing is lost with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec.structs import replace

from moorline.connectors import retry
from moorline.connectors.postgres.changes import drift, pgoutput
from moorline.connectors.postgres.changes import slot as slots
from moorline.connectors.postgres.changes.batches import Batches, ChangeBatch, Undecoded
from moorline.connectors.postgres.changes.first_load import FirstLoad
from moorline.connectors.postgres.changes.log_stream import SETTINGS, Keepalive, LogStream
from moorline.connectors.postgres.changes.position import Key, Load, Position, Shape, lsn_number
from moorline.connectors.postgres.changes.rows import ChangeDecoder, RowDecoder, TypeNames, Undecodable
from moorline.connectors.postgres.changes.tables import LoggedTable, Page, compare_keys, find_table, read_page
from moorline.connectors.postgres.changes.transactions import Transactions
from moorline.connectors.postgres.connection import ERRORS, Connection, Database, is_transient
from moorline.connectors.row_changes import Change
from moorline.connectors.watchdog import Watchdog
from moorline.errors import StorageError

#: Seconds between two reports to the server, whatever happens.
REPORT_SECONDS = 5.0
#: Seconds between two looks at the tables and their publication.
LOOK_SECONDS = 5.0
#: How long to wait for messages at a time.
WAIT_SECONDS = 0.2
#: Changes that are looked at together, at most.
CHANGES_AT_ONCE = 1_000
#: A page that was read too early is read again after so long.
TOO_EARLY_SECONDS = 0.05
#: Making a slot may take so many times as long as anything else.
LONG = 600
_EPOCH_1970 = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ChangesSettings:
    """The settings of a source of changes."""

    database: Database
    tables: tuple[tuple[str, ...], ...]
    slot: str
    publication: str
    snapshot: bool
    page_rows: int
    on_schema_change: Literal["notice", "fail"]
    retained: int
    patience: float

    @property
    def where(self) -> str:
        names = ", ".join(".".join(parts) for parts in self.tables)
        return f"PostgreSQL tables {names} at {self.database.address}"


class Follower(threading.Thread):
    """Follows the log from a position on, and puts what it finds into ``batches``."""

    def __init__(
        self, settings: ChangesSettings, uid: str, attempt: int, position: Position | None, batches: Batches
    ) -> None:
        super().__init__(name="moorline-changes", daemon=True)
        self._settings, self._uid, self._attempt, self._batches = settings, uid, attempt, batches
        self._position = position
        self._outage = retry.Outage(settings.patience, self._report_outage)
        #: What is wrong with the server, in its own words; None: nothing. Shown by the subtask.
        self.away: str | None = None
        #: What is worth a warning, by kind. Taken by the subtask.
        self.notices: dict[str, str] = {}
        #: What lies before it the server may forget. Set by the subtask.
        self.confirmed = 0
        #: The end of the server's log, as far as it is known, and what it keeps the log for.
        self.log_end = 0
        self.slot_confirmed = 0
        self._reported = (0.0, 0)
        self._watchdog = Watchdog(settings.database.timeout)

    def _report_outage(self, cause: str | None) -> None:
        self.away = cause

    # --- life ------------------------------------------------------------------------------------

    def run(self) -> None:
        self._watchdog.begin()
        try:
            while not self._batches.is_closed:
                try:
                    self._follow()
                except ERRORS as error:
                    self._failed(error)
        except BaseException as error:  # whatever ends this thread is for the reader to raise
            self._batches.fail(error)
        finally:
            self._watchdog.stop()

    def stop(self) -> None:
        """End it, from another thread, and wait until it has."""
        self._batches.close()
        self._watchdog.cut()
        self.join(2 * self._settings.database.timeout)

    def _failed(self, error: Exception) -> None:
        settings = self._settings
        if self._batches.is_closed:
            return
        try:
            if not is_transient(error):
                raise error
            self._outage.failed(error)
        except ERRORS:
            raise settings.database.failure(settings.where, "read the changes of", error) from None
        while not self._outage.is_due() and not self._batches.is_closed:
            self._batches.pause(0.05)

    def _follow(self) -> None:
        settings = self._settings
        with closing(settings.database.connect(f"{self._uid} tables")) as connection:
            with self._watchdog.watching(connection):
                connection.execute(SETTINGS)
                tables = {t.full_name: t for t in (find_table(connection, parts) for parts in settings.tables)}
                position, notices = drift.reconcile(connection, settings, tables, self._start(connection))
            for kind, text in notices.items():
                self.notice(kind, text)
            name = slots.reader_name(self._attempt, self._uid)
            with closing(LogStream(settings.database, name, settings.slot, settings.publication, position.lsn)) as log:
                self._outage.over()
                self._position = position
                _Following(self, connection, log, tables, position).run()

    def _start(self, connection: Connection) -> Position:
        """The position to go on from. Raises if the server cannot go on from there."""
        settings = self._settings
        query = "SELECT system_identifier::text, pg_current_wal_flush_lsn()::text FROM pg_control_system()"
        ((system, end),) = connection.execute(query).fetchall()
        slot = slots.find_slot(connection, settings.slot, settings.where)
        position = self._position
        if position is not None:
            where = (position.system, system)
            slots.check_start(slot, settings.slot, position.lsn, where, lsn_number(end), settings.where)
        elif slot is None:
            # The server waits for transactions that are running, however long they take.
            self._watchdog.extend(LONG)
            slots.create_slot(connection, settings.slot)
            self._watchdog.extend(1)
            slot = slots.find_slot(connection, settings.slot, settings.where)
        assert slot is not None
        slots.free_from_older_attempt(connection, slot, self._attempt, self._uid)
        self.slot_confirmed = slot.confirmed
        if position is None:
            position = Position(system, slot.confirmed)
        if settings.snapshot and position.load is None:
            position = replace(position, load=Load())
        elif not settings.snapshot and position.load is not None:
            position = self._without_load(position)
        return position

    def _without_load(self, position: Position) -> Position:
        assert position.load is not None
        if position.load.table is not None:
            cause = f"the first load of {position.load.table} has not ended: snapshot=False would leave out the rest"
            raise StorageError(self._settings.where, "go on with the changes of", cause, can_pass=False)
        return replace(position, load=None)

    # --- for the one who follows -----------------------------------------------------------------

    def put(self, batch: ChangeBatch, keep_alive: Callable[[], None]) -> None:
        """Hand a batch over, and stay in touch with the server while there is no room for it."""
        while not self._batches.put(batch, REPORT_SECONDS / 2):
            keep_alive()
        self._position = batch.after

    def report(self, log: LogStream, wants_answer: bool = False) -> None:
        """Tell the server that we are there, if it is time to, and what it may forget."""
        # It would take a smaller one for what it is.
        confirmed = self.confirmed if self.confirmed > self.slot_confirmed else 0
        at, last = self._reported
        self.log_end = max(self.log_end, log.end)
        is_due = time.monotonic() - at > REPORT_SECONDS
        if wants_answer or is_due or log.must_answer or confirmed > last:
            log.report(confirmed, wants_answer)
            self._reported = time.monotonic(), max(confirmed, last)

    def asking(self, connection: Connection) -> AbstractContextManager[None]:
        """While the server is asked something: it must not take for ever."""
        return self._watchdog.watching(connection)

    def notice(self, kind: str, text: str) -> None:
        """The tables have changed: have it shown, or end, if that was asked for and rows look different."""
        if self._settings.on_schema_change == "fail" and kind.split()[0] in drift.OF_THE_SCHEMA:
            cause = f"{text}. Go on with on_schema_change='notice'"
            raise StorageError(self._settings.where, "read the changes of", cause, can_pass=False)
        self.notices[kind] = text

    @property
    def is_closed(self) -> bool:
        return self._batches.is_closed

    def pause(self, seconds: float) -> None:
        self._batches.pause(seconds)

    @property
    def settings(self) -> ChangesSettings:
        return self._settings


class _Following:
    """Follows the log over one connection."""

    def __init__(
        self,
        follower: Follower,
        connection: Connection,
        log: LogStream,
        tables: dict[str, LoggedTable],
        position: Position,
    ) -> None:
        self._follower, self._connection, self._log, self._tables = follower, connection, log, tables
        self._by_number = {table.oid: table for table in tables.values()}
        self._looked = time.monotonic()
        self._settings = follower.settings
        self._load = None if position.load is None else FirstLoad(list(tables), position.load)
        self._transactions = Transactions(position, self._load, self._compare, self._put, self._settings.where)
        self._types = TypeNames()
        #: Where keys lie, as the server says, between these bounds.
        self._bounds: tuple[str, Key | None, Key | None] | None = None
        self._places: dict[tuple[str, ...], tuple[bool, bool]] = {}
        #: By the number of a relation; None: it is not one of the tables.
        self._decoders: dict[int, ChangeDecoder | None] = {}

    def run(self) -> None:
        # Where it begins is worth a checkpoint, also if nothing comes for hours.
        self._put(ChangeBatch(self._transactions.position))
        while not self._follower.is_closed:
            self._look()
            self._load_page()
            messages = self._log.receive(WAIT_SECONDS)
            for message in messages:
                self._message(message)
            self._transactions.flush()
            # While a page's window is open, the server is asked how far the log is.
            is_in_window = self._load is not None and self._load.state.window is not None
            self._follower.report(self._log, wants_answer=self._log.is_silent or (is_in_window and not messages))
        self._follower.report(self._log)

    def _look(self) -> None:
        """See whether the tables and the publication are what they were. Raises if changes may be missing."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        transactions, settings = self._transactions, self._settings
        with self._follower.asking(self._connection):
            found = drift.reconcile(self._connection, settings, self._tables, transactions.position)
        transactions.position, notices = found
        for kind, text in notices.items():
            self._follower.notice(kind, text)
        self._looked = time.monotonic()

    def _put(self, batch: ChangeBatch) -> None:
        self._follower.put(batch, lambda: self._follower.report(self._log))

    def _compare(self, table: str, keys: list[Key]) -> list[tuple[bool, bool]]:
        assert self._load is not None
        state = self._load.state
        start = None if state.window is None else state.window.start
        if self._bounds != (table, state.after, start):
            self._bounds, self._places = (table, state.after, start), {}
        asked = list({tuple(key): key for key in keys if tuple(key) not in self._places}.values())
        if asked:
            with self._follower.asking(self._connection):
                found = compare_keys(self._connection, self._tables[table], asked, state.after, start)
            self._places.update(zip(map(tuple, asked), found, strict=True))
        return [self._places[tuple(key)] for key in keys]

    # --- the log ---------------------------------------------------------------------------------

    def _message(self, data: bytes | Keepalive) -> None:
        transactions = self._transactions
        if isinstance(data, Keepalive):
            transactions.reached(data.end)
            return
        match pgoutput.decode(data):
            case pgoutput.Insert() | pgoutput.Update() | pgoutput.Delete() as message:
                transactions.change(self._decoders[message.relation], message)
                if transactions.waiting >= CHANGES_AT_ONCE:
                    transactions.flush()
            case pgoutput.Begin() as message:
                transactions.begin(message)
            case pgoutput.Commit() as message:
                transactions.commit(message)
            case pgoutput.Relation() as message:
                self._relation(message)
            case pgoutput.Truncate(relations):
                decoders = [self._decoders[oid] for oid in relations]
                transactions.truncate([None if decoder is None else decoder.relation.table for decoder in decoders])
            case None:
                return

    def _relation(self, relation: pgoutput.Relation) -> None:
        # What came before was of the table as it was.
        self._transactions.flush()
        # By its number: under another name it is the same table, and under the same name another one is not.
        table = self._by_number.get(relation.oid)
        if table is None:
            self._decoders[relation.oid] = None
            return
        relation = relation._replace(schema=table.schema, name=table.name)
        self._types.learn(self._connection, [column.type for column in relation.columns])
        self._decoders[relation.oid] = ChangeDecoder(relation, self._types, [column.name for column in table.key])
        name, position = table.full_name, self._transactions.position
        columns = [(column.name, column.type) for column in relation.columns]
        keys = [column.name for column in relation.columns if column.is_key]
        shape = Shape(relation.identity, keys, [column.modifier for column in relation.columns])
        known = position.columns.get(name, columns), position.shapes.get(name, shape)
        for kind, text in drift.differences(name, known, (columns, shape)).items():
            self._follower.notice(kind, text)
        self._transactions.position = replace(
            position, columns={**position.columns, name: columns}, shapes={**position.shapes, name: shape}
        )

    # --- the first load --------------------------------------------------------------------------

    def _load_page(self) -> None:
        if self._load is None or not self._transactions.is_between:
            return
        while (due := self._load.next_page()) is not None and not self._follower.is_closed:
            name, after = due
            limit = self._settings.page_rows
            with self._follower.asking(self._connection):
                page = read_page(self._connection, self._settings.publication, self._tables[name], after, limit)
            self._follower.report(self._log)
            if not self._load.page_read(page.snapshot, page.high):
                self._follower.pause(TOO_EARLY_SECONDS)
                continue
            self._rows_out(name, page, len(page.rows) < limit)
            self._follower.report(self._log, wants_answer=True)
            return

    def _rows_out(self, table: str, page: Page, is_last: bool) -> None:
        load, transactions = self._load, self._transactions
        assert load is not None
        self._types.learn(self._connection, [oid for _, oid in page.columns])
        decoder = RowDecoder(page.columns, self._types)
        read_at = _EPOCH_1970 + timedelta(microseconds=page.read_at)
        records: list[Change | Undecoded] = []
        for row in page.rows:
            try:
                records.append(Change("read", table, None, decoder.row(list(row)), page.high, read_at))
            except Undecodable as error:
                records.append(Undecoded(table, page.high, str(error)))
        before = replace(transactions.position, load=load.state)
        if page.keys:
            load.row_out(page.keys[-1])
        if is_last:
            load.page_ended()
        transactions.position = replace(transactions.position, load=load.state)
        self._put(ChangeBatch(transactions.position, records, [], page.keys, before, page.read_at // 1000))
