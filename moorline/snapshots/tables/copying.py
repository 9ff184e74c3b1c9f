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
    OperatorEntry,
    OperatorHandles,
    SnapshotFile,
)
from moorline.snapshots.tables.catalog import key_groups_of
from moorline.snapshots.tables.chains import Chain, Natives, columns_of, rows_of, shape_of
from moorline.snapshots.tables.rows import Target
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore

#: Where the files of a state go: state, kind, type and subtask.
Targets = Callable[[str, str, str, int], Target]


def copied(
    entry: OperatorEntry,
    source: BlobStore,
    natives: Natives,
    store: BlobStore,
    target: Targets,
    keyed: frozenset[str],
    elements: frozenset[str],
) -> list[OperatorHandles]:
    """What each subtask has, of these keyed states and these operator states, with its files copied to ``store``.

    Records in flight come along: they are part of the operator's past, whichever states are kept.
    """
    parts = []
    for index, subtask in enumerate(entry.subtasks):
        handles: list[KeyedHandle] = []
        for state in _states(subtask):
            if state in keyed:
                mine = tuple(h for h in subtask.keyed if _has(h, state))
                chain = Chain(state, mine, key_groups_of(entry))
                handles += _keyed(chain, source, natives, store, target(state, chain.kind, chain.type, index))
        kept = [_elements(e, source, store, target, index) for e in subtask.elements if e.state in elements]
        going_round = [_going_round(h, source, store, target, index) for h in subtask.in_flight]
        parts.append(OperatorHandles(entry.uid, handles, kept, going_round))
    return parts


def copy_file(source: BlobStore, file: SnapshotFile, store: BlobStore, path: str) -> SnapshotFile:
    """The same file under another name. What is written is what was verified."""
    store.put(path, b"".join(snapshots.verified_bytes(source, file)))
    return msgspec.structs.replace(file, path=path)


def _states(subtask: OperatorHandles) -> list[str]:
    names = (n for h in subtask.keyed for n in ([s for s, _, _ in h.states] if h.kind == "native" else [h.state]))
    return list(dict.fromkeys(names))


def _has(handle: KeyedHandle, state: str) -> bool:
    return any(s == state for s, _, _ in handle.states) if handle.kind == "native" else handle.state == state


def _keyed(
    chain: Chain, source: BlobStore, natives: Natives, store: BlobStore, target: Target
) -> Iterator[KeyedHandle]:
    if not any(h.increment or h.kind == "native" for h in chain.handles):
        for handle in chain.handles:
            assert handle.file is not None
            file = copy_file(source, handle.file, store, target.path())
            yield msgspec.structs.replace(handle, file=file)
        return
    columns = columns_of(chain, shape_of(chain, source, natives))
    for table in rows_of(chain, columns, source, natives):
        if table.num_rows:
            yield target.write(store, table)


def _going_round(
    handle: InFlightHandle, source: BlobStore, store: BlobStore, target: Targets, index: int
) -> InFlightHandle:
    """What was on its way round a loop. Nothing else is in flight in a snapshot that may be copied."""
    if handle.file is None:
        return handle
    path = target("in-flight", "elements", "plain", index).path()
    return msgspec.structs.replace(handle, file=copy_file(source, handle.file, store, path))


def _elements(
    handle: ElementsHandle, source: BlobStore, store: BlobStore, target: Targets, index: int
) -> ElementsHandle:
    if handle.file is None:
        return handle
    path = target(handle.state, "elements", handle.type, index).path()
    return msgspec.structs.replace(handle, file=copy_file(source, handle.file, store, path))
