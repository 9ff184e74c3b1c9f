"""The price of records being values: one keyed process function, with kinds of records that can change or cannot.

Every kind is measured with copies and, in the same run, with object_reuse, which never copies. Keys are random.

    python bench/records.py [--quick]

The last line is one JSON object: nanoseconds of processor time per record, and the ratio of the two.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import moorline as mo
from moorline.model.config.state import StateConfig
from moorline.testing import OperatorHarness

KEYS, BATCH = 100_000, 2_048


@dataclass(frozen=True)
class Frozen:
    key: int
    count: int
    amount: float
    name: str
    flag: bool


@dataclass
class Changeable:
    key: int
    count: int
    amount: float
    name: str
    flag: bool


class Count(mo.KeyedProcessFunction):
    """Counts, and yields what ``make`` makes of key and count."""

    seen = mo.ValueState(int, default=0)

    def __init__(self, make: Callable[[int, int], Any]) -> None:
        self.make = make

    def process_element(self, value: tuple[int, int], ctx: Any) -> Any:
        count = self.seen.value() + 1
        self.seen.update(count)
        yield self.make(value[0], count)


class Totals(mo.KeyedProcessFunction):
    """Yields the dict that it keeps in its state."""

    totals = mo.ValueState(dict[str, int])

    def process_element(self, value: tuple[int, int], ctx: Any) -> Any:
        totals = self.totals.value() or {"key": value[0], "count": 0, "sum": 0, "least": 0, "most": 0}
        totals["count"] += 1
        totals["sum"] += value[1]
        self.totals.update(totals)
        yield totals


FUNCTIONS: dict[str, Callable[[], mo.KeyedProcessFunction]] = {
    "int": lambda: Count(lambda key, count: count),
    "tuple": lambda: Count(lambda key, count: (key, count)),
    "frozen dataclass": lambda: Count(lambda key, count: Frozen(key, count, 1.5, "name", True)),
    "new dict of 5": lambda: Count(
        lambda key, count: {"key": key, "count": count, "amount": 1.5, "name": "name", "flag": True}
    ),
    "new dataclass of 5": lambda: Count(lambda key, count: Changeable(key, count, 1.5, "name", True)),
    "dict of 5 in state": Totals,
}


class Nowhere:
    """Takes records and forgets them."""

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None: ...
    def watermark(self, time: int) -> None: ...
    def idle(self) -> None: ...


def harness_of(function: mo.KeyedProcessFunction, object_reuse: bool) -> OperatorHarness:
    harness = OperatorHarness.of(
        lambda stream: stream.key_by(lambda r: r[0]).process(function, uid="f"),
        state=StateConfig(object_reuse=object_reuse),
    )
    chained = harness._subtasks[0].operator
    chained.targets, chained.side_targets = [Nowhere()], {}
    return harness


def measured(records: int, rounds: int) -> dict[str, tuple[float, float]]:
    chance = random.Random(7)
    made = [(chance.randrange(KEYS), n) for n in range(records)]
    batches = [made[n : n + BATCH] for n in range(0, records, BATCH)]
    found = {}
    for name, make in FUNCTIONS.items():
        harnesses = harness_of(make(), False), harness_of(make(), True)
        best = [float("inf"), float("inf")]
        for _ in range(rounds):
            for which, harness in enumerate(harnesses):
                chained = harness._subtasks[0].operator
                began = time.thread_time()
                for batch in batches:
                    chained.process(batch)
                best[which] = min(best[which], (time.thread_time() - began) / records * 1e9)
        found[name] = best[0], best[1]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    found = measured((20 if quick else 100) * BATCH, 5 if quick else 25)
    for name, (copied, reused) in found.items():
        print(f"{name:20} {copied:6.0f} ns, with object_reuse {reused:6.0f} ns: {copied / reused:.2f}")
    print(json.dumps({"bench": "records", **{n: [round(c), round(r), round(c / r, 3)] for n, (c, r) in found.items()}}))


if __name__ == "__main__":
    main()
