"""kill -9 and SIGSTOP on real Spark: several executor processes, and a checkpoint every 250 ms.

A cell kills one process (a Python worker, an executor's JVM, the driver) in one phase of a checkpoint. Afterwards the
published files, and a Delta table that the driver commits, must hold what a plain loop makes of the same input, and the
run must not have been vacuous: the kill happened, and a checkpoint above 0 was restored. ``make test`` runs a short
form, ``make chaos`` the whole matrix, and prints how many processes it killed and how many checkpoints were restored.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from chaos_drivers import CLUSTER, LOCAL, Driver, faults_of
from chaos_job import Cell
from chaos_matrix import (
    ALL_PHASES,
    ASKED,
    DOUBLE_FAULTS,
    FROM_A_WORKER,
    check,
    check_driver_deaths,
    check_survivors,
    plan,
)

#: A cell for each victim, in the phases that have most to lose.
SHORT = {"worker": "P10-amid-commit", "executor": "P5-mid-upload", "driver": "P9-before-table"}


@pytest.mark.spark
def test_a_killed_worker_executor_or_driver_loses_and_doubles_nothing(tmp_path: Path, tally: Counter):
    """All in one Spark, the driver last."""
    cells = {victim: Cell(victim, plan(victim, phase)) for victim, phase in SHORT.items()}
    with Driver(tmp_path) as driver:
        for victim in ("worker", "executor"):
            report = driver.run(cells[victim])
            assert report is not None, driver.log()
            check(tmp_path, [report], tally, f"{victim}s killed")
        assert driver.run(cells["driver"]) is None, "the driver was not killed"
    assert driver.process.returncode == -signal.SIGKILL, driver.log()
    with Driver(tmp_path, LOCAL) as successor:
        report = successor.run(Cell("driver", restore="latest"))
        assert report is not None, successor.log()
    check(tmp_path, [{**report, "failures": ["the driver was killed"]}], tally, "drivers killed")


@pytest.mark.chaos
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_the_whole_matrix_of_survivors(tmp_path: Path, tally: Counter, victim: str, backend: str):
    cells = [Cell(phase, plan(victim, phase), backend) for phase in ALL_PHASES]
    check_survivors(tmp_path, cells, tally, f"{victim}s killed")


@pytest.mark.chaos
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_the_whole_matrix_of_driver_deaths(tmp_path: Path, tally: Counter, backend: str):
    cells = [Cell(phase, plan("driver", phase), backend) for phase in ALL_PHASES]
    check_driver_deaths(tmp_path, cells, tally, "drivers killed")


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_fault_during_the_recovery_from_a_fault(tmp_path: Path, tally: Counter, victim: str):
    action = FROM_A_WORKER[victim].format(kill="kill")
    cells = [
        Cell(f"{phase}-{backend}", both.format(kill=action), backend)
        for phase, both in DOUBLE_FAULTS.items()
        for backend in ("heap", "rocksdb")
    ]
    check_survivors(tmp_path, cells, tally, f"{victim}s killed", faults=2)


def asked(victim: str) -> list[Cell]:
    action, backends = FROM_A_WORKER[victim].format(kill="kill"), ("heap", "rocksdb")
    return [
        Cell(
            f"{what}-{point.partition('?')[0]}-{backends[number % 2]}", f"{point}:{action}", backends[number % 2], what
        )
        for what, points in ASKED.items()
        for number, point in enumerate(points)
    ]


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_fault_in_a_savepoint_a_rescale_or_a_stop(tmp_path: Path, tally: Counter, victim: str):
    check_survivors(tmp_path, asked(victim), tally, f"{victim}s killed")


@pytest.mark.chaos
def test_a_driver_that_dies_in_a_savepoint_a_rescale_or_a_stop(tmp_path: Path, tally: Counter):
    check_driver_deaths(tmp_path, asked("driver"), tally, "drivers killed")


#: A process that is stopped when it starts: before it has called the driver, and when a checkpoint is restored.
STARTS = {
    "P0-start": "task.start:{stop}",
    "P0-start-again": "ckpt.sync?steady:kill,restore.read:{stop}",
}


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_process_that_is_stopped_is_given_up_in_every_phase(tmp_path: Path, tally: Counter, victim: str):
    cells = [
        Cell(phase, plan(victim, phase, "stop"), ("heap", "rocksdb")[number % 2], heartbeat="4s")
        for number, phase in enumerate(ALL_PHASES)
    ]
    check_survivors(tmp_path, cells, tally, f"{victim}s stopped", executor_timeout="8s")


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_process_that_is_stopped_at_its_start_is_given_up(tmp_path: Path, tally: Counter, victim: str):
    action = FROM_A_WORKER[victim].format(kill="stop")
    cells = [
        Cell(phase, both.format(stop=action), heartbeat="4s", start_timeout="40s") for phase, both in STARTS.items()
    ]
    with Driver(tmp_path, CLUSTER, "8s") as driver:
        first, again = [driver.run(cell) for cell in cells]
        assert first and again, driver.log()
    assert not faults_of(first, tmp_path), first
    assert first["fired"], first
    assert first["failures"], first
    tally[f"{victim}s stopped"] += 1
    check(tmp_path, [again], tally, f"{victim}s stopped", faults=2)


#: Where a driver is when it stops. In the first it is about to publish a checkpoint that nobody else knows of.
ZOMBIES = ["publish.before?steady", "publish.after?steady", "ckpt.notifying?steady", "retention.between?steady"]


@pytest.mark.chaos
@pytest.mark.parametrize("point", ZOMBIES)
def test_a_driver_that_comes_back_to_life_gives_way_and_changes_nothing(tmp_path: Path, tally: Counter, point: str):
    name = point.partition("?")[0]
    with Driver(tmp_path, LOCAL) as zombie:
        zombie.send(Cell(name, f"{point}:stop"))
        zombie.wait_until_stopped()
        with Driver(tmp_path, LOCAL) as successor:
            report = successor.run(Cell(name, restore="latest"))
            assert report is not None, successor.log()
        check(tmp_path, [{**report, "failures": ["the driver was stopped"]}], tally, "drivers stopped")
        before = everything_below(tmp_path / name)
        zombie.process.send_signal(signal.SIGCONT)
        last_words = zombie.report()
        assert last_words is not None, zombie.log()
        assert last_words.get("error", "").startswith("Fenced"), last_words
    after = everything_below(tmp_path / name)
    assert {path: after.get(path) for path in before} == before
    # Its workers may still upload files of a checkpoint that no entry will ever name: the next sweep takes them.
    assert [path for path in after if path not in before and "/data/" not in path] == []


def everything_below(folder: Path) -> dict[str, bytes]:
    """All that is published, and all that is in storage."""
    files = [f for part in ("out", "checkpoints") for f in (folder / part).rglob("*") if f.is_file()]
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}
