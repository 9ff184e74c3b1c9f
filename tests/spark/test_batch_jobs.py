"""Batch on real Spark: DataFrames in and out, files, lost tasks, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import Row

import moorline as mo
from moorline.errors import InvalidArgument, JobFailed

pytestmark = pytest.mark.spark


def counting(source, parallelism=2):
    """A job that counts the records of each key as they come."""

    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            self.seen.update(self.seen.value() + 1)
            yield ctx.current_key, self.seen.value()

    job = mo.Job("counting", parallelism=parallelism)
    stream = job.source(source, uid="in").key_by(lambda r: r[0]).process(Count(), uid="count")
    stream.sink(mo.collect("out"), uid="out")
    return job


# --- DataFrames ---------------------------------------------------------------------------------


def test_a_dataframe_is_a_source(spark):
    frame = spark.range(0, 1000, 1, 3).selectExpr("id % 10 as k", "id as v")
    found = mo.run(counting(mo.from_dataframe(frame)), spark, mode="auto").collected("out")
    assert Counter(found) == Counter((k, n) for k in range(10) for n in range(1, 101))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ("row", [Row(a=1, b=None, t=datetime(2026, 1, 2, 3, 4), s=Row(x=[1, 2]))]),
        ("tuple", [(1, None, datetime(2026, 1, 2, 3, 4), Row(x=[1, 2]))]),
        ("dict", [{"a": 1, "b": None, "t": datetime(2026, 1, 2, 3, 4), "s": {"x": [1, 2]}}]),
    ],
)
def test_records_of_a_dataframe_are_what_collect_would_give(spark, records, expected):
    frame = spark.sql(
        "select 1 as a, cast(null as string) as b, timestamp'2026-01-02 03:04:00' as t, "
        "named_struct('x', array(1, 2)) as s"
    )
    job = mo.Job("records")
    job.source(mo.from_dataframe(frame, records=records)).sink(mo.collect("out"))
    assert mo.run(job, spark, mode="batch").collected("out") == expected


def test_a_dataframe_beside_other_sources(spark):
    frame = spark.range(0, 20, 1, 5).selectExpr("id % 4 as k")
    job = mo.Job("beside", parallelism=2)
    rows = job.source(mo.from_dataframe(frame, records="tuple"), uid="rows")
    items = job.source(mo.from_items([(0,), (9,)]), uid="items").rebalance().map(tuple, uid="map")
    rows.union(items).key_by(lambda r: r[0]).reduce(lambda a, b: (*a, b[0])).map(lambda r: (r[0], len(r))).sink(
        mo.collect("out")
    )
    last = {}
    for k, n in mo.run(job, spark, mode="batch").collected("out"):
        last[k] = max(n, last.get(k, 0))
    assert last == {0: 6, 1: 5, 2: 5, 3: 5, 9: 1}


def test_a_jobs_output_is_a_dataframe_like_any_other(spark):
    frame = mo.to_dataframe(counting(mo.from_items([(n % 5, n) for n in range(100)])), spark, schema="k long, n long")
    frame.createOrReplaceTempView("counted")
    assert [tuple(r) for r in spark.sql("select k, max(n) from counted group by k order by k").collect()] == [
        (k, 20) for k in range(5)
    ]
    # Wherever Spark puts its partitions.
    other = spark.createDataFrame([(7, 7)], "k long, n long")
    assert other.union(frame).where("n = 20 or k = 7").count() == 6
    assert frame.coalesce(1).count() == 100
    assert frame.join(frame.groupBy("k").max("n"), "k").count() == 100


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_dataframe_through_a_job_into_a_dataframe_is_lazy(spark, tmp_path, adaptive):
    marker = str(tmp_path / "ran")

    def note(row):
        Path(marker).touch()
        return {"word": row.word.upper(), "n": 1}

    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", adaptive)
    frame = session.createDataFrame([("to",), ("be",), ("to",)], "word string")
    job = mo.Job("upper", parallelism=3)
    words = job.source(mo.from_dataframe(frame), uid="words").map(note, uid="note")
    words.key_by(lambda r: r["word"]).reduce(lambda a, b: {**a, "n": a["n"] + b["n"]}).sink(mo.collect("out"))
    made = mo.to_dataframe(job, session, schema="word string, n int")
    assert made.columns == ["word", "n"]
    assert not Path(marker).exists()
    assert sorted(made.groupBy("word").max("n").collect()) == [("BE", 1), ("TO", 2)]
    assert Path(marker).exists()


def test_a_named_output_runs_only_what_it_needs(spark, tmp_path):
    def explode(n):
        raise AssertionError("not needed")

    job = mo.Job("outputs")
    numbers = job.source(mo.from_items(range(3)), uid="numbers")
    numbers.map(lambda n: n * n, uid="squares").sink(mo.collect("squares"), uid="a")
    numbers.map(explode, uid="explode").sink(mo.collect("never"), uid="b")
    made = mo.to_dataframe(job, spark, schema="square long", output="squares")
    assert sorted(r.square for r in made.collect()) == [0, 1, 4]
    with pytest.raises(InvalidArgument, match="'squares', 'never'"):
        mo.to_dataframe(job, spark, schema="square long")
    numbers.sink(mo.write_files(tmp_path, format="jsonl"), uid="files")
    with pytest.raises(InvalidArgument, match="cannot commit"):
        mo.to_dataframe(job, spark, schema="square long", output="squares")


# --- what is refused ------------------------------------------------------------------------------


def test_a_dataframe_cannot_stream(spark):
    job = counting(mo.from_dataframe(spark.range(3)))
    with pytest.raises(InvalidArgument, match="mode='batch'"):
        mo.run(job, spark)


def test_modes_and_options_that_make_no_sense_are_refused(spark, tmp_path):
    job = counting(mo.from_items([(1, 1)]))
    with pytest.raises(InvalidArgument, match="one of streaming, batch, auto"):
        mo.run(job, spark, mode="quick")
    with pytest.raises(InvalidArgument, match="Leave out checkpoints="):
        mo.run(job, spark, mode="batch", checkpoints=mo.Checkpoints(str(tmp_path)))
    endless = counting(mo.generate(lambda n: (n, n)))
    with pytest.raises(InvalidArgument, match="reads its sources to the end"):
        mo.run(endless, spark, mode="batch")


def test_auto_streams_where_a_source_does_not_say_that_it_ends(spark, tmp_path):
    class Three(mo.SourceFunction):
        def run(self, ctx):
            yield from ((n, n) for n in range(3))

    checkpoints = mo.Checkpoints(str(tmp_path), interval="1h")
    streamed = mo.run(counting(Three(), 1), spark, mode="auto", checkpoints=checkpoints)
    assert len(streamed.checkpoints) == 1
    batch = mo.run(counting(mo.from_items([(1, 1)])), spark, mode="auto", checkpoints=checkpoints)
    assert batch.checkpoints == []
    assert batch.collected("out") == [(1, 1)]


def test_an_error_of_user_code_reaches_the_driver_and_nothing_is_published(spark, tmp_path):
    job = mo.Job("fails", parallelism=2)
    job.source(mo.generate(lambda n: n, count=100), uid="in").map(lambda n: 1 // (n - 70), uid="divide").sink(
        mo.write_files(tmp_path, format="jsonl"), uid="files"
    )
    with pytest.raises(JobFailed, match=r"ZeroDivisionError.*'divide'"):
        mo.run(job, spark, mode="batch")
    assert list(tmp_path.rglob("part-*")) == []


# --- lost tasks -----------------------------------------------------------------------------------

SCRIPT = """
import os, sys
import moorline as mo

folder = sys.argv[1]

def once(name):
    "True for whoever comes first."
    try:
        os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False

class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        if self.seen.value() == 150 and once("raised"):
            raise RuntimeError("the first attempt fails")
        yield {"key": ctx.current_key, "count": self.seen.value()}

def kill(record):
    if record["count"] == 200 and once("killed"):
        os._exit(1)
    return record

job = mo.Job("retried", parallelism=2)
counts = job.source(mo.generate(lambda n: n, count=2000), uid="in").key_by(lambda n: n % 10).process(Count(), uid="c")
counts = counts.key_by(lambda r: r["key"]).map(kill, uid="kill")
counts.sink(mo.write_files(f"{folder}/out", format="jsonl"), uid="files")
mo.run(job, mode="batch")
"""


def test_spark_runs_failed_tasks_again_and_each_line_is_there_once(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, tmp_path / "script.py", tmp_path], check=True, timeout=600, capture_output=True)
    assert (tmp_path / "raised").exists() and (tmp_path / "killed").exists()
    lines = [json.loads(line) for f in (tmp_path / "out").glob("part-*") for line in f.read_text().splitlines()]
    found = Counter((line["key"], line["count"]) for line in lines)
    assert found == Counter((k, n) for k in range(10) for n in range(1, 201))
    assert not (tmp_path / "out" / ".moorline-staging").exists()


# --- columns ------------------------------------------------------------------------------------


def test_columns_of_a_dataframe_are_aggregated_into_a_dataframe(spark):
    frame = spark.range(0, 3000, 1, 3).selectExpr("id % 7 as k", "id as v", "timestamp_seconds(id) as at")
    job = mo.Job("columns", parallelism=2)
    rows = job.source(mo.from_dataframe(frame, records="columns"), uid="rows")
    assert rows.schema is not None
    assert rows.schema.names == ["k", "v", "at"]
    totals = rows.where(mo.col("v") >= 10, uid="large").key_by("k")
    totals.aggregate(n=mo.count(), total=mo.sum("v"), last=mo.max("at"), uid="totals").sink(mo.collect("out"))
    made = mo.to_dataframe(job, spark, schema="k long, n long, total long, last timestamp")
    expected = frame.where("v >= 10").groupBy("k").agg({"v": "sum", "*": "count", "at": "max"})
    expected = expected.selectExpr("k", "`count(1)`", "`sum(v)`", "`max(at)`")
    assert sorted(map(tuple, made.collect())) == sorted(map(tuple, expected.collect()))
    assert sorted(r["n"] for r in mo.run(job, spark, mode="batch").collected("out")) == [427] * 6 + [428]


def test_columns_that_an_output_does_not_have_are_named(spark):
    job = mo.Job("wrong", parallelism=1)
    rows = job.source(mo.from_dataframe(spark.range(5), records="columns"), uid="rows")
    rows.sink(mo.collect("out"))
    with pytest.raises(Exception, match="columns id int64"):
        mo.to_dataframe(job, spark, schema="other long").collect()


@pytest.mark.parametrize("columns", ["1 as a, 2 as a", "make_interval(1) as i"])
def test_a_column_that_no_stream_of_columns_has_is_refused_at_once(spark, columns):
    frame = spark.sql(f"select {columns}")
    with pytest.raises(InvalidArgument, match="one by one"):
        mo.from_dataframe(frame, records="columns")
