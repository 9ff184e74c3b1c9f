"""Jobs of users under faults: sound ones pass, and of broken ones ``simulate`` says the seed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.testing import Faults, SimulationFailed, simulate
from moorline.testing.simulation.results import difference

WORDS = [("abcd"[n * n % 4], n) for n in range(60)]


class Running(mo.KeyedProcessFunction):
    """How many there were of a key so far."""

    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        yield value[0], self.seen.value()


def counting(function: Callable[[], Any] = Running, source: Callable[[], Any] = lambda: mo.from_items(WORDS)):
    """A builder of a job around one function and one source."""

    def build() -> mo.Job:
        job = mo.Job("counting", parallelism=2)
        keyed = job.source(source(), uid="words").key_by(lambda r: r[0])
        keyed.process(function(), uid="count").sink(mo.collect("counts"), uid="out")
        return job

    return build


def failure(builder: Callable[[], mo.Job], **options: Any) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as raised:
        simulate(builder, **options)
    return raised.value


def test_a_sound_job_passes_and_the_report_says_what_it_went_through():
    report = simulate(counting(), seeds=range(30))
    assert report.runs == 30
    assert report.restored >= 30
    assert report.checkpoints > report.runs
    for fault in ("worker", "driver", "zombie workers", "rescale", "savepoint", "stop with savepoint"):
        assert report.faults[fault] > 0, report
    assert "30 runs" in str(report)


def test_the_same_seed_is_the_same_story():
    assert simulate(counting(), seeds=[3, 4]) == simulate(counting(), seeds=[3, 4])


class KeepsOnSelf(mo.KeyedProcessFunction):
    def open(self, ctx):
        self.seen = {}

    def process_element(self, value, ctx):
        self.seen[value[0]] = self.seen.get(value[0], 0) + 1
        yield value[0], self.seen[value[0]]


def test_what_is_kept_on_self_is_found_with_a_seed_that_shows_it_again():
    found = failure(counting(KeepsOnSelf))
    assert "sink 'counts': missing" in str(found)
    assert "outside of declared state" in str(found)
    assert f"simulate(build, seeds=[{found.seed}])" in str(found)
    again = failure(counting(KeepsOnSelf), seeds=[found.seed])
    assert str(again) == str(found)


_seen_in_this_process: set[Any] = set()


def test_what_is_kept_in_a_global_variable_is_found():
    _seen_in_this_process.clear()

    class DropsWhatItKnows(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            if value not in _seen_in_this_process:
                _seen_in_this_process.add(value)
                yield value

    assert "a global variable" in str(failure(counting(DropsWhatItKnows)))


def test_a_global_variable_of_another_process_is_found_too():
    # Pickled by value, as functions of a script are: every worker has its own, and loses it when it dies.
    script = {"mo": mo, "__name__": "__main__"}
    exec("seen = set()\ndef is_new(r):\n    return not (r in seen or seen.add(r))\n", script)

    def build() -> mo.Job:
        job = mo.Job("dedupe")
        doubled = job.source(mo.from_items([r for r in WORDS for _ in (1, 2)]), uid="words")
        doubled.filter(script["is_new"], uid="new").sink(mo.collect("new"), uid="out")
        return job

    assert "too many" in str(failure(build))


def test_dice_are_found():
    class Samples(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            if random.random() < 0.5:
                yield value

    found = failure(counting(Samples))
    assert "without any fault" in str(found)
    assert "dice" in str(found)


def test_a_look_at_the_clock_is_found():
    class Stamps(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield value, time.time_ns()

    assert "the clock" in str(failure(counting(Stamps)))


class Forgetful(mo.Source):
    """Goes on from the beginning, whatever was read before."""

    is_bounded = True

    def open(self, ctx):
        return ForgetfulReader(ctx.owns(0))


class ForgetfulReader(mo.SourceReader):
    def __init__(self, mine: bool) -> None:
        self._left = iter(WORDS if mine else [])

    def read(self, limit):
        return [record] if (record := next(self._left, None)) else None

    def positions(self):
        return {}


def test_a_source_that_does_not_go_on_from_its_position_is_found():
    found = failure(counting(source=Forgetful))
    assert "too many" in str(found)
    assert "ctx.positions" in str(found)


_taken = count()


class FromThisProcess(Forgetful):
    """Takes from something that is gone when taken, like a queue."""

    def open(self, ctx):
        return TakingReader(ctx.owns(0))


class TakingReader(ForgetfulReader):
    def read(self, limit):
        if not self._left.__length_hint__():
            return None
        next(self._left)
        return [("a", next(_taken))]


class Passes(mo.KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


def test_a_source_that_can_be_read_only_once_is_found():
    assert "cannot be read again" in str(failure(counting(Passes, FromThisProcess)))


def test_a_function_that_fails_after_a_restart_is_reported_with_its_traceback():
    class Expects(mo.KeyedProcessFunction):
        def open(self, ctx):
            self.first = {}

        def process_element(self, value, ctx):
            if value[1] < 8:
                self.first[value[0]] = value
            yield self.first[value[0]], value

    found = str(failure(counting(Expects), rescale=False))
    assert "a function has raised: operator 'count': KeyError" in found
    assert "yield self.first[value[0]], value" in found


def test_a_function_that_fails_without_faults_is_reported_as_such():
    class Divides(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield 1 / (value[1] - 30)

    found = str(failure(counting(Divides)))
    assert "without any fault: a function has raised: operator 'count': ZeroDivisionError" in found


def two_splits() -> mo.Job:
    """Which of two records is the newest depends on the order in which splits are read: that is no mistake."""
    job = mo.Job("newest", parallelism=2)
    numbers = job.source(mo.generate(lambda n: ("k", n), count=50, splits=2, rate=10), uid="numbers")
    numbers.key_by(lambda r: r[0]).process(Last(), uid="last").sink(mo.write_files("nowhere"), uid="files")
    return job


class Last(mo.KeyedProcessFunction):
    last = mo.ValueState(int, default=-1)

    def process_element(self, value, ctx):
        yield {"before": self.last.value(), "now": value[1]}
        self.last.update(value[1])


def test_where_order_counts_a_check_takes_the_place_of_the_comparison(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "comes first" in str(failure(two_splits))

    def is_a_chain(results: dict[str, list[Any]]) -> bool:
        rows = results["files"]
        return len(rows) == 50 and sorted(r["now"] for r in rows)[:-1] != sorted(r["before"] for r in rows)[1:-1]

    assert simulate(two_splits, seeds=range(5), check=is_a_chain).runs == 5
    assert not list(tmp_path.iterdir())  # sinks are exchanged: nothing is written


def test_what_a_check_says_is_in_the_report():
    def wrong(results: dict[str, list[Any]]) -> None:
        assert len(results["counts"]) == 61, "one is missing"

    found = str(failure(counting(), check=wrong))
    assert "check() says: one is missing" in found
    assert "check() says no" in str(failure(counting(), check=lambda results: False))


def test_a_job_that_never_ends_is_refused():
    with pytest.raises(InvalidArgument, match="It never ends"):
        simulate(counting(source=lambda: mo.generate(lambda n: ("a", n))))


def test_a_source_on_a_thread_of_its_own_is_refused():
    class Threaded(mo.SourceFunction):
        def run(self, ctx):
            ctx.collect(("a", 1))

    with pytest.raises(InvalidArgument, match="on a thread of its own"):
        simulate(counting(source=Threaded))


def test_state_in_a_real_database_is_refused_and_in_memory_is_not():
    def with_store(store: Any) -> Callable[[], mo.Job]:
        class Outside(mo.KeyedProcessFunction):
            seen = mo.ValueState(int, default=0, store=store)
            process_element = Running.process_element

        return counting(Outside)

    with pytest.raises(InvalidArgument, match=r"mo\.memory_state"):
        simulate(with_store(mo.redis_state("redis://nowhere")))
    assert simulate(with_store(mo.memory_state("simulated")), seeds=range(10)).restored


def test_a_builder_that_returns_no_job_is_refused():
    with pytest.raises(InvalidArgument, match=r"returns a new mo\.Job"):
        simulate(lambda: None)


def test_a_job_whose_sinks_get_nothing_is_refused():
    class Nothing(Forgetful):
        def open(self, ctx):
            return ForgetfulReader(False)

    with pytest.raises(InvalidArgument, match="nothing is compared"):
        simulate(counting(source=Nothing))


def test_faults_of_your_own_choice():
    calm = Faults(**dict.fromkeys(Faults.__dataclass_fields__, 0.0))
    report = simulate(counting(KeepsOnSelf), seeds=range(3), faults=calm)
    assert not report.restored


@dataclass
class Point:
    x: int


class Plain:
    def __init__(self, x: int) -> None:
        self.x = x


@pytest.mark.parametrize(
    "make", [Point, Plain, lambda x: {"x": [x]}, lambda x: {x}, lambda x: (x, float("nan")), lambda x: [x, None]]
)
def test_records_of_all_kinds_are_compared_by_what_they_say(make):
    assert difference({"out": [make(1), make(2)]}, {"out": [make(2), make(1)]}) == ""
    assert "missing" in difference({"out": [make(1)]}, {"out": [make(3)]})
