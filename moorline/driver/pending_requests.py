"""The futures of the requests that a job has not answered yet, by the numbers that ``protocol/requests.py`` knows."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count

from moorline.driver.requests import SnapshotOrder, SnapshotRequest
from moorline.model.graph import Graph
from moorline.protocol.requests import Answer, TakeSnapshot


@dataclass(eq=False)
class RescaleRequest:
    """Go on with this graph."""

    graph: Graph
    #: The attempt that runs with it, or why there is none.
    answer: Future[int] = field(default_factory=Future)


class PendingRequests:
    """Of one job, from its first start to its end."""

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
            return  # nobody waits any more
        if isinstance(action.result, int):
            future.set_result(action.result)
        else:
            future.set_exception(action.result)
