"""What a Spark must be like to carry a job, told before anything starts; and that a job leaves the user's as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkConf

import moorline as mo
from moorline.errors import InvalidArgument, SparkUnsuitable
from moorline.spark import daemon
from moorline.spark.session import settings
from moorline.spark.session.embedded import require_java


class OtherSpark:
    """As much of a SparkSession as is looked at: its version and its settings."""

    def __init__(self, version: str = "4.3.0", **settings: str | None) -> None:
        self.version = version
        wanted = {**mo.spark_config(), "spark.master": "spark://host:7077", **settings}
        self.settings = {name: value for name, value in wanted.items() if value is not None}

    @property
    def sparkContext(self):
        return self

    def getConf(self) -> SparkConf:
        conf = SparkConf(loadDefaults=False)
        for name, value in self.settings.items():
            conf.set(name, value)
        return conf


def problems(spark: object) -> list[str]:
    with pytest.raises(SparkUnsuitable) as refused:
        settings.check(spark)
    assert str(refused.value).startswith("Spark cannot run this job:\n  - ")
    return refused.value.problems


def test_a_spark_that_is_set_up_well_is_not_complained_about():
    settings.check(OtherSpark())
    settings.check(OtherSpark("4.3.17"))


def test_spark_connect_is_refused_with_what_to_do():
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    (told,) = problems(kind())
    assert "Spark Connect" in told
    assert "spark.api.mode=classic" in told


@pytest.mark.parametrize("version", ["4.2.1", "4.4.0", "3.5.1", "5.0.0", "4.30.0"])
def test_another_version_is_refused_by_name(version):
    told = problems(OtherSpark(version))
    assert f"it is Spark {version}; this version of Moorline runs on Spark 4.3.x" in told


@pytest.mark.parametrize("name", settings.CORE_SETTINGS)
def test_a_missing_setting_is_named_with_how_to_set_it(name):
    told = problems(OtherSpark(**{name: None}))
    assert told[0].startswith(f"{name} is not set; make the session with .config(")
    assert f'.config("{name}", "{settings.CORE_SETTINGS[name]}")' in told[0]
    assert "mo.spark_config() returns all settings" in told[-1]


def test_a_switch_that_is_off_is_named():
    told = problems(OtherSpark(**{"spark.python.udf.pipelined.enabled": "false"}))
    assert told[0].startswith("spark.python.udf.pipelined.enabled is false")


def test_sizes_are_the_users_choice():
    settings.check(OtherSpark(**{"spark.shuffle.streaming.readerMaxMemory": "4194304", "spark.buffer.size": "1024"}))


@pytest.mark.parametrize("name", ["spark.dynamicAllocation.enabled", "spark.speculation"])
def test_what_a_pipelined_job_cannot_live_with_is_named(name):
    assert f"{name} is true; a pipelined job needs it off" in problems(OtherSpark(**{name: "TRUE"}))
    settings.check(OtherSpark(**{name: "false"}))


def test_everything_that_is_wrong_is_told_at_once():
    told = problems(
        OtherSpark(
            "3.5.0",
            **{"spark.buffer.size": None, "spark.speculation": "true", "spark.dynamicAllocation.enabled": "true"},
        )
    )
    assert len(told) == 5


def test_the_control_port_listens_where_spark_does_and_never_everywhere():
    local = OtherSpark(**{"spark.master": "local[4]", "spark.driver.host": "10.0.0.7"})
    assert settings.control_host(local) == ("127.0.0.1", "127.0.0.1")
    cluster = OtherSpark(**{"spark.driver.host": "10.0.0.7"})
    assert settings.control_host(cluster) == ("10.0.0.7", "10.0.0.7")
    behind = OtherSpark(**{"spark.driver.host": "driver.example", "spark.driver.bindAddress": "10.0.0.8"})
    assert settings.control_host(behind) == ("10.0.0.8", "driver.example")
    assert settings.control_host(OtherSpark()) == ("127.0.0.1", "127.0.0.1")


# --- Java ---------------------------------------------------------------------------------------


def test_without_java_the_message_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnsuitable, match="no Java was found; install Java 17"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SparkUnsuitable, match="set JAVA_HOME"):
        require_java()


@pytest.mark.parametrize(("told", "fits"), [("1.8.0_392", False), ("11.0.2", False), ("17.0.9", True), ("21", True)])
def test_a_java_that_is_too_old_is_refused_by_its_version(monkeypatch, tmp_path, told, fits):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{told}\" 2024' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if fits:
        require_java()
    else:
        with pytest.raises(SparkUnsuitable, match=f"is Java {told.split('.')[0]}; Spark .* needs Java 17 or newer"):
            require_java()


def test_a_job_without_java_fails_with_that_message_and_nothing_else(tmp_path):
    script = (
        "import moorline as mo\n"
        "job = mo.Job('x')\n"
        "job.source(mo.from_items([1])).sink(mo.collect('out'))\n"
        "try:\n"
        "    mo.run(job)\n"
        "except mo.MoorlineError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(Path(mo.__file__).parents[1])}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.startswith("SparkUnsuitable Spark cannot run this job:"), done.stderr
    assert "no Java was found" in done.stdout
    assert "Traceback" not in done.stderr


# --- on a real Spark ----------------------------------------------------------------------------


def small_job(parallelism: int = 2) -> mo.Job:
    job = mo.Job("small", parallelism=parallelism)
    job.source(mo.from_items(range(10))).key_by(lambda n: n).map(lambda n: n).sink(mo.collect("out"))
    return job


@pytest.mark.spark
def test_too_few_slots_are_told_before_anything_starts(spark):
    with pytest.raises(SparkUnsuitable) as refused:
        mo.start(small_job(parallelism=30), spark)
    (told,) = refused.value.problems
    assert "the job needs 60 slots at the same time and Spark has 24" in told
    assert "local[60]" in told


@pytest.mark.spark
def test_a_place_that_workers_cannot_reach_is_refused(spark):
    with pytest.raises(InvalidArgument, match="Workers are other processes"):
        mo.start(small_job(), spark, checkpoints=mo.Checkpoints("memory://here"))


@pytest.mark.spark
def test_a_job_leaves_the_users_session_as_it_was(spark):
    context = spark.sparkContext
    properties = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", "spark.scheduler.pool")

    def seen() -> list[object]:
        return [
            dict(spark.conf.getAll),
            sorted(context.getConf().getAll()),
            [context.getLocalProperty(name) for name in properties],
            spark.conf.get("spark.sql.adaptive.enabled"),
            spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"),
        ]

    spark.conf.set("spark.sql.shuffle.partitions", "3")
    context.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        before = seen()
        assert sorted(mo.run(small_job(), spark).collected("out")) == list(range(10))
        assert seen() == before
        assert before[3] == "true", "adaptive execution stays on for the user"
        # And Spark still does what Spark does, with its own kind of shuffle.
        assert spark.range(100).selectExpr("id % 7 as k").groupBy("k").count().count() == 7
    finally:
        spark.conf.unset("spark.sql.shuffle.partitions")
        context.setLocalProperty("spark.scheduler.pool", None)


def test_other_work_of_many_small_tasks_in_the_same_session_is_done(spark):
    """Spark 4.3 closes a pooled worker's line now and then when input is pipelined; see ``spark/daemon.py``."""

    def where_from(batches):
        """In a worker: who runs its tasks, and how much the collector leaves alone."""
        import gc  # noqa: PLC0415

        import pyspark.worker  # noqa: PLC0415

        rows = sum(batch.num_rows for batch in batches)
        file, frozen = pyspark.worker.main.__code__.co_filename, gc.get_freeze_count()
        yield pa.RecordBatch.from_pydict({"rows": [rows], "file": [file], "frozen": [frozen]})

    for _ in range(4):
        found = spark.range(0, 200, 1, 100).mapInArrow(where_from, "rows long, file string, frozen long").collect()
        assert sum(row.rows for row in found) == 200
        assert {Path(row.file).name for row in found} == {"daemon.py"}
        assert all(row.frozen for row in found)


@pytest.mark.parametrize("is_pipelined", [True, False])
@pytest.mark.parametrize("wanted", [0.1, 12])
def test_a_worker_says_that_it_is_free_after_a_wait_if_input_is_pipelined(monkeypatch, is_pipelined, wanted):
    told = []
    monkeypatch.setattr(daemon, "_main", lambda infile, outfile: told.append("the task is over"))
    monkeypatch.setattr(daemon.time, "sleep", lambda seconds: told.append(seconds))
    monkeypatch.setattr(daemon, "wanted_cores", lambda: wanted * os.cpu_count())
    monkeypatch.delenv("SPARK_PIPELINED_UDF", raising=False)
    if is_pipelined:
        monkeypatch.setenv("SPARK_PIPELINED_UDF", "1")
    daemon.main(None, None)
    assert told == ["the task is over", *([daemon.FREE_AFTER_SECONDS * max(1, wanted)] if is_pipelined else [])]


def test_the_load_of_the_machine_is_found_out():
    assert daemon.wanted_cores() > 0
