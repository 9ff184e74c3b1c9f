"""The rows of one keyed state: which files they are in, which columns they have, and what is left of a chain.

A state may lie in any number of files: of several subtasks, as a base with increments, or inside the files of RocksDB.
Here it becomes one stream of tables with the same columns throughout:

    key_group  key  [namespace]  [map_key]  value  [last_access  ttl]

``value`` and ``map_key`` have the Arrow types of the state's declared type. ``key`` is int64 or string if it is so in
every file; else binary, the encoding of ``model/keys/encoding.py``. A manifest does not say which, so the footers of
the files are asked. Everything that is read passed its checksum; columns that are not what the manifest says are
:class:`SnapshotCorrupt`. Memory is bounded: a chain is folded range by range of key groups.

``snapshots/tables/reader.py`` asks; Spark's workers as well, each for its own key groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import FileHandle, KeyedHandle, NativeHandle, StoredState
from moorline.model.type_tree.tree import StateType
from moorline.snapshots.columns import FIXED, check_columns, needed_columns, value_types
from moorline.snapshots.rows import Scratch, file_rows, rows_of, shape_of_native
from moorline.state.folding import fold, with_encoded_keys
from moorline.storage.blobs import BlobStore

#: A chain is folded in ranges of key groups of about so many rows.
FOLD_ROWS = 500_000

_ORDER = ("key_group", "key", "namespace", "map_key", "value", "last_access", "ttl")


@dataclass(frozen=True)
class Chain:
    """All handles of one state, in the order of the manifest."""

    state: str
    handles: tuple[KeyedHandle, ...]
    max_parallelism: int

    @property
    def kind(self) -> str:
        return self._stored().kind

    @property
    def type(self) -> StateType:
        """The newest: an older base may have an older one."""
        return self._stored().type

    @property
    def newest(self) -> KeyedHandle:
        return self.handles[-1]

    def _stored(self) -> StoredState:
        return next(stored for stored in self.newest.states if stored.name == self.state)

    @property
    def everything(self) -> KeyGroupRange:
        return KeyGroupRange(0, self.max_parallelism)


# --- columns ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """The facts about the rows of a state that only the files have."""

    #: The types of their key columns. Empty if there are no rows.
    keys: frozenset[pa.DataType]
    #: Columns that are there only where they are needed.
    optional: frozenset[str]

    @property
    def key(self) -> pa.DataType:
        """The Arrow type that all of the keys fit into."""
        return next(iter(self.keys)) if len(self.keys) == 1 else pa.binary()

    def __or__(self, other: Shape) -> Shape:
        return Shape(self.keys | other.keys, self.optional | other.optional)


def shape_of(chain: Chain, store: BlobStore, scratch: Scratch) -> Shape:
    """Reads the footer of each file."""
    keys: set[pa.DataType] = set()
    optional: set[str] = set()
    for handle in chain.handles:
        if isinstance(handle, NativeHandle):
            shape = shape_of_native(handle, chain.state, store, scratch)
            keys |= {shape.key} if shape.key is not None else set()
            optional |= {"namespace"} if shape.is_windowed else set()
            optional |= {"last_access", "ttl"} if shape.is_stamped else set()
        else:
            for table in file_rows(handle, KeyGroupRange(0, 0), store):
                check_columns(table.schema, handle)
                keys |= {table.schema.field("key").type} if "key" in table.column_names else set()
                optional |= {"namespace", "last_access", "ttl"} & set(table.column_names)
    return Shape(frozenset(keys), frozenset(optional))


def columns_of(chain: Chain, shape: Shape) -> pa.Schema:
    """The columns that :func:`chain_rows` is to give."""
    types = FIXED | value_types(chain.kind, chain.type) | {"key": shape.key}
    wanted = needed_columns(chain.kind) | shape.optional
    return pa.schema([(name, types[name]) for name in _ORDER if name in wanted])


def conform(table: pa.Table, columns: pa.Schema, where: str) -> pa.Table:
    """The same rows with exactly these columns."""
    if table.schema.equals(columns):
        return table
    if "key" in table.column_names and table.schema.field("key").type != columns.field("key").type:
        table = with_encoded_keys(table)
    arrays = []
    for field in columns:
        if field.name not in table.column_names:
            arrays.append(pa.nulls(len(table), field.type))
            continue
        column = table[field.name]
        try:
            arrays.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            cause = f"column {field.name!r} was {column.type} when it was written and is {field.type} now: {error}"
            raise SnapshotCorrupt(where, cause) from error
    return pa.table(arrays, schema=columns)


# --- rows ---------------------------------------------------------------------------------------


def chain_rows(
    chain: Chain, columns: pa.Schema, store: BlobStore, scratch: Scratch, key_groups: KeyGroupRange | None = None
) -> Iterator[pa.Table]:
    """The rows of some key groups, or of all, in tables of bounded size that have these columns.

    Rows of a key follow each other. Key groups rise, except that what lies in native files comes first.
    """
    wanted = chain.everything if key_groups is None else key_groups & chain.everything
    files: list[FileHandle] = []
    for handle in chain.handles:
        if not isinstance(handle, NativeHandle):
            files.append(handle)
        elif wanted & handle.key_groups:
            for rows in rows_of(handle, wanted, store, scratch, {chain.state}):
                yield conform(rows.table, columns, f"files of {handle.backend}")
    if any(h.increment for h in files):
        yield from _folded(files, columns, store, wanted)
        return
    for handle in sorted(files, key=lambda h: h.first):
        if wanted & handle.key_groups:
            for table in file_rows(handle, wanted, store):
                check_columns(table.schema, handle)
                if table.num_rows:
                    yield conform(table, columns, _path(handle))


def _folded(
    handles: list[FileHandle], columns: pa.Schema, store: BlobStore, wanted: KeyGroupRange
) -> Iterator[pa.Table]:
    count = 1 + sum(max(h.rows, 0) for h in handles) // FOLD_ROWS
    width = max(1, -(-len(wanted) // count))
    for first in range(wanted.first, wanted.end, width):
        piece = KeyGroupRange(first, min(first + width, wanted.end))
        pieces: list[tuple[pa.Table, bool]] = []
        for handle in handles:
            for table in file_rows(handle, piece, store) if piece & handle.key_groups else ():
                check_columns(table.schema, handle)
                gone = [table["gone"]] if "gone" in table.column_names else []
                cut = conform(table.drop_columns(["gone"]) if gone else table, columns, _path(handle))
                pieces.append((cut.append_column("gone", gone[0]) if gone else cut, handle.increment))
        left = fold(pieces)
        if left is not None and left.num_rows:
            yield conform(left, columns, "the chain")


def _path(handle: FileHandle) -> str:
    return handle.file.path if handle.file is not None else "the manifest"
