"""Points at which a test makes the process fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import eventually

from moorline import failpoints
from moorline.failpoints import Plan, failpoint


@pytest.fixture(autouse=True)
def nothing_stays_armed():
    yield
    failpoints.arm(Plan())


def test_a_point_fires_the_time_that_it_is_told():
    failpoints.arm(Plan("here@2:raise"))
    failpoint("here")
    failpoint("elsewhere")
    with pytest.raises(RuntimeError, match="failpoint here"):
        failpoint("here")
    failpoint("here")


def test_a_point_that_waits_for_a_file_counts_from_then_on(tmp_path: Path):
    failpoints.arm(Plan("here@2?asked:raise", str(tmp_path)))
    for _ in range(5):
        failpoint("here")
    (tmp_path / "asked").touch()
    failpoint("here")
    with pytest.raises(RuntimeError, match="failpoint here"):
        failpoint("here")


@pytest.mark.parametrize(("action", "status"), [("stop", psutil.STATUS_STOPPED), ("kill", psutil.STATUS_ZOMBIE)])
def test_another_process_is_stopped_or_killed_by_the_number_in_a_file(tmp_path: Path, action: str, status: str):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        (tmp_path / "other.pid").write_text(str(other.pid))
        failpoints.arm(Plan(f"here:{action}_file(other)", str(tmp_path)))
        failpoint("here")
        eventually(lambda: psutil.Process(other.pid).status() == status, f"it is {status}")
    finally:
        other.kill()
        other.wait()


def test_the_executor_of_a_worker_is_its_parents_parent(tmp_path: Path):
    code = f"""
import os, time
from moorline import failpoints
if os.fork() == 0:  # the daemon
    if os.fork() == 0:  # the worker
        failpoints.arm(failpoints.Plan("here:stop_parent", {str(tmp_path)!r}))
        failpoints.failpoint("here")
    time.sleep(60)
time.sleep(600)
"""
    executor = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        process = psutil.Process(executor.pid)
        eventually(lambda: process.status() == psutil.STATUS_STOPPED, "the executor is stopped")
    finally:
        os.killpg(executor.pid, signal.SIGKILL)
        executor.wait()


@pytest.mark.parametrize("text", ["here", "here@x:kill", "here:", "here?:kill", "a b:kill"])
def test_a_plan_that_cannot_be_read_is_refused(text: str):
    with pytest.raises(ValueError, match="cannot read"):
        failpoints.arm(Plan(text))
