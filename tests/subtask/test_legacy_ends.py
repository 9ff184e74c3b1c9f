"""Source functions on a thread: what they emit, and what a snapshot of them holds."""

from __future__ import annotations

import time

import pytest
from source_functions import Counter, of, source_threads
from waiting import eventually

import moorline as mo
from moorline.model.times import MAX_TIME
from moorline.subtask.operators import source_thread


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    eventually(lambda: source_threads() == [], "its thread is over")


@pytest.fixture
def small_queue(monkeypatch):
    monkeypatch.setattr(source_thread, "QUEUED", 10)


def offsets(snapshot):
    """What a snapshot has in the state of each subtask."""
    with of(Counter(), snapshot=snapshot) as harness:
        return harness.functions[0].restored


# --- threads --------------------------------------------------------------------------------------


def test_a_source_on_a_thread_emits_in_order_and_ends():
    with of(Counter(5000)) as harness:
        assert harness.read(5000) == list(range(5000))
        assert harness.read() == []
        assert harness.watermarks == [MAX_TIME], "the end of the input is the end of time"


def test_run_does_not_begin_before_the_first_read():
    function = Counter()
    function.run = None
    with of(function) as harness:
        assert offsets(harness.snapshot()) == [0]


def test_every_snapshot_holds_exactly_what_was_emitted():
    with of(Counter()) as harness:
        emitted = []
        for _ in range(30):
            emitted += harness.read(100)
            snapshot = harness.snapshot()
            emitted += harness.read(0)  # what went out before the barrier, and perhaps more
            (offset,) = offsets(snapshot)
            assert emitted[:offset] == list(range(offset))
            assert offset <= len(emitted)
    assert emitted == list(range(len(emitted)))


def test_what_goes_out_before_the_barrier_is_what_the_snapshot_says():
    with of(Counter()) as harness:
        last = harness.read(1)[-1]
        subtask = harness._subtasks[0]
        for _ in range(200):
            subtask.operator.before_barrier()
            last = [last, *subtask.taken()][-1]
            assert last == subtask.operator.function.offset - 1
            subtask.operator.after_snapshot()
            last = [last, *harness.read(0)][-1]


class Careless(Counter):
    """Changes its state first, and takes no lock but collect's own."""

    def run(self, ctx):
        while self.is_running:
            with ctx.get_checkpoint_lock():
                self.offset += 1
                ctx.collect(self.offset - 1)


class Pairs(Counter):
    """Emits twice under one lock: both or none."""

    def run(self, ctx):
        while self.is_running:
            with ctx.get_checkpoint_lock():
                ctx.collect(2 * self.offset)
                ctx.collect(2 * self.offset + 1)
                self.offset += 1


@pytest.mark.usefixtures("small_queue")
@pytest.mark.parametrize(("source", "each"), [(Counter, 1), (Careless, 1), (Pairs, 2)])
def test_what_is_done_under_the_lock_is_one_step_even_if_the_queue_is_full_in_the_middle_of_it(source, each):
    with of(source()) as harness:
        subtask = harness._subtasks[0]
        emitted = harness.read(1)
        for _ in range(100):
            subtask.operator.before_barrier()
            emitted += subtask.taken()
            assert len(emitted) == each * subtask.operator.function.offset
            subtask.operator.after_snapshot()
            emitted += harness.read(3)
    assert emitted == list(range(len(emitted)))


@pytest.mark.usefixtures("small_queue")
def test_a_source_that_emits_far_more_than_the_queue_holds_under_one_lock_holds_up_nothing():
    class Bulk(Counter):
        def run(self, ctx):
            with ctx.get_checkpoint_lock():
                for n in range(1000):
                    ctx.collect(n)
                self.offset = 1000

    with of(Bulk()) as harness:
        first = harness.read(1)
        assert offsets(harness.snapshot()) == [1000]
        assert first + harness.read(0) == list(range(1000))


@pytest.mark.usefixtures("small_queue")
def test_a_source_waits_while_the_queue_is_full():
    with of(Counter()) as harness:
        harness.read(1)
        time.sleep(0.02)
        offset = harness.functions[0].offset
        time.sleep(0.02)
        assert harness.functions[0].offset == offset, "it is waiting"
        assert len(harness.read(0)) == 10
        harness.read(50)


def test_a_snapshot_is_not_starved_by_a_source_that_takes_the_lock_again_at_once():
    with of(Counter()) as harness:
        harness.read(1)
        function, rounds = harness.functions[0], 20
        before = function.offset
        for _ in range(rounds):
            harness.snapshot()
            harness.read(0)
        # While a snapshot waits, what the source emits is read: one that starves sees queue after queue go by.
        assert function.offset - before < rounds * 4 * source_thread.QUEUED


def test_after_a_restart_it_goes_on_where_it_was():
    with of(Counter()) as before:
        before.read(500)
        snapshot = before.snapshot()
    (offset,) = offsets(snapshot)
    with of(Counter(), snapshot=snapshot) as after:
        assert after.read(10)[:3] == [offset, offset + 1, offset + 2]


def test_a_rescale_deals_the_offsets_out():
    with of(Counter(3), parallelism=3) as before:
        assert sorted(before.read(9)) == sorted([0, 1, 2] * 3)
        snapshot = before.snapshot()
    with of(Counter(3), parallelism=4, snapshot=snapshot) as after:
        assert [f.restored for f in after.functions] == [[3], [3], [3], []]
        assert after.read(3) == [0, 1, 2], "a subtask that got no offset begins anew"


def test_timestamps_of_the_source_stay_with_their_records():
    class Stamped(mo.SourceFunction):
        def run(self, ctx):
            with ctx.get_checkpoint_lock():
                for n in range(3):
                    ctx.collect_with_timestamp(n, 100 + n)
                ctx.collect("none")
                ctx.collect_with_timestamp(3, 103)

    with of(Stamped()) as harness:
        out, stamps = [], []
        while len(out) < 5:
            out += harness.read()
            stamps += harness.timestamps
        assert dict(zip(out, stamps, strict=True)) == {0: 100, 1: 101, 2: 102, "none": None, 3: 103}


def test_watermarks_follow_from_the_timestamps_of_the_source():
    class Stamped(mo.SourceFunction):
        def run(self, ctx):
            for n in range(3):
                ctx.collect_with_timestamp(n, 100 + n)
            while self.is_running:
                time.sleep(0.001)

        is_running = True

        def cancel(self):
            self.is_running = False

    with of(Stamped(), watermarks=mo.WatermarkStrategy.monotonous()) as harness:
        harness.read(3)
        harness.advance_clock(50)
        assert harness.watermarks[-1:] == [101]


def test_a_run_that_returns_an_iterator_is_read_like_one_that_yields():
    class Returns(Counter):
        def run(self, ctx):
            return (self._next() for _ in range(5))

        def _next(self):
            self.offset += 1
            return self.offset

    with of(Returns()) as harness:
        assert harness.read(5) == [1, 2, 3, 4, 5]
        assert offsets(harness.snapshot()) == [5]


def test_confirmations_come_while_run_is_outside_of_the_lock():
    class Listening(Counter, mo.CheckpointListener):
        told = ()
        is_inside = False

        def run(self, ctx):
            while self.is_running:
                with ctx.get_checkpoint_lock():
                    self.is_inside = True
                    ctx.collect(self.offset)
                    self.offset += 1
                    self.is_inside = False

        def notify_checkpoint_complete(self, checkpoint):
            assert not self.is_inside
            self.told = (*self.told, checkpoint)

        def notify_checkpoint_aborted(self, checkpoint):
            assert not self.is_inside
            self.told = (*self.told, -checkpoint)

    with of(Listening()) as harness:
        emitted = harness.read(10)
        for _ in range(50):
            harness.snapshot()
            harness.confirm()
            emitted += harness.read(0)
        harness.abort()
        assert harness.functions[0].told == (*range(1, 51), -50)
        emitted += harness.read()
        assert emitted == list(range(len(emitted))), "what was queued meanwhile is not lost"


# --- sources and sinks of the other form, with operator state of their own -------------------------------


class Remembering(mo.Source, mo.CheckpointedFunction):
    """A source with splits that also keeps a list."""

    def __init__(self):
        self.items = mo.from_items("abc")

    def open(self, ctx):
        return self.items.open(ctx)

    def initialize_state(self, ctx):
        self.state = ctx.operator_state.list_state(mo.ListStateDescriptor("notes", str))
        self.restored = list(self.state.get())

    def snapshot_state(self, ctx):
        self.state.update(["note"])


def test_a_source_with_splits_may_have_operator_state_as_well():
    with of(Remembering()) as before:
        assert before.read() == ["a", "b", "c"]
        snapshot = before.snapshot()
    with of(Remembering(), snapshot=snapshot) as after:
        assert after.functions[0].restored == ["note"]
        assert after.read() == [], "and it knows its position"
