"""The table of markers: how far each slot has committed, written in the same transaction as the rows.

    one row for each job, sink, lineage and slot (the number of a subtask)

    claim    the marker is moved to the checkpoint if it is behind it; if it is not, that was committed before

A second session that commits the same waits for the first one's transaction, and then finds the marker moved. A marker
that is behind what is known to have been committed was lost with the rows, or without them: the table was emptied, or
the database has gone back to a backup. To write on would leave a gap or double rows, so it is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from psycopg import sql

from moorline.connectors.postgres.connection import Connection
from moorline.connectors.postgres.staging import Known, Staged
from moorline.connectors.postgres.table import quoted, read_shape
from moorline.errors import InvalidArgument, StorageError

_CREATE = """
CREATE TABLE IF NOT EXISTS {markers} (
    job text, uid text, lineage text, slot integer, checkpoint bigint NOT NULL,
    committed_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (job, uid, lineage, slot))"""
_REACHED = """
SELECT m.job, m.lineage, m.slot, m.checkpoint
FROM {markers} m JOIN unnest(%s::text[], %s::text[], %s::integer[]) AS w(job, lineage, slot)
    ON m.job = w.job AND m.lineage = w.lineage AND m.slot = w.slot
WHERE m.uid = %s"""
_MOVE = """
INSERT INTO {markers} AS m (job, uid, lineage, slot, checkpoint) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (job, uid, lineage, slot) DO UPDATE SET checkpoint = excluded.checkpoint, committed_at = now()
WHERE m.checkpoint < excluded.checkpoint"""
#: Those of batches: nothing is ever committed for them again once the batch is over.
_FORGET = """
DELETE FROM {markers}
WHERE job = %s AND uid = %s AND lineage LIKE 'batch-%%' AND committed_at < now() - interval '1 day'"""
_COLUMNS = ("job", "uid", "lineage", "slot", "checkpoint", "committed_at")
#: So that two that create it at the same moment do not collide.
_CREATION_LOCK = 0x6D6F6F726C696E66


class Markers:
    """The table of markers of one sink."""

    def __init__(self, parts: Sequence[str], on_missing: Literal["fail", "ignore"], where: str) -> None:
        self._parts, self._on_missing, self._where = parts, on_missing, where
        self._name = quoted(parts)

    def make(self, connection: Connection) -> None:
        """Create the table, if it is not there."""
        shape = read_shape(connection, self._parts)
        if shape is None:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (_CREATION_LOCK,))
                connection.execute(self._sql(_CREATE))
            shape = read_shape(connection, self._parts)
        is_own = shape is not None and tuple(shape.columns) == _COLUMNS and shape.primary_key == _COLUMNS[:4]
        if not is_own:
            advice = "A table of that name is there and was not made by Moorline. Give another name."
            raise InvalidArgument("marker_table", ".".join(self._parts), advice)

    def claim(self, connection: Connection, staged: Staged) -> bool:
        """Move the marker of a slot. False: it was moved before, and so the rows are there."""
        own = Known(staged.job, staged.lineage, staged.slot, staged.checkpoint)
        wanted = [own, *staged.known]
        places = ([k.job for k in wanted], [k.lineage for k in wanted], [k.slot for k in wanted])
        rows = connection.execute(self._sql(_REACHED), (*places, staged.uid)).fetchall()
        reached = {(job, lineage, slot): checkpoint for job, lineage, slot, checkpoint in rows}
        if reached.get((own.job, own.lineage, own.slot), 0) >= own.checkpoint:
            return False
        if self._on_missing == "fail":
            for known in staged.known:
                found = reached.get((known.job, known.lineage, known.slot))
                if (found or 0) < known.checkpoint:
                    raise self._lost(known, found, staged)
        row = (own.job, staged.uid, own.lineage, own.slot, own.checkpoint)
        return connection.execute(self._sql(_MOVE), row).rowcount == 1

    def forget_batches(self, connection: Connection, job: str, uid: str) -> None:
        """Remove the markers of batches that were over long ago."""
        connection.execute(self._sql(_FORGET), (job, uid))

    def _lost(self, known: Known, found: int | None, staged: Staged) -> StorageError:
        table = ".".join(self._parts)
        there = "has none" if found is None else f"says {found}"
        cause = (
            f"checkpoint {known.checkpoint} of job {known.job!r}, sink {staged.uid!r}, slot {known.slot} was committed "
            f"and {table} {there}: it was emptied, or the database has gone back to a backup, and rows may be missing. "
            f"Nothing was written. Bring them back, or start from a savepoint of that time, or begin anew; or, if the "
            f"rows are right as they are, go on with on_missing_markers='ignore'"
        )
        return StorageError(self._where, f"commit checkpoint {staged.checkpoint} to", cause, can_pass=False)

    def _sql(self, statement: str) -> sql.Composed:
        return sql.SQL(statement).format(markers=self._name)
