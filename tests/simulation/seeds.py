"""Thousands of simulated jobs, run while other tests wait: they get what nobody else wants of the processors.

They are begun when tests begin, if they are among these, and are asked for at the end (``tests/conftest.py``).
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor

from moorline.testing.simulation.simulator import Simulation

SEEDS = int(os.environ.get("MOORLINE_SEEDS", "5000"))
CHUNK = 50

_PR_SET_PDEATHSIG = 1

Part = tuple[list[str], Counter[str]]


class Seeds:
    """All of them, in processes of their own."""

    def __init__(self) -> None:
        # Not by a fork: other tests have threads, and a lock that one of them holds would be held for ever.
        self._pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), initializer=_be_modest)
        self._parts: list[Future[Part]] = [self._pool.submit(_run_chunk, n) for n in range(0, SEEDS, CHUNK)]

    def result(self) -> Part:
        """What failed, and what happened."""
        parts = [part.result() for part in self._parts]
        return [f for failures, _ in parts for f in failures], sum((seen for _, seen in parts), Counter())

    def stop(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _be_modest() -> None:
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not to outlive tests that are killed
    else:
        os.nice(19)
    # What is loaded stays, and the collector need not go through it again and again: a tenth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _run_chunk(first: int) -> Part:
    failures: list[str] = []
    seen: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        try:
            simulation = Simulation(seed).run()
        except Exception as error:
            failures.append(f"seed {seed}: {type(error).__name__}: {error}")
            continue
        seen += simulation.injected
        seen["checkpoints"] += simulation.checkpoints
        seen["full checkpoints"] += simulation.full_checkpoints
        seen["restored"] += len(simulation.restored)
        seen["restored with records in flight"] += len(set(simulation.restored) & set(simulation.unaligned))
        seen["runs that restored a checkpoint"] += bool(simulation.restored)
    return failures, seen
