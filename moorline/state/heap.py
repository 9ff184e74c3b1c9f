"""State as live Python objects in the worker: nothing is serialised when it is accessed.

A table is a dict from key to value, list or dict. A snapshot's synchronous part copies the dicts (pointers, not
values) and from then on shares the values with the stream, which must not change them in place before they are
written. So while a snapshot is being written a table keeps :attr:`Table.private`, the keys whose value is the
stream's own again; ``state/heap_states.py`` copies a value before its first change (and, where the type would let
the user change it in place, before handing it out). Without a snapshot in the air nothing is copied.

Keys are compared as Python compares them, which is how ``model/keys.py`` encodes them. A restored key that is an
Enum member or a dataclass waits under its encoding until a record with that key brings the object along.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from moorline.api.states import MapStateDescriptor, State, StateDescriptor
from moorline.errors import InvalidArgument, StateIncompatible
from moorline.model import keys
from moorline.state.backend import CurrentKey, Part
from moorline.state.heap_states import Table, live_state
from moorline.state.types import StoredType, stored, to_column


class HeapBackend:
    """The keyed states of one operator in one subtask, on the heap."""

    def __init__(self, uid: str, max_parallelism: int) -> None:
        self.current = CurrentKey()
        self._uid, self._max_parallelism = uid, max_parallelism
        self._tables: dict[str, _TypedTable] = {}
        self._live: dict[str, State] = {}
        self._restored: dict[str, list[tuple[str, str, pa.Table]]] = {}
        self._has_unclaimed = False

    def bind(self, descriptor: StateDescriptor) -> State:
        name = descriptor.name
        typed = _TypedTable(descriptor, f"state {name!r} of operator {self._uid!r}", self._max_parallelism)
        if name in self._live:
            known = self._tables[name]
            if (known.kind, known.type_name) != (typed.kind, typed.type_name):
                raise InvalidArgument(
                    f"state {name!r} of operator {self._uid!r}",
                    f"{typed.kind} of {typed.type_name}",
                    f"It was declared as {known.kind} of {known.type_name} before. Give one of them another name.",
                )
            return self._live[name]
        for kind, type_name, rows in self._restored.pop(name, ()):
            if (kind, type_name) != (descriptor.kind, typed.type_name):
                raise StateIncompatible(
                    self._uid, name, f"{kind} of {type_name}", f"{descriptor.kind} of {typed.type_name}"
                )
            typed.fill(rows)
        self._has_unclaimed = self._has_unclaimed or bool(typed.unclaimed)
        self._tables[name] = typed
        self._live[name] = live_state(descriptor, typed.table, self.current, typed.value_type.is_immutable)
        return self._live[name]

    def restore(self, state: str, kind: str, type_name: str, table: pa.Table) -> None:
        self._restored.setdefault(state, []).append((kind, type_name, table))

    def check_all_bound(self) -> None:
        for state, ((kind, type_name, _), *_) in self._restored.items():
            raise StateIncompatible(
                self._uid, state, f"{kind} of {type_name}", "nothing: the operator has no such state"
            )

    def claim(self, keys_of_batch: Iterable[Any]) -> None:
        if not self._has_unclaimed:
            return
        for key in set(keys_of_batch):
            encoded = keys.encode(key)
            for typed in self._tables.values():
                if encoded in typed.unclaimed:
                    typed.table.entries[key] = typed.unclaimed.pop(encoded)
        self._has_unclaimed = any(t.unclaimed for t in self._tables.values())

    def snapshot(self) -> list[Part]:
        return [typed.snapshot() for typed in self._tables.values()]

    def entries(self) -> int:
        return sum(len(t.table.entries) + len(t.unclaimed) for t in self._tables.values())


class _TypedTable:
    """A table with what is needed to store it."""

    def __init__(self, descriptor: StateDescriptor, where: str, max_parallelism: int) -> None:
        self.state, self.kind = descriptor.name, descriptor.kind
        self.table = Table()
        self.unclaimed: dict[bytes, Any] = {}
        self.value_type: StoredType = stored(descriptor.type, where)  # type: ignore[attr-defined]
        self.key_type = stored(descriptor.key_type, where) if isinstance(descriptor, MapStateDescriptor) else None
        self.type_name = self.value_type.name
        if self.key_type is not None:
            self.type_name = f"{self.key_type.name} to {self.type_name}"
        self._max_parallelism = max_parallelism

    def snapshot(self) -> Part:
        self.table.share()
        return _HeapPart(self, dict(self.table.entries), dict(self.unclaimed), self._max_parallelism)

    def fill(self, rows: pa.Table) -> None:
        """Take restored rows in."""
        expected = {"value": self.value_type.arrow, **({"map_key": self.key_type.arrow} if self.key_type else {})}
        for name, wanted in expected.items():
            if not rows.schema.field(name).type.equals(wanted):
                raise ValueError(f"column {name!r} is {rows.schema.field(name).type} instead of {wanted}")
        column = rows.column("key").combine_chunks()
        is_encoded = pa.types.is_binary(column.type)
        values = self.value_type.from_array(rows.column("value").combine_chunks())
        inner = self.key_type.from_array(rows.column("map_key").combine_chunks()) if self.key_type else None
        for n, stored_key in enumerate(column.to_pylist()):
            entries: dict[Any, Any] = self.table.entries
            key = stored_key
            if is_encoded:
                try:
                    key = keys.decode(stored_key)
                except keys.UnknownClass:
                    entries = self.unclaimed
            if self.kind == "list":
                entries.setdefault(key, []).append(values[n])
            elif inner is not None:
                entries.setdefault(key, {})[inner[n]] = values[n]
            else:
                entries[key] = values[n]


class _HeapPart:
    """One table as it was at the snapshot."""

    def __init__(
        self, typed: _TypedTable, entries: dict[Any, Any], unclaimed: dict[bytes, Any], max_parallelism: int
    ) -> None:
        self.state, self.kind, self.type = typed.state, typed.kind, typed.type_name
        self._typed, self._entries, self._unclaimed = typed, entries, unclaimed
        self._max_parallelism = max_parallelism
        self._is_released = False

    def table(self) -> pa.Table:
        key_column, groups, values = self._sorted()
        typed = self._typed
        columns: dict[str, pa.Array] = {}
        if typed.kind in ("list", "map"):
            lengths = np.fromiter(map(len, values), np.int64, len(values))
            groups, key_column = np.repeat(groups, lengths), key_column.take(np.repeat(np.arange(len(values)), lengths))
            if typed.key_type is not None:
                inner = [k for v in values for k in v]
                columns["map_key"] = to_column(typed.key_type, inner, typed.state)
                values = [x for v in values for x in v.values()]
            else:
                values = [x for v in values for x in v]
        columns["value"] = to_column(typed.value_type, values, typed.state)
        return pa.table({"key_group": pa.array(groups, pa.int32()), "key": key_column, **columns})

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._entries, self._unclaimed = {}, {}
            self._typed.table.unshare()

    def _sorted(self) -> tuple[pa.Array, Any, list[Any]]:
        """Keys as a column, their key groups, and the values, sorted by key group and key."""
        live = list(self._entries)
        values = list(self._entries.values())
        if not self._unclaimed and live and all(type(k) is int and -(1 << 63) <= k < 1 << 63 for k in live):
            numbers = np.array(live, np.int64)
            groups = keys.int_key_groups(numbers, self._max_parallelism)
            order = np.lexsort((numbers, groups))
            return pa.array(numbers[order]), groups[order], [values[n] for n in order.tolist()]
        encoded = [keys.encode(k) for k in live] + list(self._unclaimed)
        values += self._unclaimed.values()
        found = [keys.encoded_key_group(e, self._max_parallelism) for e in encoded]
        places = sorted(range(len(encoded)), key=lambda n: (found[n], encoded[n]))
        if not self._unclaimed and all(type(k) is str for k in live):
            column = pa.array([live[n] for n in places], pa.string())
        else:
            column = pa.array([encoded[n] for n in places], pa.binary())
        return column, np.array([found[n] for n in places], np.int64), [values[n] for n in places]
