"""The columns that the file of a keyed state has, by what its handle says of it.

``docs/reference/storage-format.md`` has them as a table. Types are trees of data, so no class of a job is needed.
Used where a snapshot is read as a table (``snapshots/tables/chains.py``) and where it is checked (``contents.py``).
"""

from __future__ import annotations

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.manifest import FileHandle, RawHandle, StoreHandle
from moorline.model.type_tree.tree import Map, StateType
from moorline.state.evolution.untyped import raw_type
from moorline.state.heap.rows import NAMESPACE

#: Columns that have the same type in every state.
FIXED = {"key_group": pa.int32(), "namespace": NAMESPACE, "last_access": pa.int64(), "ttl": pa.int64()}
_KEYS = (pa.int64(), pa.string(), pa.binary())


def value_types(kind: str, stored_type: StateType) -> dict[str, pa.DataType]:
    """The types of ``value``, and of ``map_key`` if there is one.

    >>> from moorline.model.type_tree.tree import BYTES, INT
    >>> value_types("map", Map(BYTES, INT))
    {'map_key': DataType(binary), 'value': DataType(int64)}
    """
    if kind == StoreHandle.kind:  # how far an outside store had come: bytes of its own, of no declared type
        return {"value": pa.binary()}
    if kind == RawHandle.kind:
        return {"value": pa.large_binary()}
    if isinstance(stored_type, Map):
        return {"map_key": raw_type(stored_type.key).arrow, "value": raw_type(stored_type.value).arrow}
    return {"value": raw_type(stored_type).arrow}


def needed_columns(kind: str) -> set[str]:
    """The columns that a state of this kind always has.

    >>> sorted(needed_columns("map"))
    ['key', 'key_group', 'map_key', 'value']
    """
    keys = {"key"} if kind != RawHandle.kind else set()
    return {"key_group", "value"} | keys | ({"map_key"} if kind == "map" else set())


def check_columns(schema: pa.Schema, handle: FileHandle) -> None:
    """The columns of a file are those that its handle says it has. Raises :class:`SnapshotCorrupt`."""
    path = handle.file.path if handle.file is not None else "the manifest"
    expected = FIXED | value_types(handle.kind, handle.type) | {"gone": pa.bool_()}
    names = schema.names
    if len(set(names)) < len(names) or not needed_columns(handle.kind) <= set(names):
        raise SnapshotCorrupt(path, f"it has the columns {', '.join(names)!r:.200}")
    for field in schema:
        fits = field.type in _KEYS if field.name == "key" else field.type == expected.get(field.name)
        if not fits:
            raise SnapshotCorrupt(path, f"its column {field.name!r:.100} is {field.type}")
