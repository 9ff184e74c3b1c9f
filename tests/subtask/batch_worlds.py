"""A batch job without Spark: tasks run one after the other, and a list is the shuffle.

As on Spark, a task may fail at any step and is run again from its rows; and a finished task may be run again because
its output was lost, when some of its readers have read it already.
"""

from __future__ import annotations

import pickle
import random
from typing import Any

import cloudpickle
import pyarrow as pa

import moorline as mo
from moorline.model.config.state import StateConfig
from moorline.model.graph import Plan
from moorline.model.ids import Attempt
from moorline.model.wire.deployment import Deployment
from moorline.spark.batch.program import plan_of
from moorline.subtask.batch import rows as batch_rows
from moorline.subtask.batch.rows import ARROW_SCHEMA
from moorline.subtask.batch.subtask import BatchSubtask
from moorline.subtask.environment import Environment


class Lost(Exception):
    """The task is gone."""


class BatchWorld:
    """Runs a job and keeps what reaches the driver. ``faults``: how likely a task is lost at a step."""

    def __init__(self, job: mo.Job, seed: int = 0, faults: float = 0.0, rows_per_batch: int = 7) -> None:
        self.plan: Plan = plan_of(job.graph())
        self._random, self._faults, self._rows_per_batch = random.Random(seed), faults, rows_per_batch
        self.collected: dict[str, list[Any]] = {}
        self.staged: list[tuple[str, list[Any]]] = []
        self.attempts = 0

    def run(self) -> BatchWorld:
        rows: list[dict[str, Any]] = []
        for stage, width in enumerate(self.plan.widths):
            rows = [row for slot in range(width) for row in self._task(stage, slot, rows)]
        for row in sorted(rows, key=lambda r: r["seq"]):
            kind, name, values = pickle.loads(row["payload"])
            if kind == "collected":
                self.collected.setdefault(name, []).extend(values)
            else:
                self.staged.append((name, values))
        return self

    def _task(self, stage: int, slot: int, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = None
        attempt = 0
        while found is None:
            attempt += 1
            try:
                found = self._attempt(stage, slot, attempt, self._shuffled(slot, before), attempt < 4)
            except Lost:
                continue
            if self._random.random() < self._faults:
                again = self._attempt(stage, slot, attempt + 1, self._shuffled(slot, before), may_fail=False)
                # Some readers have the one, some the other.
                turn = {row["slot"]: self._random.random() < 0.5 for row in found}
                found = [r for r in found if turn[r["slot"]]] + [r for r in again if not turn.get(r["slot"], False)]
        return found

    def _shuffled(self, slot: int, before: list[dict[str, Any]]) -> list[pa.RecordBatch]:
        """The rows of a slot as Spark sorts them, having fetched them in any order."""
        mine = [row for row in before if row["slot"] == slot]
        self._random.shuffle(mine)
        mine.sort(key=lambda row: tuple(row[name] for name in batch_rows.ORDER))
        step = self._rows_per_batch
        return [pa.RecordBatch.from_pylist(mine[n : n + step], ARROW_SCHEMA) for n in range(0, len(mine), step)]

    def _attempt(
        self, stage: int, slot: int, attempt: int, batches: list[pa.RecordBatch], may_fail: bool
    ) -> list[dict[str, Any]]:
        self.attempts += 1
        # User code is its own in every task, as it is on Spark.
        plan = pickle.loads(cloudpickle.dumps(self.plan))
        deployment = Deployment(plan, Attempt(attempt), state=StateConfig(one_key=True))
        environment = Environment(lambda: 0.0, lambda report: None, lambda work, done: None, None)
        subtask = BatchSubtask(deployment, plan.at(stage, slot), environment)
        found: list[dict[str, Any]] = []
        steps = subtask.steps(batches)
        for _ in steps:
            if may_fail and self._random.random() < self._faults:
                steps.close()
                raise Lost
            for batch in subtask.rows.take():
                found += batch.to_pylist()
        for batch in subtask.rows.take_all():
            found += batch.to_pylist()
        return found


def run(job: mo.Job, name: str = "out", **options: Any) -> list[Any]:
    return BatchWorld(job, **options).run().collected[name]
