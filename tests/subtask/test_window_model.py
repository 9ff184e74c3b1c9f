"""Windows over random input, against a twin that does it the slow way.

Records come in batches and out of order, watermarks run ahead of some of them, and in between the job is restored from
a snapshot at another parallelism. Watermarks are not state: after a restore time begins anew.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

import moorline as mo
from moorline.api.windows.assigners import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from moorline.api.windows.triggers import EventTimeTrigger
from moorline.model.config.state import RocksDb, StateConfig
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.testing.harness import OperatorHarness

LATE = mo.OutputTag("late")


def ms(value):
    return timedelta(milliseconds=value)


# --- the twin -------------------------------------------------------------------------------------


@dataclass
class Kept:
    """A window of the twin."""

    start: int
    end: int
    records: list = field(default_factory=list)
    #: Will it fire when the watermark passes its end?
    waits: bool = False


@dataclass
class Twin:
    """Goes through all windows for everything that happens."""

    windows_of: object
    lateness: int
    gap: int | None = None
    watermark: int = MIN_TIME
    kept: dict = field(default_factory=dict)
    late: list = field(default_factory=list)

    def record(self, key, number, time):
        """What comes out for one record: key, numbers in the window, timestamp."""
        windows = self.kept.setdefault(key, [])
        out, taken = [], False
        for start, end in self.windows_of(time):
            touched = [w for w in windows if self._is_same(w, start, end)]
            bounds = [(w.start, w.end) for w in touched] + [(start, end)]
            whole = Kept(min(s for s, _ in bounds), max(e for _, e in bounds))
            if whole.end - 1 + self.lateness <= self.watermark:
                continue
            taken = True
            whole.records = [r for w in touched for r in w.records] + [number]
            windows[:] = [w for w in windows if w not in touched] + [whole]
            if whole.end - 1 <= self.watermark:
                out.append((key, tuple(sorted(whole.records)), whole.end - 1))
            else:
                whole.waits = True
        if not taken and time + self.lateness <= self.watermark:
            self.late.append((key, number))
        return out

    def _is_same(self, window, start, end):
        if self.gap is None:
            return (window.start, window.end) == (start, end)
        return window.start <= end and start <= window.end

    def advance(self, time):
        """What comes out when the watermark gets there."""
        self.watermark, out = time, []
        for key, windows in self.kept.items():
            for window in windows:
                if window.waits and window.end - 1 <= time:
                    window.waits = False
                    out.append((key, tuple(sorted(window.records)), window.end - 1))
            windows[:] = [w for w in windows if w.end - 1 + self.lateness > time]
        return out


def tumbling(size, offset=0):
    start = lambda time: (time - offset) // size * size + offset  # noqa: E731
    return TumblingEventTimeWindows(ms(size), ms(offset)), lambda time: [(start(time), start(time) + size)], None


def sliding(size, slide):
    def naive(time):
        return [(s, s + size) for s in range(time - size, time + 1) if s % slide == 0 and s <= time < s + size]

    return SlidingEventTimeWindows(ms(size), ms(slide)), naive, None


def sessions(gap):
    return EventTimeSessionWindows(ms(gap)), lambda time: [(time, time + gap)], gap


# --- the operator ---------------------------------------------------------------------------------


class Numbers(mo.AggregateFunction):
    """All numbers, the costly way."""

    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        return [*accumulator, value[1]]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


class InPlace(Numbers):
    """Changes its accumulator, as it may."""

    def add(self, value, accumulator):
        accumulator.append(value[1])
        return accumulator

    def merge(self, a, b):
        a.extend(b)
        return a


class SameAtTheEnd(EventTimeTrigger):
    """The usual trigger, which the operator does not know to be so."""


def labelled(key, window, elements):
    (numbers,) = elements
    yield key, tuple(sorted(numbers))


WAYS = {
    "aggregate": lambda w: w.aggregate(Numbers(), labelled, list[int], uid="w"),
    "in place": lambda w: w.aggregate(InPlace(), labelled, uid="w"),
    "process": lambda w: w.process(lambda key, ctx, found: [(key, tuple(sorted(n for _, n in found)))], uid="w"),
    "reduce": lambda w: w.reduce(
        lambda a, b: (a[0], a[1] + b[1]) if isinstance(a[1], list) else a,
        lambda key, window, found: [(key, tuple(sorted(found[0][1])))],
        uid="w",
    ),
}


class Operator:
    """A window operator in a harness, with batches and restarts."""

    def __init__(self, assigner, lateness, way, state, trigger=None):
        self._build = lambda stream: WAYS[way](self._windowed(stream, assigner, lateness, trigger))
        self._state, self._way = state, way
        self.late = []
        self._open(1, None)

    def _windowed(self, stream, assigner, lateness, trigger):
        windowed = stream.key_by(lambda r: r[0]).window(assigner)
        windowed = windowed.allowed_lateness(ms(lateness)).side_output_late_data(LATE)
        return windowed if trigger is None else windowed.trigger(trigger)

    def _open(self, parallelism, snapshot):
        self._harness = OperatorHarness.of(
            self._build, parallelism=parallelism, max_parallelism=16, state=self._state, snapshot=snapshot
        )

    def batch(self, records):
        """Key, number and time of each; what comes out, by the twin's form."""
        per_subtask, out = {}, []
        for key, number, time in records:
            record = (key, [number]) if self._way == "reduce" else (key, number)
            records_of, times = per_subtask.setdefault(self._harness._owner(record), ([], []))
            records_of.append(record)
            times.append(time)
        for index, (records_of, times) in per_subtask.items():
            subtask = self._harness._subtasks[index]
            subtask.operator.process(records_of, times)
            out += self._taken(subtask)
        return out

    def advance(self, time):
        out = []
        for subtask in self._harness._subtasks:
            subtask.operator.watermark(time)
            out += self._taken(subtask)
        return out

    def _taken(self, subtask):
        records = subtask.taken()
        return [(key, numbers, time) for (key, numbers), time in zip(records, subtask.timestamps, strict=True)]

    def restart(self, parallelism):
        snapshot = self._harness.snapshot()
        self.close()
        self._open(parallelism, snapshot)

    def close(self):
        self.late += [(k, n[0] if isinstance(n, list) else n) for k, n in self._harness.side_output(LATE)]
        self._harness.close()
        for subtask in self._harness._subtasks:
            subtask.operator.backend.close()

    def entries(self):
        return sum(subtask.operator.backend.entries() for subtask in self._harness._subtasks)

    def timers(self):
        return [s.operator._timers.event.next_time() for s in self._harness._subtasks]


# --- both -----------------------------------------------------------------------------------------

shapes = st.one_of(
    st.builds(tumbling, st.integers(1, 10), st.integers(0, 0)),
    st.builds(sliding, st.integers(1, 12), st.integers(1, 6)),
    st.builds(sessions, st.integers(1, 8)),
)
#: Keys and times, which are told from where the watermark is.
batches = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-14, 14)), min_size=1, max_size=8)
steps = st.lists(
    st.one_of(
        batches,
        batches,
        st.integers(1, 8),  # the watermark goes on by so much
        st.builds(lambda p: f"restart {p}", st.integers(1, 3)),
    ),
    min_size=2,
    max_size=16,
)


def run(shape, lateness, steps, way, state, trigger=None):
    assigner, windows_of, gap = shape
    twin = Twin(windows_of, lateness, gap)
    operator = Operator(assigner, lateness, way, state, trigger)
    numbers, now = count(), 0
    for step in [*steps, MAX_TIME]:
        if isinstance(step, list):
            records = [(key, next(numbers), now + time) for key, time in step]
            expected = [out for record in records for out in twin.record(*record)]
            found = operator.batch(records)
        elif isinstance(step, int):
            now = min(now + step, MAX_TIME)
            expected, found = twin.advance(now), operator.advance(now)
            assert [t for t in operator.timers() if t is not None and t <= now] == []
        else:
            operator.restart(int(step.split()[1]))
            twin.watermark = MIN_TIME
            continue
        assert Counter(found) == Counter(expected)
    operator.close()
    assert Counter(operator.late) == Counter(twin.late)
    # Nothing is left when time has ended: neither contents nor sets of windows nor timers.
    assert operator.timers() == [None] * len(operator.timers())


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@given(shapes, st.sampled_from([0, 0, 3, 10]), steps, st.booleans())
@settings(max_examples=examples(80), deadline=None)
def test_windows_are_what_the_twin_says(way, shape, lateness, steps, incremental):
    run(shape, lateness, steps, way, StateConfig(incremental=incremental))


@pytest.mark.slow
@given(shapes, st.sampled_from([0, 3]), steps)
@settings(max_examples=examples(40), deadline=None)
def test_a_trigger_that_is_asked_about_every_record_makes_no_difference(shape, lateness, steps):
    run(shape, lateness, steps, "aggregate", StateConfig(), SameAtTheEnd())


@pytest.mark.slow
@given(shapes, st.sampled_from([0, 3]), steps)
@settings(max_examples=examples(15), deadline=None)
def test_windows_in_rocksdb_are_what_the_twin_says(tmp_path_factory, shape, lateness, steps):
    folder = tmp_path_factory.mktemp("rocksdb")
    run(shape, lateness, steps, "aggregate", StateConfig(RocksDb(folder=str(folder)), incremental=True))


@pytest.mark.slow
def test_nothing_is_left_of_windows_that_are_over():
    for assigner in (tumbling(5)[0], sliding(10, 5)[0], sessions(3)[0]):
        operator = Operator(assigner, 2, "process", StateConfig())
        operator.batch([("a", n, n) for n in range(20)])
        assert operator.entries() > 0
        operator.advance(MAX_TIME)
        assert operator.entries() == 0
