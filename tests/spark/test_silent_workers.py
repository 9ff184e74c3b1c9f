"""Workers on real Spark that stop answering, and others that only take their time."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest
from waiting import eventually

import moorline as mo
from moorline import failpoints

pytestmark = pytest.mark.spark

SEVERAL = mo.FixedDelay(attempts=5, delay="100ms")


def job(folder, action) -> mo.Job:
    """One whose function does something in ``open()``, the first time that a subtask gets there."""
    first = str(folder / "pid")

    class Opening(mo.KeyedProcessFunction):
        def open(self, runtime_context):
            try:
                with open(first, "x") as mark:
                    mark.write(str(os.getpid()))
            except FileExistsError:
                return
            action()

        def process_element(self, value, ctx):
            yield value

    job = mo.Job("silent", parallelism=2)
    numbers = job.source(mo.from_items(range(100)), uid="numbers").key_by(lambda n: n)
    numbers.process(Opening(), uid="opening").sink(mo.collect("out"), uid="out")
    return job


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def seconds_to_start(spark, folder) -> float:
    """How long a job takes here and now, whose workers are alive by then."""
    folder.mkdir()
    began = time.monotonic()
    mo.run(job(folder, lambda: None), spark)
    return time.monotonic() - began


def test_a_worker_that_is_stopped_while_it_opens_is_replaced(spark, tmp_path):
    stop = lambda: os.kill(os.getpid(), signal.SIGSTOP)  # noqa: E731
    # Others may seem silent, too, on a machine that is busy elsewhere: they are replaced in their turn.
    result = mo.run(job(tmp_path, stop), spark, restart=SEVERAL, heartbeat_timeout="5s")
    assert sorted(result.collected("out")) == list(range(100))
    assert "has not been heard of for " in result.failures[0]
    stopped = int((tmp_path / "pid").read_text())
    eventually(lambda: is_gone(stopped), "the stopped worker is gone")


def test_a_worker_that_is_stopped_before_it_has_called_in_is_replaced(spark, tmp_path):
    # Long enough for all the others, whatever machine this is, and for nobody to wait for a worker that is stopped.
    patience = max(10, round(5 * seconds_to_start(spark, tmp_path / "trial")))
    failpoints.arm(failpoints.Plan("task.start:stop", str(tmp_path)))
    try:
        result = mo.run(job(tmp_path, lambda: None), spark, restart=SEVERAL, start_timeout=f"{patience}s")
    finally:
        failpoints.arm(failpoints.Plan())
    assert sorted(result.collected("out")) == list(range(100))
    assert f"has not called in within {patience}" in result.failures[0]
    stopped = int((tmp_path / "task.start").read_text())
    eventually(lambda: is_gone(stopped), "the stopped worker is gone")


def test_an_open_that_takes_longer_than_the_heartbeat_timeout_is_waited_for(spark, tmp_path):
    result = mo.run(job(tmp_path, lambda: time.sleep(7)), spark, heartbeat_timeout="3s")
    assert sorted(result.collected("out")) == list(range(100))
    assert result.failures == []
