"""PostgreSQL's changes as a source: one split, whose position is a place in the log and in the first load.

A slot has one reader, so one subtask reads. What the server may forget is decided here: it is told a place in the log
when so many checkpoints as are retained are complete, and then that of the oldest among them.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from moorline.api.sources import Positions, Source, SourceContext, SourceReader
from moorline.api.state.operator_state import CheckpointedFunction, InitializationContext, SnapshotContext
from moorline.connectors.broken import BrokenRecords, OnError
from moorline.connectors.postgres.changes import slot as slots
from moorline.connectors.postgres.changes.batches import Batches, ChangeBatch, Undecoded
from moorline.connectors.postgres.changes.follower import ChangesSettings, Follower
from moorline.connectors.postgres.changes.position import Position, from_plain, lsn_text, to_plain
from moorline.connectors.postgres.changes.tables import (
    check_children,
    check_identity,
    check_readable,
    ensure_publication,
    find_table,
)
from moorline.connectors.postgres.connection import ERRORS, Connection
from moorline.connectors.row_changes import Change
from moorline.errors import InvalidArgument

#: The one split.
SPLIT = 0


class PostgresChanges(Source[Change], CheckpointedFunction):
    """See :func:`moorline.read_postgres_changes`."""

    is_bounded = False

    def __init__(self, settings: ChangesSettings, on_error: OnError) -> None:
        self.settings, self.on_error = settings, on_error
        self._reader: _ChangesReader | None = None

    def __repr__(self) -> str:
        return f"read_postgres_changes({['.'.join(parts) for parts in self.settings.tables]!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def check(self) -> None:
        """Does the server write such a log, have tables and slot what it takes? Make the publication."""
        settings = self.settings
        try:
            with settings.database.connect("check") as connection:
                self._check_server(connection)
                tables = [find_table(connection, parts) for parts in settings.tables]
                for table in tables:
                    check_identity(table, settings.snapshot)
                    if settings.snapshot:
                        check_readable(connection, table)
                check_children(tables)
                slots.find_slot(connection, settings.slot, settings.where)
                ensure_publication(connection, settings.publication, tables, settings.snapshot)
        except ERRORS as error:
            raise settings.database.failure(settings.where, "read the changes of", error) from None

    def _check_server(self, connection: Connection) -> None:
        ((level,),) = connection.execute("SHOW wal_level").fetchall()
        if level != "logical":
            advice = f"Its log has no changes of rows (wal_level is {level}). Set wal_level = logical, and restart it."
            raise InvalidArgument("server", self.settings.database.address, advice)
        ((may,),) = connection.execute(
            "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
        ).fetchall()
        if not may:
            advice = "It may not read the log. ALTER ROLE … REPLICATION."
            raise InvalidArgument("role", connection.info.user, advice)

    def open(self, ctx: SourceContext) -> SourceReader[Change]:
        """The reader, in one subtask; the others have nothing to read."""
        if not ctx.owns(SPLIT):
            return _NoReader()
        self._reader = _ChangesReader(self, ctx)
        return self._reader

    def initialize_state(self, ctx: InitializationContext) -> None:
        """There is none but the position; this is here for the numbers of checkpoints."""

    def snapshot_state(self, ctx: SnapshotContext) -> None:
        """Note where the log is at this checkpoint."""
        if self._reader is not None:
            self._reader.barrier(ctx.checkpoint)


class _NoReader(SourceReader[Change]):
    def read(self, limit: int) -> None:
        return None

    def splits(self) -> list[int]:
        return []

    def positions(self) -> Positions:
        return {}


class _ChangesReader(SourceReader[Change]):
    def __init__(self, source: PostgresChanges, ctx: SourceContext) -> None:
        settings = source.settings
        self._ctx, self._settings = ctx, settings
        stored = ctx.positions.get(SPLIT)
        self._position: Position | None = None if stored is None else from_plain(stored)
        self.batches = Batches()
        self._batch: tuple[ChangeBatch, int] | None = None
        self._broken = BrokenRecords(source.on_error, ctx)
        self._shown: str | None = None
        #: Where the log was at checkpoints that are not complete yet.
        self._barriers: dict[int, int] = {}
        #: Where it was at the last ones that are complete, the oldest first; the restored one is the first.
        self._complete: deque[int] = deque([self._position.lsn] if self._position is not None else [])
        self._follower = Follower(settings, ctx.uid, ctx.attempt, self._position, self.batches)
        self._follower.start()

    def read(self, limit: int) -> list[Change]:
        self._show()
        records: list[Change] = []
        timestamps: list[int] = []
        while len(records) < limit:
            batch, number = self._batch or (self.batches.take(), 0)
            if batch is None:
                break
            end = min(len(batch.records), number + limit - len(records))
            for record in batch.records[number:end]:
                if isinstance(record, Undecoded):
                    self._broken.add(record.table, lsn_text(record.lsn), b"", record.cause)
                else:
                    records.append(record)
                    timestamps.append(batch.timestamp)
            self._position = batch.position(end) if end else batch.after
            self._batch = (batch, end) if end < len(batch.records) else None
        self.split, self.timestamps = SPLIT, timestamps
        self.side_outputs = self._broken.take() or None
        self._count()
        return records

    def _show(self) -> None:
        """Pass on what the thread has to say."""
        away = self._follower.away
        if away != self._shown:
            self._shown = away
            self._ctx.outage(away)
        for kind in list(self._follower.notices):
            self._ctx.notice(kind, self._follower.notices.pop(kind))

    def _count(self) -> None:
        if self._position is not None:
            end = max(self._follower.log_end, self._position.lsn)
            self._ctx.counters["log_bytes_behind"] = end - self._position.lsn
            confirmed = max(self._follower.confirmed, self._follower.slot_confirmed)
            self._ctx.counters["log_bytes_kept"] = max(0, end - confirmed) if confirmed else 0

    def splits(self) -> list[int]:
        return [SPLIT]

    def positions(self) -> Positions:
        return {} if self._position is None else {SPLIT: to_plain(self._position)}

    # --- what the server may forget --------------------------------------------------------------

    def barrier(self, checkpoint: int) -> None:
        """A checkpoint is taken, at the present position."""
        if self._position is not None:
            self._barriers[checkpoint] = self._position.lsn

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        lsn = self._barriers.get(checkpoint)
        self._barriers = {n: lsn for n, lsn in self._barriers.items() if n > checkpoint}
        if lsn is None:
            return
        self._complete.append(lsn)
        while len(self._complete) > self._settings.retained:
            self._complete.popleft()
        if len(self._complete) == self._settings.retained:
            self._follower.confirmed = max(self._follower.confirmed, self._complete[0])

    def close(self) -> None:
        self._follower.stop()
