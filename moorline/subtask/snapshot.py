"""One subtask's part of a checkpoint: the quick part on its thread, the slow part off it.

    1  the barrier goes downstream                 (``subtask/loop.py``)
    2  sinks stage, states are copied by pointer   synchronous: the stream waits
    3  files are encoded and written               in the background: the stream goes on
    4  the acknowledgement                         only when every file is durable

Handles of small operator states travel inside the acknowledgement instead of a file of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moorline.errors import StateTypeMismatch
from moorline.failpoints import failpoint
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import ElementsHandle, KeyedHandle, OperatorHandles
from moorline.state import plain
from moorline.state.backend import Part
from moorline.storage import layout, snapshots
from moorline.storage.blobs import BlobStore
from moorline.subtask.ends import Elements, SinkOperator, SourceOperator
from moorline.subtask.operator import ChainedOperator

#: Operator states up to this size need no file.
INLINE_BYTES = 16 << 10


@dataclass(frozen=True)
class Taken:
    """One operator's state as it was at the barrier."""

    uid: str
    parts: list[Part]
    elements: list[tuple[str, str, list[bytes]]]


def stage(operators: list[ChainedOperator], checkpoint: int) -> None:
    """Have the sinks stage what they were given. All there is to do where snapshots go nowhere."""
    for operator in reversed(operators):
        if isinstance(operator, SinkOperator):
            operator.prepare(checkpoint)


def take(operators: list[ChainedOperator], checkpoint: int) -> list[Taken]:
    """The synchronous part. Operators are given in chain order and asked from the tail, as Flink does."""
    stage(operators, checkpoint)
    taken = []
    for operator in reversed(operators):
        parts = operator.backend.snapshot() if operator.backend is not None else []
        elements: Elements = []
        if isinstance(operator, (SinkOperator, SourceOperator)):
            elements = operator.elements()
        uid = operator.operator.uid
        taken.append(Taken(uid, parts, [(s, m, [_encode(uid, s, v) for v in values]) for s, m, values in elements]))
    failpoint("ckpt.sync")
    return taken


def _encode(uid: str, state: str, value: Any) -> bytes:
    try:
        return plain.encode(value)
    except plain.NotPlain as error:
        raise StateTypeMismatch(f"{state} of operator {uid}", "plain data", str(error)) from None


def writer(
    store: BlobStore, taken: list[Taken], checkpoint: int, subtask: int, attempt: int, key_groups: KeyGroupRange
) -> Callable[[], list[OperatorHandles]]:
    """The asynchronous part, to be called off the subtask's thread."""

    def path(uid: str, state: str) -> str:
        return layout.data_path(checkpoint, uid, state, subtask, attempt)

    def write_elements(uid: str, state: str, mode: str, encoded: list[bytes]) -> ElementsHandle:
        if sum(map(len, encoded)) <= INLINE_BYTES:
            return ElementsHandle(state, mode, len(encoded), inline=encoded)
        file = snapshots.write_elements(store, path(uid, state), encoded)
        return ElementsHandle(state, mode, len(encoded), file=file)

    def write() -> list[OperatorHandles]:
        handles = []
        for operator in taken:
            keyed = []
            for part in operator.parts:
                rows = part.table()
                if rows.num_rows:
                    file = snapshots.write_rows(store, path(operator.uid, part.state), rows)
                    first, end = key_groups.first, key_groups.end
                    keyed.append(KeyedHandle(part.state, part.kind, part.type, first, end, rows.num_rows, file))
            elements = [write_elements(operator.uid, *e) for e in operator.elements if e[2]]
            handles.append(OperatorHandles(operator.uid, keyed, elements))
        failpoint("ckpt.uploaded")
        return handles

    return write


def release(taken: list[Taken]) -> None:
    """The files are written, or never will be: stop sharing values with the snapshot."""
    for operator in taken:
        for part in operator.parts:
            part.release()
