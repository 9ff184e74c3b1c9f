"""The harness around any one step: sources, sinks, two inputs, watermarks, the end, and what it refuses."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.model.config.state import StateConfig
from moorline.model.times import MAX_TIME
from moorline.subtask.operators.read_size import FIRST_RECORDS
from moorline.testing import OperatorHarness, harness


def source(of, parallelism=1, snapshot=None):
    return OperatorHarness.of(
        lambda job: job.source(of, uid="in"), inputs=0, parallelism=parallelism, snapshot=snapshot
    )


def test_a_source_is_read_until_there_are_enough_records_or_it_ends():
    numbers = source(mo.generate(lambda i: i, count=5000, splits=1))
    assert numbers.read(3) == list(range(FIRST_RECORDS)), "it is asked for a batch at a time"
    assert len(numbers.read(10_000)) == 5000 - FIRST_RECORDS
    assert numbers.read() == []
    assert numbers.watermarks == [MAX_TIME]


def test_a_source_goes_on_from_a_snapshot_at_another_parallelism():
    before = source(mo.generate(lambda i: i, count=20_000, splits=4))
    found = before.read(5000)
    after = source(mo.generate(lambda i: i, count=20_000, splits=4), 3, before.snapshot())
    assert sorted(found + after.read(20_000)) == list(range(20_000))


def test_every_subtask_of_a_source_is_read():
    found = source(mo.generate(lambda i: i, count=8, splits=4), 2).read(8)
    assert sorted(found) == list(range(8))


def test_a_source_that_gives_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(harness, "READ_SECONDS", 0.01)

    class Silent(mo.SourceReader):
        def read(self, limit):
            return []

        def positions(self):
            return {}

    class Source(mo.Source):
        def open(self, ctx):
            return Silent()

    silent = source(Source())
    assert silent.read(0) == []
    with pytest.raises(TimeoutError, match="gave 0 records"):
        silent.read()


class Seen(mo.SinkFunction):
    def __init__(self):
        self.seen = []

    def invoke(self, value, context):
        self.seen.append(value)


def test_a_sink_is_a_step_that_nothing_comes_out_of():
    sink = OperatorHarness.of(lambda s: s.sink(Seen(), uid="out"), parallelism=2)
    assert sink.process_all([1, 2, 3]) == []
    assert [f.seen for f in sink.functions] == [[1, 3], [2]]


def test_a_sink_with_two_phases_commits_when_the_checkpoint_is_confirmed(tmp_path):
    sink = OperatorHarness.of(lambda s: s.sink(mo.write_files(str(tmp_path), format="jsonl"), uid="out"))
    sink.process_all(["a", "b"])
    assert list(tmp_path.glob("*.jsonl")) == []
    sink.snapshot()
    sink.confirm()
    (file,) = tmp_path.glob("*.jsonl")
    assert file.read_text() == '"a"\n"b"\n'


def test_watermarks_of_all_subtasks_can_be_looked_at():
    strategy = mo.WatermarkStrategy.monotonous(timestamp=lambda r: r).with_idleness("1s")
    step = OperatorHarness.of(lambda s: s.assign_timestamps_and_watermarks(strategy), parallelism=2)
    step.process_all([10, 20])
    step.advance_clock(60)
    assert step.watermarks == [9, 19]
    step.advance_clock(2000)
    assert step.watermarks == [9, None, 19, None], "both are idle"


class AtTheEnd(mo.KeyedProcessFunction, mo.CheckpointListener):
    def __init__(self):
        self.told = []

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(10**15)

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.get_current_key()

    def finish(self):
        yield "finished"

    def notify_checkpoint_complete(self, checkpoint):
        self.told.append(f"complete {checkpoint}")

    def notify_checkpoint_aborted(self, checkpoint):
        self.told.append(f"aborted {checkpoint}")


def test_the_end_of_the_input_is_the_end_of_time_and_then_the_functions_own():
    step = OperatorHarness(AtTheEnd(), key=str)
    step.process("a")
    assert step.finish() == [("timer", "a"), "finished"]


def test_a_function_is_told_what_has_become_of_a_checkpoint():
    step = OperatorHarness(AtTheEnd(), key=str)
    step.snapshot()
    step.confirm()
    step.snapshot()
    step.abort()
    assert step.functions[0].told == ["complete 1", "aborted 2"]


def test_a_snapshot_that_was_given_up_is_not_built_upon():
    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            self.seen.update(self.seen.value() + 1)

    def build(stream):
        return stream.key_by(str).process(Count(), uid="count")

    step = OperatorHarness.of(build, state=StateConfig(incremental=True))
    step.process_all(["a", "b"])
    step.snapshot()
    step.process("a")
    last = step.snapshot()
    after = OperatorHarness.of(build, snapshot=last, parallelism=2, state=StateConfig(incremental=True))
    assert (after.state("seen", "a"), after.state("seen", "b")) == (2, 1)


def test_the_clock_goes_on_where_the_snapshot_was_taken():
    class Now(mo.ProcessFunction):
        def process_element(self, value, ctx):
            yield ctx.timer_service().current_processing_time()

    before = OperatorHarness(Now())
    before.advance_clock(5000)
    after = OperatorHarness.restore(before.snapshot(), Now())
    assert after.process(1) == [5000]


# --- what it refuses ------------------------------------------------------------------------------


def test_a_source_has_no_input_and_other_steps_are_not_read():
    with pytest.raises(InvalidArgument, match=r"no input: use read\(\)"):
        source(mo.from_items([1])).process(1)
    with pytest.raises(InvalidArgument, match=r"It is no source: use process\(\)"):
        OperatorHarness(str, kind="map").read()


def test_a_step_with_one_input_has_no_second_side():
    with pytest.raises(InvalidArgument, match=r"side: got 1\. The step has 1 input"):
        OperatorHarness(str, kind="map").process(1, side=1)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(str).map(str),
        lambda s: s.rebalance(),
        lambda s: None,
        lambda s: [s.map(str), None][1],
    ],
)
def test_it_runs_exactly_one_step(build):
    with pytest.raises(InvalidArgument, match=r"exactly one step|Return the stream"):
        OperatorHarness.of(build)
