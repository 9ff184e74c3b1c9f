"""How much a snapshot of the whole state disturbs records: a million keys on the heap, encoded beside a record loop.

The loop is that of a subtask at 1,000 records/s: it sleeps until a record is due, reads and writes its state, and notes
how late it is. Meanwhile a thread writes a snapshot of everything, as a savepoint or a base does:

    without   no snapshot
    whole     each step over all entries at once, with Python's own switch interval of 5 ms: as it was once
    slices    in slices with rests (``protocol/slicing.py``): as a worker does it

in turn, several rounds of each. Two figures for each record: how late it was, and how much processor time the writing
thread was given between the moment the record was due and the moment it was processed. The second is what the
snapshot is to blame for; the first has everything else in it that this machine does.

    python bench/snapshots.py [--quick]

In one process, without Spark. The last line is one JSON object: milliseconds, and the ratios of whole to slices.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.model.key_groups import KeyGroupRange
from moorline.state.backend import OperatorClock
from moorline.state.heap.backend import HeapBackend
from moorline.storage.stores.local import LocalStore
from moorline.subtask.snapshot.capture import Captured
from moorline.subtask.snapshot.pace import Pace
from moorline.subtask.snapshot.writer import Writer

GROUPS, RATE = 128, 1_000
STATE = ValueStateDescriptor("total", tuple[int, float])


class Subject:
    """A state of so many keys, and a record loop over it."""

    def __init__(self, keys: int) -> None:
        self.keys, self.chance = keys, random.Random(7)
        self.backend = HeapBackend("bench", GROUPS, OperatorClock(), incremental=True)
        self.state: Any = self.backend.bind(STATE)
        for self.backend.current.key in range(keys):
            self.state.update((1, self.backend.current.key / 7))

    def records(self, is_over: Callable[[], bool], writing: Callable[[], float]) -> list[tuple[float, float]]:
        """Process records until it is over. Of each: how late it was, and what the writer was given meanwhile."""
        found, due = [], time.perf_counter()
        current, state, chance = self.backend.current, self.state, self.chance
        while not is_over():
            due += 1 / RATE
            given = writing()
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
                given = max(given, writing() - max(0.0, time.perf_counter() - due))
            current.key = chance.randrange(self.keys)
            count, total = state.value()
            state.update((count + 1, total))
            found.append((time.perf_counter() - due, writing() - given))
        return found

    def without(self, seconds: float) -> list[tuple[float, float]]:
        end = time.perf_counter() + seconds
        return self.records(lambda: time.perf_counter() > end, lambda: 0.0)

    def beside(self, pace: Pace | None) -> tuple[list[tuple[float, float]], dict[str, float]]:
        """Records while everything is written, and how long that took."""
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            taken = self.backend.snapshot(1, 0, canonical=True)
            sync = time.perf_counter() - began
            writer = Writer(
                LocalStore(Path(folder)),
                [Captured("bench", taken, [], {}, [])],
                1,
                0,
                1,
                KeyGroupRange(0, GROUPS),
                pace=pace,
            )
            took: dict[str, float] = {}

            def write() -> None:
                before, cpu = time.perf_counter(), time.thread_time()
                writer()
                took.update(write_s=time.perf_counter() - before, write_cpu_s=time.thread_time() - cpu)

            thread = threading.Thread(target=write)
            thread.start()
            assert thread.ident is not None
            clock = time.pthread_getcpuclockid(thread.ident)
            last = 0.0

            def writing() -> float:
                nonlocal last
                if not took:
                    last = time.clock_gettime(clock)
                return last

            found = self.records(lambda: bool(took), writing)
            thread.join()
            taken.done(None)
        return found, {"sync_ms": 1000 * sync, **took}


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * q))], 2) for name, q in at.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the keys, one round")
    quick = parser.parse_args().quick
    gc.set_threshold(200_000, 20, 50)  # as in a worker
    subject, rounds = Subject(100_000 if quick else 1_000_000), 1 if quick else 3
    found: dict[str, list[tuple[float, float]]] = {"without": [], "whole": [], "slices": []}
    took: dict[str, list[dict[str, float]]] = {"whole": [], "slices": []}
    for _ in range(rounds):
        found["without"] += subject.without(1.0)
        for name, pace in (("whole", None), ("slices", Pace())):
            records, times = subject.beside(pace)
            found[name] += records
            took[name].append(times)
    result: dict[str, Any] = {"bench": "snapshots", "quick": quick, "keys": subject.keys}
    for name, records in found.items():
        row: dict[str, Any] = {"records": len(records), "late_ms": spread([late for late, _ in records])}
        if name in took:
            row["writer_ms"] = spread([given for _, given in records])
            row |= {key: round(min(times[key] for times in took[name]), 2) for key in took[name][0]}
        result[name] = row
        print(f"{name:8} {row}")
    whole, slices = result["whole"], result["slices"]
    result["whole_over_slices"] = {
        f"{what}_{q}": round(whole[f"{what}_ms"][q] / max(slices[f"{what}_ms"][q], 0.01), 1)
        for what in ("late", "writer")
        for q in ("p50", "p99", "max")
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
