"""What a window costs: sums per key over tumbling windows of event time, beside a loop that keeps them in a dict.

    sparse   0.4 records per key and window: nearly every record opens a window, and a timer, of its own
    dense    100 records per key and window

Records are out of order by up to half a window, and there is a watermark after each batch. The first two windows are
not timed. Every tenth of the run a
checkpoint is taken and written, as a worker would: how long the stream waits for it, and how long it takes to write.
The same records go through the bare loop in turn with the operator, so both see the same machine.

    python bench/windows.py [--quick]

In one process, without Spark: the operator that a worker runs, with increments on the heap. Processor time. The last
line is one JSON object: records/s of both, their ratio, and the rate of the last quarter over that of the first.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

from moorline.api.windows.assigners import TumblingEventTimeWindows
from moorline.model.config.state import StateConfig
from moorline.model.key_groups import KeyGroupRange
from moorline.model.times import MAX_TIME
from moorline.model.wire.elements import Barrier
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.snapshot.capture import capture, done
from moorline.subtask.snapshot.writer import Writer
from moorline.testing import OperatorHarness

BATCH, WINDOW_MS = 2_048, 10_000


@dataclass(frozen=True)
class Shape:
    """So many keys, and so many records in the time of one window."""

    keys: int
    records_per_window: int


SHAPES = {"sparse": Shape(100_000, 40_000), "dense": Shape(1_000, 100_000)}

Batch = tuple[list[tuple[int, int]], list[int], int]


def batches(shape: Shape, records: int, seed: int = 7) -> list[Batch]:
    """Records, their timestamps, and the watermark after them."""
    chance = random.Random(seed)
    lag = WINDOW_MS // 2
    made: list[Batch] = []
    for start in range(0, records, BATCH):
        numbers = range(start, min(start + BATCH, records))
        times = [n * WINDOW_MS // shape.records_per_window + chance.randrange(lag) for n in numbers]
        part = [(chance.randrange(shape.keys), chance.randrange(100)) for _ in numbers]
        made.append((part, times, numbers[-1] * WINDOW_MS // shape.records_per_window))
    return made


class Counted:
    """Counts what comes out, and adds it up."""

    def __init__(self) -> None:
        self.records = self.total = 0

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        self.records += len(records)
        self.total += sum(value for _, value in records)

    def watermark(self, time: int) -> None: ...
    def idle(self) -> None: ...


class BareLoop:
    """The same sums in dicts, with nothing else: no timers, no snapshots, no late records."""

    def __init__(self) -> None:
        self.windows: dict[int, dict[int, int]] = {}
        self.out = Counted()

    def process(self, records: list[tuple[int, int]], timestamps: list[int]) -> None:
        windows = self.windows
        for (key, value), timestamp in zip(records, timestamps):
            start = timestamp - timestamp % WINDOW_MS
            window = windows.get(start)
            if window is None:
                window = windows[start] = {}
            window[key] = window.get(key, 0) + value

    def watermark(self, time: int) -> None:
        for start in [s for s in self.windows if s + WINDOW_MS - 1 <= time]:
            self.out.process(list(self.windows.pop(start).items()))


def added(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0], a[1] + b[1]


@dataclass
class Checkpoints:
    """Checkpoints of one operator, each on top of the one before."""

    operator: Any
    store: MemoryStore = field(default_factory=MemoryStore)
    number: int = 0
    sync_ms: list[float] = field(default_factory=list)
    write_ms: list[float] = field(default_factory=list)

    def take(self) -> None:
        self.number += 1
        began = time.perf_counter()
        captured = capture([self.operator], Barrier(self.number, 0, False, self.number - 1))  # type: ignore[arg-type]
        self.sync_ms.append(1000 * (time.perf_counter() - began))
        began = time.perf_counter()
        handles = Writer(self.store, captured, self.number, 0, 1, KeyGroupRange(0, 128))()
        self.write_ms.append(1000 * (time.perf_counter() - began))
        done(captured, handles)


def measured(shape: Shape, records: int) -> dict[str, Any]:
    made = batches(shape, records)
    harness = OperatorHarness.of(
        lambda stream: (
            stream.key_by(lambda r: r[0])
            .window(TumblingEventTimeWindows(f"{WINDOW_MS}ms"))
            .reduce(added, element_type=tuple[int, int], uid="sums")
        ),
        state=StateConfig(incremental=True),
    )
    operator, out, bare = harness._subtasks[0].operator, Counted(), BareLoop()
    operator.targets, operator.side_targets = [out], {}
    checkpoints = Checkpoints(operator)
    seconds: dict[str, list[float]] = {"operator": [0.0] * 4, "bare": [0.0] * 4}
    every = max(1, len(made) // 10)
    warm = 2 * shape.records_per_window // BATCH  # from then on as many windows end as begin
    for number, (part, times, watermark) in enumerate(made):
        quarter = 4 * max(0, number - warm) // (len(made) - warm)
        for name, subject in (("operator", operator), ("bare", bare)):
            began = time.thread_time()
            subject.process(part, times)
            subject.watermark(watermark)
            if number >= warm:
                seconds[name][quarter] += time.thread_time() - began
        if number % every == every - 1:
            checkpoints.take()
    operator.watermark(MAX_TIME)
    bare.watermark(MAX_TIME)
    assert (out.records, out.total) == (bare.out.records, bare.out.total), "the two do not agree"
    timed = records - warm * BATCH
    mine, plain = sum(seconds["operator"]), sum(seconds["bare"])
    first, *_, last = seconds["operator"]
    bare_first, *_, bare_last = seconds["bare"]
    return {
        "records": timed,
        "windows": out.records,
        "records_per_window": round(records / out.records, 2),
        "records_per_second": round(timed / mine),
        "ns_per_record": round(mine / timed * 1e9),
        "bare_records_per_second": round(timed / plain),
        "ratio": round(plain / mine, 3),
        "last_quarter_over_first": round(first / last, 3),
        "bare_last_quarter_over_first": round(bare_first / bare_last, 3),
        "checkpoint_sync_ms": round(sorted(checkpoints.sync_ms)[len(checkpoints.sync_ms) // 2], 2),
        "checkpoint_write_ms": round(sorted(checkpoints.write_ms)[len(checkpoints.write_ms) // 2], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a minute")
    quick = parser.parse_args().quick
    gc.set_threshold(200_000, 20, 50)  # as in a worker
    found = {}
    for name, shape in SHAPES.items():
        found[name] = row = measured(shape, 400_000 if quick else 2_000_000)
        print(
            f"{name:7} {row['ns_per_record']:>6} ns a record, {row['records_per_second']:>9,}/s, bare loop "
            f"{row['bare_records_per_second']:>9,}/s: {row['ratio']}; last quarter over first "
            f"{row['last_quarter_over_first']} (bare {row['bare_last_quarter_over_first']}); checkpoint "
            f"{row['checkpoint_sync_ms']} ms, written in {row['checkpoint_write_ms']} ms"
        )
    print(json.dumps({"bench": "windows", "quick": quick, **found}))


if __name__ == "__main__":
    main()
