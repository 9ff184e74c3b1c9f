"""Driver processes for chaos tests: started, fed with cells, and waited for, with all that they started themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from chaos_ends import ENDS, rows
from chaos_job import Cell
from waiting import PATIENCE, eventually

SCRIPT = Path(__file__).with_name("chaos_job.py")

#: Two executors: one can be killed. The job has eight subtasks, and nine when it was rescaled.
CLUSTER = "local-cluster[2,5,1024]"
#: One JVM: starts in a third of the time, and will do where the driver is the victim.
LOCAL = "local[12,1]"


class Driver:
    """A driver process. Its cells are in ``folder``, and what it says in ``folder/log.txt``."""

    def __init__(self, folder: Path, master: str = CLUSTER, executor_timeout: str = "20s") -> None:
        self.folder = folder
        path = os.pathsep.join([str(SCRIPT.parent), os.environ.get("PYTHONPATH", "")])
        with open(folder / "log.txt", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(folder), "--master", master, "--executor-timeout", executor_timeout],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        self._family: list[psutil.Process] = []

    def __enter__(self) -> Driver:
        assert self._next_line() == "ready", self.log()
        return self

    def send(self, cell: Cell) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asdict(cell)) + "\n")
        self.process.stdin.flush()

    def report(self) -> dict[str, Any] | None:
        """The report of the cell that was sent; None if the driver has died of it."""
        line = self._next_line()
        self._family += self._children()
        return json.loads(line) if line else None

    def run(self, cell: Cell) -> dict[str, Any] | None:
        self.send(cell)
        return self.report()

    def wait_until_stopped(self) -> None:
        process = psutil.Process(self.process.pid)
        eventually(lambda: process.status() == psutil.STATUS_STOPPED, "the driver is stopped")
        self._family += self._children()

    def log(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")[-3000:]

    def _next_line(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("{", "ready")):
                return line.strip()
        return ""

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """End it, and wait until nothing is left of it: what a killed driver leaves behind must go by itself."""
        if error is not None:
            self.process.kill()
        self._family += self._children()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(PATIENCE)
        eventually(lambda: not self._alive(), "nothing is left behind")

    def _alive(self) -> list[psutil.Process]:
        """Those that the driver started and that still run. Not psutil.wait_procs: it stumbles over reused numbers."""
        return [process for process in set(self._family) if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@cache
def expected(ends: str, records: int) -> Counter[Any]:
    """What a plain loop finds."""
    return ENDS[ends].flow.loop(records)


def faults_of(report: dict[str, Any], folder: Path) -> list[str]:
    """What is wrong with a cell that has run to its end."""
    if "error" in report:
        return [report["error"], report["traceback"]]
    cell = Cell(**{field.name: report[field.name] for field in fields(Cell)})
    wrong = []
    for where, found in ENDS[cell.ends].found(cell.place(folder)).items():
        there, wanted = Counter(rows(found)), expected(cell.ends, cell.records)
        missing, doubled = wanted - there, there - wanted
        if missing or doubled:
            wrong.append(f"{where}: {missing.total()} rows missing, {doubled.total()} too many")
    if report["leftovers"]:
        wrong.append(f"left behind: {report['leftovers']}")
    return wrong
