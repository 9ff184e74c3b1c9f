"""Jobs on a Spark standalone cluster: executors without Moorline, lost daemons, a cut link, a driver that moves.

Exactly once throughout. The short form is part of the gate; under ``chaos`` it goes round several times.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy
import pandas
import pyarrow
import pytest
from standalone import Standalone, free_port, why_not
from standalone_job import KEYS, SPLITS
from waiting import eventually

from moorline.cli.packing import pack

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SCRIPT = Path(__file__).with_name("standalone_job.py")
needs_namespaces = pytest.mark.skipif(bool(why_not()), reason=f"no network namespaces: {why_not()}")
PATIENCE = 300


class Driver:
    """A driver process."""

    def __init__(self, folder: Path, cluster: Standalone, *options: str) -> None:
        self._folder = folder
        self._log = folder / f"driver-{len(list(folder.glob('driver-*')))}.log"
        command = [sys.executable, str(SCRIPT), str(folder), "--master", cluster.master_url, "--host", cluster.host]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYSPARK_PYTHON": cluster.python},
            )

    def started(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "started\n", self.log()

    def end(self) -> None:
        (self._folder / "stop").touch()
        assert self.process.wait(PATIENCE) == 0, self.log()

    def kill(self) -> None:
        """With its JVM, as a machine that is switched off."""
        family = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        for pid in (self.process.pid, *map(int, family.stdout.split())):
            os.kill(pid, signal.SIGKILL)
        self.process.wait(60)

    def log(self) -> str:
        return self._log.read_text()[-4000:]


def newest(folder: Path) -> int:
    """The number of the newest entry in the job's history."""
    entries = (folder / "checkpoints/standalone/history").glob("*.json")
    return max((int(entry.stem) for entry in entries), default=0)


def goes_on(folder: Path, driver: Driver, what: str) -> None:
    """Wait until there are some more checkpoints."""
    before = newest(folder)

    def has_gone_on() -> bool:
        assert driver.process.poll() is None, driver.log()
        return newest(folder) >= before + 4

    eventually(has_gone_on, f"{what}\n{driver.log()}", PATIENCE)


def check_exactly_once(folder: Path) -> None:
    """Of every split the output is all of its numbers up to some point, and each key was counted one by one."""
    rows = [json.loads(line) for part in (folder / "out").glob("part-*.jsonl") for line in part.open()]
    of_split, of_key = defaultdict(list), defaultdict(list)
    for row in rows:
        of_split[row["n"] % SPLITS].append(row["n"])
        of_key[row["key"]].append(row["seen"])
    assert len(rows) > 100
    assert (len(of_split), len(of_key)) == (SPLITS, KEYS)
    for split, numbers in of_split.items():
        assert sorted(numbers) == list(range(split, split + SPLITS * len(numbers), SPLITS))
    for seen in of_key.values():
        assert sorted(seen) == list(range(1, len(seen) + 1))


@needs_namespaces
@pytest.mark.chaos  # lost machines are noticed by time-outs: a round takes minutes
@pytest.mark.parametrize("rounds", [1, 4])
def test_lost_daemons_a_cut_link_and_a_driver_that_moves_lose_and_double_nothing(rounds, tmp_path):
    with Standalone(tmp_path) as cluster:
        eventually(lambda: cluster.alive_workers() == 2, "both workers are there", PATIENCE)
        driver = Driver(tmp_path, cluster, "--standby")
        driver.started()
        goes_on(tmp_path, driver, "it runs")
        for n in range(rounds):
            lost, cut = n % 2, (n + 1) % 2
            cluster.kill_worker(lost)
            eventually(lambda: cluster.alive_workers() == 1, "the master misses a worker", PATIENCE)
            goes_on(tmp_path, driver, "a worker daemon was killed")
            cluster.start_worker(lost)
            eventually(lambda: cluster.alive_workers() == 2, "it is back", PATIENCE)
            cluster.network.cut(cut)
            eventually(lambda: cluster.alive_workers() == 1, "the master misses a machine", PATIENCE)
            goes_on(tmp_path, driver, "a machine was cut off")
            cluster.network.join(cut)
            eventually(lambda: cluster.alive_workers() == 2, "the machine is back", PATIENCE)
            goes_on(tmp_path, driver, "a machine that was cut off came back")
            other = Driver(tmp_path, cluster, "--standby")
            other.started()
            driver.kill()
            goes_on(tmp_path, other, "the driver was killed, and another stood ready")
            driver = other
        driver.end()
    check_exactly_once(tmp_path)


def python_without_moorline(folder: Path) -> str:
    """A Python that has what PySpark's Arrow functions need, and nothing of ours."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    installed = Path(pandas.__file__).parents[1]
    assert {Path(m.__file__).parents[1] for m in (numpy, pyarrow)} == {installed}
    wanted = re.compile(r"(numpy|pandas|pyarrow|dateutil|pytz|six|tzdata)([.-].*)?")
    for path in installed.iterdir():
        if wanted.fullmatch(path.name):
            (packages / path.name).symlink_to(path)
    python = str(folder / "bin" / "python")
    assert subprocess.run([python, "-c", "import moorline"], capture_output=True, check=False).returncode == 1
    return python


def test_executors_need_no_moorline_if_they_get_an_archive(tmp_path):
    archive = tmp_path / "moorline.tar.gz"
    pack(archive)
    python = python_without_moorline(tmp_path / "bare")
    with Standalone(tmp_path, workers=1, spaced=False, python=python) as cluster:
        eventually(lambda: cluster.alive_workers() == 1, "the worker is there", PATIENCE)
        with_port = ("--control-port", str(free_port(cluster.host)))
        driver = Driver(tmp_path, cluster, "--archive", str(archive), *with_port)
        driver.started()
        goes_on(tmp_path, driver, "it runs")
        driver.end()
    check_exactly_once(tmp_path)
