"""A snapshot in the form of a savepoint: files of rows alone, below another folder.

A file that is whole and no part of a chain with increments is copied as it is, verified on the way. Chains are folded
and native files turned into rows, so that what comes out depends on nothing but itself. Who had what stays as it was:
operator state is dealt out by subtasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from moorline.model.manifest import (
    ElementsHandle,
    InFlightHandle,
    KeyedHandle,
    NativeHandle,
    OperatorEntry,
    OperatorHandles,
    SnapshotFile,
)
from moorline.model.type_tree.tree import PLAIN, StateType
from moorline.snapshots.rows import Scratch
from moorline.snapshots.tables.catalog import key_groups_of
from moorline.snapshots.tables.chains import Chain, chain_rows, columns_of, shape_of
from moorline.snapshots.tables.writing.rows import Target
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore

#: Where the files of a state go: state, kind, type and subtask.
Targets = Callable[[str, str, StateType, int], Target]


def copied(
    entry: OperatorEntry,
    source: BlobStore,
    scratch: Scratch,
    store: BlobStore,
    target: Targets,
    keyed: frozenset[str],
    elements: frozenset[str],
) -> list[OperatorHandles]:
    """The handles of each subtask for these keyed and operator states, with their files copied to ``store``.

    Records in flight come along: they are part of the operator's past, whichever states are kept.
    """
    parts = []
    for index, subtask in enumerate(entry.subtasks):
        handles: list[KeyedHandle] = []
        for state in _states(subtask):
            if state in keyed:
                own = tuple(h for h in subtask.keyed if _has(h, state))
                chain = Chain(state, own, key_groups_of(entry))
                handles += _keyed(chain, source, scratch, store, target(state, chain.kind, chain.type, index))
        kept = [_elements(e, source, store, target, index) for e in subtask.elements if e.state in elements]
        going_round = [_going_round(h, source, store, target, index) for h in subtask.in_flight]
        parts.append(OperatorHandles(entry.uid, handles, kept, going_round))
    return parts


def copy_file(source: BlobStore, file: SnapshotFile, store: BlobStore, path: str) -> SnapshotFile:
    """The same file under another name. What is written is what was verified."""
    store.put(path, b"".join(snapshots.verified_bytes(source, file)))
    return msgspec.structs.replace(file, path=path)


def _states(subtask: OperatorHandles) -> list[str]:
    return list(dict.fromkeys(name for h in subtask.keyed for name, _, _ in h.states))


def _has(handle: KeyedHandle, state: str) -> bool:
    return any(name == state for name, _, _ in handle.states)


def _keyed(
    chain: Chain, source: BlobStore, scratch: Scratch, store: BlobStore, target: Target
) -> Iterator[KeyedHandle]:
    files = [h for h in chain.handles if not isinstance(h, NativeHandle) and not h.increment]
    if len(files) == len(chain.handles):
        for handle in files:
            assert handle.file is not None
            file = copy_file(source, handle.file, store, target.path())
            yield msgspec.structs.replace(handle, file=file)
        return
    columns = columns_of(chain, shape_of(chain, source, scratch))
    for table in chain_rows(chain, columns, source, scratch):
        if table.num_rows:
            yield target.write(store, table)


def _going_round(
    handle: InFlightHandle, source: BlobStore, store: BlobStore, target: Targets, index: int
) -> InFlightHandle:
    """The records on their way round a loop. Nothing else is in flight in a snapshot that may be copied."""
    if handle.file is None:
        return handle
    path = target("in-flight", "elements", PLAIN, index).path()
    return msgspec.structs.replace(handle, file=copy_file(source, handle.file, store, path))


def _elements(
    handle: ElementsHandle, source: BlobStore, store: BlobStore, target: Targets, index: int
) -> ElementsHandle:
    if handle.file is None:
        return handle
    path = target(handle.state, "elements", handle.type, index).path()
    return msgspec.structs.replace(handle, file=copy_file(source, handle.file, store, path))
