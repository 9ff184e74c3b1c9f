"""Records that are larger than what Spark carries in one row."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.errors import JobFailed

pytestmark = pytest.mark.spark


def test_records_of_tens_of_megabytes_reach_the_next_subtask_and_the_driver(spark):
    sizes = [1, 20_000_000, 70_000_000, 3]
    job = mo.Job("large", parallelism=2)
    (
        job.source(mo.from_items(list(enumerate(sizes))), uid="sizes")
        .map(lambda pair: (pair[0], bytes(pair[1])), uid="blow-up")
        .key_by(lambda pair: pair[0])
        .map(lambda pair: (pair[0], len(pair[1]), pair[1][:9_000_000]), uid="measure")
        .sink(mo.collect("out"), uid="out")
    )
    found = sorted(mo.run(job, spark).collected("out"))
    assert [(n, size, len(rest)) for n, size, rest in found] == [
        (n, size, min(size, 9_000_000)) for n, size in enumerate(sizes)
    ]


def test_a_line_that_is_no_json_ends_a_job_with_checkpoints_at_its_first_attempt(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("1\n{oops\n2\n")
    job = mo.Job("broken-line")
    job.source(mo.read_files(tmp_path / "in"), uid="in").sink(mo.collect("out"), uid="out")
    checkpoints = mo.Checkpoints(str(tmp_path / "chk"), interval="10min")
    with pytest.raises(JobFailed, match="cannot pass by itself") as failed:
        mo.run(job, spark, checkpoints=checkpoints)
    assert len(failed.value.history) == 1
    assert "a.jsonl: the line at byte 2 is not JSON" in str(failed.value)


def test_a_module_that_workers_do_not_have_ends_the_job(spark, tmp_path):
    def vanished():
        raise ModuleNotFoundError("No module named 'orders'")

    class Unloadable:
        def __reduce__(self):
            return vanished, ()

        def __call__(self, record):
            return record

    job = mo.Job("unloadable")
    job.source(mo.from_items([1]), uid="in").map(Unloadable(), uid="map").sink(mo.collect("out"), uid="out")
    checkpoints = mo.Checkpoints(str(tmp_path / "chk"))
    with pytest.raises(JobFailed, match="3 times in a row") as failed:
        mo.run(job, spark, checkpoints=checkpoints, restart=mo.FixedDelay(attempts=50, delay=0.1))
    assert "No module named 'orders'" in str(failed.value)
