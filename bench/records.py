"""The price of records being values, and of their way from one process to another.

One keyed process function, with kinds of records that can change or cannot. Every kind is measured with copies and, in
the same run, with object_reuse, which never copies. Keys are random. Then new records of five fields are packed and
unpacked in parts of 256, and two of their fields are read; beside it plain pickle in the same run.

    python bench/records.py [--quick]

The last line is one JSON object: nanoseconds of processor time per record, and the ratio of the two; of the wire also
the bytes per record.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

import moorline as mo
from moorline.model.config.state import StateConfig
from moorline.model.wire import elements
from moorline.testing import OperatorHarness

KEYS, BATCH, PART = 100_000, 2_048, 256


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


class Struct(msgspec.Struct):
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


#: Kinds of records on the wire.
RECORDS: dict[str, Callable[[int], Any]] = {
    "frozen dataclass": lambda n: Frozen(n % KEYS, n, n / 4, "name", True),
    "dataclass": lambda n: Changeable(n % KEYS, n, n / 4, "name", True),
    "struct": lambda n: Struct(n % KEYS, n, n / 4, "name", True),
    "dict": lambda n: {"key": n % KEYS, "count": n, "amount": n / 4, "name": "name", "flag": True},
    "tuple": lambda n: (n % KEYS, n, n / 4, "name", True),
}


def used(records: list[Any]) -> None:
    """Two fields are read, as a key selector and a function would."""
    if isinstance(records[0], dict):
        for record in records:
            _ = record["key"], record["count"]
    elif isinstance(records[0], tuple):
        for record in records:
            _ = record[0], record[1]
    else:
        for record in records:
            _ = record.key, record.count


def wired(pack: Callable[[Any], bytes], unpack: Callable[[bytes], Any], records: list[Any]) -> tuple[int, int, int]:
    """Nanoseconds to pack and forget records, and to unpack, use and forget them; and their bytes."""
    began = time.thread_time_ns()
    part = pack(records)
    records.clear()
    packed = time.thread_time_ns()
    used(unpack(part))
    return packed - began, time.thread_time_ns() - packed, len(part)


def on_the_wire(rounds: int) -> dict[str, dict[str, list[float]]]:
    ways = {
        "pickle": (lambda records: pickle.dumps(records, 5), pickle.loads),
        "here": (elements.pack_records, lambda part: elements.unpack_part(part, 0)[1]),
    }
    found: dict[str, dict[str, list[float]]] = {}
    for kind, make in RECORDS.items():
        times: dict[str, list[tuple[int, int, int]]] = {way: [] for way in ways}
        for number in range(rounds):
            for way, (pack, unpack) in ways.items():
                records = [make(n) for n in range(number * PART, (number + 1) * PART)]
                times[way].append(wired(pack, unpack, records))
        found[kind] = {way: [round(sorted(f)[rounds // 4] / PART, 1) for f in zip(*t)] for way, t in times.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    found = measured((20 if quick else 100) * BATCH, 5 if quick else 25)
    for name, (copied, reused) in found.items():
        print(f"{name:20} {copied:6.0f} ns, with object_reuse {reused:6.0f} ns: {copied / reused:.2f}")
    wire = on_the_wire(40 if quick else 400)
    for kind, ways in wire.items():
        ratio = sum(ways["here"][:2]) / sum(ways["pickle"][:2])
        print(f"{kind:20} on the wire {ways['here']}, by pickle {ways['pickle']}: {ratio:.2f}")
    of_copies = {name: [round(c), round(r), round(c / r, 3)] for name, (c, r) in found.items()}
    print(json.dumps({"bench": "records", **of_copies, "wire": wire}))


if __name__ == "__main__":
    main()
