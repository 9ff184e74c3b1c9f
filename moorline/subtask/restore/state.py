"""The state of an operator as its subtask gets it back: from handles to what backends and operators take.

Rows are read when a backend asks for them, in tables of bounded size (``snapshots/rows.py``). Native files go to the
RocksDB backend as they are, if they are our own; for any other use they are read as rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, NativeHandle, RawHandle, RowsHandle
from moorline.model.type_tree.tree import Type
from moorline.model.wire.deployment import OperatorRestore
from moorline.snapshots.rows import Scratch, fetch_files, file_rows, rows_of
from moorline.state.backend import Restored, RestoredFiles, RestoredRows
from moorline.state.types import plain
from moorline.storage import segments
from moorline.storage.blobs import BlobStore
from moorline.subtask.operators.operator_state import RestoredElements


def keyed_handles(restore: OperatorRestore) -> list[KeyedHandle]:
    """Those that are for a backend: raw state is none of its concern."""
    return [handle for handle in restore.keyed if not isinstance(handle, RawHandle)]


def as_stored(handles: Iterable[KeyedHandle], key_groups: KeyGroupRange, store: BlobStore | None) -> Iterator[Restored]:
    """The state of handles in some key groups, in its stored form."""
    for handle in handles:
        assert store is not None
        if isinstance(handle, NativeHandle):
            yield RestoredFiles(handle, partial(fetch_files, handle, store))
        else:
            yield RestoredRows(handle, partial(file_rows, handle, key_groups, store))


def as_rows(
    handles: Iterable[KeyedHandle], key_groups: KeyGroupRange, store: BlobStore | None, scratch: Scratch
) -> Iterator[RestoredRows]:
    """The same in rows, whatever it is stored in. A state that has none in native files is left out."""
    for handle in handles:
        assert store is not None
        if not isinstance(handle, NativeHandle):
            yield RestoredRows(handle, partial(file_rows, handle, key_groups, store))
            continue
        common = key_groups & handle.key_groups
        for state, kind, stored_type in handle.states:
            tables = partial(_native_rows, handle, state, common, store, scratch)
            if any(table.num_rows for table in tables()):
                yield RestoredRows(RowsHandle(state, kind, stored_type, common.first, common.end, 0), tables)


def _native_rows(
    handle: NativeHandle, state: str, key_groups: KeyGroupRange, store: BlobStore, scratch: Scratch
) -> Iterator[pa.Table]:
    return (rows.table for rows in rows_of(handle, key_groups, store, scratch, {state}))


def read_raw(restore: OperatorRestore, key_groups: KeyGroupRange, store: BlobStore | None) -> dict[int, bytes]:
    """The raw keyed state of some key groups."""
    raw: dict[int, bytes] = {}
    for handle in restore.keyed:
        if isinstance(handle, RawHandle):
            assert store is not None
            for table in file_rows(handle, key_groups, store):
                raw.update(zip(table["key_group"].to_pylist(), table["value"].to_pylist()))
    return raw


def read_elements(restore: OperatorRestore, store: BlobStore | None) -> RestoredElements:
    """The elements of every operator state, with their stored types."""
    elements: RestoredElements = {}
    for state, slices in restore.elements.items():
        for part in slices:
            handle = part.handle
            encoded = handle.inline
            if handle.file is not None:
                assert store is not None
                encoded = segments.read_elements(store, handle.file)
            if len(encoded) != handle.count:
                raise SnapshotCorrupt(
                    handle.file.path if handle.file else "the manifest",
                    f"state {state!r} should have {handle.count} elements and has {len(encoded)}",
                )
            elements.setdefault(state, []).append((handle.type, encoded[part.start : part.stop]))
    return elements


def plain_elements(state: str, parts: list[tuple[Type, list[bytes]]]) -> list[Any]:
    """The elements of an operator state that is plain data."""
    try:
        return [plain.decode(e) for _, encoded in parts for e in encoded]
    except ValueError as error:
        where, cause = "the manifest", f"state {state!r} has an element that cannot be read: {error}"
        raise SnapshotCorrupt(where, cause) from error
