"""Sinks that are invoked, one record at a time: their state, their times, their errors."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.errors import UserCodeFailed
from moorline.model.times import MIN_TIME
from moorline.testing import OperatorHarness


def sink(function, parallelism=1, snapshot=None, key=None):
    return OperatorHarness.of(
        lambda s: (s if key is None else s.key_by(key)).sink(function, uid="sink"),
        parallelism=parallelism,
        snapshot=snapshot,
    )


class Buffering(mo.SinkFunction, mo.CheckpointedFunction):
    """The buffering sink of Flink's documentation."""

    def __init__(self, threshold):
        self.threshold, self.buffered, self.sent = threshold, [], []

    def invoke(self, value, context):
        self.buffered.append(value)
        if len(self.buffered) >= self.threshold:
            self.sent.append(self.buffered)
            self.buffered = []

    def snapshot_state(self, ctx):
        self.state.update(self.buffered)

    def initialize_state(self, ctx):
        self.state = ctx.operator_state.list_state(mo.ListStateDescriptor("buffered-elements", int))
        if ctx.is_restored:
            self.buffered = list(self.state.get())


def test_a_sink_keeps_what_it_has_not_sent_over_a_restart():
    before = sink(Buffering(3))
    before.process_all([1, 2, 3, 4, 5])
    assert before.functions[0].sent == [[1, 2, 3]]
    after = sink(Buffering(3), snapshot=before.snapshot())
    after.process_all([6])
    assert after.functions[0].sent == [[4, 5, 6]]


def test_a_sinks_elements_are_dealt_out_after_a_rescale():
    before = sink(Buffering(100), parallelism=2)
    before.process_all(range(6))  # in turn
    after = sink(Buffering(100), parallelism=3, snapshot=before.snapshot())
    assert [f.buffered for f in after.functions] == [[0, 2], [4, 1], [3, 5]]


class Told(mo.SinkFunction):
    def __init__(self):
        self.told = []

    def invoke(self, value, context):
        self.told.append((value, context.timestamp(), context.current_watermark(), context.current_processing_time()))


def test_a_sink_is_told_the_time():
    harness = sink(Told())
    harness.process("a")
    harness.process("b", 7)
    harness.watermark(5)
    harness.advance_clock(20)
    harness.process("c", 9)
    harness.process("d")
    assert harness.functions[0].told == [
        ("a", None, MIN_TIME, 0),
        ("b", 7, MIN_TIME, 0),
        ("c", 9, 5, 20),
        ("d", None, 5, 20),
    ]


@pytest.mark.parametrize("timestamps", [None, [1, 2, 3]])
def test_an_error_of_a_sink_names_the_record(timestamps):
    class Refuses(mo.SinkFunction):
        def invoke(self, value, context):
            if value == "bad":
                raise ValueError("refused")

    harness = sink(Refuses())
    with pytest.raises(UserCodeFailed, match=r"refused in operator 'sink'.*record 1 of this attempt: 'bad'"):
        harness._subtasks[0].operator.process(["good", "bad", "good"], timestamps)


def test_a_sink_on_a_keyed_stream_has_keyed_state():
    class Deduplicating(mo.SinkFunction):
        seen = mo.ValueState(bool, default=False)

        def __init__(self):
            self.sent = []

        def invoke(self, value, context):
            if not self.seen.value():
                self.seen.update(True)
                self.sent.append(value)

    before = sink(Deduplicating(), key=lambda v: v)
    before.process_all(["a", "b", "a"])
    assert before.functions[0].sent == ["a", "b"]
    after = sink(Deduplicating(), parallelism=2, snapshot=before.snapshot(), key=lambda v: v)
    after.process_all(["a", "c", "b"])
    assert [v for f in after.functions for v in f.sent] == ["c"]


def test_a_sink_is_opened_finished_and_closed():
    class Life(mo.SinkFunction):
        def __init__(self):
            self.calls = []

        def open(self, runtime_context):
            self.calls.append(f"open {runtime_context.get_index_of_this_subtask()}")

        def invoke(self, value, context):
            self.calls.append(value)

        def finish(self):
            self.calls.append("finish")

        def close(self):
            self.calls.append("close")

    with sink(Life()) as harness:
        harness.process("x")
        harness.finish()
    assert harness.functions[0].calls == ["open 0", "x", "finish", "close"]
