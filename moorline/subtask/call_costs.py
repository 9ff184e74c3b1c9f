"""Whether a call costs a receiver more than its records do: then it gets more of them at a time.

``subtask/inputs.py`` asks how much may always be on its way to a subtask, and ``subtask/links.py`` how many records to
pickle together for it.
"""

from __future__ import annotations

from moorline.api.sinks import Sink
from moorline.model.graph import Operator, OperatorKind, Plan
from moorline.protocol.flow import LEAST_FOR_CALLS, LEAST_FOR_COLUMNS
from moorline.subtask.columns.eligible import keeps_columns

#: Records are pickled in parts of so many at most: few enough for the processor's cache, where an object takes ten
#: times as much room as its bytes.
FEW_RECORDS = 256
#: And of so many where a call may take as long for little as for much.
MANY_RECORDS = 4_096


def most_records(plan: Plan, vertex: int) -> int:
    """The most records that are pickled together for a subtask of the vertex: it is called once for each part."""
    return MANY_RECORDS if least_window(plan, vertex) > 1 else FEW_RECORDS


def least_window(plan: Plan, vertex: int) -> int:
    """The bytes that may always be on their way to a subtask: more where a call takes as long for little as for much.

    One of the user's that is given many records may: a sink, a function of batches. Our own sinks take what they are
    given and go on. And so may a chain of steps on columns alone, where a call costs as much as thousands of rows.
    """
    operators = [plan.graph.by_uid[uid] for uid in plan.vertices[vertex].operators]
    if all(map(_is_on_columns, operators)):
        return LEAST_FOR_COLUMNS
    return LEAST_FOR_CALLS if any(map(_is_users_call, operators)) else 1


def _is_users_call(operator: Operator) -> bool:
    is_own = type(operator.function).__module__.startswith("moorline.")
    return operator.kind in _USERS_CALLS or (isinstance(operator.function, Sink) and not is_own)


def _is_on_columns(operator: Operator) -> bool:
    if isinstance(operator.function, Sink):
        return operator.function.takes_columns
    return operator.kind in _ON_COLUMNS or keeps_columns(operator)


_USERS_CALLS = (OperatorKind.MAP_BATCHES, OperatorKind.FILTER_BATCHES)
_ON_COLUMNS = (
    OperatorKind.WITH_SCHEMA,
    OperatorKind.SELECT,
    OperatorKind.WHERE,
    OperatorKind.PROCESS_BATCHES,
    OperatorKind.DEDUPLICATE,
    OperatorKind.TOP,
)
