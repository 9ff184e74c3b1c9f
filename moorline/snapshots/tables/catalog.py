"""The states of a snapshot: one line for each, from the manifest alone. No file is read for it.

table      states                                                what its rows are
keyed      value, list, map, reducing, aggregating, store        one per value, element or entry of a key
timers     timers:event, timers:processing                       one per timer
raw        raw keyed state, raw operator state                   one per key group or piece
operator   split and union lists; positions; committables        one per element
broadcast  broadcast maps                                        one per entry, of one copy
in_flight  what was on its way to the operator                   one per record
files      files of a backend's own kind                         none: they are read through ``keyed``
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.key_groups import MAX_KEY_GROUPS
from moorline.model.manifest import ElementsHandle, FileHandle, Manifest, NativeHandle, OperatorEntry

#: The name of the operator state that raw pieces are kept in (``subtask/operators/operator_state.py``).
RAW_ELEMENTS = "#raw"

_TABLES = {"timers": "timers", "raw": "raw"}
_COLUMNS = {"rows": pa.int64(), "bytes": pa.int64()}


@dataclass(frozen=True)
class StateInfo:
    """One state of one operator, over all subtasks."""

    uid: str
    #: The operator's name, for people.
    operator: str
    state: str
    table: str
    #: value, list, map ...; of operator state, its mode: split, union or broadcast.
    kind: str
    #: In words.
    type: str
    parallelism: int
    max_parallelism: int
    #: The key groups ``[first_key_group,end_key_group)`` that have rows; None if it has no key.
    first_key_group: int | None
    end_key_group: int | None
    #: With increments it is an upper bound: what they replace is still counted. None: not known without reading.
    rows: int | None
    #: None if the bytes cannot be distinguished from those of other states.
    bytes: int | None
    files: int
    increments: int
    #: Which backend's own files it is in; empty if it is in rows.
    backend: str


def states_of(manifest: Manifest) -> list[StateInfo]:
    """Every state of a snapshot, in the order of its operators."""
    return [info for operator in manifest.operators for info in _states(operator)]


def metadata_table(manifest: Manifest) -> pa.Table:
    """The same as a table."""
    infos = states_of(manifest)
    return pa.table({name: pa.array([getattr(i, name) for i in infos], kind) for name, kind in _TYPES.items()})


_TYPES = {f.name: pa.string() if f.type == "str" else _COLUMNS.get(f.name, pa.int32()) for f in fields(StateInfo)}
METADATA = pa.schema(list(_TYPES.items()))


def key_groups_of(operator: OperatorEntry) -> int:
    """The number of key groups of an operator, if it can be one."""
    if not 1 <= operator.max_parallelism <= MAX_KEY_GROUPS:
        raise SnapshotCorrupt("the manifest", f"operator {operator.uid!r} has {operator.max_parallelism} key groups")
    return operator.max_parallelism


def _states(operator: OperatorEntry) -> Iterator[StateInfo]:
    rows: dict[str, list[FileHandle]] = {}
    natives: list[NativeHandle] = []
    elements: dict[str, list[ElementsHandle]] = {}
    for subtask in operator.subtasks:
        for handle in subtask.keyed:
            if isinstance(handle, NativeHandle):
                natives.append(handle)
            else:
                rows.setdefault(handle.state, []).append(handle)
        for part in subtask.elements:
            elements.setdefault(part.state, []).append(part)
    for state, chain in rows.items():
        yield _keyed(operator, state, chain)
    yield from _native(operator, natives)
    for state, parts in elements.items():
        mode = parts[0].mode
        table = "raw" if state == RAW_ELEMENTS else "broadcast" if mode == "broadcast" else "operator"
        files = [p.file for p in parts if p.file is not None]
        size = sum(f.size for f in files) + sum(len(e) for p in parts for e in p.inline)
        count = sum(p.count for p in parts)
        yield _info(operator, state, table, mode, str(parts[-1].type), None, count, size, len(files))
    moving = [h for subtask in operator.subtasks for h in subtask.in_flight]
    if moving:
        files = [h.file for h in moving if h.file is not None]
        size = sum(f.size for f in files) + sum(len(e) for h in moving for e in h.inline)
        kind = "pickled" if any(h.pickled for h in moving) else "plain"
        yield _info(operator, "", "in_flight", kind, "", None, sum(h.records for h in moving), size, len(files))


def _keyed(operator: OperatorEntry, state: str, chain: list[FileHandle]) -> StateInfo:
    span = min(h.first for h in chain), max(h.end for h in chain)
    newest = chain[-1]
    size = sum(f.size for h in chain for f in h.all_files())
    count, increments = sum(h.rows for h in chain), sum(h.increment for h in chain)
    table = _TABLES.get(newest.kind, "keyed")
    return _info(operator, state, table, newest.kind, str(newest.type), span, count, size, len(chain), increments)


def _native(operator: OperatorEntry, natives: list[NativeHandle]) -> Iterator[StateInfo]:
    if not natives:
        return
    span = min(h.first for h in natives), max(h.end for h in natives)
    backend = natives[-1].backend
    states = {state.name: state for h in natives for state in h.states}
    for state in states.values():
        table = _TABLES.get(state.kind, "keyed")
        yield _info(operator, state.name, table, state.kind, str(state.type), span, None, None, 0, 0, backend)
    files = {f.path: f.size for h in natives for f in h.all_files()}
    yield _info(operator, "", "files", "native", "", span, None, sum(files.values()), len(files), 0, backend)


def _info(
    operator: OperatorEntry,
    state: str,
    table: str,
    kind: str,
    type_name: str,
    span: tuple[int, int] | None,
    rows: int | None,
    size: int | None,
    files: int,
    increments: int = 0,
    backend: str = "",
) -> StateInfo:
    first, end = span or (None, None)
    return StateInfo(
        operator.uid,
        operator.name,
        state,
        table,
        kind,
        type_name,
        operator.parallelism,
        operator.max_parallelism,
        first,
        end,
        rows,
        size,
        files,
        increments,
        backend,
    )
