"""The handle of a job that is running on real Spark: look, wait, stop, cancel."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from waiting import eventually

import moorline as mo
from moorline.errors import JobCancelled

pytestmark = pytest.mark.spark


def test_a_handle_shows_where_the_job_stands_and_stop_commits_everything(spark, tmp_path):
    job = mo.Job("endless", parallelism=2)
    (
        job.source(mo.generate(lambda n: n, splits=4, rate=20_000), uid="numbers")
        .key_by(lambda n: n % 10)
        .reduce(lambda a, b: b, uid="last")
        .sink(mo.write_files(tmp_path / "out", format="jsonl"), uid="files")
    )
    handle = mo.start(job, spark, checkpoints=mo.Checkpoints(str(tmp_path / "chk"), interval="300ms"))
    assert handle.job == "endless"
    seen = [handle.status]
    while (status := handle.status) is not mo.JobStatus.RUNNING:
        if status is not seen[-1]:
            seen.append(status)
        assert handle.is_active
    # CREATED may be too short to be seen.
    assert seen in ([mo.JobStatus.CREATED, mo.JobStatus.STARTING], [mo.JobStatus.STARTING], [mo.JobStatus.CREATED])
    assert handle.wait(timeout=0.05) is None
    eventually(lambda: handle.progress["keys"] == 10, "ten keys have state")
    eventually(lambda: len(handle.checkpoints) >= 2, "two checkpoints are complete")
    progress = handle.progress
    assert set(progress["operators"]) == {"numbers", "last"}, "the sink is chained to the reduction"
    assert progress["records_in"] == progress["operators"]["numbers"]["records_in"] > 0
    assert len(handle.worker_pids) == 4
    assert handle.attempt == 1
    assert handle.restored_from == [0]

    result = handle.stop()
    assert handle.status is mo.JobStatus.FINISHED
    assert not handle.is_active
    assert result.checkpoints[-1].final
    # Whatever each split got to, nothing before it is missing and nothing is there twice.
    found = Counter(json.loads(line) for part in (tmp_path / "out").glob("part-*.jsonl") for line in part.open())
    for split in range(4):
        mine = {n: times for n, times in found.items() if n % 4 == split}
        assert mine == dict.fromkeys(range(split, split + 4 * len(mine), 4), 1)
    # A handle may be asked again, and ended again.
    assert handle.stop().checkpoints == result.checkpoints
    handle.cancel()
    assert handle.status is mo.JobStatus.FINISHED


def test_late_records_are_seen_and_progress_stays_after_the_end(spark, caplog):
    job = mo.Job("late", parallelism=1)
    numbers = mo.generate(lambda n: 100 * n if n < 900 else 5, count=903, splits=1, rate=1_000)
    stamped = job.source(numbers, uid="numbers").assign_timestamps_and_watermarks(
        mo.WatermarkStrategy.monotonous(lambda n: n), uid="stamps"
    )
    (
        stamped.key_by(lambda n: n % 3)
        .window(mo.TumblingEventTimeWindows("1s"))
        .reduce(max, uid="largest")
        .sink(mo.collect("out"), uid="out")
    )
    handle = mo.start(job, spark)
    out = handle.wait().collected("out")
    assert handle.progress["counters"] == {"largest": {"late_records": 3}}
    assert handle.progress["records_in"] == 903
    assert handle.progress["operators"]["largest"]["records_in"] == 903
    assert handle.progress["operators"]["largest"]["records_out"] == len(out) > 0
    (told,) = [r.message for r in caplog.records if "too late" in r.message]
    assert told.startswith("job late: operator 'largest' drops records that come too late, the first by ")


def test_a_cancelled_job_ends_at_once_and_says_so(spark):
    job = mo.Job("endless")
    job.source(mo.generate(lambda n: n, rate=1_000)).sink(mo.discard())
    handle = mo.start(job, spark)
    eventually(lambda: handle.status is mo.JobStatus.RUNNING, "running")
    handle.cancel()
    assert handle.status is mo.JobStatus.CANCELLED
    with pytest.raises(JobCancelled):
        handle.wait()


def test_a_job_can_be_cancelled_and_stopped_before_it_runs(spark):
    def endless():
        job = mo.Job("endless")
        job.source(mo.generate(lambda n: n, rate=1_000)).sink(mo.collect("out"))
        return job

    handle = mo.start(endless(), spark)
    handle.cancel()
    assert handle.status is mo.JobStatus.CANCELLED
    # A stop waits for the job to run, and is not forgotten.
    assert mo.start(endless(), spark).stop().checkpoints[-1].final


def test_a_slow_sink_holds_the_source_back(spark):
    class Slow(mo.Sink):
        def open(self, ctx):
            return Writer()

    class Writer(mo.SinkWriter):
        def write(self, records):
            time.sleep(0.2)

    job = mo.Job("slow")
    job.source(mo.generate(lambda n: n.to_bytes(8) * 8), uid="fast").rebalance().sink(Slow(), uid="slow")
    handle = mo.start(job, spark)

    def lag() -> int:
        operators = handle.progress["operators"]
        return operators["fast"]["records_out"] - operators["slow"]["records_in"] if len(operators) == 2 else 0

    def written() -> int:
        return handle.progress["operators"].get("slow", {"records_in": 0})["records_in"]

    lags = []
    eventually(lambda: written() > 2_000, "the sink gets going")
    # A source that runs free makes several times as much in this while.
    while written() < 60_000:
        lags.append(lag())
        assert handle.is_active
        time.sleep(0.05)
    handle.cancel()
    assert max(lags) > 2_048, "the source was never ahead: this run says nothing"
    assert max(lags) < 500_000, "more than 32 MB of records wait between the source and the sink"


def test_sparks_own_pages_say_job_attempt_and_operators(spark):
    job = mo.Job("named", parallelism=2)
    numbers = job.source(mo.generate(lambda n: n, splits=2, rate=1_000), uid="numbers").filter(bool, uid="some")
    numbers.key_by(lambda n: n % 10).reduce(lambda a, b: b, uid="last").sink(mo.discard(), uid="out")
    handle = mo.start(job, spark)
    try:
        eventually(lambda: handle.status is mo.JobStatus.RUNNING, "it runs")
        store = spark.sparkContext._jsc.sc().statusStore()

        def described(found) -> set[str]:
            """What Spark shows of this job. Stages of jobs before it may still be about to end."""
            texts = [found.apply(n).description() for n in range(found.size())]
            return {text.get() for text in texts if text.isDefined() and " job named, " in text.get()}

        wanted = "moorline job named, attempt 1: numbers > some (2 subtasks) | last > out (2 subtasks)"
        assert wanted in eventually(lambda: described(store.jobsList(None)), "Spark shows the job")
        assert eventually(lambda: described(store.activeStages()), "Spark shows its stages") == {wanted}
    finally:
        handle.cancel()


def test_metrics_and_progress_of_a_job_on_spark(spark, tmp_path):
    events = tmp_path / "events.jsonl"
    job = mo.Job("measured", parallelism=2)
    numbers = job.source(mo.generate(lambda n: n, splits=2, rate=5_000), uid="numbers")
    numbers.key_by(lambda n: n % 10).reduce(lambda a, b: b, uid="last").sink(mo.discard(), uid="out")
    checkpoints = mo.Checkpoints(str(tmp_path / "chk"), interval="500ms")
    handle = mo.start(job, spark, checkpoints=checkpoints, events=events)
    try:
        eventually(lambda: handle.metrics["operators"].get("last", {}).get("records_in_per_second", 0) > 100, "a rate")
        eventually(lambda: handle.metrics["operators"]["last"]["keys"] == 10, "all subtasks have said what they keep")
        eventually(lambda: handle.metrics["checkpoints"]["completed"] >= 2, "two checkpoints")
        metrics = handle.metrics
        assert [s["is_running"] for v in metrics["vertices"] for s in v["subtasks"]] == [True] * 4
        assert all(s["process"]["rss_bytes"] > 1 << 20 for v in metrics["vertices"] for s in v["subtasks"])
        assert all(s["bytes_in"] > 0 for s in metrics["vertices"][1]["subtasks"])
    finally:
        handle.stop()
    kinds = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert kinds[0] == "started" and kinds[-1] == "terminated" and "checkpoint" in kinds
    assert handle.last_progress["status"] == "finished"
