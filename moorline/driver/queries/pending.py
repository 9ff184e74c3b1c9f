"""Queries of live state that are under way: which subtask was asked, and which caller waits for the answer.

    asked      routed by key group to the one subtask that owns the key, if the job is at work; else refused
    answered   the result goes to the caller. An answer that is no longer waited for is dropped
    ended      the attempt is over: all callers are refused, and may ask the next attempt

Part of the supervision and, like it, without clock and thread. ``driver/queries/service.py`` is the side that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from moorline.model import keys
from moorline.model.graph import Plan
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import owner
from moorline.model.wire.messages import Answer, Query

#: More are not let through at the same time: each is a message to a subtask that has other things to do.
MOST_WAITING = 64


@dataclass(frozen=True)
class QueryRefused:
    """The query has not reached a subtask, or the subtask is gone. It may be asked again."""

    why: str


@dataclass(eq=False)
class LiveQuery:
    """A query of the state under one key."""

    uid: str
    state: str
    #: The key's stable encoding.
    key: bytes
    #: Called once, on the supervision's thread.
    on_result: Callable[[Answer | QueryRefused], None]
    #: Set by the caller that has stopped waiting.
    is_given_up: bool = False


class PendingQueries:
    """The queries of one job that wait for an answer."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, LiveQuery] = {}

    def ask(self, query: LiveQuery, plan: Plan, send: Callable[[SubtaskId, Query], None]) -> None:
        """Pass a query on to the subtask that owns its key."""
        self._waiting = {number: other for number, other in self._waiting.items() if not other.is_given_up}
        if len(self._waiting) >= MOST_WAITING:
            query.on_result(QueryRefused(f"{MOST_WAITING} other queries are waiting"))
            return
        number = next(self._numbers)
        self._waiting[number] = query
        send(route(plan, query.uid, query.key), Query(id=number, uid=query.uid, state=query.state, key=query.key))

    def answered(self, answer: Answer) -> None:
        """A subtask has answered; perhaps for the second time, or too late."""
        query = self._waiting.pop(answer.id, None)
        if query is not None:
            query.on_result(answer)

    def ended(self, why: str) -> None:
        """Refuse all that wait: the attempt that they were sent to has ended."""
        waiting, self._waiting = self._waiting, {}
        for query in waiting.values():
            query.on_result(QueryRefused(why))


def route(plan: Plan, uid: str, key: bytes) -> SubtaskId:
    """The subtask of an operator that owns a key."""
    vertex = next(v for v in plan.vertices if uid in v.operators)
    key_groups = plan.graph.max_parallelism
    return SubtaskId(vertex.id, owner(keys.encoded_key_group(key, key_groups), vertex.parallelism, key_groups))
