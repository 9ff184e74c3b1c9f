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


def test_a_worker_that_is_stopped_while_it_opens_is_replaced(spark, tmp_path):
    stop = lambda: os.kill(os.getpid(), signal.SIGSTOP)  # noqa: E731
    result = mo.run(
        job(tmp_path, stop), spark, restart=mo.FixedDelay(attempts=1, delay="100ms"), heartbeat_timeout="3s"
    )
    assert sorted(result.collected("out")) == list(range(100))
    (failure,) = result.failures
    assert "has not been heard of for " in failure
    stopped = int((tmp_path / "pid").read_text())
    eventually(lambda: is_gone(stopped), "the stopped worker is gone")


def test_a_worker_that_is_stopped_before_it_has_called_in_is_replaced(spark, tmp_path):
    failpoints.arm(failpoints.Plan("task.start:stop", str(tmp_path)))
    try:
        result = mo.run(
            job(tmp_path, lambda: None),
            spark,
            restart=mo.FixedDelay(attempts=1, delay="100ms"),
            start_timeout="20s",
        )
    finally:
        failpoints.arm(failpoints.Plan())
    assert sorted(result.collected("out")) == list(range(100))
    (failure,) = result.failures
    assert "has not called in within 20" in failure
    stopped = int((tmp_path / "task.start").read_text())
    eventually(lambda: is_gone(stopped), "the stopped worker is gone")


def test_an_open_that_takes_longer_than_the_heartbeat_timeout_is_waited_for(spark, tmp_path):
    result = mo.run(job(tmp_path, lambda: time.sleep(7)), spark, heartbeat_timeout="3s")
    assert sorted(result.collected("out")) == list(range(100))
    assert result.failures == []
