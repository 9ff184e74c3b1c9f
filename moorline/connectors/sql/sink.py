"""A sink into a table of any database that SQLAlchemy knows: rows are staged, and put by key after the checkpoint.

A commit is one transaction, with a marker (``connectors/slot_markers.py``) that keeps an older commit from being done
after a newer one. Without markers a repeated commit writes the same rows again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from moorline.api.sinks import Sink, SinkCommitter, SinkContext, SinkWriter
from moorline.connectors import retry
from moorline.connectors.slot_markers import BATCH, StagedSlot, markers_lost
from moorline.connectors.sql import statements
from moorline.connectors.sql.staging import SqlWriter, StagedRows
from moorline.connectors.sql.table import SqlTable, check_unique, described, reflect
from moorline.errors import InvalidArgument, MoorlineError, SnapshotCorrupt, StorageError
from moorline.failpoints import failpoint

ERRORS = (sa.exc.SQLAlchemyError, OSError)


@dataclass(frozen=True)
class SqlTarget:
    """The table that is written to, and how."""

    #: May hold a password, so it is never shown.
    url: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    name: str
    schema: str | None
    key: tuple[str, ...]
    columns: tuple[str, ...] | None
    marker_table: str | None
    on_missing_markers: Literal["fail", "ignore"]
    patience: float

    @property
    def where(self) -> str:
        url = sa.make_url(self.url)
        port = f":{url.port}" if url.port else ""
        host = f"{url.host}{port}/" if url.host else ""
        return f"{url.get_backend_name()} table {self.name} at {host}{url.database or ''}"

    def engine(self) -> sa.Engine:
        """Connections to the database. They are not kept: the one who has them decides."""
        try:
            return sa.create_engine(self.url, **{"poolclass": NullPool, **self.options})
        except ImportError as error:
            advice = f"Install its driver where the job and its workers run ({error})."
            raise InvalidArgument("url of the database", "(not shown)", advice) from None

    def failure(self, operation: str, error: BaseException) -> StorageError:
        """The error in the database's own words, without statements, rows and passwords."""
        text = " ".join(str(getattr(error, "orig", None) or error).split())
        password = sa.make_url(self.url).password
        if password:
            text = text.replace(str(password), "***")
        return StorageError(self.where, operation, text, can_pass=is_transient(error))

    @property
    def markers(self) -> sa.Table | None:
        if self.marker_table is None:
            return None
        # Databases that want a length for texts that are part of a key get one.
        text = sa.String(120)
        return sa.Table(
            self.marker_table,
            sa.MetaData(),
            sa.Column("job", text, primary_key=True),
            sa.Column("uid", text, primary_key=True),
            sa.Column("lineage", sa.String(64), primary_key=True),
            sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("checkpoint", sa.BigInteger, nullable=False),
            sa.Column("committed_at", sa.DateTime, nullable=False),
            schema=self.schema,
        )


def is_transient(error: BaseException) -> bool:
    """May it work when it is done again?"""
    if isinstance(error, sa.exc.DBAPIError):
        text = str(error.orig).lower()
        if error.connection_invalidated:
            return True
        if type(error.orig).__module__.startswith("sqlite3"):
            return "locked" in text or "busy" in text
        return isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError)) or "deadlock" in text
    return isinstance(error, (sa.exc.TimeoutError, sa.exc.DisconnectionError, OSError, _Quicker))


class _Quicker(Exception):
    """Another session has made the marker a moment ago."""


class SqlSink(Sink):
    """See :func:`moorline.write_sql`."""

    commits_in_background = True

    def __init__(self, target: SqlTarget, on_roll_back: Literal["fail", "repeat"]) -> None:
        self.target = target
        self.on_roll_back = on_roll_back
        #: As it was when the job was checked; it travels to the workers.
        self._table: SqlTable | None = None

    def __repr__(self) -> str:
        return f"write_sql(table={self.target.name!r})"

    def check(self) -> None:
        """Look at the table, make that of the markers, and try what a commit does, without rows."""
        target = self.target
        engine = target.engine()
        try:
            with engine.connect() as connection:
                table = reflect(connection, target.name, target.schema, target.where)
                found = described(table, target.key, target.columns, target.where)
                check_unique(connection, table, target.key, target.where)
            markers = target.markers
            if markers is not None:
                markers.metadata.create_all(engine)
            with engine.connect() as connection, connection.begin() as transaction:
                if markers is not None:
                    _check_markers(connection, markers)
                    _claim(connection, target, markers, StagedSlot("moorline check", "", "", 0, 1, []))
                needed = [c.name for c in found.columns.values() if c.is_required or c.name in target.key]
                statements.try_put(connection, table, needed)
                transaction.rollback()
        except ERRORS as error:
            raise target.failure("write to", error) from None
        finally:
            engine.dispose()
        self._table = found

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that stages rows in memory."""
        return SqlWriter(self._table or self._described(ctx), ctx)

    def _described(self, ctx: SinkContext) -> SqlTable:
        target, engine = self.target, self.target.engine()

        def look() -> SqlTable:
            with engine.connect() as connection:
                table = reflect(connection, target.name, target.schema, target.where)
                return described(table, target.key, target.columns, target.where)

        try:
            return retry.call(look, is_transient, target.patience, ctx.outage)
        except ERRORS as error:
            raise target.failure("open", error) from None
        finally:
            engine.dispose()

    def open_subtask_committer(self, ctx: SinkContext) -> SinkCommitter:
        """The committer, which alone talks to the server."""
        return _SqlCommitter(self.target, ctx)

    def commit(self, committables: list[Any]) -> None:
        """Commit without a subtask."""
        committer = self.open_subtask_committer(SinkContext("", "", 0, 1, 1))
        try:
            committer.commit(committables)
        finally:
            committer.close()


class _SqlCommitter(SinkCommitter):
    def __init__(self, target: SqlTarget, ctx: SinkContext) -> None:
        self._target, self._ctx = target, ctx
        self._engine = target.engine()
        self._connection: sa.Connection | None = None
        #: As it was when the connection was made.
        self._table: sa.Table | None = None
        self._is_native = False
        self._is_closed = False
        self._in_use = threading.Lock()

    def commit(self, committables: list[Any]) -> None:
        staged = sorted(map(checked, committables), key=lambda s: (s.lineage, s.slot, s.checkpoint))
        if not staged:
            return
        with self._in_use:
            try:
                retry.call(lambda: self._once(staged), self._can_pass, self._target.patience, self._ctx.outage)
            except (*ERRORS, _Quicker) as error:
                last = max(s.checkpoint for s in staged)
                raise self._target.failure(f"commit checkpoint {last} to", error) from None

    def _once(self, staged: list[StagedRows]) -> None:
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            with self._connection.begin():
                self._commit(self._connection, staged)
        except (*ERRORS, MoorlineError, _Quicker):
            self._drop()
            raise

    def _commit(self, connection: sa.Connection, staged: list[StagedRows]) -> None:
        target, markers = self._target, self._target.markers
        if self._table is None:
            self._table = reflect(connection, target.name, target.schema, target.where)
            self._is_native = statements.is_native(connection, self._table, target.key)
        for one in staged:
            if markers is not None and not _claim(connection, target, markers, one):
                continue
            for step in one.steps:
                self._step(connection, self._table, step)
        if markers is not None and any(one.is_batch for one in staged):
            _forget_batches(connection, markers, staged[0])
        failpoint("sink.commit.middle")

    def _step(self, connection: sa.Connection, table: sa.Table, step: Any) -> None:
        unknown = [name for name in step.columns if name not in table.columns]
        if unknown:
            cause = f"it has no column {', '.join(map(repr, unknown))} any more, and rows with it are staged"
            raise StorageError(self._target.where, "write to", cause, can_pass=False)
        rows = [dict(zip(step.columns, row, strict=True)) for row in step.rows]
        if step.kind == "delete":
            statements.delete(connection, table, self._target.key, rows)
        else:
            statements.put(connection, table, self._target.key, rows, self._is_native)

    def _can_pass(self, error: Exception) -> bool:
        return is_transient(error) and not self._is_closed

    def close(self) -> None:
        """A commit may still run, on another thread: it ends by itself, and is not repeated."""
        self._is_closed = True
        if self._in_use.acquire(blocking=False):
            self._drop()
            self._in_use.release()

    def _drop(self) -> None:
        connection, self._connection, self._table = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except ERRORS:  # it is given up anyway
                return


def checked(committable: Any) -> StagedRows:
    """A committable, which comes from a snapshot, if we have written it."""
    try:
        staged = msgspec.convert(committable, StagedRows, builtin_types=(bytes, datetime))
        if all(len(row) == len(step.columns) for step in staged.steps for row in step.rows):
            return staged
        cause = "a row has more or fewer values than columns"
    except msgspec.ValidationError as error:
        cause = str(error)
    raise SnapshotCorrupt("what was staged", f"{committable!r:.80} is not for a table: {cause}")


# --- markers -------------------------------------------------------------------------------------


def _check_markers(connection: sa.Connection, markers: sa.Table) -> None:
    there = {column["name"] for column in sa.inspect(connection).get_columns(markers.name, schema=markers.schema)}
    if there != set(markers.columns.keys()):
        advice = "A table of that name is there and was not made by Moorline. Give another name."
        raise InvalidArgument("marker_table", markers.name, advice)


def _claim(connection: sa.Connection, target: SqlTarget, markers: sa.Table, staged: StagedSlot) -> bool:
    """Move the marker of a slot. False: it was moved before, and so the rows are there."""
    c = markers.c
    reached = {}
    for job, lineage, slot in (staged.place, *(known.place for known in staged.known)):
        same = sa.and_(c.job == job, c.uid == staged.uid, c.lineage == lineage, c.slot == slot)
        row = connection.execute(sa.select(c.checkpoint).where(same)).first()
        if row is not None:
            reached[job, lineage, slot] = row[0]
    if reached.get(staged.place, 0) >= staged.checkpoint:
        return False
    behind = staged.first_behind(reached)
    if behind is not None and target.on_missing_markers == "fail":
        raise markers_lost(target.where, markers.name, staged, behind, reached.get(behind.place))
    place = {"job": staged.job, "uid": staged.uid, "lineage": staged.lineage, "slot": staged.slot}
    values = {"checkpoint": staged.checkpoint, "committed_at": datetime.now(UTC).replace(tzinfo=None)}
    own = sa.and_(*(c[name] == value for name, value in place.items()), c.checkpoint < staged.checkpoint)
    # Other sessions wait here until the end of the transaction.
    if connection.execute(sa.update(markers).where(own).values(values)).rowcount:
        return True
    try:
        connection.execute(sa.insert(markers), {**place, **values})
    except sa.exc.IntegrityError:
        raise _Quicker("another session commits the same") from None
    return True


def _forget_batches(connection: sa.Connection, markers: sa.Table, staged: StagedSlot) -> None:
    """Remove the markers of batches that were over long ago."""
    c = markers.c
    own = sa.and_(c.job == staged.job, c.uid == staged.uid, c.lineage.startswith(BATCH, autoescape=True))
    old = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    connection.execute(sa.delete(markers).where(own, c.committed_at < old))
