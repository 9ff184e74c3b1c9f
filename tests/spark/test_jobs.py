"""Whole jobs on real Spark, as a user would write them.

Functions are defined inside the tests: a worker cannot import a test module, and what is local travels by value.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.protocol.lowering import lower

pytestmark = pytest.mark.spark


def by_key(records: list[tuple]) -> dict:
    """The rest of each record by its first field, in order: all that is certain with several subtasks."""
    found: dict = {}
    for key, *rest in records:
        found.setdefault(key, []).append(tuple(rest))
    return found


def rows_of(folder: Path) -> list:
    return [json.loads(line) for path in sorted(folder.glob("part-*.jsonl")) for line in path.read_text().splitlines()]


# --- what comes out -----------------------------------------------------------------------------


def test_the_running_average_of_the_design(spark):
    class CountWindowAverage(mo.KeyedProcessFunction):
        sum = mo.ValueState(tuple[int, int], default=(0, 0))

        def process_element(self, value, ctx):
            count, total = self.sum.value()
            count, total = count + 1, total + value[1]
            if count >= 2:
                yield count, total
                self.sum.clear()
            else:
                self.sum.update((count, total))

    job = mo.Job("average", parallelism=2)
    (
        job.source(mo.from_items([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2), (1, 1)]), uid="numbers")
        .key_by(lambda r: r[0])
        .process(CountWindowAverage(), uid="average")
        .sink(mo.collect("out"), uid="out")
    )
    result = mo.run(job, spark)
    assert result.collected("out") == [(2, 8), (2, 11), (2, 3)]
    assert result.restored_from == [0]
    assert result.failures == []
    with pytest.raises(InvalidArgument, match="collect sinks are"):
        result.collected("nowhere")


def test_plain_callables_do_for_every_kind_of_step(spark):
    job = mo.Job("plain")
    (
        job.source(mo.from_items(range(10)))
        .map(lambda n: n + 1)
        .filter(lambda n: n % 2)
        .flat_map(lambda n: None if n == 5 else [n] * (n // 3))
        .process(lambda n, ctx: [n, -n])
        .sink(mo.collect("out"))
    )
    assert mo.run(job, spark).collected("out") == [3, -3, 7, -7, 7, -7, 9, -9, 9, -9, 9, -9]


def test_rich_functions_are_opened_once_closed_once_and_told_where_they_are(spark, tmp_path):
    folder = str(tmp_path)

    def note(what):
        with open(f"{folder}/{what}-{time.monotonic_ns()}-{os.getpid()}", "x"):
            pass

    class Tell(mo.MapFunction):
        def open(self, ctx):
            assert (ctx.subtask, ctx.parallelism) == (
                ctx.get_index_of_this_subtask(),
                ctx.get_number_of_parallel_subtasks(),
            )
            self.told = (ctx.operator_uid, ctx.subtask, ctx.parallelism, ctx.max_parallelism, ctx.attempt)
            note("open")

        def map(self, value):
            return self.told

        def close(self):
            note("close")

    class Even(mo.FilterFunction):
        def open(self, ctx):
            self.rest = 0

        def filter(self, value):
            return value % 2 == self.rest

    class Twice(mo.FlatMapFunction):
        def open(self, ctx):
            self.times = 2

        def flat_map(self, value):
            yield from [value] * self.times

    class Negative(mo.ProcessFunction):
        def open(self, ctx):
            self.sign = -1

        def process_element(self, value, ctx):
            return [self.sign * value]

    job = mo.Job("rich", parallelism=2, max_parallelism=16)
    numbers = job.source(mo.generate(lambda n: n, count=8, splits=2))
    numbers.map(Tell(), uid="tell").sink(mo.collect("told"))
    numbers.filter(Even()).flat_map(Twice()).process(Negative()).sink(mo.collect("out"))
    result = mo.run(job, spark)
    assert Counter(result.collected("told")) == {("tell", 0, 2, 16, 1): 4, ("tell", 1, 2, 16, 1): 4}
    assert sorted(result.collected("out")) == [-6, -6, -4, -4, -2, -2, 0, 0]
    assert Counter(path.name.split("-")[0] for path in tmp_path.iterdir()) == {"open": 2, "close": 2}


def test_keys_of_every_type_find_their_state_again(spark):
    class Colour(Enum):
        RED = 1
        BLUE = 2

    @dataclass(frozen=True)
    class Place:
        x: int
        y: str

    makers = {
        "int": lambda n: 10 + n,
        "int beyond 64 bits": lambda n: (1 << 80) + n,
        "str": lambda n: f"key {n}",
        "bytes": lambda n: b"\0key" + bytes([n]),
        "bool": lambda n: bool(n % 2),
        "float": lambda n: n + 0.5,
        "tuple": lambda n: (n, ("inner", n)),
        "date": lambda n: date(2026, 1, 1 + n),
        "datetime": lambda n: datetime(2026, 1, 1, 0, 0, n, n, UTC),
        "UUID": lambda n: UUID(int=n),
        "Enum": lambda n: (Colour.RED, Colour.BLUE)[n % 2],
        "dataclass": lambda n: Place(n, "here"),
    }

    def shown(key):
        # Not repr: a class that travels by value loses the name of the function it was defined in.
        return f"{key.x} {key.y}" if isinstance(key, Place) else str(key)

    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            assert ctx.current_key == ctx.get_current_key() == makers[value[0]](value[1])
            self.seen.update(self.seen.value() + 1)
            yield value[0], shown(ctx.current_key), self.seen.value()

    records = [(kind, n) for n in (0, 1, 2, 0, 1, 0) for kind in makers]
    job = mo.Job("keys", parallelism=3)
    (
        job.source(mo.from_items(records))
        .key_by(lambda r: makers[r[0]](r[1]))
        .process(Count())
        .sink(mo.collect("counts"))
    )
    found = mo.run(job, spark).collected("counts")
    state: Counter = Counter()
    expected = []
    for kind, n in records:
        key = shown(makers[kind](n))
        state[kind, key] += 1
        expected.append((kind, key, state[kind, key]))
    assert sorted(found) == sorted(expected)


def test_reduce_emits_the_reduction_so_far(spark):
    class Most(mo.ReduceFunction):
        def reduce(self, value1, value2):
            return max(value1, value2)

    records = [("a", 1), ("b", 5), ("a", 4), ("a", 2), ("b", 3)]
    job = mo.Job("reduce", parallelism=2)
    keyed = job.source(mo.from_items(records)).key_by(lambda r: r[0])
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).sink(mo.collect("sums"))
    keyed.reduce(Most()).sink(mo.collect("most"))
    result = mo.run(job, spark)
    assert by_key(result.collected("sums")) == {"a": [(1,), (5,), (7,)], "b": [(5,), (8,)]}
    assert by_key(result.collected("most")) == {"a": [(1,), (4,), (4,)], "b": [(5,), (5,)]}


def test_side_outputs_by_context_and_by_yield_carry_what_the_main_output_does_not(spark):
    odd, big = mo.OutputTag("odd"), mo.OutputTag("big")

    def split(n, ctx):
        if n % 2:
            ctx.output(odd, n)
        elif n > 6:
            yield big, n
        else:
            yield n
            yield (n, "pair")  # a tuple is just a value

    job = mo.Job("sides")
    main = job.source(mo.from_items(range(10))).process(split)
    main.sink(mo.collect("main"))
    main.side_output(odd).map(lambda n: -n).sink(mo.collect("odd"))
    main.side_output(big).key_by(lambda n: n).map(lambda n: n).sink(mo.collect("big"))
    result = mo.run(job, spark)
    assert result.collected("main") == [0, (0, "pair"), 2, (2, "pair"), 4, (4, "pair"), 6, (6, "pair")]
    assert result.collected("odd") == [-1, -3, -5, -7, -9]
    assert result.collected("big") == [8]


def test_several_sources_and_sinks_with_a_union_between_them(spark):
    job = mo.Job("many", parallelism=2)
    letters = job.source(mo.from_items("abcab"), uid="letters")
    numbers = job.source(mo.generate(lambda n: "abc"[n % 3], count=30), uid="numbers", parallelism=3)
    both = letters.union(numbers).key_by(lambda x: x)
    both.reduce(lambda a, b: a + b).map(lambda text: (text[0], len(text))).sink(mo.collect("counts"))
    letters.sink(mo.collect("letters"))
    letters.union(numbers).filter(lambda x: x == "c").sink(mo.collect("cs"))
    result = mo.run(job, spark)
    counts = by_key(result.collected("counts"))
    assert {key: [n for (n,) in found] for key, found in counts.items()} == {
        "a": list(range(1, 13)),
        "b": list(range(1, 13)),
        "c": list(range(1, 12)),
    }
    assert result.collected("letters") == list("abcab")
    assert result.collected("cs") == ["c"] * 11


def test_frames_pass_through_the_stages_between_and_a_source_may_sit_in_a_later_one(spark):
    job = mo.Job("relays")
    early = job.source(mo.generate(lambda n: n, count=5_000, splits=2), uid="early", parallelism=2)
    twice = early.key_by(lambda n: n).map(lambda n: ("a", n), parallelism=3, uid="first")
    thrice = twice.key_by(lambda r: r[1]).map(lambda r: ("b", r[1]), parallelism=1, uid="second")
    late = job.source(mo.from_items([("late", n) for n in range(700)]), uid="late", parallelism=1)
    # From stage 0 to stage 3: these frames are relayed by stages 1 and 2.
    direct = early.map(lambda n: ("direct", n), parallelism=2, uid="direct")
    (
        thrice.union(direct, late)
        .key_by(lambda r: r[1])
        .map(lambda r: r, parallelism=4, uid="join")
        .rebalance()
        .sink(mo.collect("out"), parallelism=2)
    )
    plan = lower(job.graph())
    stages = {uid: vertex.stage for vertex in plan.vertices for uid in vertex.operators}
    print(f"widths {plan.widths}, stages {stages}")
    assert plan.widths == (2, 3, 2, 4, 2)
    assert [stages[uid] for uid in ("early", "direct", "first", "second", "late", "join")] == [0, 0, 1, 2, 2, 3]
    found = Counter(mo.run(job, spark).collected("out"))
    expected = Counter((kind, n) for kind in ("b", "direct") for n in range(5_000))
    assert found == expected + Counter(("late", n) for n in range(700))


def test_a_chain_is_one_subtask_and_a_key_by_is_the_end_of_it(spark):
    job = mo.Job("chained", parallelism=2)
    (
        job.source(mo.generate(lambda n: [n, os.getpid()], count=40, splits=2))
        .map(lambda r: [*r, os.getpid()])
        .flat_map(lambda r: [[*r, os.getpid()]])
        .key_by(lambda r: r[0])
        .map(lambda r: [*r, os.getpid()])
        .process(lambda r, ctx: [[*r, os.getpid()]])
        .sink(mo.collect("pids"))
    )
    found = mo.run(job, spark).collected("pids")
    assert len(found) == 40
    first, second = {tuple(r[1:4]) for r in found}, {tuple(r[4:]) for r in found}
    assert len(first) == len(second) == 2, "one process for each of two subtasks"
    assert all(len(set(pids)) == 1 for pids in first | second), "operators of a chain share it"
    assert not {p for pids in first for p in pids} & {p for pids in second for p in pids}


class _Kinds:
    """What the function of the next test keeps, by a plain loop."""

    @staticmethod
    def expected(records: list[tuple[str, int]]) -> dict:
        found: dict = {}
        kept: dict[str, list[int]] = {}
        for key, n in records:
            seen = kept.setdefault(key, [])
            seen.append(n)
            parity = Counter(x % 2 for x in seen)
            found.setdefault(key, []).append(
                (n, seen[-3:], dict(parity), max(seen), sum(seen) / len(seen), len(parity), 1 in parity)
            )
        return found


@pytest.mark.parametrize("how", ["declared", "asked for"])
def test_all_five_kinds_of_state_whichever_way_they_are_made(spark, how):
    class Mean(mo.AggregateFunction):
        def create_accumulator(self):
            return 0, 0

        def add(self, value, accumulator):
            return accumulator[0] + 1, accumulator[1] + value

        def get_result(self, accumulator):
            return accumulator[1] / accumulator[0]

        def merge(self, a, b):
            return a[0] + b[0], a[1] + b[1]

    class Uses(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            n = value[1]
            self.last.update(n)
            self.recent.add(n)
            self.recent.update(list(self.recent.get())[-3:])
            self.parity[n % 2] = self.parity.get(n % 2, 0) + 1
            self.most.add(n)
            self.mean.add(n)
            yield (
                value[0],
                self.last.value(),
                list(self.recent.get()),
                dict(self.parity.items()),
                self.most.get(),
                self.mean.get(),
                len(self.parity),
                1 in self.parity,
            )

    class Declared(Uses):
        last = mo.ValueState(int)
        recent = mo.ListState(int)
        parity = mo.MapState(int, int)
        most = mo.ReducingState(int, max)
        mean = mo.AggregatingState(tuple[int, int], Mean())

    class AskedFor(Uses):
        def open(self, ctx):
            self.last = ctx.get_state(mo.ValueStateDescriptor("last", int))
            self.recent = ctx.get_list_state(mo.ListStateDescriptor("recent", int))
            self.parity = ctx.get_map_state(mo.MapStateDescriptor("parity", int, int))
            self.most = ctx.get_reducing_state(mo.ReducingStateDescriptor("most", max, int))
            self.mean = ctx.get_aggregating_state(mo.AggregatingStateDescriptor("mean", Mean(), tuple[int, int]))

    records = [("ab"[n % 2], n * 7 % 11) for n in range(20)]
    job = mo.Job("kinds", parallelism=2)
    (
        job.source(mo.from_items(records))
        .key_by(lambda r: r[0])
        .process(Declared() if how == "declared" else AskedFor(), uid="uses")
        .sink(mo.collect("out"))
    )
    assert by_key(mo.run(job, spark).collected("out")) == _Kinds.expected(records)


def test_files_in_and_files_out(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"word": "to", "n": 1}\n{"word": "be", "n": 2}\n')
    (folder / "b.csv").write_text('word,n\nor,3\n"not, to",4\n')
    (folder / "c.txt").write_text("be 5\nthat 6\n")
    pq.write_table(pa.table({"word": ["is", "the"], "n": [7, 8]}), folder / "d.parquet")

    def from_text(line):
        word, n = line.split()
        return {"word": word, "n": n}

    job = mo.Job("files", parallelism=2)
    texts = job.source(mo.read_files(folder / "c.txt", format="text")).map(from_text)
    others = job.source(mo.read_files(folder, pattern="[abd].*"))
    rows = others.union(texts).map(lambda r: {"word": r["word"], "n": int(r["n"])})
    rows.sink(mo.write_files(tmp_path / "jsonl", format="jsonl"))
    rows.sink(mo.write_files(tmp_path / "parquet"))
    mo.run(job, spark)

    words = ["to", "be", "or", "not, to", "be", "that", "is", "the"]
    expected = [{"word": word, "n": n} for n, word in enumerate(words, 1)]
    assert sorted(rows_of(tmp_path / "jsonl"), key=lambda r: r["n"]) == expected
    written = pq.read_table(tmp_path / "parquet").to_pylist()
    assert sorted(written, key=lambda r: r["n"]) == expected
    assert not list(tmp_path.rglob(".moorline*")), "nothing staged is left behind"
