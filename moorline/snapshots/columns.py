"""The columns that the file of a keyed state has, by what its handle says of it.

``docs/reference/storage-format.md`` has them as a table. Types are read by their names, so no class of a job is needed.
Used where a snapshot is read as a table (``snapshots/tables/chains.py``) and where it is checked (``contents.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.manifest import FileHandle, RawHandle
from moorline.state.evolution.untyped import raw_type
from moorline.state.heap.rows import NAMESPACE
from moorline.state.types.names import parse, parse_map

#: Columns that have the same type in every state.
FIXED = {"key_group": pa.int32(), "namespace": NAMESPACE, "last_access": pa.int64(), "ttl": pa.int64()}
_KEYS = (pa.int64(), pa.string(), pa.binary())


@contextmanager
def refusing_type(type_name: str, state: str) -> Iterator[None]:
    """Raises :class:`SnapshotCorrupt` where the name of a type cannot be read."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise SnapshotCorrupt("the manifest", f"state {state!r} is of type {type_name:.100}: {error}") from error


def value_types(kind: str, type_name: str, state: str) -> dict[str, pa.DataType]:
    """The types of ``value``, and of ``map_key`` if there is one. Raises :class:`SnapshotCorrupt`.

    >>> value_types("map", "str to int", "seen")
    {'map_key': DataType(string), 'value': DataType(int64)}
    """
    with refusing_type(type_name, state):
        match kind:
            case "store":  # how far an outside store had come: bytes of its own, of no declared type
                return {"value": pa.binary()}
            case "raw":
                return {"value": pa.large_binary()}
            case "map":
                key, value = parse_map(type_name)
                return {"map_key": raw_type(parse(key)).arrow, "value": raw_type(parse(value)).arrow}
            case _:
                return {"value": raw_type(parse(type_name)).arrow}


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
    expected = FIXED | value_types(handle.kind, handle.type, handle.state) | {"gone": pa.bool_()}
    names = schema.names
    if len(set(names)) < len(names) or not needed_columns(handle.kind) <= set(names):
        raise SnapshotCorrupt(path, f"it has the columns {', '.join(names)!r:.200}")
    for field in schema:
        fits = field.type in _KEYS if field.name == "key" else field.type == expected.get(field.name)
        if not fits:
            raise SnapshotCorrupt(path, f"its column {field.name!r:.100} is {field.type}")
