"""State as it was at the barrier: the synchronous part of a snapshot, for which the stream waits.

Sinks stage, functions fill their states, keyed state is marked or copied by pointer. Operators are asked from the tail
of their chain, as Flink does. ``subtask/snapshot/taking.py`` calls it.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorline.errors import StateTypeMismatch
from moorline.failpoints import failpoint
from moorline.model.connector_states import GLOBAL_COMMITTABLES
from moorline.model.manifest import ElementsHandle, OperatorHandles, RawHandle
from moorline.model.type_tree.tree import PLAIN
from moorline.model.wire.elements import Barrier
from moorline.state.backend import KeyedSnapshot
from moorline.state.composite import CompositeBackend
from moorline.state.types import plain
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.operators.operator_state import Elements
from moorline.subtask.operators.sink import SinkOperator
from moorline.subtask.operators.source import SourceOperator


@dataclass(frozen=True)
class Captured:
    """One operator's state as it was at the barrier."""

    uid: str
    keyed: KeyedSnapshot | None
    elements: list[Elements]
    #: By key group.
    raw_keyed: dict[int, bytes]
    #: Kinds of keys that it has seen.
    keys: list[str]


def stage_sinks(operators: list[ChainedOperator], checkpoint: int) -> None:
    """Have the sinks stage the records they were given."""
    for operator in reversed(operators):
        if isinstance(operator, SinkOperator):
            operator.prepare(checkpoint)


def stage_external(operators: list[ChainedOperator], checkpoint: int) -> None:
    """Have state in outside stores ready to be applied: a snapshot that goes nowhere still lets it through."""
    for operator in operators:
        if isinstance(operator.backend, CompositeBackend):
            operator.backend.stage(checkpoint)


def staged_for_driver(operators: list[ChainedOperator]) -> list[OperatorHandles]:
    """The committables of sinks that the driver commits: it needs that also of a snapshot that goes nowhere."""
    handles = []
    for operator in operators:
        if isinstance(operator, SinkOperator) and operator.operator.function.commits_on_driver:
            uid = operator.operator.uid
            elements = [
                ElementsHandle(state, mode, len(values), inline=[_encode(uid, state, value) for value in values])
                for state, mode, values in operator.elements()
                if state == GLOBAL_COMMITTABLES and values
            ]
            handles.append(OperatorHandles(uid, elements=elements))
    return handles


def capture(operators: list[ChainedOperator], barrier: Barrier) -> list[Captured]:
    """Capture the state of a chain. Operators are given in chain order."""
    stage_sinks(operators, barrier.checkpoint)
    captured = []
    for operator in reversed(operators):
        elements, raw_keyed = operator.state.snapshot(barrier.checkpoint, barrier.triggered_ms)
        keyed = None
        if operator.backend is not None:
            # No batch may have come for a while, and what is over its time by now may be left out.
            operator.moment.processing_ms = max(operator.moment.processing_ms, operator.wall_ms())
            is_savepoint = bool(barrier.savepoint)
            keyed = operator.backend.snapshot(barrier.checkpoint, barrier.completed, canonical=is_savepoint)
        if isinstance(operator, SourceOperator):
            operator.checkpoint = barrier.checkpoint
        if isinstance(operator, (SinkOperator, SourceOperator)):
            uid = operator.operator.uid
            elements += [(s, m, PLAIN, [_encode(uid, s, v) for v in vs]) for s, m, vs in operator.elements()]
        kinds = [] if operator.backend is None else sorted(operator.backend.identities.kinds)
        captured.append(Captured(operator.operator.uid, keyed, elements, raw_keyed, kinds))
    failpoint("ckpt.sync")
    return captured


def _encode(uid: str, state: str, value: object) -> bytes:
    try:
        return plain.encode(value)
    except plain.NotPlain as error:
        raise StateTypeMismatch(f"{state} of operator {uid}", "plain data", str(error)) from None


def done(captured: list[Captured], handles: list[OperatorHandles] | None) -> None:
    """Have the backends know that their files are durable or (None) never will be. On the subtask's thread."""
    written = {h.uid: h.keyed for h in handles or ()}
    for operator in captured:
        if operator.keyed is not None:
            # Raw state is none of the backend's.
            keyed = [] if handles is None else written[operator.uid]
            operator.keyed.done(None if handles is None else [h for h in keyed if not isinstance(h, RawHandle)])
