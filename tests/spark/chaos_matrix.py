"""Cells of chaos tests: which process is killed in which phase, and what must be so when a cell is over.

The published output must be what a plain loop makes of the same input, and the run must not have been vacuous: the kill
happened, and a checkpoint above 0 was restored.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos_drivers import LOCAL, Driver, faults_of
from chaos_job import Cell

#: Phase and failpoint, which fires once there are two checkpoints; and the side it is on.
WORKER_PHASES = {
    "P1-steady": "frame?steady",
    "P2-barrier-emitted": "ckpt.barrier?steady",
    "P3-aligning": "ckpt.aligning?steady",
    "P4-sync": "ckpt.sync?steady",
    "P5-mid-upload": "ckpt.mid_upload?steady",
    "P6-uploaded": "ckpt.uploaded?steady",
    "P10-before-commit": "sink.commit.before?steady",
    "P10-amid-commit": "sink.commit.middle?steady",
    "P10-after-commit": "sink.commit.after?steady",
}
DRIVER_PHASES = {
    "P7-before-publish": "publish.before?steady",
    "P8-after-publish": "publish.after?steady",
    "P9-before-table": "committer.before?steady",
    "P9-after-table": "committer.after?steady",
    "P9-amid-notify": "ckpt.notifying?steady",
    "P13-amid-retention": "retention.between?steady",
}
ALL_PHASES = [*WORKER_PHASES, *DRIVER_PHASES]
#: A second fault while the first is being recovered from.
DOUBLE_FAULTS = {
    "P11-restore-read": "ckpt.sync?steady:{kill},restore.read:{kill}",
    "P11-restore-open": "ckpt.sync?steady:{kill},restore.open:{kill}",
}
#: A fault in what was asked for: a savepoint, a rescale with the restore that follows, a stop with a savepoint.
ASKED = {
    "savepoint": ["ckpt.sync?asked", "ckpt.uploaded?asked"],
    "rescale": ["ckpt.uploaded?asked", "restore.read?asked", "restore.open?asked"],
    "stop": ["ckpt.sync?asked", "ckpt.uploaded?asked", "sink.commit.middle?asked"],
}
#: What kills or stops the victim, from a worker and from the driver.
FROM_A_WORKER = {
    "worker": "{kill}",
    "executor": "{kill}_parent",
    "driver": "{kill}_file(driver)",
    "server": "{kill}_file(server)",
}
FROM_THE_DRIVER = {
    "worker": "{kill}_file(worker)",
    "executor": "{kill}_file(executor)",
    "driver": "{kill}",
    "server": "{kill}_file(server)",
}
#: What goes on beside a cell while it runs: its input may come meanwhile.
Beside = Callable[[Cell], AbstractContextManager[object]]


def plan(victim: str, phase: str, kill: str = "kill") -> str:
    if phase in WORKER_PHASES:
        return f"{WORKER_PHASES[phase]}:{FROM_A_WORKER[victim].format(kill=kill)}"
    return f"{DRIVER_PHASES[phase]}:{FROM_THE_DRIVER[victim].format(kill=kill)}"


def check(
    folder: Path, reports: list[dict[str, Any]], tally: Counter, what: str, *, faults: int = 1, restarts: bool = True
) -> None:
    """All cells, then the verdict: one that goes wrong does not hide the others.

    ``restarts``: a job may live through it that a server is away, and through nothing else.
    """
    wrong = []
    for report in reports:
        mistakes = faults_of(report, folder)
        if "error" not in report:
            restored = [n for n in report["restored_from"] if n > 0]
            if len(report["fired"]) < faults:
                mistakes.append("not everything was killed that should have been")
            if restarts and not report["failures"]:
                mistakes.append("the job has not noticed")
            if restarts and not restored:
                mistakes.append("no checkpoint above 0 was restored")
            tally[what] += len(report["fired"])
            tally["checkpoints above 0 restored"] += len(restored)
        wrong += [f"{report['cell']}: {'; '.join(mistakes)}: {report}"] if mistakes else []
    assert not wrong, "\n".join(wrong)


def alone(cell: Cell) -> AbstractContextManager[object]:
    """Nothing goes on beside it."""
    return nullcontext()


def check_survivors(
    folder: Path,
    cells: list[Cell],
    tally: Counter,
    what: str,
    *,
    faults: int = 1,
    restarts: bool = True,
    beside: Beside = alone,
    **options: Any,
) -> None:
    """Cells in which the driver lives on: one after the other in one Spark."""
    reports = []
    with Driver(folder, **options) as driver:
        for cell in cells:
            with beside(cell):
                report = driver.run(cell)
            assert report is not None, f"the driver has died: {driver.log()}"
            reports.append(report)
    check(folder, reports, tally, what, faults=faults, restarts=restarts)


def check_driver_deaths(folder: Path, cells: list[Cell], tally: Counter, what: str, beside: Beside = alone) -> None:
    """Every cell kills its driver. One that lives on takes over all of the jobs, one after the other."""
    reports = []
    with Driver(folder, LOCAL) as successor:
        for cell in cells:
            with beside(cell):
                with Driver(folder, LOCAL) as victim:
                    report = victim.run(cell)
                assert report is None, f"the driver was not killed: {report}"
                assert victim.process.returncode == -signal.SIGKILL, victim.log()
                report = successor.run(replace(cell, plan="", restore="latest"))
            assert report is not None, successor.log()
            # The fault was in the first driver, and has left its mark; the second has had none.
            reports.append({**report, "failures": ["the driver was killed"]})
    check(folder, reports, tally, what)
    assert all(r["restored_from"][0] > 0 for r in reports), reports


def check_zombie(folder: Path, cell: Cell, tally: Counter, beside: Beside = alone) -> None:
    """A driver that is stopped by its cell comes back to life when another one has done its work. It must give way."""
    with Driver(folder, LOCAL) as zombie:
        with beside(cell):
            zombie.send(cell)
            zombie.wait_until_stopped()
            with Driver(folder, LOCAL) as successor:
                report = successor.run(replace(cell, plan="", restore="latest"))
                assert report is not None, successor.log()
        check(folder, [{**report, "failures": ["the driver was stopped"]}], tally, "drivers stopped")
        zombie.process.send_signal(signal.SIGCONT)
        last_words = zombie.report()
        assert last_words is not None, zombie.log()
        assert last_words.get("error", "").startswith("Fenced"), last_words
    assert not faults_of(report, folder), "it has changed something"
