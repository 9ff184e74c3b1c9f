"""Autoscaling of one job: reports of subtasks become loads, and the policy's decision becomes another graph.

Subtasks report sums of time, and of records, with every sign of life; a load is what two reports differ by. So a
report that is lost or late does no harm, and nothing is counted that was not counted anyway. ``driver/supervision.py``
asks now and then; the decisions are in ``protocol/supervision/autoscaling.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from moorline.model.config.run import Autoscale
from moorline.model.graph import Graph, Plan, Vertex
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Progress
from moorline.protocol.lowering import lower
from moorline.protocol.supervision.autoscaling import Autoscaling, Began, Measured, RescaleRefused, SubtaskLoad

log = logging.getLogger("moorline")

#: So often within a window the loads are looked at.
LOOKS = 5


class Autoscaler:
    """Decides on the parallelism of one job, attempt after attempt."""

    def __init__(self, config: Autoscale) -> None:
        self._machine = Autoscaling(config)
        self._every_ms = max(1, config.window_ms // LOOKS)
        self._looked_ms: int | None = None
        self._before: dict[SubtaskId, Progress] = {}

    def began(self, now_ms: int, rescaled: bool) -> None:
        """All subtasks of an attempt run."""
        self._looked_ms, self._before = None, {}
        self._machine.handle(Began(now_ms, rescaled))

    def wanted(
        self, plan: Plan, reports: Mapping[SubtaskId, Progress], has_room: Callable[[int], bool], now_ms: int
    ) -> Graph | None:
        """The graph to go on with, if it is another one and the cluster has room for it."""
        graph = self.look(plan, reports, now_ms)
        if graph is None:
            return None
        slots = sum(lower(graph).widths)
        if has_room(slots):
            return graph
        log.warning("there is no room for the %d subtasks that the job should have", slots)
        self._machine.handle(RescaleRefused(now_ms))
        return None

    def look(self, plan: Plan, reports: Mapping[SubtaskId, Progress], now_ms: int) -> Graph | None:
        """The graph to go on with, if it is another one."""
        if self._looked_ms is not None and now_ms - self._looked_ms < self._every_ms:
            return None
        if len(reports) < sum(v.parallelism for v in plan.vertices):
            return None  # some have not said anything yet
        since, before = self._looked_ms, self._before
        self._looked_ms, self._before = now_ms, dict(reports)
        if since is None:
            return None
        seconds = (now_ms - since) / 1000
        loads = {v.operators[0]: _load(plan, v, before, reports, seconds) for v in plan.vertices}
        for action in self._machine.handle(Measured(now_ms, loads)):
            log.info("%s", action)
            return _rescaled(plan, action.parallelism)
        return None


def _load(
    plan: Plan, vertex: Vertex, before: Mapping[SubtaskId, Progress], now: Mapping[SubtaskId, Progress], seconds: float
) -> SubtaskLoad:
    busy = backpressured = idle = records = 0
    for index in range(vertex.parallelism):
        old, new = before[SubtaskId(vertex.id, index)], now[SubtaskId(vertex.id, index)]
        busy += max(0, new.busy_ms - old.busy_ms)
        backpressured += max(0, new.backpressured_ms - old.backpressured_ms)
        idle += max(0, new.idle_ms - old.idle_ms)
        records += max(0, new.records_in - old.records_in)
    time_spent = max(1, busy + backpressured + idle)
    operators = [plan.graph.by_uid[uid] for uid in vertex.operators]
    upstream = {plan.vertices[link.source].operators[0] for link in plan.links if link.target == vertex.id}
    is_fixed = any(o.has_own_parallelism for o in operators)
    return SubtaskLoad(
        vertex.parallelism,
        busy / time_spent,
        backpressured / time_spent,
        records / seconds,
        tuple(sorted(upstream)),
        vertex.parallelism if is_fixed else plan.graph.max_parallelism,
        vertex.parallelism if is_fixed else 1,
    )


def _rescaled(plan: Plan, parallelism: Mapping[str, int]) -> Graph:
    """The graph with other numbers of subtasks. What is chained together stays so."""
    of_each = {uid: parallelism.get(v.operators[0], v.parallelism) for v in plan.vertices for uid in v.operators}
    operators = tuple(replace(o, parallelism=of_each[o.uid]) for o in plan.graph.operators)
    return replace(plan.graph, operators=operators)
