"""Records on their way into a table, with the last one of a key winning; at a barrier they are staged as plain data.

What is staged is a list of steps, each of a kind and for rows that have the same columns. They are taken in order: keys
that differ here may be equal to the database (upper and lower case in MySQL), and then the last one wins there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from moorline.api.sinks import SinkContext, SinkWriter
from moorline.connectors.row_changes import Delete
from moorline.connectors.slot_markers import SlotStages, StagedSlot
from moorline.connectors.sql.table import SqlTable

Kind = Literal["put", "delete"]


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of one kind that have the same columns."""

    kind: Kind
    columns: list[str]
    rows: list[list[Any]]


class StagedRows(StagedSlot, frozen=True, forbid_unknown_fields=True):
    """The rows that one subtask has staged for one checkpoint: a committable."""

    steps: list[Step]


class SqlWriter(SinkWriter):
    """The writer of one subtask. It talks to no server."""

    def __init__(self, table: SqlTable, ctx: SinkContext) -> None:
        self._table = table
        self._stages = SlotStages(ctx)
        #: By key: is the row that is there to go before; and the new one, if there is to be one.
        self._pending: dict[tuple[Any, ...], tuple[bool, Mapping[str, Any] | None]] = {}

    def write(self, records: list[Any]) -> None:
        table = self._table
        for record in records:
            if type(record) is Delete:
                key = tuple(table.key_of(record.row).values())
                self._pending.pop(key, None)
                self._pending[key] = (True, None)
            else:
                row = table.row(record)
                key = tuple(table.key_of(record, row).values())
                is_deleted, before = self._pending.pop(key, (False, None))
                # A column that the later record lacks stays as the earlier one has set it.
                self._pending[key] = (is_deleted, {**(before or {}), **row})

    def prepare(self, checkpoint: int) -> list[Any]:
        pending, self._pending = self._pending, {}
        steps: list[tuple[Kind, list[str], list[list[Any]]]] = []
        for key, (is_deleted, row) in pending.items():
            if is_deleted:
                _add(steps, "delete", dict(zip(self._table.key, key)))
            if row is not None:
                _add(steps, "put", {name: row[name] for name in sorted(row)})
        if not steps:
            return []
        slot = self._stages.stage(checkpoint)
        fields = dict(zip(StagedSlot.__struct_fields__, slot))
        # Rows are plain as they are; the rest is made so.
        known = [msgspec.to_builtins(known) for known in slot[-1]]
        listed = [{"kind": kind, "columns": columns, "rows": rows} for kind, columns, rows in steps]
        return [{**fields, "known": known, "steps": listed}]

    def snapshot(self) -> list[Any]:
        return self._stages.snapshot()


def _add(steps: list[tuple[Kind, list[str], list[list[Any]]]], kind: Kind, row: dict[str, Any]) -> None:
    names = list(row)
    if not steps or steps[-1][:2] != (kind, names):
        steps.append((kind, names, []))
    steps[-1][2].append(list(row.values()))
