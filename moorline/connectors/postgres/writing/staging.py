"""Records on their way into a PostgreSQL table: encoded, kept in memory, and at a barrier staged as plain data.

The database sees nothing before the checkpoint is complete. What is staged for a checkpoint by one subtask is one
committable, with the rows as they go through COPY, compressed:

    insert    rows that are added
    delete    keys whose rows are removed; before the others
    upsert    rows that replace those with the same key
    update    rows of which columns are missing because they have not changed; the others are set

With a key, the last record of a key wins, and no key is staged twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from moorline.api.sinks import SinkContext, SinkWriter
from moorline.connectors.postgres.writing.rows import Kind, Part, RowEncoder, RowGroup, Target
from moorline.connectors.row_changes import UNCHANGED, Change, Delete
from moorline.connectors.slot_markers import SlotStages, StagedSlot


class Staged(StagedSlot, frozen=True, forbid_unknown_fields=True):
    """The rows that one subtask has staged for one checkpoint: a committable."""

    parts: list[Part]


def to_plain(value: msgspec.Struct) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


@dataclass(slots=True)
class _Row:
    """The last change of the row with one key."""

    #: Is there to be none before the fields are written?
    is_deleted: bool
    #: None: there is to be none at all.
    group: RowGroup | None = None
    fields: list[bytes] | None = None
    #: Some columns are left as they are, so it must be there.
    must_exist: bool = False


class PostgresWriter(SinkWriter):
    """The writer of one subtask. It talks to no server."""

    def __init__(self, target: Target, ctx: SinkContext) -> None:
        self._target = target
        self._stages = SlotStages(ctx)
        self._rows = RowEncoder(target)
        #: By the fields of the key.
        self._pending: dict[bytes, _Row] = {}

    def write(self, records: list[Any]) -> None:
        match self._target.mode:
            case "append":
                self._append(records)
            case "upsert":
                for record in records:
                    if type(record) is Delete:
                        self._delete(record.row)
                    else:
                        self._put(self._rows.row_of(record))
            case "apply":
                for record in records:
                    self._apply(record)

    def _append(self, records: list[Any]) -> None:
        rows = self._rows
        for record in records:
            row = rows.row_of(record)
            group = rows.group_of(row)
            group.add(rows.fields(group, row))

    def _put(self, row: Mapping[str, Any]) -> None:
        group = self._rows.group_of(row)
        fields = self._rows.fields(group, row)
        key = b"".join([fields[n] for n in group.key])
        before = self._pending.get(key)
        if before is None:
            self._pending[key] = _Row(False, group, fields)
        elif before.group is group or before.group is None:
            self._pending[key] = _Row(before.is_deleted, group, fields)
        else:
            self._pending[key] = self._merged(before, group, fields, row, must_exist=False)

    def _merged(self, before: _Row, group: RowGroup, fields: list[bytes], row: Any, must_exist: bool) -> _Row:
        """Columns that a later row of the same key does not have stay as an earlier one has set them."""
        assert before.group is not None and before.fields is not None
        both = {**dict(zip(before.group.names, before.fields)), **dict(zip(group.names, fields))}
        merged = self._rows.group(tuple(both), row, is_partial=True)
        return _Row(before.is_deleted, merged, [both[name] for name in merged.names], must_exist)

    def _delete(self, record: Any) -> None:
        row = self._rows.row_of(record)
        missing = [name for name in self._target.key if name not in row]
        if missing:
            raise self._rows.unfit(record, f"it has no {', '.join(map(repr, missing))}, and is to be deleted by it")
        group = self._rows.group(self._target.key, row, is_partial=True)
        fields = self._rows.fields(group, row)
        self._pending[b"".join([fields[n] for n in group.key])] = _Row(True)

    def _apply(self, change: Any) -> None:
        if not isinstance(change, Change):
            cause, advice = (
                f"a {type(change).__name__} is no change",
                'mode="apply" takes what read_postgres_changes gives.',
            )
            raise self._rows.unfit(change, cause, advice)
        if change.kind == "truncate":
            advice = "Filter it out, or truncate the table by hand: subtasks write in no order among each other."
            raise self._rows.unfit(change, "all rows of a table were removed at once", advice)
        old, new = change.old, change.new
        if old is not None and (new is None or any(old.get(k) != new.get(k) for k in self._target.key)):
            self._delete(old)
        if new is None:
            return
        kept = {name: value for name, value in new.items() if value is not UNCHANGED}
        if len(kept) == len(new):
            self._put(new)
        else:
            self._update(kept, change)

    def _update(self, row: Mapping[str, Any], change: Change) -> None:
        missing = [name for name in self._target.key if name not in row]
        if missing:
            raise self._rows.unfit(change, f"{', '.join(map(repr, missing))} of the key is UNCHANGED")
        group = self._rows.group_of(row, is_partial=True)
        fields = self._rows.fields(group, row)
        key = b"".join([fields[n] for n in group.key])
        before = self._pending.get(key)
        if before is None:
            self._pending[key] = _Row(False, group, fields, must_exist=True)
        elif before.group is None:
            raise self._rows.unfit(change, "it updates a row that was deleted before")
        else:
            self._pending[key] = self._merged(before, group, fields, row, before.must_exist)

    def prepare(self, checkpoint: int) -> list[Any]:
        parts = self._parts()
        if not parts:
            return []
        return [to_plain(Staged(*self._stages.stage(checkpoint), parts))]

    def _parts(self) -> list[Part]:
        shape = self._target.shape
        if self._target.mode == "append":
            return [group.part("insert", shape) for group in self._rows.groups if group.rows or group.chunks]
        pending, self._pending = self._pending, {}
        if not pending:
            return []
        key = self._target.key
        parts = [self._deleted(key, [fields for fields, row in pending.items() if row.is_deleted])]
        for must_exist in (False, True):
            for row in pending.values():
                if row.group is not None and row.fields is not None and row.must_exist is must_exist:
                    row.group.add(row.fields)
            kind: Kind = "update" if must_exist else "upsert"
            parts += [group.part(kind, shape) for group in self._rows.groups if group.rows or group.chunks]
        return [part for part in parts if part.rows]

    def _deleted(self, key: tuple[str, ...], keys: list[bytes]) -> Part:
        # The key's columns in the order of key=, as they stand in the fields that rows are found by.
        group = RowGroup(key, [], [])
        for fields in keys:
            group.add_row(len(key), fields)
        return group.part("delete", self._target.shape)

    def snapshot(self) -> list[Any]:
        return self._stages.snapshot()
