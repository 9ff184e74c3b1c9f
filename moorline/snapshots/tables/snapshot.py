"""The tables of a snapshot for people: what ``mo.read_snapshot`` returns.

Without Spark each table is an Arrow table; with a session it is a DataFrame of the data source ``moorline``, which
reads nothing before it is asked and then only what is needed. The way from a name to a table is the only difference,
so it is a function that is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from moorline.snapshots.tables.reader import SnapshotReader


def open_tables(path: str, checkpoint: int | None = None) -> Snapshot:
    """A savepoint, or the newest (or a given) checkpoint in a job's folder, as Arrow tables, without Spark.

    >>> import moorline as mo
    >>> writer = mo.snapshots.Writer("memory://limits", job="limits")
    >>> limits = mo.MapStateDescriptor("limits", str, int)
    >>> url = writer.broadcast_state("check", limits, [{"map_key": "card", "value": 100}]).write()
    >>> mo.snapshots.open(url).broadcast_state("check", "limits").to_pylist()
    [{'map_key': 'card', 'value': 100}]
    """
    return Snapshot(SnapshotReader.open(path, checkpoint))


class Snapshot:
    """A savepoint or checkpoint as tables.

    >>> import moorline as mo
    >>> rows = [{"user": 7, "clicks": 3}]
    >>> writer = mo.SnapshotWriter("memory://clicks", job="clicks")
    >>> url = writer.keyed("count", mo.ValueStateDescriptor("clicks", int), rows, key="user", value="clicks").write()
    >>> snapshot = mo.read_snapshot(url)
    >>> snapshot.job, snapshot.metadata().select(["uid", "state", "kind", "type", "rows"]).to_pylist()
    ('clicks', [{'uid': 'count', 'state': 'clicks', 'kind': 'value', 'type': 'int', 'rows': 1}])
    >>> snapshot.keyed("count", "clicks").to_pylist()
    [{'key_group': 9, 'key': 7, 'value': 3}]
    """

    def __init__(self, reader: SnapshotReader, table: Callable[[str, str, str], Any] | None = None) -> None:
        self.reader = reader
        self._table = table or self._arrow

    @property
    def job(self) -> str:
        """Whose snapshot it is."""
        return self.reader.manifest.job

    @property
    def checkpoint(self) -> int:
        """Its number."""
        return self.reader.manifest.checkpoint

    def metadata(self) -> Any:
        """One row per state: operator, kind, type, key groups, rows, bytes."""
        return self._table("metadata", "", "")

    def keyed(self, uid: str, state: str) -> Any:
        """A keyed state: one row per value, per element of a list, per entry of a map."""
        return self._table("keyed", uid, state)

    def windows(self, uid: str, state: str = "window-contents") -> Any:
        """A state that is kept for each window, with the window's bounds in milliseconds as columns."""
        return self._table("windows", uid, state)

    def timers(self, uid: str) -> Any:
        """All timers of an operator."""
        return self._table("timers", uid, "")

    def operator_state(self, uid: str, state: str) -> Any:
        """A list state without a key, by subtask. Sources have ``positions``, sinks ``committables``."""
        return self._table("operator", uid, state)

    def broadcast_state(self, uid: str, state: str) -> Any:
        """A broadcast map: one row per entry."""
        return self._table("broadcast", uid, state)

    def raw(self, uid: str) -> Any:
        """Raw state: bytes by key group or by subtask."""
        return self._table("raw", uid, "")

    def in_flight(self, uid: str) -> Any:
        """The records on their way to an operator: of unaligned checkpoints, and of loops."""
        return self._table("in_flight", uid, "")

    def _arrow(self, table: str, uid: str, state: str) -> pa.Table:
        columns = self.reader.columns(table, uid, state)
        return pa.concat_tables([columns.empty_table(), *self.reader.read(table, uid, state)])
