"""Jobs with keyed state whose snapshots are stored here, and their whole output: all that format 1 can hold.

They are built of public names that the oldest code already had, so the same file runs in an old checkout, where
``write_snapshots.py`` uses it, and today. Their sinks are part of every snapshot: the output of a restored job is the
output of the whole job, so a record that was lost or counted twice shows.
"""

from __future__ import annotations

from collections import Counter

import moorline as mo

COUNT = 300
#: One operator for each form that a column of keys has: int64, string and binary.
KEYS = {"ints": lambda n: n % 7, "texts": lambda n: f"k{n % 5}", "tuples": lambda n: (n % 3, "x")}
#: By operator: how many records each of its keys gets.
TOTALS = {name: Counter(map(key, range(COUNT))) for name, key in KEYS.items()}


class Numbers(mo.Source):
    """The numbers below a count, in four splits, one at a time: at every checkpoint there is something left."""

    is_bounded = True
    SPLITS = 4

    def __init__(self, count=COUNT):
        self.count = count

    def open(self, ctx):
        return NumbersReader(self, ctx)


class NumbersReader(mo.SourceReader):
    def __init__(self, source, ctx):
        self.source = source
        self.next = {s: ctx.positions.get(s, s) for s in range(source.SPLITS) if ctx.owns(s)}

    def read(self, limit):
        if not self.next or min(self.next.values()) >= self.source.count:
            return None
        self.split = min(self.next, key=self.next.__getitem__)
        n = self.next[self.split]
        self.next[self.split] = n + self.source.SPLITS
        return [n]

    def splits(self):
        return [split for split, n in self.next.items() if n < self.source.count]

    def positions(self):
        return dict(self.next)


class Mean(mo.AggregateFunction):
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + 1, accumulator[1] + value)

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])


class Everything(mo.KeyedProcessFunction):
    """A state of each kind. Emits a count with each record, and all states with the last one of a key."""

    count = mo.ValueState(int, default=0)
    untyped = mo.ValueState()
    items = mo.ListState(int)
    halves = mo.MapState(str, int)
    highest = mo.ReducingState(int, max)
    mean = mo.AggregatingState(tuple[int, int], Mean())

    def __init__(self, totals):
        self.totals = totals

    def process_element(self, n, ctx):
        half = "odd" if n % 2 else "even"
        count = self.count.value() + 1
        self.count.update(count)
        self.untyped.update({"sum": (self.untyped.value() or {"sum": 0})["sum"] + n})
        self.items.add(n)
        self.halves.put(half, (self.halves.get(half) or 0) + 1)
        self.highest.add(n)
        self.mean.add(n)
        yield ctx.current_key, count
        if count == self.totals[ctx.current_key]:
            yield self._all(ctx.current_key)

    def _all(self, key):
        halves = [[half, self.halves.get(half) or 0] for half in ("even", "odd")]
        return key, sorted(self.items.get()), self.untyped.value(), halves, self.highest.get(), self.mean.get()


def keyed(name: str, parallelism: int = 2) -> mo.Job:
    """State of every kind under three kinds of keys: all that format 1 has."""
    job = mo.Job(name, parallelism=parallelism, max_parallelism=16)
    numbers = job.source(Numbers(), uid="numbers")
    for operator, key in KEYS.items():
        counted = numbers.key_by(key).process(Everything(TOTALS[operator]), uid=operator)
        counted.sink(mo.collect(operator), uid=f"{operator}-out")
    return job


def keyed_output() -> dict[str, Counter]:
    """What :func:`keyed` emits from its first record to its last, found by a loop."""
    output = {}
    for operator, key in KEYS.items():
        mine = {k: [n for n in range(COUNT) if key(n) == k] for k in TOTALS[operator]}
        counts = [(k, count) for k, ns in mine.items() for count in range(1, len(ns) + 1)]
        whole = [
            (
                k,
                ns,
                {"sum": sum(ns)},
                [[half, sum(n % 2 == odd for n in ns)] for odd, half in enumerate(("even", "odd"))],
                max(ns),
                sum(ns) / len(ns),
            )
            for k, ns in mine.items()
        ]
        output[operator] = Counter(map(repr, counts + whole))
    return output
