"""The requests to a job that have no answer yet, with their futures.

``protocol/supervision/requests.py`` decides when a request is granted and answered, and knows it by the number that it
gets here.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count

from moorline.driver.checkpoints.orders import SnapshotOrder
from moorline.model.graph import Graph
from moorline.protocol.supervision.requests import Answer, TakeSnapshot


@dataclass(eq=False)
class SnapshotRequest:
    """A savepoint, now or before the job is stopped."""

    #: Where it goes.
    savepoint: str
    #: Before that, time ends: everything that waits for it fires.
    drain: bool = False
    #: The number of the snapshot, or why there is none.
    answer: Future[int] = field(default_factory=Future)


@dataclass(eq=False)
class RescaleRequest:
    """A graph with another parallelism to go on with."""

    graph: Graph
    #: The attempt that runs with it, or why there is none.
    answer: Future[int] = field(default_factory=Future)


class PendingRequests:
    """The pending requests of one job, from its first start to its end."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._requests: dict[int, SnapshotRequest | RescaleRequest] = {}

    def add(self, request: SnapshotRequest | RescaleRequest) -> int:
        """The number of a new request."""
        number = next(self._numbers)
        self._requests[number] = request
        return number

    def order(self, action: TakeSnapshot) -> SnapshotOrder:
        """The order for the attempt that takes a snapshot."""
        request = self._requests[action.request]
        drain = isinstance(request, SnapshotRequest) and request.drain
        return SnapshotOrder(action.request, action.savepoint, action.pauses, drain)

    def graph(self, number: int) -> Graph:
        """The graph of a rescale."""
        request = self._requests[number]
        assert isinstance(request, RescaleRequest)
        return request.graph

    def answer(self, action: Answer) -> None:
        """Have the caller go on; each request is answered once."""
        future = self._requests.pop(action.request).answer
        if not future.set_running_or_notify_cancel():
            return  # the caller has given up waiting
        if isinstance(action.result, int):
            future.set_result(action.result)
        else:
            future.set_exception(action.result)
