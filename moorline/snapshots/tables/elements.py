"""Operator state as tables: lists, broadcast maps and raw pieces, with columns of their declared types.

An element is stored as msgpack of its type. It is read by the type's tree alone, so that no class of the job is needed
and nothing in it can run: what is pickled stays bytes, and what has no declared type stays msgpack.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.manifest import ElementsHandle, OperatorEntry
from moorline.state.evolution.untyped import raw_type
from moorline.state.types.leaf import StoredType
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore

_PLACE = [("subtask", pa.int32()), ("position", pa.int64())]


def element_columns(operator: OperatorEntry, state: str) -> pa.Schema:
    """The columns of a list state."""
    return pa.schema([*_PLACE, ("value", _type_of(_handles(operator, state)).arrow)])


def element_rows(operator: OperatorEntry, state: str, store: BlobStore) -> Iterator[pa.Table]:
    """The elements of a list state, by subtask, in their order."""
    columns = element_columns(operator, state)
    for subtask, handle in _handles(operator, state):
        encoded = encoded_elements(handle, store)
        values = _column(handle, encoded, columns.field("value").type)
        places = [pa.array([subtask] * len(encoded), pa.int32()), pa.array(range(len(encoded)), pa.int64())]
        yield pa.table([*places, values], schema=columns)


def broadcast_columns(operator: OperatorEntry, state: str) -> pa.Schema:
    """The columns of a broadcast map."""
    pair = _type_of(_handles(operator, state)).arrow
    if not pa.types.is_struct(pair) or pair.num_fields != 2:
        raise SnapshotCorrupt("the manifest", f"broadcast state {state!r} of {operator.uid!r} has no pairs")
    return pa.schema([("map_key", pair[0].type), ("value", pair[1].type)])


def broadcast_rows(operator: OperatorEntry, state: str, store: BlobStore) -> Iterator[pa.Table]:
    """The entries of a broadcast map. Every subtask has the same, so it is the copy of the first that has one."""
    columns = broadcast_columns(operator, state)
    _, handle = _handles(operator, state)[0]
    pairs = _column(handle, encoded_elements(handle, store), _type_of([(0, handle)]).arrow)
    yield pa.table(pairs.flatten(), schema=columns)


def encoded_elements(handle: ElementsHandle, store: BlobStore) -> list[bytes]:
    """The elements of a handle as they are stored."""
    encoded = handle.inline if handle.file is None else snapshots.read_elements(store, handle.file)
    if len(encoded) != handle.count or any(not isinstance(e, bytes) for e in encoded):
        where = handle.file.path if handle.file else "the manifest"
        cause = f"state {handle.state!r} should have {handle.count} elements and has {len(encoded)}"
        raise SnapshotCorrupt(where, cause)
    return encoded


def _handles(operator: OperatorEntry, state: str) -> list[tuple[int, ElementsHandle]]:
    return [(n, h) for n, subtask in enumerate(operator.subtasks) for h in subtask.elements if h.state == state]


def _type_of(handles: list[tuple[int, ElementsHandle]]) -> StoredType:
    return raw_type(handles[-1][1].type)


def _column(handle: ElementsHandle, encoded: list[bytes], wanted: pa.DataType) -> pa.Array:
    kind = _type_of([(0, handle)])
    try:
        return kind.to_array([kind.unpack(e) for e in encoded]).cast(wanted)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        where = handle.file.path if handle.file else "the manifest"
        raise SnapshotCorrupt(where, f"an element of {handle.state!r} cannot be read: {error}") from error
