"""The table of markers in PostgreSQL (``connectors/slot_markers.py``): one row for each job, sink, lineage and slot.

    claim    the marker is moved to the checkpoint if it is behind it; if it is not, that was committed before

A second session that commits the same waits for the first one's transaction, and then finds the marker moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from psycopg import sql

from moorline.connectors.postgres.connection import Connection
from moorline.connectors.postgres.table import quoted, read_shape
from moorline.connectors.slot_markers import StagedSlot, markers_lost
from moorline.errors import InvalidArgument

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


class TableMarkers:
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

    def claim(self, connection: Connection, staged: StagedSlot) -> bool:
        """Move the marker of a slot. False: it was moved before, and so the rows are there."""
        wanted = [staged.place, *(known.place for known in staged.known)]
        jobs, lineages, slots = zip(*wanted)
        rows = connection.execute(self._sql(_REACHED), (list(jobs), list(lineages), list(slots), staged.uid)).fetchall()
        reached = {(job, lineage, slot): checkpoint for job, lineage, slot, checkpoint in rows}
        if reached.get(staged.place, 0) >= staged.checkpoint:
            return False
        behind = staged.first_behind(reached)
        if behind is not None and self._on_missing == "fail":
            raise markers_lost(self._where, ".".join(self._parts), staged, behind, reached.get(behind.place))
        row = (staged.job, staged.uid, staged.lineage, staged.slot, staged.checkpoint)
        return connection.execute(self._sql(_MOVE), row).rowcount == 1

    def forget_batches(self, connection: Connection, job: str, uid: str) -> None:
        """Remove the markers of batches that were over long ago."""
        connection.execute(self._sql(_FORGET), (job, uid))

    def _sql(self, statement: str) -> sql.Composed:
        return sql.SQL(statement).format(markers=self._name)
