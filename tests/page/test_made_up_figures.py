"""The job that the page is tested with has no field that a real one has not, in any answer.

A page that asks for a field that only the test's job has would look right in every test and be wrong for every user.
"""

from __future__ import annotations

from typing import Any

import pytest
from console.stored_jobs import Totals, write_job_and_savepoint
from driver.driver_worlds import World
from location_worlds import Shop
from page_worlds import PageJob

import moorline as mo
from moorline.driver.description import describe_config, describe_graph
from moorline.driver.observation.report import figures_of
from moorline.http import stored_snapshots
from moorline.http.explained import explanation_to_json
from moorline.http.served_location import ServedLocation
from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles, RowsHandle
from moorline.model.type_tree.tree import PLAIN
from moorline.model.wire.figures import HotKey, OperatorFigures, ProcessFigures, UserMetric
from moorline.model.wire.messages import Acknowledged, Progress
from moorline.snapshots.explanation.report import (
    Expired,
    Explanation,
    GroupSize,
    Growth,
    KeyRate,
    KeySize,
    OperatorSize,
    StateSize,
)
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.memory import MemoryStore

#: Objects whose keys are names that a job or a user has chosen: they are compared by what is under any of them.
BY_NAME = frozenset({"operators", "states", "counters", "metrics", "splits", "backend", "failed", "last_operators"})
#: Groups of the configuration differ from job to job: the page shows any.
NOT_COMPARED = frozenset({"configuration"})


class Counts(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        return ()


def real_world() -> World:
    job = mo.Job("small", parallelism=2)
    job.source(mo.from_items([1, 2]), uid="numbers").key_by(abs).process(Counts(), uid="count").sink(mo.discard())
    return World(job=job, store=MemoryStore(), restart=mo.FixedDelay(attempts=3, delay="1s")).run()


def one_of_everything() -> World:
    """A job with each figure that there is, a complete, a failed and a running checkpoint, and a failed attempt."""
    world = real_world()
    world.pass_time(1_000)
    number = world.triggered()
    for subtask in world.subtasks:
        uids = world.deployment.plan.vertices[subtask.vertex].operators
        rows = [RowsHandle("count", "value", PLAIN, 0, 128, 3)]
        handles = [OperatorHandles(uid, rows if uid == "count" else []) for uid in uids]
        world.report(subtask, Acknowledged(checkpoint=number, operators=handles))
    metric = UserMetric(kind="counter", name="errors", value=1)
    for second in range(3):
        for subtask in world.subtasks:
            world.report(subtask, progress(world, subtask, metric, second))
        world.pass_time(1_000)
    world.triggered()
    return world


def progress(world: World, subtask: SubtaskId, metric: UserMetric, second: int) -> Progress:
    operators = [
        OperatorFigures(
            uid=uid,
            records_in=second,
            watermark=4_000,
            event_time=4_100,
            states={"count": 1},
            backend={"memory_bytes": 1},
            splits={"0": {"records_behind": 1}},
            metrics={"errors": metric},
            keyed_per_second=9.0,
            hot_keys=[HotKey(key=b"sada", share=0.5)],
        )
        for uid in world.deployment.plan.vertices[subtask.vertex].operators
    ]
    process = ProcessFigures(rss_bytes=1, cpu_ms=1, gc_collections=1, gc_ms=1)
    counters = {o.uid: {"lost": 1} for o in operators}
    return Progress(
        records_in=second, records_out=0, busy_ms=second, operators=operators, process=process, counters=counters
    )


def shape(answer: Any, name: str = "") -> Any:
    """The names of an answer's fields, without its values.

    >>> shape({"a": [{"b": 1}, {"c": None}]})
    {'a': {'b': {}, 'c': {}}}
    """
    if isinstance(answer, list):
        return joined([shape(part) for part in answer])
    if not isinstance(answer, dict):
        return {}
    if name in BY_NAME:
        return {"*": joined([shape(value) for value in answer.values()])}
    return {field: shape(value, field) for field, value in answer.items() if field not in NOT_COMPARED}


def joined(shapes: list[Any]) -> Any:
    fields = {field: None for each in shapes for field in each}
    return {field: joined([each[field] for each in shapes if field in each]) for field in fields}


def missing(asked: Any, there: Any, path: str = "") -> list[str]:
    """The fields of one shape that the other has not; what nothing is known of lacks nothing."""
    if not there:
        return []
    absent: list[str] = [f"{path}.{field}" for field in asked if field not in there]
    return absent + [m for f in asked if f in there for m in missing(asked[f], there[f], f"{path}.{f}")]


def metrics_of(world: World) -> dict[str, Any]:
    supervision = world.supervision
    head = {"job": "small", "status": supervision.status.value, "attempt": supervision.attempt}
    return {**head, **figures_of(supervision.observation, supervision.last_attempt)}


def page_of(world: World) -> dict[str, Any]:
    supervision = world.supervision
    graph = describe_graph(world.deployment.plan)
    config = describe_config(supervision.config, world.deployment.plan.graph)
    return {"graph": graph, "configuration": config}


def history_of(world: World) -> dict[str, Any]:
    observation = world.supervision.observation
    return {
        "checkpoints": observation.checkpoints.ended(),
        "in_progress": observation.checkpoints.in_progress(observation.now_ms),
        "attempts": observation.attempts.records(),
    }


REAL = {
    "metrics": metrics_of,
    "series": lambda world: world.supervision.observation.series.columns(),
    "described": page_of,
    "history": history_of,
    "checkpoint_details": lambda world: world.supervision.observation.checkpoints.details(1),
}


@pytest.mark.parametrize("answer", REAL)
def test_the_made_up_job_has_no_field_that_a_real_one_has_not(answer):
    real = shape(REAL[answer](one_of_everything()))
    job = PageJob(parallelism=2)
    made_up = shape(job.checkpoint_details(60) if answer == "checkpoint_details" else getattr(job, answer)())
    if answer == "described":
        made_up = {"graph": made_up["graph"]}
    assert real and missing(made_up, real) == []


def explained() -> dict[str, Any]:
    parts = {"key_groups": (GroupSize(3, 1, 1),), "largest": (KeySize("ada", b"sada", 3, 1, 1),)}
    more = {"expired": Expired(1, 1, 0, 0), "growth": Growth(1, 1, 1)}
    hottest = (KeyRate("ada", b"sada", 0.5, 4.0),)
    operator = OperatorSize("count", "Count", 1, 1, 1, 1, hottest)
    state = StateSize("count", "seen", "keyed", "value", "int", 1, 1, **parts, **more)
    return explanation_to_json(Explanation("small", 2, "memory://small", 0, 1, (operator,), (state,), 1, 0, 1))


def test_the_made_up_location_has_the_fields_of_a_real_one(tmp_path):
    write_job_and_savepoint(tmp_path / "job", tmp_path / "savepoint")
    real = ServedLocation(str(tmp_path), version="1").jobs()
    for kind, made in Shop().jobs().items():
        assert all(set(row) <= set(real[kind][0]) for row in made)


def test_the_made_up_snapshots_have_no_field_that_real_ones_have_not(tmp_path):
    job, savepoint = str(tmp_path / "job"), str(tmp_path / "savepoint")
    write_job_and_savepoint(tmp_path / "job", tmp_path / "savepoint")
    rows = [{"k": "ada", "value": 1}]
    mo.SnapshotWriter(str(tmp_path / "other"), job="j").keyed(
        "totals", mo.ValueStateDescriptor("total", int), rows, key="k"
    ).write()
    planned = mo.Job("harness", parallelism=2)
    planned.source(mo.from_items([1]), uid="s").key_by(str).process(Totals(), uid="totals").sink(mo.discard())
    real = {
        "explained": explained(),
        "snapshots": stored_snapshots.history_of(LocalStore(job)),
        "snapshot": stored_snapshots.contents(savepoint),
        "plan": stored_snapshots.plan_of(planned.graph(), savepoint),
        "diff": stored_snapshots.differences((savepoint, None), (str(tmp_path / "other"), None)),
    }
    made = PageJob(parallelism=2)
    made_up = {
        "explained": made.explained(None, 10),
        "snapshots": made.snapshots(),
        "snapshot": made.snapshot(61),
        "plan": made.plan(61),
        "diff": made.diff(60, 61) | {"changes": [{**c, "key": 1} for c in made.diff(60, 61)["changes"]]},
    }
    # By list, and not by name: here states and operators are in order.
    for answer, fields in made_up.items():
        assert missing(shape({"answer": fields}), shape({"answer": real[answer]})) == [], answer
