"""Jobs on real Spark whose checkpoints lie in a bucket, and jobs with a second driver that stands ready."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_servers import SECRET, S3Server, s3_server  # noqa: F401
from waiting import PATIENCE, eventually

import moorline as mo
from moorline.snapshots.inspection import Verdict
from moorline.storage.log import read_history
from moorline.storage.stores.local import LocalStore

pytestmark = pytest.mark.spark

KEYS = 20


def counts(out: Path, count: int, rate: int) -> mo.Job:
    """One published row per record: its number, and how many of its key came before."""
    keys = KEYS

    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, n, ctx):
            self.seen.update(self.seen.value() + 1)
            yield {"n": n, "seen": self.seen.value()}

    job = mo.Job("counts", parallelism=2)
    (
        job.source(mo.generate(lambda n: n, count=count, splits=4, rate=rate), uid="numbers")
        .key_by(lambda n: n % keys)
        .process(Count(), uid="count")
        .sink(mo.write_files(out, format="jsonl"), uid="files")
    )
    return job


def audit(out: Path, count: int) -> None:
    """What was published is what a plain loop makes of the input: all of it, once."""
    rows = [json.loads(line) for path in out.glob("part-*.jsonl") for line in path.read_text().splitlines()]
    assert sorted((row["n"], row["seen"]) for row in rows) == [(n, n // KEYS + 1) for n in range(count)]


def test_a_job_with_its_checkpoints_on_s3_recovers_and_leaves_nothing_unneeded(
    spark,
    s3_server: S3Server,  # noqa: F811
    tmp_path,
    caplog,
):
    location = f"s3://{s3_server.new_bucket()}/checkpoints"
    config = mo.Checkpoints(location, interval="200ms", retained=2, storage_options=s3_server.options)
    handle = mo.start(counts(tmp_path / "out", 8_000, 800), spark, checkpoints=config)
    eventually(lambda: len(handle.checkpoints) >= 3, "checkpoints")
    # In the bucket of the checkpoints: its options are known.
    savepoint = handle.savepoint(f"{location}-kept/one")
    os.kill(next(iter(handle.worker_pids.values())), signal.SIGKILL)
    handle.wait(PATIENCE)
    assert handle.status is mo.JobStatus.FINISHED
    assert len(handle.failures) == 1
    assert handle.restored_from[-1] >= 3
    audit(tmp_path / "out", 8_000)
    report = mo.fsck(f"{location}/counts", grace=0)
    assert report.verdict is Verdict.SOUND
    assert (len(report.snapshots), report.leftovers) == (2, [])
    assert mo.fsck(savepoint).verdict is Verdict.SOUND
    assert SECRET not in caplog.text


SCRIPT = """
import sys, threading, time
from pathlib import Path
import moorline as mo
from test_storage_and_takeover import counts

folder = Path(sys.argv[1])
handle = mo.start(
    counts(folder / "out", 6_000, int(sys.argv[2])),
    checkpoints=mo.Checkpoints(str(folder / "chk"), interval="200ms"),
    ha=mo.StorageLease(ttl="10s"),
)
told = None
while told is None or not told.is_terminal:
    if handle.status is not told:
        told = handle.status
        print(told.value, flush=True)
    if len(handle.checkpoints) == 3:
        print("3 checkpoints", flush=True)
    time.sleep(0.02)
handle.wait()
"""


class DriverProcess:
    """A driver with a Spark of its own, and what it has said."""

    def __init__(self, folder: Path, rate: int) -> None:
        here = str(Path(__file__).parent)
        paths = [here, str(Path(here).parent), *sys.path]
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), str(rate)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)},
        )
        self.said: list[str] = []

    def until(self, words: str) -> None:
        assert self.process.stdout is not None
        while not any(line.startswith(words) for line in self.said):
            line = self.process.stdout.readline()
            assert line, f"it ended before it said {words!r}, and after {self.said}"
            self.said.append(line.strip())


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[[int], DriverProcess]]:
    started: list[DriverProcess] = []

    def start(rate: int) -> DriverProcess:
        started.append(DriverProcess(tmp_path, rate))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def test_a_second_driver_waits_while_the_first_lives_and_finishes_the_job_when_it_was_killed(driver, spark, tmp_path):
    # So slow that it would take ten minutes, and so fast that it takes two seconds.
    first = driver(10)
    first.until("running")
    second = mo.start(
        counts(tmp_path / "out", 6_000, 3_000),
        spark,
        checkpoints=mo.Checkpoints(str(tmp_path / "chk"), interval="200ms"),
        ha=mo.StorageLease(ttl="10s"),
    )
    eventually(lambda: second.status is mo.JobStatus.WAITING, "the second waits")
    first.until("3 checkpoints")
    assert (second.status, second.attempt) == (mo.JobStatus.WAITING, 0)
    assert first.process.poll() is None
    first.process.kill()
    second.wait(PATIENCE)
    assert second.status is mo.JobStatus.FINISHED
    # Neither was told to restore: the second goes on with what the first began.
    assert second.restored_from[0] >= 3
    audit(tmp_path / "out", 6_000)
    writers = {record.writer for record in read_history(LocalStore(tmp_path / "chk" / "counts"))}
    assert len(writers) <= 2
