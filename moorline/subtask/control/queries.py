"""Answers to queries for the content of a key.

Called by ``subtask/task.py`` between two batches, on the subtask's own thread, so an answer is consistent: it shows
the effect of whole batches. A query never fails the subtask. An error is the answer, and nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence

from moorline.model.wire.messages import Answer, Query
from moorline.state import peeking
from moorline.subtask.operators.base import ChainedOperator

#: An answer of more bytes would hold up the control line, which checkpoints need.
MOST_BYTES = 4 << 20


def answer(operators: Sequence[ChainedOperator], query: Query) -> Answer:
    """The rows under the key, or why there are none to be had."""
    for operator in operators:
        if operator.operator.uid == query.uid and operator.backend is not None:
            break
    else:
        return Answer(id=query.id, error="the operator has no keyed state")
    moment = operator.moment
    before = moment.processing_ms
    try:
        # No batch may have come for a while, and what is over its time is not to be shown.
        moment.processing_ms = max(before, operator.wall_ms())
        kind, stored_type, table = operator.backend.peek(query.state, query.key)
        rows = peeking.to_bytes(table)
    except Exception as error:  # a store outside, a damaged disk: the next record will meet it too
        text = str(error) or type(error).__name__
        return Answer(id=query.id, error=text.encode("utf-8", "backslashreplace").decode()[:10_000])
    finally:
        moment.processing_ms = before
    if len(rows) > MOST_BYTES:
        return Answer(id=query.id, error=f"the answer has {len(rows):,} bytes, and {MOST_BYTES:,} are the limit")
    return Answer(id=query.id, kind=kind, stored_type=stored_type, rows=rows)
