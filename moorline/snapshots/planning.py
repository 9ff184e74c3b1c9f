"""The plan of a restore: what would happen to the state in a snapshot if this job were started from it.

    matches     stored as it is declared
    converted   stored otherwise, and read by a rule or by the user's migrate
    new         declared, and not in the snapshot
    dropped     in the snapshot, and named in drop_states (or its operator is gone, and that is allowed)
    LOST        in the snapshot, and no operator takes it: the job would refuse to start
    IMPOSSIBLE  cannot be read as it is declared now: the job would refuse to start
    unknown     in the snapshot, not declared on the class; the function may ask for it in open()

``mo.plan`` and the command line show it. Nothing is read but the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moorline.api.functions.base import Function
from moorline.api.generated_uids import advice_on_uids
from moorline.api.job import Job
from moorline.api.state.operator_state import CheckpointedFunction, ListCheckpointed
from moorline.api.state.states import State, declared_states
from moorline.errors import InFlightNowhere, KeysChanged, MaxParallelismChanged, StateIncompatible
from moorline.model.connector_states import CONNECTOR_STATES
from moorline.model.graph import Graph, Operator
from moorline.model.keys.kinds import ANY, kinds_of_selector
from moorline.model.manifest import Manifest, NativeHandle, OperatorEntry, RawHandle
from moorline.model.options import checks_options
from moorline.model.type_tree.tree import StateType
from moorline.protocol.redistribution import DEALT_OUT_ANEW, check_inputs, key_groups_of, stored_key_groups
from moorline.snapshots.compatibility import conversions, other_kind, stored_states, with_key_kinds
from moorline.snapshots.folders import open_snapshot

#: What a job would refuse to start over.
REFUSED = ("LOST", "IMPOSSIBLE")
#: What belongs to the machinery and not to the user's function.
_OURS = ("timers:", "store:", "#", "window-contents", "merging-window-set", "trigger.", "window.")


@dataclass(frozen=True)
class StatePlan:
    """The fate of one state."""

    uid: str
    state: str
    kind: str
    verdict: str
    #: For people: the stored and the declared type, what is converted, why not.
    note: str
    rows: int = 0
    size: int = 0


@dataclass(frozen=True)
class RestorePlan:
    """The fate of everything in a snapshot. ``print`` it; ``is_safe`` says whether the job would start."""

    snapshot: str
    checkpoint: int
    key_groups: int
    states: list[StatePlan] = field(default_factory=list)
    #: What is wrong with the job as a whole.
    problems: list[str] = field(default_factory=list)
    #: What is done on the way and costs something, and what had better be otherwise.
    notes: list[str] = field(default_factory=list)

    @property
    def is_safe(self) -> bool:
        return not self.problems and not any(s.verdict in REFUSED for s in self.states)

    def __str__(self) -> str:
        lines = [f"{self.snapshot}: checkpoint {self.checkpoint}, {self.key_groups} key groups"]
        lines += [f"  PROBLEM: {problem}" for problem in self.problems]
        lines += [f"  note: {note}" for note in self.notes]
        rows = [(s.uid, s.state, s.kind, s.verdict, f"{s.rows:,}", f"{s.size:,}", s.note) for s in self.states]
        head = ("operator", "state", "kind", "verdict", "rows", "bytes", "")
        widths = [max(len(row[n]) for row in [head, *rows]) for n in range(6)]
        for row in [head, *rows]:
            cells = [cell.ljust(width) for cell, width in zip(row, widths)]
            lines.append("  " + "  ".join([*cells, row[6]]).rstrip())
        lines.append(
            "  the job would start" if self.is_safe else "  the job would REFUSE to start: state would be lost"
        )
        return "\n".join(lines)


def plan_restore(manifest: Manifest, graph: Graph, snapshot: str, allow_non_restored: bool = False) -> RestorePlan:
    """The plan for starting ``graph`` from a snapshot. For its keys see ``preflight.with_key_kinds``."""
    problems: list[str] = []
    key_groups = graph.max_parallelism
    try:
        key_groups = key_groups_of(manifest, graph)
    except MaxParallelismChanged as error:
        problems.append(str(error))
    advice, stored = advice_on_uids(graph), stored_key_groups(manifest)
    notes = [advice] if advice is not None else []
    if not problems and stored is not None and stored != key_groups:
        notes.append(f"the snapshot has {stored} key groups and the job {key_groups}: {DEALT_OUT_ANEW}")
    plan = RestorePlan(snapshot, manifest.checkpoint, key_groups, problems=problems, notes=notes)
    for entry in manifest.operators:
        operator = graph.by_uid.get(entry.uid)
        try:
            if operator is not None or not allow_non_restored:
                check_inputs(entry, operator.inputs if operator is not None else (), snapshot)
        except InFlightNowhere as error:
            problems.append(str(error))
        if operator is None:
            verdict = "dropped" if allow_non_restored else "LOST"
            note = "the job has no operator with this uid"
            plan.states.extend(_all(entry, verdict, note))
        else:
            wrong, to_know = _keys(entry, operator)
            problems += wrong
            notes += to_know
            plan.states.extend(_operator(entry, operator))
    for operator in graph.operators:
        if operator.uid not in {entry.uid for entry in manifest.operators}:
            for declared in declared_states(operator.function).values():
                plan.states.append(_new(operator.uid, declared))
    return plan


def _keys(entry: OperatorEntry, operator: Operator) -> tuple[list[str], list[str]]:
    """Problems with the keys of an operator, and notes about them."""
    if not operator.is_keyed or not entry.keys:
        return [], []
    now = other_kind(entry, operator)
    if now is not None:
        return [str(KeysChanged(entry.uid, tuple(entry.keys), now))], []
    rekey = operator.options.get("rekey")
    if rekey is not None and rekey.name != entry.rekeyed:
        return [], [
            f"operator {entry.uid!r}: rekey {rekey.name!r} makes new keys of those of kind {' or '.join(entry.keys)}"
        ]
    if all(kinds_of_selector(i.key, i.key_type) == [ANY] for i in operator.inputs):
        stored = " or ".join(entry.keys)
        return [], [
            f"operator {entry.uid!r}: its state is under keys of kind {stored}; the first record must have such a key"
        ]
    return [], []


def _new(uid: str, declared: State) -> StatePlan:
    descriptor: Any = declared.descriptor
    return StatePlan(uid, descriptor.name, descriptor.kind, "new", "starts empty")


def _sizes(entry: OperatorEntry) -> dict[str, tuple[int, int]]:
    """Rows and bytes of every state. Those in native files are not distinguished."""
    sizes: dict[str, tuple[int, int]] = {}
    for subtask in entry.subtasks:
        for handle in subtask.keyed:
            if not isinstance(handle, NativeHandle):
                rows, size = sizes.get(handle.state, (0, 0))
                sizes[handle.state] = rows + handle.rows, size + sum(f.size for f in handle.all_files())
        for elements in subtask.elements:
            rows, size = sizes.get(elements.state, (0, 0))
            inline = sum(map(len, elements.inline))
            sizes[elements.state] = rows + elements.count, size + inline + (elements.file.size if elements.file else 0)
    return sizes


def _element_states(entry: OperatorEntry) -> dict[str, str]:
    return {e.state: e.mode for s in entry.subtasks for e in s.elements if e.count}


def _all(entry: OperatorEntry, verdict: str, note: str) -> list[StatePlan]:
    sizes = _sizes(entry)
    states = {name: kind for name, (kind, _) in stored_states(entry).items()} | _element_states(entry)
    return [
        StatePlan(entry.uid, name, kind, verdict, note, *sizes.get(name, (0, 0)))
        for name, kind in states.items()
        if name not in CONNECTOR_STATES or verdict == "LOST"
    ]


def _operator(entry: OperatorEntry, operator: Operator) -> list[StatePlan]:
    declared = {d.descriptor.name: d for d in declared_states(operator.function).values()}
    dropped = operator.options.get("drop_states", frozenset())
    sizes, plans = _sizes(entry), []
    for name, (kind, stored_type) in stored_states(entry).items():
        rows, size = sizes.get(name, (0, 0))
        if name in declared:
            verdict, note = _declared(entry.uid, declared[name], kind, stored_type)
        elif name in dropped:
            verdict, note = "dropped", "named in drop_states"
        elif name.startswith(_OURS) or kind == RawHandle.kind:
            verdict, note = "matches", "kept by the operator itself"
        elif _may_ask(operator):
            verdict, note = "unknown", "not declared on the class; the function may ask for it in open()"
        else:
            verdict, note = "LOST", f"stored as {kind} of {stored_type}, and the function has no such state"
        plans.append(StatePlan(entry.uid, name, kind, verdict, note, rows, size))
    for name, mode in _element_states(entry).items():
        rows, size = sizes.get(name, (0, 0))
        asks = _may_ask(operator) or operator.kind in ("source", "sink", "broadcast_process")
        known = "matches" if name in CONNECTOR_STATES else "unknown" if asks else "LOST"
        verdict = "dropped" if name in dropped else known
        plans.append(StatePlan(entry.uid, name, mode, verdict, "operator state", rows, size))
    plans += [_new(entry.uid, d) for name, d in declared.items() if name not in {p.state for p in plans}]
    return plans


def _declared(uid: str, declared: State, kind: str, stored_type: StateType) -> tuple[str, str]:
    try:
        notes = conversions(uid, declared.descriptor, kind, stored_type)
    except StateIncompatible as error:
        return "IMPOSSIBLE", f"stored as {error.stored}, declared as {error.declared}: {error.reason}"
    return ("converted", "; ".join(notes)) if notes else ("matches", str(stored_type))


def _may_ask(operator: Operator) -> bool:
    """Could the function ask for states that are not declared on its class?"""
    function = operator.function
    if isinstance(function, (CheckpointedFunction, ListCheckpointed)) or operator.kind == "window":
        return True
    return isinstance(function, Function) and type(function).open is not Function.open


@checks_options()
def plan(
    job: Job,
    *,
    restore: str,
    checkpoint: int | None = None,
    parallelism: int | None = None,
    allow_non_restored_state: bool = False,
) -> RestorePlan:
    """Plan a start of ``job`` from a savepoint, or from a checkpoint in a job's folder: the fate of each state.

    ``print`` it; ``plan.is_safe`` is false if the job would refuse to start, because state would be lost or could not
    be read. Nothing is started.
    """
    manifest, store = open_snapshot(restore, checkpoint)
    graph = job.graph(parallelism)
    return plan_restore(with_key_kinds(manifest, graph, store), graph, store.url, allow_non_restored_state)
