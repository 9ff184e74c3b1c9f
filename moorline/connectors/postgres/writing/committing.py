"""Commits of staged rows to a PostgreSQL table: one transaction with the marker, which says that it was done.

    insert    COPY into the table
    delete    COPY the keys into a temporary table; DELETE … USING it
    upsert    COPY into a temporary table; INSERT … ON CONFLICT (key) DO UPDATE
    update    COPY into a temporary table; UPDATE … FROM it

A commit whose answer got lost is repeated from the start, and the marker says that it was done. A client that stops in
the middle holds locks no longer than one command may take: the server ends it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql

from moorline.api.sinks import SinkCommitter, SinkContext
from moorline.connectors import retry
from moorline.connectors.postgres.connection import ERRORS, LIMITS, Connection, Database, is_transient
from moorline.connectors.postgres.table import TableShape, quoted, read_shape
from moorline.connectors.postgres.writing.markers import TableMarkers
from moorline.connectors.postgres.writing.rows import CODEC, Part
from moorline.connectors.postgres.writing.staging import Staged
from moorline.connectors.watchdog import Watchdog
from moorline.errors import MoorlineError, SnapshotCorrupt, StorageError
from moorline.failpoints import failpoint

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
#: A statement that works on all rows of a checkpoint may take so many times as long as any other.
LONG = 60


@dataclass(frozen=True)
class TargetTable:
    """The table that is written to, and its markers."""

    database: Database
    parts: tuple[str, ...]
    key: tuple[str, ...]
    marker_parts: tuple[str, ...]
    on_missing_markers: Literal["fail", "ignore"]
    patience: float

    @property
    def where(self) -> str:
        return f"PostgreSQL table {'.'.join(self.parts)} at {self.database.address}"

    @property
    def markers(self) -> TableMarkers:
        return TableMarkers(self.marker_parts, self.on_missing_markers, self.where)


class RowTransaction:
    """One transaction in which rows are written."""

    def __init__(self, connection: Connection, table: TargetTable, shape: TableShape, watchdog: Watchdog) -> None:
        self._connection, self._table, self._shape, self._watchdog = connection, table, shape, watchdog
        self._name = quoted(table.parts)
        self._temporary = 0

    def write(self, part: Part) -> None:
        """Write rows of one kind."""
        if part.kind == "insert" and self._fits(part):
            self._copy(self._name, part)
            return
        stage = self._stage(part)
        rows = self._run(_statement(part, self._name, stage, self._table.key))
        if part.kind == "update" and rows != part.rows:
            cause = (
                f"{part.rows - rows} of {part.rows} rows that are to be updated are not there, and what is known of "
                "them is not enough to insert them"
            )
            raise StorageError(self._table.where, "update rows of", cause, can_pass=False)

    def _fits(self, part: Part) -> bool:
        """Has the table the types that the rows were encoded for? Else PostgreSQL has to convert them."""
        columns = self._shape.columns
        return all(n in columns and columns[n].type.name == t for n, t in zip(part.columns, part.types, strict=True))

    def _stage(self, part: Part) -> sql.Identifier:
        self._temporary += 1
        name = f"moorline_stage_{self._temporary}"
        types = [self._type(declared) for declared in part.types]
        columns = [sql.SQL("{} {}").format(sql.Identifier(n), t) for n, t in zip(part.columns, types, strict=True)]
        create = sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP")
        self._connection.execute(create.format(sql.Identifier(name), _list(columns)))
        # Not whatever else the search path has under that name.
        stage = sql.Identifier("pg_temp", name)
        self._copy(stage, part)
        return stage

    def _type(self, declared: str) -> sql.SQL:
        """A type by its name, which comes from a snapshot: data must not become SQL."""
        asked = self._connection.execute("SELECT format_type(to_regtype(%s), NULL)", (declared,)).fetchone()
        if asked is None or asked[0] is None:
            cause = f"rows were staged as {declared!r:.80}, and there is no such type any more"
            raise StorageError(self._table.where, "write to", cause, can_pass=False)
        return sql.SQL(asked[0])  # the server's own word for it

    def _copy(self, name: sql.Identifier, part: Part) -> None:
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(name, _names(part.columns))
        for size, chunk in part.chunks:
            # A command for each, so that the limit for a command is one for a client that has stopped.
            self._watchdog.extend(1)
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                copy.write(_HEADER)
                copy.write(_decompressed(chunk, size))
                copy.write(_TRAILER)

    def _run(self, statement: sql.Composed) -> int:
        limit = self._table.database.timeout
        self._watchdog.extend(LONG)
        self._connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(round(1000 * LONG * limit)),))
        rows = self._connection.execute(statement).rowcount
        self._connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(round(1000 * limit)),))
        self._watchdog.extend(1)
        return rows


def _statement(part: Part, table: sql.Identifier, stage: sql.Identifier, key: tuple[str, ...]) -> sql.Composed:
    names = _names(part.columns)
    same = sql.SQL(" AND ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in key)
    others = [name for name in part.columns if name not in key]
    match part.kind:
        case "insert":
            return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(table, names, names, stage)
        case "delete":
            return sql.SQL("DELETE FROM {} t USING {} s WHERE {}").format(table, stage, same)
        case "upsert":
            sets = _list([sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others])
            action = sql.SQL("UPDATE SET {}").format(sets) if others else sql.SQL("NOTHING")
            # In the order of the key: two transactions that meet in the same rows do not wait for each other in a ring.
            insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ORDER BY {} ON CONFLICT ({}) DO {}")
            return insert.format(table, names, names, stage, _names(key), _names(key), action)
        case "update":
            sets = _list([sql.SQL("{0} = s.{0}").format(sql.Identifier(name)) for name in others or key])
            return sql.SQL("UPDATE {} t SET {} FROM {} s WHERE {}").format(table, sets, stage, same)


def _names(names: Any) -> sql.Composed:
    return _list([sql.Identifier(name) for name in names])


def _list(parts: list[Any]) -> sql.Composed:
    joined: sql.Composed = sql.SQL(", ").join(parts)
    return joined


def _decompressed(chunk: bytes, size: int) -> bytes:
    try:
        data: bytes = pa.decompress(chunk, decompressed_size=size, codec=CODEC, asbytes=True)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise SnapshotCorrupt("what was staged", f"a piece of rows cannot be read: {error}") from None
    return data


@contextmanager
def writing(connection: Connection, table: TargetTable, watchdog: Watchdog) -> Iterator[RowTransaction]:
    """A transaction for rows, with limits for every wait."""
    limit = str(round(1000 * table.database.timeout))
    with watchdog.watching(connection), connection.transaction():
        connection.execute(LIMITS, (limit, limit, limit))
        # What the catalogue says now stays so until the end of the transaction.
        connection.execute(sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(quoted(table.parts)))
        shape = read_shape(connection, table.parts)
        assert shape is not None, "it was locked a moment ago"
        yield RowTransaction(connection, table, shape, watchdog)


class PostgresCommitter(SinkCommitter):
    """The commits of one subtask. It has a connection, which is made again when it breaks."""

    def __init__(self, table: TargetTable, ctx: SinkContext) -> None:
        self._table, self._ctx = table, ctx
        self._watchdog = Watchdog(table.database.timeout)
        self._connection: Connection | None = None
        self._is_closed = False
        self._in_use = threading.Lock()

    def commit(self, committables: list[Any]) -> None:
        staged = sorted(map(checked, committables), key=lambda s: (s.lineage, s.slot, s.checkpoint))
        if not staged:
            return
        with self._in_use:
            try:
                retry.call(lambda: self._once(staged), self._can_pass, self._table.patience, self._ctx.outage)
            except ERRORS as error:
                last = max(s.checkpoint for s in staged)
                raise self._table.database.failure(self._table.where, f"commit checkpoint {last} to", error) from None

    def _once(self, staged: list[Staged]) -> None:
        try:
            self._commit(staged)
        except (*ERRORS, MoorlineError):
            self._drop()
            raise

    def _commit(self, staged: list[Staged]) -> None:
        if self._connection is None:
            self._connection = self._table.database.connect(f"{self._ctx.job} {self._ctx.uid} {self._ctx.subtask}")
            self._watchdog.begin()
        markers = self._table.markers
        with writing(self._connection, self._table, self._watchdog) as transaction:
            for one in staged:
                if markers.claim(self._connection, one):
                    for part in one.parts:
                        transaction.write(part)
            for job, uid in {(s.job, s.uid) for s in staged if s.is_batch}:
                markers.forget_batches(self._connection, job, uid)
            failpoint("sink.commit.middle")

    def _can_pass(self, error: Exception) -> bool:
        return is_transient(error) and not self._is_closed

    def close(self) -> None:
        """A commit may still run, on another thread: its line is cut, and it ends with an error."""
        self._is_closed = True
        if self._in_use.acquire(blocking=False):
            self._drop()
            self._in_use.release()
        else:
            self._watchdog.cut()
        self._watchdog.stop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except psycopg.Error:  # it is given up anyway
                return


def checked(committable: Any) -> Staged:
    """A committable, which comes from a snapshot, if we have written it."""
    try:
        return msgspec.convert(committable, Staged, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise SnapshotCorrupt(
            "what was staged", f"{committable!r:.80} is not for a PostgreSQL table: {error}"
        ) from None
