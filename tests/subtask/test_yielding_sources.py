"""Sources whose ``run`` yields: read on the subtask's own thread, a few records at a time."""

from __future__ import annotations

import threading
import time

import pytest

import moorline as mo
from moorline.errors import InvalidArgument, UserCodeFailed
from moorline.model.times import MAX_TIME
from moorline.testing import OperatorHarness


def of(source, snapshot=None, **options):
    return OperatorHarness.of(lambda job: job.source(source, uid="source", **options), inputs=0, snapshot=snapshot)


class Numbers(mo.SourceFunction, mo.CheckpointedFunction):
    """Yields, and changes its state before it does."""

    def __init__(self, limit):
        self.limit, self.next, self.is_cleaned_up = limit, 0, False

    def run(self, ctx):
        try:
            while self.next < self.limit:
                with ctx.get_checkpoint_lock():  # not needed, and not in the way
                    self.next += 1
                    yield self.next - 1
        finally:
            self.is_cleaned_up = True

    def initialize_state(self, ctx):
        self.state = ctx.operator_state.list_state(mo.ListStateDescriptor("next", int))
        self.next = sum(self.state.get())

    def snapshot_state(self, ctx):
        self.state.update([self.next])


def test_a_generator_is_read_on_the_subtasks_own_thread():
    with of(Numbers(10_000)) as harness:
        assert harness.read(10_000) == list(range(10_000))
        assert "moorline-source" not in [t.name for t in threading.enumerate()]
        assert harness.read() == []
        assert harness.watermarks == [MAX_TIME]


def test_a_generator_goes_on_where_it_was():
    with of(Numbers(5000)) as before:
        emitted = before.read(100)
        snapshot = before.snapshot()
    with of(Numbers(5000), snapshot=snapshot) as after:
        while more := after.read():
            emitted += more
    assert emitted == list(range(5000))


def test_a_slow_generator_is_asked_for_little_at_a_time():
    class Slow(mo.SourceFunction):
        def run(self, ctx):
            while True:
                time.sleep(0.005)
                yield 1

    with of(Slow()) as harness:
        read = sum(len(harness.read(0)) for _ in range(10))
        assert read < 200, "barriers do not wait for thousands of records, each of which takes 5 ms and more"


def test_an_error_of_a_generator_is_the_users():
    class Broken(mo.SourceFunction):
        def run(self, ctx):
            yield 1
            raise OSError("no such queue")

    with of(Broken()) as harness:
        assert harness.read() == [1]
        with pytest.raises(UserCodeFailed, match="no such queue"):
            harness.read()


def test_a_generator_that_is_not_at_its_end_is_closed():
    harness = of(Numbers(10_000))
    harness.read(1)
    harness.close()
    assert harness.functions[0].is_cleaned_up


@pytest.mark.parametrize("emit", [lambda ctx: ctx.collect(1), lambda ctx: ctx.collect_with_timestamp(1, 2)])
def test_a_run_that_yields_does_not_collect_as_well(emit):
    class Both(mo.SourceFunction):
        def run(self, ctx):
            emit(ctx)
            yield 1

    with of(Both()) as harness, pytest.raises(InvalidArgument, match="yields"):
        harness.read()


def test_a_generators_records_get_their_timestamps_from_the_strategy():
    class Letters(mo.SourceFunction):
        def run(self, ctx):
            yield from "abc"

    with of(Letters(), watermarks=mo.WatermarkStrategy.none(timestamp=ord)) as harness:
        out, stamps = [], []
        while more := harness.read():
            out, stamps = out + more, stamps + harness.timestamps
        assert (out, stamps) == (["a", "b", "c"], [97, 98, 99])
