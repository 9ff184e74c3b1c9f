"""Can this job read what the snapshot holds? Asked on the driver, before anything is started.

For every state that is declared on a function's class the stored type is compared with the declared one. States that
a function asks for in ``open`` are not known here: those are checked by the subtasks, before the first record.
"""

from __future__ import annotations

import logging
from typing import Any

from moorline.api.descriptors import MapStateDescriptor, StateDescriptor
from moorline.api.states import declared_states
from moorline.errors import StateIncompatible
from moorline.model.graph import Graph
from moorline.model.manifest import Manifest, OperatorEntry
from moorline.state.evolution import Where, plan
from moorline.state.type_names import parse_map

log = logging.getLogger("moorline")


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
                kind, type_name = stored[descriptor.name]
                for note in conversions(entry.uid, descriptor, kind, type_name):
                    log.info("state %r of operator %r: %s", descriptor.name, entry.uid, note)


def stored_states(entry: OperatorEntry) -> dict[str, tuple[str, str]]:
    """Kind and type of every keyed state in a manifest, as the newest of its handles has them."""
    found: dict[str, tuple[str, str]] = {}
    for subtask in entry.subtasks:
        for handle in subtask.keyed:
            if handle.kind == "native":
                found.update({name: (kind, type_name) for name, kind, type_name in handle.states})
            else:
                found[handle.state] = (handle.kind, handle.type)
    return found


def conversions(uid: str, descriptor: StateDescriptor, kind: str, type_name: str) -> list[str]:
    """What will be converted on the way, a sentence each. Raises StateIncompatible if it cannot be read."""
    where = Where(uid, descriptor.name)
    value: Any = descriptor.type  # type: ignore[attr-defined]
    if kind != descriptor.kind:
        raise StateIncompatible(uid, descriptor.name, f"{kind} of {type_name}", f"{descriptor.kind} state")
    if isinstance(descriptor, MapStateDescriptor):
        key_name, value_name = parse_map(type_name)
        readers = [
            plan(key_name, descriptor.key_type, where=where),
            plan(value_name, value, where=where, migrate=descriptor.migrate),
        ]
    else:
        readers = [plan(type_name, value, where=where, migrate=descriptor.migrate)]
    return [reader.describe() for reader in readers if not reader.is_identity]
