"""The page of a job that runs on Spark: held back, killed, made wider and stopped, with each number written once."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from waiting import PATIENCE, eventually

import moorline as mo

pytestmark = pytest.mark.spark

SPLITS, KEYS = 6, 40


@pytest.fixture(autouse=True)
def shipped() -> Iterator[None]:
    """Workers do not see the tests' folder: functions of this module travel as code."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


class Slow(mo.KeyedProcessFunction):
    """Takes its time, and counts."""

    seen = mo.ValueState(int, default=0)

    def process_element(self, n: int, ctx: Any) -> Any:
        time.sleep(0.001)
        self.seen.update(self.seen.value() + 1)
        yield {"n": n, "of_key": self.seen.value()}


def job_to(out: Path) -> mo.Job:
    job = mo.Job("numbered", parallelism=2, max_parallelism=16)
    numbers = job.source(mo.generate(lambda n: n, splits=SPLITS), uid="numbers")
    counted = numbers.key_by(lambda n: n % KEYS).process(Slow(), uid="slow")
    counted.sink(mo.write_files(out, format="jsonl"), uid="files")
    return job


def check_exactly_once(out: Path) -> None:
    rows = [json.loads(line) for path in sorted(out.glob("part-*.jsonl")) for line in path.read_text().splitlines()]
    numbers = sorted(row["n"] for row in rows)
    assert len(numbers) > 10 * SPLITS
    for split in range(SPLITS):
        own = [n for n in numbers if n % SPLITS == split]
        assert own == list(range(split, split + SPLITS * len(own), SPLITS)), "every number is written once"
    for key in range(KEYS):
        seen = sorted(row["of_key"] for row in rows if row["n"] % KEYS == key)
        assert seen == list(range(1, len(seen) + 1)), "and was counted once"


def see_running(page: Any) -> None:
    page.locator(".head .pill", has_text="running").wait_for()


def see_a_checkpoint(handle: mo.Handle) -> None:
    done = len(handle.checkpoints)
    eventually(lambda: len(handle.checkpoints) > done, "a checkpoint")


def test_a_job_is_watched_through_a_kill_and_made_wider_and_stopped_from_its_page(spark, open_page, picture, tmp_path):
    out = tmp_path / "out"
    checkpoints = mo.Checkpoints(str(tmp_path / "checkpoints"), interval="500ms")
    restart = mo.FixedDelay(20, "100ms")
    handle = mo.start(job_to(out), spark, checkpoints=checkpoints, restart=restart, console=True)
    try:
        assert handle.console is not None
        page = open_page(handle.console.page)
        page.set_default_timeout(PATIENCE * 1000)
        see_running(page)
        page.locator(".box.held", has_text="numbers").wait_for()  # the source waits for the slow function
        picture(page, "running-held")
        see_a_checkpoint(handle)
        page.get_by_role("link", name="Checkpoints").click()
        page.get_by_role("region", name="Checkpoints").locator("tbody tr", has_text="completed").first.wait_for()
        picture(page, "running-checkpoints")

        os.kill(next(iter(handle.worker_pids.values())), signal.SIGKILL)
        page.get_by_role("link", name="Failures").click()
        page.locator("main").get_by_text(re.compile(r"[1-9]\d* of \d+ attempts failed\.")).wait_for()
        page.locator(".attempts .pill", has_text="failed").first.wait_for()
        picture(page, "running-failed")
        eventually(lambda: handle.attempt > 1 and handle.status.value == "running", "it runs again")
        see_running(page)

        page.get_by_role("button", name="Rescale", exact=True).click()
        page.get_by_role("dialog").get_by_label("Subtasks").fill("3")
        page.get_by_role("dialog").get_by_role("button", name="Rescale").click()
        page.get_by_text("The job runs with a parallelism of 3.").wait_for()
        page.get_by_role("link", name="Overview").click()
        page.locator(".box", has_text="×3").nth(1).wait_for()
        see_running(page)
        see_a_checkpoint(handle)
        picture(page, "running-wider")

        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Stop it").click()
        page.get_by_text("The job is stopping.").wait_for()
        handle.wait()
        page.get_by_role("alert").get_by_text("has the job ended?").wait_for()
        picture(page, "running-stopped")
    finally:
        if handle.is_active:
            handle.cancel()
    check_exactly_once(out)
