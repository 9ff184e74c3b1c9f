"""A table or a query of PostgreSQL as a bounded source: ranges of a key, which subtasks read page by page.

    position of a range    [the last key that was read, the last key of the range, whether any was read]
    enumerator             whether the ranges were found: once, at the first start

Every page is a statement of its own, so each row is as it was when its page was read. A row that is neither inserted
nor deleted nor given another key while the job runs is read exactly once.
"""

from __future__ import annotations

import itertools
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import Format

from moorline.api.sources import EnumeratorContext, Positions, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.connectors import retry
from moorline.connectors.broken import BrokenRecords, OnError
from moorline.connectors.postgres.connection import ERRORS, Connection, Database, is_transient
from moorline.connectors.postgres.reading.ranges import SETTINGS, Bound, RowsToRead, origin
from moorline.connectors.postgres.table import read_shape, read_types
from moorline.connectors.watchdog import Watchdog
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError

Record = dict[str, Any]
#: A row with its key, or why it could not be read.
Row = tuple[Record | None, str, str]

#: read() waits so long for a page that is on its way.
WAIT_SECONDS = 0.002


@dataclass(frozen=True)
class SourceSettings:
    """The settings of a source."""

    database: Database
    parts: tuple[str, ...]
    query: str | None
    key: str | None
    columns: tuple[str, ...] | None
    splits: int
    page_rows: int
    on_error: OnError
    patience: float

    @property
    def where(self) -> str:
        what = "query" if self.query is not None else f"table {'.'.join(self.parts)}"
        return f"PostgreSQL {what} at {self.database.address}"

    def connect(self, name: str) -> Connection:
        connection = self.database.connect(name)
        connection.execute(SETTINGS)
        return connection


class PostgresSource(Source):
    """See :func:`moorline.read_postgres`."""

    is_bounded = True
    enumerates = True

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings
        self._rows: RowsToRead | None = None

    def __repr__(self) -> str:
        what = self.settings.query if self.settings.query is not None else ".".join(self.settings.parts)
        return f"read_postgres({what!r})"

    def check(self) -> None:
        """Is there such a table, has it the columns, and does the key tell rows apart?"""
        settings = self.settings
        try:
            with settings.connect("check") as connection:
                self._rows = find_rows(connection, settings)
        except ERRORS as error:
            if settings.query is not None and isinstance(error, psycopg.ProgrammingError):
                raise InvalidArgument("query", settings.query, settings.database.text_of(error)) from None
            raise settings.database.failure(settings.where, "read", error) from None

    def rows(self, connection: Connection) -> RowsToRead:
        """The rows to be read; asked of the server if nothing was checked."""
        if self._rows is None:
            self._rows = find_rows(connection, self.settings)
        return self._rows

    def open(self, ctx: SourceContext) -> SourceReader[Record]:
        """A reader of ranges."""
        return _RangeReader(self, ctx)

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        """The one who divides the keys."""
        return _Ranges(self, ctx)


def find_rows(connection: Connection, settings: SourceSettings) -> RowsToRead:
    """Columns and key, as the server knows them. Raises InvalidArgument if there is no way to read by ranges."""
    shape = None if settings.query is not None else read_shape(connection, settings.parts)
    if settings.query is None and shape is None:
        advice = f"There is no such table at {settings.database.address}. Names are taken as they are written."
        raise InvalidArgument("table", ".".join(settings.parts), advice)
    statement = sql.SQL("SELECT * FROM {} LIMIT 0").format(origin(settings.parts, settings.query))
    with connection.cursor() as cursor:
        description = cursor.execute(statement, {}).description or []
    oids = {column.name: column.type_code for column in description}
    key = settings.key
    if key is None:
        key = shape.primary_key[0] if shape is not None and len(shape.primary_key) == 1 else None
    if key is None:
        raise InvalidArgument("key", None, "There is no primary key of one column: name the column to go by.")
    for what, names in (("key", (key,)), ("columns", settings.columns or ())):
        for name in names:
            if name not in oids:
                raise InvalidArgument(what, name, f"{settings.where} has the columns {', '.join(oids)}.")
    is_unique = shape is not None and shape.is_unique([key])
    if shape is not None and not is_unique and _has_indexes(connection, settings.parts):
        known = [", ".join(names) for names in shape.unique if len(names) == 1]
        advice = f"It has no unique index, so rows could not be told apart. Unique are: {', '.join(known) or 'none'}."
        raise InvalidArgument("key", key, advice)
    base, _, _ = read_types(connection, [oids[key]])[oids[key]]
    rows = RowsToRead(
        settings.parts, settings.query, settings.columns or tuple(oids), key, base.name, base.oid, is_unique
    )
    is_never_null = shape is not None and shape.columns[key].is_not_null
    if not is_never_null and rows.nulls(connection):
        raise InvalidArgument("key", key, "There are rows in which it is null, which would not be read.")
    return rows


def _has_indexes(connection: Connection, parts: tuple[str, ...]) -> bool:
    """Is it a table? A view has none, and whoever reads it knows what is unique."""
    name = sql.Identifier(*parts).as_string(connection)
    found = connection.execute("SELECT relkind IN ('r', 'p') FROM pg_class WHERE oid = to_regclass(%s)", (name,))
    return bool(found.fetchall()[0][0])


class _Ranges(SplitEnumerator):
    def __init__(self, source: PostgresSource, ctx: EnumeratorContext) -> None:
        self._source = source
        self._is_divided = bool(ctx.restored)

    def discover(self) -> Positions | None:
        if self._is_divided:
            return None
        settings = self._source.settings

        def divide() -> list[tuple[Bound, str]]:
            with settings.connect("ranges") as connection:
                return self._source.rows(connection).ranges(connection, settings.splits)

        try:
            ranges = retry.call(divide, is_transient, settings.patience)
        except ERRORS as error:
            raise settings.database.failure(settings.where, "read", error) from None
        self._is_divided = True
        return {number: [after, until, False] for number, (after, until) in enumerate(ranges)}

    def snapshot(self) -> bool:
        return self._is_divided


@dataclass
class _Range:
    """The rest of a range."""

    after: Bound
    until: str
    has_read: bool


class _RangeReader(SourceReader[Record]):
    def __init__(self, source: PostgresSource, ctx: SourceContext) -> None:
        self._source, self._ctx, self._settings = source, ctx, source.settings
        self._ranges: dict[Any, _Range] = {}
        self._rows: deque[Row] = deque()
        #: The page that is on its way.
        self._page: Future[list[Row]] | None = None
        #: Are these the last rows of the range?
        self._is_last = False
        self._has_all = False
        self._pages = _Pages(source, ctx.uid)
        self._outage = retry.Outage(source.settings.patience, ctx.outage)
        self._broken = BrokenRecords(source.settings.on_error, ctx)
        # A server that is slow must not hold up the subtask.
        self._thread = ThreadPoolExecutor(1, "moorline-pages")

    def add_splits(self, splits: Positions) -> None:
        for split, position in splits.items():
            match position:
                case [None | str() as after, str(until), bool(has_read)]:
                    self._ranges[split] = _Range(after, until, has_read)
                case _:
                    raise SnapshotCorrupt("the manifest", f"{position!r:.80} is not a range of keys")

    def no_more_splits(self) -> None:
        self._has_all = True

    def splits(self) -> list[int | str]:
        return list(self._ranges)

    def positions(self) -> Positions:
        return {split: [r.after, r.until, r.has_read] for split, r in self._ranges.items()}

    def read(self, limit: int) -> list[Record] | None:
        self.split = split = next(iter(self._ranges), None)
        if split is None:
            return None if self._has_all else []
        current = self._ranges[split]
        if not self._rows and not self._turn_page(current):
            return []
        records: list[Record] = []
        while self._rows and len(records) < limit:
            record, key, cause = self._rows.popleft()
            current.after, current.has_read = key, True
            if record is None:
                self._broken.add(self._settings.where, key, b"", cause)
            else:
                records.append(record)
        self.side_outputs = self._broken.take() or None
        if not self._rows and self._is_last:
            del self._ranges[split]
        return records

    def _turn_page(self, current: _Range) -> bool:
        """Have the rows of the next page. False: they are not there yet."""
        if self._page is None:
            if not self._outage.is_due():
                return False
            self._request(current.after, current.until, current.has_read)
        page = self._page
        assert page is not None
        wait([page], WAIT_SECONDS)
        if not page.done():
            return False
        self._page = None
        try:
            rows = page.result()
        except ERRORS as error:
            self._failed(error)
            return False
        self._outage.over()
        self._rows.extend(rows)
        self._is_last = len(rows) < self._settings.page_rows
        if not self._is_last:
            # The next one is on its way while this one is worked off.
            self._request(rows[-1][1], current.until, True)
        return True

    def _request(self, after: Bound, until: str, has_read: bool) -> None:
        self._page = self._thread.submit(self._pages.fetch, after, until, has_read)

    def _failed(self, error: Exception) -> None:
        settings = self._settings
        try:
            if not is_transient(error):
                raise error
            self._outage.failed(error)
        except ERRORS:
            raise settings.database.failure(settings.where, "read", error) from None

    def close(self) -> None:
        self._pages.cut()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._pages.close()


class _Pages:
    """Fetches pages, on a thread of its own, by a connection that is made again when it breaks."""

    def __init__(self, source: PostgresSource, uid: str) -> None:
        self._source, self._uid = source, uid
        self._connection: Connection | None = None
        self._watchdog = Watchdog(source.settings.database.timeout)
        self._is_binary: bool | None = None

    def fetch(self, after: Bound, until: str, has_read: bool) -> list[Row]:
        try:
            if self._connection is None:
                self._connection = self._source.settings.connect(self._uid)
                self._watchdog.begin()
            with self._watchdog.watching(self._connection):
                return self._fetch(self._connection, after, until, has_read)
        except ERRORS:
            self.close_connection()
            raise

    def _fetch(self, connection: Connection, after: Bound, until: str, has_read: bool) -> list[Row]:
        rows = self._source.rows(connection)
        repeated = has_read and not rows.is_unique
        limit = self._source.settings.page_rows + repeated
        with connection.cursor(binary=self._has_binary_form(connection, rows)) as cursor:
            rows.page(cursor, after, until, has_read, limit)
            found = _rows_of(cursor, rows.columns)
        if not rows.is_unique:
            keys = [key for _, key, _ in found]
            twice = next((a for a, b in itertools.pairwise(keys) if a == b), None)
            if twice is not None:
                cause = f"the key {rows.key} is {twice!r:.80} in more than one row, so rows cannot be told apart"
                raise StorageError(self._source.settings.where, "read", cause, can_pass=False)
            if repeated and keys[:1] == [after]:
                del found[0]
            else:
                # The row that was read last is gone.
                del found[self._source.settings.page_rows :]
        return found

    def _has_binary_form(self, connection: Connection, rows: RowsToRead) -> bool:
        """Can all columns be loaded from their binary form? Types that psycopg does not know come as text then."""
        if self._is_binary is None:
            statement = sql.SQL("SELECT {} FROM {} LIMIT 0").format(
                sql.SQL(", ").join(map(sql.Identifier, rows.columns)), rows.origin
            )
            with connection.cursor() as cursor:
                description = cursor.execute(statement, {}).description or []
            loader = connection.adapters.get_loader
            self._is_binary = all(loader(column.type_code, Format.BINARY) for column in description)
        return self._is_binary

    def cut(self) -> None:
        """Have a fetch that is under way fail, from another thread."""
        self._watchdog.cut()

    def close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        self.close_connection()
        self._watchdog.stop()


def _rows_of(cursor: psycopg.Cursor[Any], names: tuple[str, ...]) -> list[Row]:
    try:
        return [(dict(zip(names, row)), row[-1], "") for row in cursor.fetchall()]
    except psycopg.DataError:
        pass
    # A row has a value that Python has not, such as a date before Christ.
    rows: list[Row] = []
    result = cursor.pgresult
    assert result is not None
    for number in range(cursor.rowcount):
        key = (result.get_value(number, result.nfields - 1) or b"").decode()
        cursor.scroll(number, mode="absolute")
        try:
            row = cursor.fetchone()
            assert row is not None
            rows.append((dict(zip(names, row)), key, ""))
        except psycopg.DataError as error:
            rows.append((None, key, f"the row with the key {key!r:.80} cannot be read: {error}"))
    return rows
