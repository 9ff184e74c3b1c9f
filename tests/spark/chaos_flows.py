"""What chaos jobs make of the numbers that they read, and the plain loops that know the result.

    totals     keyed state: every tenth record of a key gives a row
    windows    event time: a row for each key and each window
    joined     keyed and broadcast state: totals of values that are worth what a second table says

Every row has the columns ``key``, ``count``, ``sum`` and ``last``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import moorline as mo

KEYS, EVERY = 1000, 10
#: In milliseconds, and so in records: a record is as old as its number says.
WINDOW = 10_000
#: The kinds of keys, which are worth something each.
KINDS = 7

Number = Callable[[Any], int]
#: The changes of a table, and where it is written that every subtask knows them.
Second = tuple[mo.Source[Any], mo.Sink[Any]]
Row = tuple[int, int, int, int]


def reading(number: int) -> tuple[int, int]:
    # KEYS is a multiple of the number of splits, so all records of a key come from one split, in order.
    return number % KEYS, number * 7 % 101


def worth(key: int) -> int:
    return 3 + key % KINDS


@dataclass(frozen=True)
class Flow:
    """The middle of a job. Its stateful operator has the uid ``totals``."""

    #: The stream of rows, of the job, its readings, the number of a reading, and a second table.
    build: Callable[[mo.Job, mo.Stream[Any], Number, Second | None], mo.Stream[Any]]
    #: What a plain loop over so many numbers finds.
    loop: Callable[[int], Counter[Row]]
    watermarks: Callable[[Number], mo.WatermarkStrategy] | None = None


# --- totals -----------------------------------------------------------------------------------------


class Totals(mo.KeyedProcessFunction):
    """Every tenth record of a key: how many there were and their sum, kept in two states that must agree."""

    total = mo.ValueState(tuple[int, int], default=(0, 0))
    last = mo.ListState(int)

    def __init__(self, number: Number) -> None:
        self._number = number

    def process_element(self, value, ctx):
        key, value = reading(self._number(value))
        count, total = self.total.value()
        count, total = count + 1, total + value
        self.total.update((count, total))
        self.last.add(value)
        if count % EVERY == 0:
            yield {"key": key, "count": count, "sum": total, "last": sum(self.last)}
            self.last.clear()


def _totals(job, readings, number, second):
    return readings.key_by(lambda record: reading(number(record))[0]).process(Totals(number), uid="totals")


def _loop_of_totals(records: int, worth: Callable[[int], int] = lambda key: 1) -> Counter[Row]:
    found: Counter[Row] = Counter()
    state: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}
    for number in range(records):
        key, value = reading(number)
        value *= worth(key)
        count, total = state.get(key, (0, 0))
        state[key] = count, total = count + 1, total + value
        last[key] = last.get(key, 0) + value
        if count % EVERY == 0:
            found[key, count, total, last.pop(key)] += 1
    return found


# --- windows ----------------------------------------------------------------------------------------


def _windows(job, readings, number, second):
    def row(key, window, records):
        values = [reading(number(record))[1] for record in records]
        return [{"key": key, "count": len(values), "sum": sum(values), "last": window.start}]

    keyed = readings.key_by(lambda record: reading(number(record))[0])
    return keyed.window(mo.TumblingEventTimeWindows(WINDOW / 1000)).apply(row, uid="totals")


def _loop_of_windows(records: int) -> Counter[Row]:
    values: dict[tuple[int, int], list[int]] = {}
    for number in range(records):
        key, value = reading(number)
        values.setdefault((key, number // WINDOW * WINDOW), []).append(value)
    return Counter((key, len(some), sum(some), start) for (key, start), some in values.items())


# --- joined -----------------------------------------------------------------------------------------


def _joined(job, readings, number, second):
    known = mo.MapStateDescriptor("worth", int, int)

    class Worth(mo.KeyedBroadcastProcessFunction):
        total = mo.ValueState(tuple[int, int], default=(0, 0))
        last = mo.ListState(int)

        def process_broadcast_element(self, change, ctx):
            ctx.get_broadcast_state(known).put(change.new["kind"], change.new["worth"])

        def process_element(self, value, ctx):
            key, value = reading(number(value))
            value *= ctx.get_broadcast_state(known).get(key % KINDS)
            count, total = self.total.value()
            count, total = count + 1, total + value
            self.total.update((count, total))
            self.last.add(value)
            if count % EVERY == 0:
                yield {"key": key, "count": count, "sum": total, "last": sum(self.last)}
                self.last.clear()

    changes, noted = second
    kinds = job.source(changes, uid="kinds", parallelism=1)
    # A checkpoint that has committed this has been through all subtasks, after the same changes.
    kinds.map(lambda change: change.new, uid="values", parallelism=1).sink(noted, uid="noted", parallelism=1)
    keyed = readings.key_by(lambda record: reading(number(record))[0])
    return keyed.connect(kinds.broadcast(known)).process(Worth(), uid="totals")


TOTALS = Flow(_totals, _loop_of_totals)
WINDOWS = Flow(
    _windows, _loop_of_windows, lambda number: mo.WatermarkStrategy.monotonous(timestamp=lambda r: number(r))
)
JOINED = Flow(_joined, lambda records: _loop_of_totals(records, worth))
