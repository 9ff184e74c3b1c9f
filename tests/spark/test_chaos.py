"""kill -9 on real Spark: several executor processes, a million records, a checkpoint every 400 ms.

A cell kills one process (a Python worker, an executor's JVM, the driver) in one phase of a checkpoint. Afterwards the
published files must hold what a plain loop makes of the same input, and the run must not have been vacuous: the kill
happened, and a checkpoint above 0 was restored. ``make test`` runs a short form, ``make chaos`` the whole matrix.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import chaos_job
import psutil
import pytest

SCRIPT = Path(__file__).with_name("chaos_job.py")

#: Phase, failpoint and how often it is passed before it fires; and the side it is on.
WORKER_PHASES = {
    "P1-steady": "frame@150",
    "P2-barrier-emitted": "ckpt.barrier@4",
    "P3-aligning": "ckpt.aligning@4",
    "P4-sync": "ckpt.sync@4",
    "P5-mid-upload": "ckpt.mid_upload@7",
    "P6-uploaded": "ckpt.uploaded@4",
    "P10-before-commit": "sink.commit.before@3",
    "P10-amid-commit": "sink.commit.middle@3",
    "P10-after-commit": "sink.commit.after@3",
}
DRIVER_PHASES = {
    "P7-before-publish": "publish.before@4",
    "P8-after-publish": "publish.after@4",
    "P9-amid-notify": "ckpt.notifying@4",
    "P13-amid-retention": "retention.between@3",
}
#: A second fault while the first is being recovered from.
DOUBLE_FAULTS = {
    "P11-restore-read": "ckpt.sync@4:kill,restore.read:kill",
    "P11-restore-open": "ckpt.sync@4:kill_parent,restore.open:kill_parent",
}


def plan(victim: str, phase: str) -> str:
    if phase in WORKER_PHASES:
        action = {"worker": "kill", "executor": "kill_parent", "driver": "kill_file(driver)"}[victim]
        return f"{WORKER_PHASES[phase]}:{action}"
    action = {"worker": "kill_file(worker)", "executor": "kill_file(executor)", "driver": "kill"}[victim]
    return f"{DRIVER_PHASES[phase]}:{action}"


SHORT = {
    "worker": ["P1-steady", "P3-aligning", "P10-amid-commit"],
    "executor": ["P4-sync", "P5-mid-upload", "P8-after-publish"],
    "driver": ["P7-before-publish", "P8-after-publish", "P10-before-commit"],
}
ALL_PHASES = [*WORKER_PHASES, *DRIVER_PHASES]


@cache
def expected() -> Counter:
    return chaos_job.plain_loop()


def drive(folder: Path, cells: list[tuple[str, str]], *, restore: bool = False) -> tuple[list[dict], int, str]:
    """Run a driver process over some cells. Returns its reports, its exit code and the end of what it said."""
    command = [sys.executable, str(SCRIPT), str(folder), "--cells", json.dumps(cells)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPT.parent), os.environ.get("PYTHONPATH", "")])}
    with open(folder / "log.txt", "ab") as log:
        driver = subprocess.Popen(
            command + (["--restore"] if restore else []), stdout=subprocess.PIPE, stderr=log, env=environment
        )
        family = psutil.Process(driver.pid)
        out, _ = driver.communicate(timeout=120 + 60 * len(cells))
        _wait_for_the_family(family)
    reports = [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]
    return reports, driver.returncode, (folder / "log.txt").read_text(errors="replace")[-3000:]


def _wait_for_the_family(driver: psutil.Process) -> None:
    """What a killed driver leaves behind must go by itself."""
    try:
        children = driver.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive, f"left behind: {alive}"


def audit(report: dict, folder: Path) -> None:
    assert chaos_job.published(str(folder / report["cell"] / "out")) == expected(), report
    assert not report["leftovers"], report


def check_survivors(tmp_path: Path, victim: str, phases: list[str]) -> None:
    cells = [(f"{victim}-{phase}", plan(victim, phase)) for phase in phases]
    reports, code, log = drive(tmp_path, cells)
    assert code == 0, log
    assert [r["cell"] for r in reports] == [name for name, _ in cells]
    for report in reports:
        assert report["fired"], f"nothing was killed: {report}"
        assert report["failures"], report
        assert max(report["restored_from"]) > 0, f"no checkpoint was restored: {report}"
        audit(report, tmp_path)


def check_driver_death(tmp_path: Path, phase: str) -> None:
    name = f"driver-{phase}"
    reports, code, log = drive(tmp_path, [(name, plan("driver", phase))])
    assert code == -signal.SIGKILL, f"the driver was not killed: {code} {reports} {log}"
    (report,), code, log = drive(tmp_path, [(name, "")], restore=True)
    assert code == 0, log
    assert report["restored_from"][0] > 0, report
    audit(report, tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_killed_process_loses_and_doubles_nothing(tmp_path: Path, victim: str):
    check_survivors(tmp_path, victim, SHORT[victim])


@pytest.mark.spark
@pytest.mark.parametrize("phase", SHORT["driver"])
def test_a_killed_driver_is_followed_by_another_that_goes_on(tmp_path: Path, phase: str):
    check_driver_death(tmp_path, phase)


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_the_whole_matrix_of_survivors(tmp_path: Path, victim: str):
    check_survivors(tmp_path, victim, ALL_PHASES)


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["frame@150", "ckpt.uploaded@4"])
def test_a_worker_that_stops_answering_is_given_up(tmp_path: Path, point: str):
    (report,), code, log = drive(tmp_path, [("stopped", f"{point}:stop")])
    assert code == 0, log
    assert "not been heard of" in report["failures"][0], report
    assert max(report["restored_from"]) > 0, report
    audit(report, tmp_path)


@pytest.mark.chaos
@pytest.mark.parametrize("phase", DOUBLE_FAULTS)
def test_a_fault_during_the_recovery_from_a_fault(tmp_path: Path, phase: str):
    (report,), code, log = drive(tmp_path, [(phase, DOUBLE_FAULTS[phase])])
    assert code == 0, log
    assert len(report["fired"]) == 2, report
    assert len(report["failures"]) == 2, report
    audit(report, tmp_path)


@pytest.mark.chaos
@pytest.mark.parametrize("phase", ALL_PHASES)
def test_the_whole_matrix_of_driver_deaths(tmp_path: Path, phase: str):
    check_driver_death(tmp_path, phase)
