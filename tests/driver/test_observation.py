"""What can be seen of a job: rates, sums, the history of its checkpoints and of its attempts."""

from __future__ import annotations

import json
from typing import Any

from driver_worlds import FailingStore, World

import moorline as mo
from moorline.driver.observation.checkpoints import KEPT_IN_DETAIL
from moorline.driver.observation.report import figures_of, publish_progress
from moorline.driver.queries.explained import with_hottest
from moorline.driver.requests import SnapshotRequest
from moorline.errors import FailureReason
from moorline.http.explained import explanation_to_json
from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles, RowsHandle, SnapshotFile
from moorline.model.type_tree.tree import PLAIN
from moorline.model.wire.figures import HotKey, OperatorFigures, UserMetric
from moorline.model.wire.messages import Acknowledged, Declined, Failed, Progress, Running
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.storage.stores.memory import MemoryStore

FIRST = SubtaskId(0, 0)


def running(**options: Any) -> World:
    return World(store=MemoryStore(), restart=mo.FixedDelay(attempts=3, delay="1s"), **options).run()


def figures(world: World) -> dict[str, Any]:
    supervision = world.supervision
    made = figures_of(supervision.observation, supervision.last_attempt)
    assert json.loads(json.dumps(made)) == made, "it is JSON as it is"
    return made


def test_a_rate_is_what_two_reports_differ_by_over_the_subtasks_own_time():
    world = running()
    for second in range(3):
        for subtask in world.subtasks:
            slow = subtask == SubtaskId(1, 1)
            world.report(
                subtask,
                Progress(
                    records_in=1_000 * second,
                    records_out=0,
                    bytes_in=50_000 * second,
                    busy_ms=1_000 * second if slow else 250 * second,
                    backpressured_ms=0 if slow else 750 * second,
                ),
            )
        world.pass_time(1_000)
    numbers, count = figures(world)["vertices"]
    assert (numbers["records_in"], numbers["records_in_per_second"]) == (4_000, 2_000.0)
    assert (numbers["busy"], numbers["back_pressured"], numbers["bytes_in_per_second"]) == (0.25, 0.75, 100_000.0)
    assert [s["busy"] for s in count["subtasks"]] == [0.25, 1.0], "one of them is skewed"
    assert (count["busy"], count["most_busy"]) == (0.625, 1.0)


def test_figures_of_an_operator_are_those_of_its_subtasks_together():
    world = running()
    for index, watermark in enumerate([9_000, 4_000]):
        operator = OperatorFigures(
            uid="count",
            records_in=10,
            records_out=7,
            watermark=watermark,
            event_time=watermark + 100,
            keys=3,
            states={"sum": 2, "last": 1},
            timers=5,
            splits={f"p-{index}": {"records_behind": 100}},
            metrics={"errors": UserMetric(kind="counter", value=4)},
        )
        report = Progress(
            records_in=10, records_out=7, operators=[operator], counters={"count": {"late_records": 1 + index}}
        )
        world.report(SubtaskId(1, index), report)
    count = figures(world)["operators"]["count"]
    assert (count["records_in"], count["records_out"], count["keys"], count["timers"]) == (20, 14, 6, 10)
    assert (count["states"], count["late_records"], count["records_behind"]) == ({"sum": 4, "last": 2}, 3, 200)
    assert (count["watermark"], count["watermark_lag_ms"]) == (4_000, world.now_ms - 4_000)
    assert count["event_time_lag_ms"] == world.now_ms - 4_100
    assert (count["metrics"]["errors"]["kind"], count["metrics"]["errors"]["value"]) == ("counter", 8.0)


def test_the_hottest_keys_of_an_operator_are_the_hottest_of_its_subtasks():
    world = running()
    for index, (key, per_second) in enumerate([(b"sada", 900.0), (b"sbob", 100.0)]):
        keys = [HotKey(key=key, share=0.5), HotKey(key=b"s" + b"x" * 300, share=0.1)]
        operator = OperatorFigures(uid="count", keyed_per_second=per_second, hot_keys=keys)
        world.report(SubtaskId(1, index), Progress(records_in=0, records_out=0, operators=[operator]))
    made = figures(world)
    count = made["operators"]["count"]
    hottest = [(hot["key"][:5], hot["records_per_second"], hot["share"]) for hot in count["hot_keys"]]
    assert count["keyed_per_second"] == 1_000.0
    assert hottest == [("'ada'", 450.0, 0.45), ("'xxxx", 90.0, 0.09), ("'bob'", 50.0, 0.05), ("'xxxx", 10.0, 0.01)]
    of_subtask = made["vertices"][1]["subtasks"][1]["operators"][0]["hot_keys"]
    assert (of_subtask[0]["share"], len(of_subtask[1]["key"])) == (0.5, 200)
    # Events go to files and logs: what is data of users stays out of them.
    publish_progress(world.supervision.observation, world.supervision.last_attempt, JobStatus.RUNNING)
    event = world.supervision.observation.progress[-1]
    assert "ada" not in event.json and event["operators"]["count"]["keyed_per_second"] == 1_000.0


def test_an_explanation_names_the_keys_that_are_hot_now():
    world = running()
    operator = OperatorFigures(uid="count", keyed_per_second=10.0, hot_keys=[HotKey(key=b"sada", share=0.5)])
    world.report(SubtaskId(1, 0), Progress(records_in=0, records_out=0, operators=[operator]))
    sizes = tuple(mo.OperatorSize(uid, uid, 2, 1, 1, 1) for uid in ("count", "gone"))
    found = with_hottest(mo.Explanation("job", 1, "memory://", 0, 1, sizes, ()), figures(world)["operators"])
    assert found.operators[0].hottest == (mo.KeyRate("ada", b"sada", 0.5, 5.0),)
    assert found.operators[1].hottest == ()
    assert explanation_to_json(found)["operators"][0]["hottest"] == [
        {"key": "ada", "share": 0.5, "records_per_second": 5.0}
    ]


def test_a_watermark_of_nought_is_one():
    world = running()
    for index, watermark in enumerate([0, 4_000]):
        operators = [OperatorFigures(uid="count", watermark=watermark)]
        world.report(SubtaskId(1, index), Progress(records_in=0, records_out=0, operators=operators))
    assert figures(world)["operators"]["count"]["watermark"] == 0


def test_a_subtask_that_has_not_reported_yet_does_not_count():
    world = running()
    world.report(FIRST, Progress(records_in=5, records_out=5, busy_ms=100))
    numbers = figures(world)["vertices"][0]
    assert [s["reported"] for s in numbers["subtasks"]] == [True, False]
    assert (numbers["records_in"], numbers["records_in_per_second"], numbers["busy"]) == (5, 50.0, 1.0)


def part(uid: str, checkpoint: int, size: int, old: int = 0) -> OperatorHandles:
    files = [SnapshotFile(f"data/chk-{checkpoint}/{uid}", size, []), SnapshotFile("data/chk-0/x", old, [])]
    return OperatorHandles(uid, [RowsHandle("sum", "value", PLAIN, 0, 128, 10, file) for file in files if file.size])


def test_a_checkpoint_in_progress_completes_with_the_parts_of_its_subtasks():
    world = running()
    world.pass_time(1_000)
    number = world.triggered()
    for subtask in world.subtasks:
        (current,) = figures(world)["checkpoints"]["in_progress"]
        assert (current["checkpoint"], current["status"], current["expected"]) == (number, "in_progress", 4)
        handles = [part("count", number, 100, old=900), OperatorHandles("out")] if subtask.vertex else []
        world.pass_time(10)
        times = {"align_ms": 5 + subtask.index, "sync_ms": 2, "async_ms": 40}
        world.report(subtask, Acknowledged(checkpoint=number, operators=handles, **times))
    checkpoints = figures(world)["checkpoints"]
    assert (checkpoints["completed"], checkpoints["failed"], checkpoints["in_progress"]) == (1, {}, [])
    last = checkpoints["last"]
    assert (last["size"], last["uploaded"], last["duration_ms"], last["align_ms"]) == (2_000, 200, 40, 6)
    world.pass_time(300)
    assert figures(world)["checkpoints"]["since_last_ms"] == 300
    details = world.supervision.observation.checkpoints.details(number)
    assert json.loads(json.dumps(details)) == details
    count = details["operators"]["count"]
    assert (count["subtasks"], count["size"], count["uploaded"], count["rows"]) == (2, 2_000, 200, 40)
    assert [(s["subtask"], s["acknowledged_ms"]) for s in details["subtasks"]] == [
        ("0/0", 10),
        ("0/1", 20),
        ("1/0", 30),
        ("1/1", 40),
    ]


def test_a_checkpoint_that_failed_says_why():
    world = running(checkpoints=mo.Checkpoints("memory://small", interval="1s", timeout="10s", tolerable_failures=3))
    world.pass_time(1_000)
    number = world.triggered()
    reason = FailureReason.UPLOAD_FAILED.name
    world.report(FIRST, Declined(checkpoint=number, reason=reason, detail="No space left on device"))
    history = world.supervision.observation.checkpoints
    assert history.failed == {"UPLOAD_FAILED": 1}
    (ended,) = history.ended()
    assert (ended["status"], ended["reason"]) == ("failed", "UPLOAD_FAILED")
    assert "No space left on device" in ended["detail"]
    assert history.details(99) is None


def test_a_checkpoint_in_progress_ends_with_its_attempt():
    world = running()
    world.pass_time(1_000)
    number = world.triggered()
    world.supervision.line_lost(1, FIRST)
    world.end_attempt(error="lost")
    (ended,) = world.supervision.observation.checkpoints.ended()
    assert (ended["checkpoint"], ended["reason"]) == (number, "ATTEMPT_ENDED")


def test_only_the_last_checkpoints_are_kept_in_detail():
    world = running()
    numbers = [world.complete() for _ in range(KEPT_IN_DETAIL + 2)]
    history = world.supervision.observation.checkpoints
    assert [len(history.details(n)["subtasks"]) for n in (numbers[0], numbers[1], numbers[2])] == [0, 0, 4]


def test_a_savepoint_is_in_the_history_and_is_not_the_last_checkpoint():
    world = running()
    number = world.complete()
    world.supervision.request(savepoint_request(), world.now_ms)
    savepoint = world.triggered()
    world.acknowledge(savepoint)
    history = world.supervision.observation.checkpoints
    assert [(r["checkpoint"], r["kind"], r["status"]) for r in history.ended()] == [
        (savepoint, "savepoint", "completed"),
        (number, "checkpoint", "completed"),
    ]
    assert history.last.checkpoint == number


def savepoint_request() -> Any:
    return SnapshotRequest(savepoint="memory://observed-savepoint")


def test_attempts_have_a_history_with_the_operator_that_failed():
    world = running()
    world.complete()
    world.report(SubtaskId(1, 0), Failed(error="ValueError: no", traceback="Traceback ...", uid="count", name="map"))
    world.end_attempt(error="cancelled")
    world.pass_time(1_000)
    world.all_report(Running(pid=8))
    second, first = world.supervision.observation.attempts.records()
    assert (first["outcome"], first["uid"], first["subtask"]) == ("failed", "count", "1/0")
    assert first["error"].startswith("ValueError: no") and "Traceback ..." in first["traceback"]
    assert (second["outcome"], second["restored"], second["attempt"]) == ("running", 1, 2)
    assert (figures(world)["attempts"], figures(world)["failures"]) == (2, 1)
    world.finish()
    assert world.supervision.observation.attempts.records()[0]["outcome"] == "finished"


def test_an_attempt_that_was_cancelled_is_not_one_that_failed():
    world = running()
    world.supervision.cancel(world.now_ms)
    world.end_attempt(error="cancelled")
    (attempt,) = world.supervision.observation.attempts.records()
    assert attempt["outcome"] == "cancelled"
    assert world.supervision.observation.attempts.failures == 0


def test_the_series_has_a_point_every_two_seconds_over_all_attempts():
    world = running()
    for second in range(6):
        world.all_report(Progress(records_in=100 * second, records_out=0, busy_ms=500 * second, idle_ms=500 * second))
        world.pass_time(1_000)
    series = world.supervision.observation.series.columns()
    assert [after - before for before, after in zip(series["time_ms"], series["time_ms"][1:])] == [2_000, 2_000, 2_000][
        : len(series["time_ms"]) - 1
    ]
    assert series["operators"]["numbers"]["records_in_per_second"][-1] == 200.0
    assert series["operators"]["count"]["busy"][-1] == 0.5
    assert json.loads(json.dumps(series)) == series


def test_nothing_is_known_of_a_job_that_has_not_begun():
    world = World(store=FailingStore())
    nothing = figures(world)
    assert (nothing["vertices"], nothing["operators"], nothing["attempts"]) == ([], {}, 0)
