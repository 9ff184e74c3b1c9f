"""The process behind an entry of a job's history: does it live? Asked before a job begins anew.

A claim carries a word that names the process of its driver:

    <boot of the machine>/<namespace of process ids>/<process id>/<start of the process>

In the same boot and namespace it can be said for certain, without any clock: the process is there with this start, or
it is not. From anywhere else it is unknown. A process may run several drivers one after the other, so those that run in
our own are kept in mind.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_running: set[str] = set()


@cache
def _where() -> str:
    """This machine since its last boot, and our namespace; empty where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """The start of a process, in ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name, in brackets, may hold anything. A zombie runs nothing any more.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def this_process() -> str:
    """The word for the process that we are; empty if this system has none.

    >>> is_alive(this_process(), "a driver that was never started")
    False
    """
    started = _started(os.getpid())
    return f"{_where()}/{os.getpid()}/{started}" if _where() and started is not None else ""


def driver_runs(writer: str) -> None:
    """A driver that writes under this word runs in this process from now on."""
    _running.add(writer)


def driver_ended(writer: str) -> None:
    """It does not run any more."""
    _running.discard(writer)


def is_alive(process: str, writer: str) -> bool | None:
    """Does the driver run that has written as ``writer`` in ``process``? None: it cannot be known from here."""
    where, _, started = process.rpartition("/")
    where, _, pid = where.rpartition("/")
    if not where or where != _where():
        return None
    if process == this_process():
        return writer in _running
    return pid.isdigit() and _started(int(pid)) == started
