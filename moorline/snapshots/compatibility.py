"""Can this job read what the snapshot holds? Asked on the driver, before anything is started.

For every state that is declared on a function's class the stored type is compared with the declared one. States that
a function asks for in ``open`` are not known here: those are checked by the subtasks, before the first record. So are
keys whose selector does not say what kind of key it makes.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pyarrow as pa

from moorline.api.state.descriptors import MapStateDescriptor, StateDescriptor
from moorline.api.state.states import declared_states
from moorline.errors import KeysChanged, SnapshotCorrupt, StateIncompatible, StorageError
from moorline.model.graph import Graph, Operator, Partitioning
from moorline.model.keys.kinds import clash, kind_of, kinds_of_selector
from moorline.model.manifest import Manifest, OperatorEntry, RowsHandle
from moorline.model.type_tree.tree import Map, StateType
from moorline.snapshots.rows import file_rows
from moorline.state.evolution.plan import Where, plan
from moorline.state.forms import form_of
from moorline.storage.blobs import BlobStore

log = logging.getLogger("moorline")

#: So many keys are looked at where their kinds are not noted.
_LOOKED_AT = 1000


def check_declared(graph: Graph) -> None:
    """Raises UnsupportedType for the first declared state whose type has no stored form."""
    for operator in graph.operators:
        for declared in declared_states(operator.function).values():
            descriptor = declared.descriptor
            form_of(descriptor, f"state {descriptor.name!r} of operator {operator.uid!r}", is_windowed=False)


def check_types(manifest: Manifest, graph: Graph) -> None:
    """Raises StateIncompatible for the first state that cannot be read; tells which ones will be converted."""
    for entry in manifest.operators:
        operator = graph.by_uid.get(entry.uid)
        if operator is None:
            continue
        stored = stored_states(entry)
        for declared in declared_states(operator.function).values():
            descriptor = declared.descriptor
            if descriptor.name in stored:
                kind, stored_type = stored[descriptor.name]
                for note in conversions(entry.uid, descriptor, kind, stored_type):
                    log.info("state %r of operator %r: %s", descriptor.name, entry.uid, note)


def check_keys(manifest: Manifest, graph: Graph) -> None:
    """Raises KeysChanged if the keys of an operator are known to be of another kind than those of its state."""
    for entry in manifest.operators:
        operator = graph.by_uid.get(entry.uid)
        if operator is not None and (now := other_kind(entry, operator)) is not None:
            raise KeysChanged(entry.uid, tuple(entry.keys), now)


def other_kind(entry: OperatorEntry, operator: Operator) -> str | None:
    """The kind of an operator's keys, if it is known and none of those of the stored state."""
    rekey = operator.options.get("rekey")
    if rekey is not None and rekey.name != entry.rekeyed:
        return None
    for source in operator.inputs:
        if source.partitioning is Partitioning.HASH:
            kinds = kinds_of_selector(source.key, source.key_type)
            if clash(entry.keys, kinds):
                return " or ".join(kinds)
    return None


def with_key_kinds(manifest: Manifest, graph: Graph, store: BlobStore) -> Manifest:
    """The manifest with the kinds of keys in it. Where an older version has not noted them some rows are looked at."""
    keyed = {operator.uid for operator in graph.operators if operator.is_keyed}
    entries = [_noted(entry, store) if entry.uid in keyed and not entry.keys else entry for entry in manifest.operators]
    return msgspec.structs.replace(manifest, operators=entries)


def _noted(entry: OperatorEntry, store: BlobStore) -> OperatorEntry:
    for number, subtask in enumerate(entry.subtasks):
        for handle in subtask.keyed:
            if isinstance(handle, RowsHandle) and handle.file is not None and handle.rows:
                try:
                    rows = next(file_rows(handle, handle.key_groups, store))
                except (SnapshotCorrupt, StorageError):
                    return entry  # for the subtasks to find, which go back to an older one
                subtasks = list(entry.subtasks)
                subtasks[number] = msgspec.structs.replace(subtask, keys=_kinds_in(rows))
                return msgspec.structs.replace(entry, subtasks=subtasks)
    return entry


def _kinds_in(rows: pa.Table) -> list[str]:
    column = rows["key"].slice(0, _LOOKED_AT)
    if pa.types.is_binary(column.type):
        return sorted({kind_of(key) for key in column.to_pylist()})
    return ["number" if pa.types.is_integer(column.type) else "str"]


def stored_states(entry: OperatorEntry) -> dict[str, tuple[str, StateType]]:
    """Kind and type of every keyed state in a manifest, as the newest of its handles has them."""
    states: dict[str, tuple[str, StateType]] = {}
    for subtask in entry.subtasks:
        for handle in subtask.keyed:
            states |= {state.name: (state.kind, state.type) for state in handle.states}
    return states


def conversions(uid: str, descriptor: StateDescriptor, kind: str, stored_type: StateType) -> list[str]:
    """The conversions on the way, a sentence each. Raises StateIncompatible if it cannot be read."""
    where = Where(uid, descriptor.name)
    value: Any = descriptor.type  # type: ignore[attr-defined]
    if kind != descriptor.kind:
        raise StateIncompatible(uid, descriptor.name, f"{kind} of {stored_type}", f"{descriptor.kind} state")
    if isinstance(stored_type, Map):
        assert isinstance(descriptor, MapStateDescriptor), "the kinds of state are the same"
        readers = [
            plan(stored_type.key, descriptor.key_type, where=where),
            plan(stored_type.value, value, where=where, migrate=descriptor.migrate),
        ]
    else:
        readers = [plan(stored_type, value, where=where, migrate=descriptor.migrate)]
    return [reader.describe() for reader in readers if not reader.is_identity]
