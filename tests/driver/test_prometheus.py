"""The text that Prometheus reads, read back by the client's own parser."""

from __future__ import annotations

from typing import Any

import pytest
from driver_worlds import World
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import moorline as mo
from moorline.driver.observation.report import figures_of
from moorline.errors import FailureReason
from moorline.http import prometheus
from moorline.http.metric_families import FAMILIES
from moorline.http.prometheus import prometheus_text
from moorline.model.ids import SubtaskId
from moorline.model.wire.figures import HotKey, OperatorFigures, ProcessFigures, UserMetric
from moorline.model.wire.messages import Connected, Progress
from moorline.storage.stores.memory import MemoryStore

HOSTILE = 'a"b\\c\nmoorline_job_attempt{job="x"} 99\n'


def running() -> World:
    return World(store=MemoryStore(), restart=mo.FixedDelay(attempts=3, delay="1s")).run()


def text_of(world: World, job: str = "small") -> str:
    supervision = world.supervision
    figures = figures_of(supervision.observation, supervision.last_attempt)
    head = {"job": job, "status": supervision.status.value, "attempt": supervision.attempt}
    return prometheus_text({**head, **figures})


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Values by name and by the labels beside ``job``."""
    read: list[Sample] = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    keys = [(s.name.removeprefix("moorline_"), *(v for k, v in sorted(s.labels.items()) if k != "job")) for s in read]
    assert len(set(keys)) == len(keys), "no sample is there twice"
    return dict(zip(keys, (s.value for s in read)))


def report(world: World, subtask: SubtaskId, uid: str, **figures: Any) -> None:
    operator = OperatorFigures(uid=uid, **figures)
    counters = {uid: {"late_records": 3, "lost_records": 4}}
    world.report(
        subtask,
        Progress(
            records_in=10,
            records_out=8,
            bytes_in=500,
            busy_ms=1_500,
            backpressured_ms=250,
            operators=[operator],
            process=ProcessFigures(rss_bytes=1 << 20, cpu_ms=900, gc_collections=2, gc_ms=30),
            counters=counters,
            outages={uid: "away"},
        ),
    )


def everything(world: World) -> None:
    """One of each metric."""
    world.complete()
    report(
        world,
        SubtaskId(1, 1),
        "count",
        records_in=10,
        watermark=4_000,
        event_time=4_500,
        states={"sum": 7},
        timers=5,
        backend=dict.fromkeys(("memory_bytes", "disk_bytes", "rows", "rows_read", "rows_written", "slows_writes"), 11),
        splits={"p-0": {"records_behind": 42}},
        keyed_per_second=500.0,
        hot_keys=[HotKey(key=b"sada", share=0.5)],
    )
    world.pass_time(1_000)
    world.triggered()
    world.report(SubtaskId(0, 0), Connected(pid=7, host="worker-2"))
    world.supervision.line_lost(1, SubtaskId(0, 0))
    world.end_attempt(error="lost")


def test_every_metric_that_is_documented_is_there_and_no_other():
    world = running()
    everything(world)
    seen = {name for name, *_ in samples(text_of(world))}
    assert seen == set(FAMILIES)


def test_values_are_in_seconds_and_bytes_with_operator_and_subtask():
    world = running()
    report(world, SubtaskId(1, 1), "count", watermark=4_000, states={"sum": 7}, timers=5)
    read = samples(text_of(world))
    assert read["subtask_busy_seconds_total", "count", "1"] == 1.5
    assert read["subtask_back_pressured_seconds_total", "count", "1"] == 0.25
    assert read["worker_resident_memory_bytes", "count", "1"] == 1 << 20
    assert read["worker_gc_seconds_total", "count", "1"] == 0.03
    assert read["operator_watermark_timestamp_seconds", "count", "1"] == 4.0
    assert read["operator_watermark_lag_seconds", "count", "1"] == pytest.approx((world.now_ms - 4_000) / 1_000)
    assert read["operator_state_keys", "count", "sum", "1"] == 7.0
    assert read["operator_late_records_total", "count", "1"] == 3.0
    assert read["operator_counter_total", "lost_records", "count", "1"] == 4.0
    assert read["operator_outage", "count", "1"] == 1.0
    assert not any(name.startswith("operator_keyed") for name, *_ in read), "not without a key"
    assert (read["job_status", "running"], read["job_status", "failed"]) == (1.0, 0.0)
    assert (read["job_subtasks",], read["job_subtasks_running",]) == (4.0, 4.0)


def test_the_hottest_key_is_a_figure_and_its_name_is_not_there():
    world = running()
    keys = [HotKey(key=b"sada", share=0.5), HotKey(key=b"sbob", share=0.1)]
    report(world, SubtaskId(1, 1), "count", keyed_per_second=500.0, hot_keys=keys)
    report(world, SubtaskId(1, 0), "count", keyed_per_second=400.0)
    read = samples(text_of(world))
    assert read["operator_hottest_key_records_per_second", "count", "1"] == 250.0
    assert read["operator_hottest_key_records_per_second", "count", "0"] == 0.0
    assert read["operator_keyed_records_per_second", "count", "1"] == 500.0
    assert "ada" not in text_of(world)


def test_a_job_that_has_not_begun_has_a_page():
    read = samples(text_of(World(store=MemoryStore())))
    assert read["job_status", "created"] == 1.0
    assert read["job_attempts_total",] == 0.0


def test_the_time_since_a_checkpoint_is_known_before_the_first_and_not_without_any():
    world = running()
    world.pass_time(900)
    read = samples(text_of(world))
    assert read["checkpoint_since_last_seconds",] == 0.9, "since the run began: an alert on it is to see that too"
    without = World(store=None).run()
    assert ("checkpoint_since_last_seconds",) not in samples(text_of(without))


def test_failed_checkpoints_are_counted_from_zero_for_every_reason():
    read = samples(text_of(running()))
    counts = {key[1]: value for key, value in read.items() if key[0] == "checkpoints_failed_total"}
    assert counts == dict.fromkeys([*(reason.name for reason in FailureReason), "ATTEMPT_ENDED"], 0.0)


def test_losses_are_counted_by_machine():
    world = running()
    everything(world)
    assert samples(text_of(world))["job_losses_total", "worker-2"] == 1.0


def test_what_is_in_flight_is_a_time_at_the_rate_at_which_it_moves():
    world = running()
    for second in range(3):
        sent = Progress(
            records_in=0, records_out=0, bytes_out=1_000 * second, in_flight_bytes=250, busy_ms=1_000 * second
        )
        uid = world.deployment.plan.vertices[0].operators[0]
        world.report(SubtaskId(0, 0), sent)
        world.pass_time(1_000)
    assert samples(text_of(world))["subtask_in_flight_seconds", uid, "0"] == 0.25


def test_what_is_hostile_stays_in_its_label():
    world = running()
    metric = UserMetric(kind="counter", name="n", value=1, labels=[("region", HOSTILE), ("job", "other")])
    report(
        world,
        SubtaskId(1, 0),
        "count",
        states={HOSTILE: 1},
        splits={HOSTILE: {"records_behind": 1}},
        metrics={"n": metric},
    )
    text = text_of(world, job=HOSTILE)
    read = samples(text)
    assert read["operator_state_keys", "count", HOSTILE, "0"] == 1.0
    assert read["job_attempt",] == 1.0, "and not 99"
    of_user = [s for f in text_string_to_metric_families(text) for s in f.samples if s.name == "moorline_user_n"]
    assert [s.labels for s in of_user] == [
        {"job": HOSTILE, "operator": "count", "subtask": "0", "region": HOSTILE, "user_job": "other"}
    ]


def test_metrics_of_users_are_what_prometheus_has_for_them():
    world = running()
    metrics = {
        "errors": UserMetric(kind="counter", name="errors", value=-2),
        "depth": UserMetric(kind="gauge", name="depth", value=0.5),
        "log.ins": UserMetric(kind="meter", name="log.ins", value=2.5, count=70),
        "sizes": UserMetric(kind="distribution", name="sizes", count=2, sum=5.0, min=1.0, max=4.0),
        "latency": UserMetric(
            kind="histogram", name="latency", count=3, sum=9.0, max=8.0, buckets=[(0.5, 1), (1.0, 2)]
        ),
    }
    report(world, SubtaskId(1, 0), "count", metrics=metrics)
    text = text_of(world)
    read, place = samples(text), ("count", "0")
    assert read["user_errors", *place] == -2.0
    assert read["user_depth", *place] == 0.5
    assert (read["user_log_ins_total", *place], read["user_log_ins_per_second", *place]) == (70.0, 2.5)
    assert (read["user_sizes_count", *place], read["user_sizes_sum", *place]) == (2.0, 5.0)
    assert (read["user_sizes_min", *place], read["user_sizes_max", *place]) == (1.0, 4.0)
    assert [read["user_latency_bucket", le, *place] for le in ("0.5", "1.0", "+Inf")] == [1.0, 2.0, 3.0]
    kinds = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert (kinds["moorline_user_sizes"], kinds["moorline_user_latency"]) == ("summary", "histogram")


def test_names_that_become_the_same_keep_their_kinds():
    world = running()
    metrics = {
        "a.b": UserMetric(kind="gauge", name="a.b", value=1),
        "a_b": UserMetric(kind="histogram", name="a_b", count=3, sum=9.0, buckets=[(1.0, 2)]),
    }
    report(world, SubtaskId(1, 0), "count", metrics=metrics)
    read = samples(text_of(world))
    assert read["user_a_b", "count", "0"] == 1.0
    assert read["user_a_b_histogram_count", "count", "0"] == 3.0


def test_too_many_samples_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(prometheus, "MOST_SAMPLES", 60)
    world = running()
    for index in range(2):
        metrics = {f"m{n}": UserMetric(kind="counter", name=f"m{n}", value=n) for n in range(100)}
        report(world, SubtaskId(1, index), "count", metrics=metrics)
    read = samples(text_of(world))
    assert read["subtask_records_in_total", "count", "1"] == 10.0, "users' own are left out first"
    assert len(read) == 61
    assert read["samples_dropped",] > 100
