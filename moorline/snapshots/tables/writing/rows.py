"""From a user's table to the rows of a state: which column is what, in which order, and in which files.

The rows are those of ``state/heap/rows.py``, sorted by key group, key and namespace, cut into files between key
groups. Used in this process for Arrow tables, and by Spark's tasks for DataFrames (``dataframes.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moorline.errors import InvalidArgument
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import FileHandle, file_handle
from moorline.model.type_tree.tree import Map, StateType
from moorline.snapshots.tables.writing.values import stored_column, stored_keys
from moorline.state.heap.rows import NAMESPACE, TABLE_BYTES, TABLE_ROWS
from moorline.storage import layout
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore

#: Kinds of which a key (in a map: a key and map key) has one row.
SINGLE = ("value", "reducing", "aggregating", "map")


@dataclass(frozen=True)
class Layout:
    """The columns of a table that make up the rows of a state. Travels to Spark's workers."""

    uid: str
    state: str
    kind: str
    type: StateType
    max_parallelism: int
    key: tuple[str, ...]
    #: One column; or the fields of a struct, each with its column.
    value: str | dict[str, str]
    map_key: str | None = None
    #: Columns with a window's start and end, in milliseconds.
    window: tuple[str, str] | None = None
    #: Column with the time of the last access, in milliseconds.
    last_access: str | None = None

    @property
    def columns(self) -> list[str]:
        """All columns that are needed."""
        values = [self.value] if isinstance(self.value, str) else list(self.value.values())
        named = [*self.key, *values, self.map_key, *(self.window or ()), self.last_access]
        return list(dict.fromkeys(name for name in named if name is not None))

    def check(self, names: list[str]) -> None:
        """Raises unless there are all of the columns."""
        for name in self.columns:
            if name not in names:
                raise InvalidArgument(f"column of {self.state!r}", name, f"The table has {', '.join(names)}.")


def make_rows(layout_: Layout, table: pa.Table) -> pa.Table:
    """The rows of a table, in the form and the order of a snapshot."""
    layout_.check(table.column_names)
    key, groups = stored_keys([table[name] for name in layout_.key], layout_.max_parallelism, layout_.uid)
    columns: dict[str, Any] = {"key_group": pa.array(groups, pa.int32()), "key": key}
    where = f"{layout_.state} of operator {layout_.uid}"
    if layout_.window is not None:
        bounds = [table[name].combine_chunks().cast(pa.int64()) for name in layout_.window]
        columns["namespace"] = pa.StructArray.from_arrays(bounds, fields=list(NAMESPACE), mask=bounds[0].is_null())
    elif layout_.kind == "timers":
        columns["namespace"] = pa.nulls(len(table), NAMESPACE)
    value_type = layout_.type
    if isinstance(value_type, Map):
        assert layout_.map_key is not None
        columns["map_key"] = stored_column(value_type.key, table[layout_.map_key], where)
        value_type = value_type.value
    if isinstance(layout_.value, str):
        value = table[layout_.value]
    else:
        parts = [table[name].combine_chunks() for name in layout_.value.values()]
        value = pa.StructArray.from_arrays(parts, names=list(layout_.value))
    columns["value"] = stored_column(value_type, value, where)
    if layout_.kind in ("value", "reducing", "aggregating") and columns["value"].null_count:
        raise InvalidArgument(where, None, "A key without a value has no row. Leave out rows whose value is null.")
    if layout_.last_access is not None:
        columns["last_access"] = table[layout_.last_access].combine_chunks().cast(pa.int64())
        columns["ttl"] = pa.nulls(len(table), pa.int64())
    return sort_rows(pa.table(columns))


def sort_rows(rows: pa.Table) -> pa.Table:
    """By key group, key and namespace; rows of the same key stay in their order."""
    by = {"key_group": rows["key_group"], "key": rows["key"]}
    if "namespace" in rows.column_names:
        namespace = rows["namespace"].combine_chunks()
        by |= {field: pc.struct_field(namespace, field) for field in ("start", "end")}
    return rows.take(pc.sort_indices(pa.table(by), [(name, "ascending") for name in by]))


def check_unique(kind: str, rows: pa.Table, state: str) -> None:
    """Raises if sorted rows have two values where a state has room for one."""
    if kind not in SINGLE or len(rows) < 2:
        return
    names = [n for n in ("key", "namespace", "map_key") if n in rows.column_names]
    codes = np.zeros(len(rows), np.int64)
    for name in names:
        column = rows[name].combine_chunks()
        flat = column if not pa.types.is_nested(column.type) else pa.array(map(repr, column.to_pylist()))
        indices = flat.dictionary_encode(null_encoding="encode").indices.to_numpy()
        codes = pa.array(codes * (int(indices.max(initial=0)) + 1) + indices).dictionary_encode().indices.to_numpy()
        codes = codes.astype(np.int64)
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    if (counts > 1).any():
        row = rows.slice(int(first[counts > 1][0]), 1).select(names).to_pylist()[0]
        raise InvalidArgument(f"state {state!r}", row, "It is there more than once, and only one value can be kept.")


def cut(rows: pa.Table) -> Iterator[pa.Table]:
    """Sorted rows in tables that are fit for a file: of bounded size, and of whole key groups."""
    if not rows.num_rows:
        return
    groups = rows["key_group"].to_numpy()
    ends = np.flatnonzero(np.diff(groups, append=-1)) + 1
    limit = min(TABLE_ROWS, max(1, TABLE_BYTES * len(rows) // max(1, rows.nbytes)))
    start = 0
    for number, end in enumerate(ends.tolist()):
        if end - start >= limit or number + 1 == len(ends):
            yield rows.slice(start, end - start)
            start = end


@dataclass(frozen=True)
class Target:
    """The place of the files of one state of one subtask. Travels to Spark's workers."""

    checkpoint: int
    uid: str
    state: str
    kind: str
    type: StateType
    subtask: int
    #: Begins the unique part of every name that one writer gives.
    run: str

    def path(self) -> str:
        path = layout.data_path(self.checkpoint, self.uid, self.state, self.subtask, 1)
        folder, _, name = path.rpartition("/")
        stem, _, unique = name.rpartition("-")
        return f"{folder}/{stem}-{self.run}{unique[len(self.run) :]}"

    def write(self, store: BlobStore, rows: pa.Table) -> FileHandle:
        """One file of sorted rows."""
        file = snapshots.write_rows(store, self.path(), rows)
        groups = rows["key_group"]
        key_groups = KeyGroupRange(groups[0].as_py(), groups[-1].as_py() + 1)
        return file_handle(self.state, self.kind, self.type, key_groups, rows.num_rows, file)
