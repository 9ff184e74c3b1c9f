"""A sink into a PostgreSQL table: rows wait in the checkpoint, and a marker in the table's database says what is there.

``staging.py`` encodes and stages, ``committing.py`` writes, ``markers.py`` keeps repeated commits from writing twice.
"""

from __future__ import annotations

from typing import Any, Literal

import psycopg

from moorline.api.sinks import Sink, SinkCommitter, SinkContext, SinkWriter
from moorline.connectors import retry
from moorline.connectors.postgres.connection import ERRORS, Connection, Database, is_transient
from moorline.connectors.postgres.table import Column, TableShape, read_shape
from moorline.connectors.postgres.values import can_be_key, encoder
from moorline.connectors.postgres.writing.committing import PostgresCommitter, TargetTable, writing
from moorline.connectors.postgres.writing.rows import NO_ROWS, Kind, Mode, Part, Target
from moorline.connectors.postgres.writing.staging import PostgresWriter, Staged
from moorline.connectors.watchdog import Watchdog
from moorline.errors import InvalidArgument

#: The kinds of rows that a mode writes.
_KINDS: dict[Mode, tuple[Kind, ...]] = {
    "append": ("insert",),
    "upsert": ("delete", "upsert"),
    "apply": ("delete", "upsert", "update"),
}


class PostgresSink(Sink):
    """See :func:`moorline.write_postgres`."""

    commits_in_background = True

    def __init__(
        self,
        table: TargetTable,
        mode: Mode,
        columns: tuple[str, ...] | None,
        on_roll_back: Literal["fail", "repeat"],
    ) -> None:
        self.table, self.mode, self.columns = table, mode, columns
        self.on_roll_back = on_roll_back
        #: As it was when the job was checked; it travels to the workers.
        self._shape: TableShape | None = None

    def __repr__(self) -> str:
        return f"write_postgres(table={'.'.join(self.table.parts)!r}, mode={self.mode!r})"

    @property
    def key(self) -> tuple[str, ...]:
        return self.table.key

    def check(self) -> None:
        """Look at the table, make the markers' table, and write nothing, in a transaction that is rolled back."""
        database = self.table.database
        try:
            with database.connect("check") as connection:
                shape = read_shape(connection, self.table.parts)
                if shape is None:
                    name = ".".join(self.table.parts)
                    advice = f"There is no such table at {database.address}. Names are taken as they are written."
                    raise InvalidArgument("table", name, advice)
                self._check_columns(shape)
                self._check_key(shape)
                self.table.markers.make(connection)
                self._try(connection, shape)
        except ERRORS as error:
            raise database.failure(self.table.where, "write to", error) from None
        self._shape = shape

    def _check_columns(self, shape: TableShape) -> None:
        there = ", ".join(shape.columns)
        for name in (*(self.columns or ()), *self.key):
            if name not in shape.columns:
                what = "key" if name in self.key else "columns"
                raise InvalidArgument(what, name, f"{self.table.where} has the columns {there}.")
        for name in self.columns or ():
            column = shape.columns[name]
            if column.is_generated:
                raise InvalidArgument("columns", name, "Its values are made by PostgreSQL. Leave it out.")
            if encoder(column.type) is None:
                advice = f"It is {column.declared}, which write_postgres cannot write. Leave it out."
                raise InvalidArgument("columns", name, advice)
        if self.columns is not None:
            missing = [c.name for c in shape.columns.values() if _is_required(c) and c.name not in self.columns]
            missing += [name for name in self.key if name not in self.columns]
            if missing:
                advice = f"They leave out {', '.join(missing)}, which cannot be null and has no default."
                raise InvalidArgument("columns", list(self.columns), advice)

    def _check_key(self, shape: TableShape) -> None:
        if not self.key:
            return
        if not shape.is_unique(self.key):
            known = " or ".join(", ".join(names) for names in shape.unique) or "nothing"
            advice = f"{self.table.where} has no unique index on it; rows are unique by {known}."
            raise InvalidArgument("key", list(self.key), advice)
        for column in (shape.columns[name] for name in self.key):
            if not can_be_key(column.type) or not column.is_deterministic:
                advice = (
                    f"It is {column.declared}: values that differ may be equal to PostgreSQL. Keys are made of whole "
                    "numbers, texts, dates, times, UUIDs, booleans, bytes and enums."
                )
                raise InvalidArgument("key", column.name, advice)

    def _try(self, connection: Connection, shape: TableShape) -> None:
        """Everything that a commit does, with no rows, and then undone: are we allowed to?"""
        watchdog = Watchdog(self.table.database.timeout)
        # With columns= left out it is not known which ones records will have: these they must have.
        needed = tuple(c.name for c in shape.columns.values() if _is_required(c) or c.name in self.key)
        names = self.columns or needed or tuple(shape.columns)[:1]
        with writing(connection, self.table, watchdog) as transaction:
            self.table.markers.claim(connection, Staged("moorline check", "", "", 0, 1, [], []))
            for kind in _KINDS[self.mode]:
                columns = list(self.key if kind == "delete" else names)
                transaction.write(Part(kind, columns, [shape.columns[n].type.name for n in columns], 0, [NO_ROWS]))
            raise psycopg.Rollback

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that stages rows in memory."""
        shape = self._shape or self._read_shape(ctx)
        return PostgresWriter(Target(self.table.where, shape, self.mode, self.key, self.columns), ctx)

    def _read_shape(self, ctx: SinkContext) -> TableShape:
        def read() -> TableShape | None:
            with self.table.database.connect(ctx.job) as connection:
                return read_shape(connection, self.table.parts)

        try:
            shape = retry.call(read, is_transient, self.table.patience, ctx.outage)
        except ERRORS as error:
            raise self.table.database.failure(self.table.where, "open", error) from None
        if shape is None:
            raise InvalidArgument("table", ".".join(self.table.parts), "There is no such table.")
        return shape

    def open_subtask_committer(self, ctx: SinkContext) -> SinkCommitter:
        """The committer, which alone talks to the server."""
        return PostgresCommitter(self.table, ctx)

    def commit(self, committables: list[Any]) -> None:
        """Commit without a subtask, by a connection of its own."""
        committer = self.open_subtask_committer(SinkContext("", "", 0, 1, 1))
        try:
            committer.commit(committables)
        finally:
            committer.close()


def _is_required(column: Column) -> bool:
    return column.is_not_null and not column.has_default and not column.is_generated


def make_sink(
    dsn: str,
    parts: tuple[str, ...],
    mode: Mode,
    key: tuple[str, ...],
    columns: tuple[str, ...] | None,
    marker_parts: tuple[str, ...],
    on_missing_markers: Literal["fail", "ignore"],
    on_roll_back: Literal["fail", "repeat"],
    timeout: float,
    patience: float,
) -> PostgresSink:
    """The sink of these settings."""
    table = TargetTable(Database(dsn, timeout), parts, key, marker_parts, on_missing_markers, patience)
    return PostgresSink(table, mode, columns, on_roll_back)
