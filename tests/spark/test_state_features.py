"""What a job can keep, on real Spark: timers, broadcast and operator state, windows; with kills in between."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter

import pytest
from waiting import PATIENCE, eventually

import moorline as mo

pytestmark = pytest.mark.spark


def published(out):
    return [json.loads(line) for path in sorted(out.glob("part-*.jsonl")) for line in path.read_text().splitlines()]


def kill_a_worker(handle, vertex: str) -> None:
    """Wait for a checkpoint, kill one worker of a vertex, wait for the restore and for another checkpoint."""
    eventually(lambda: len(handle.checkpoints) >= 2, "checkpoints before the kill")
    os.kill(next(pid for name, pid in handle.worker_pids.items() if name.startswith(f"{vertex}/")), signal.SIGKILL)
    eventually(lambda: len(handle.restored_from) > 1 and handle.restored_from[-1] > 0, "a restore")
    before = len(handle.checkpoints)
    eventually(lambda: len(handle.checkpoints) > before or not handle.is_active, "a checkpoint after it")


def checkpoints(tmp_path, **options):
    return mo.Checkpoints(str(tmp_path / "chk"), interval="150ms", timeout="60s", **options)


RESTART = mo.FixedDelay(5, "50ms")


def test_a_processing_time_timer_fires_with_no_input(spark, tmp_path):
    sign = tmp_path / "fired"

    class Once(mo.Source):
        def open(self, ctx):
            class Reader(mo.SourceReader):
                left = ["a"] if ctx.owns(0) else []

                def read(self, limit):
                    taken, self.left = self.left, []
                    return taken

                def positions(self):
                    return {}

            return Reader()

    class Later(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() + 300)

        def on_timer(self, timestamp, ctx):
            sign.touch()
            yield ctx.get_current_key(), ctx.timer_service().current_processing_time() >= timestamp

    job = mo.Job("later")
    fired = job.source(Once(), uid="once").key_by(lambda v: v).process(Later(), uid="later")
    fired.sink(mo.collect("out"), uid="out")
    handle = mo.start(job, spark)
    eventually(sign.exists, "the timer")
    assert handle.stop().collected("out") == [("a", True)]


def test_windows_over_event_time_count_what_a_loop_counts_through_a_kill(spark, tmp_path):
    count = 40_000
    out = tmp_path / "out"

    class Total(mo.AggregateFunction):
        def create_accumulator(self):
            return 0

        def add(self, value, accumulator):
            return accumulator + 1

        def get_result(self, accumulator):
            return accumulator

        def merge(self, a, b):
            return a + b

    class Tell(mo.ProcessWindowFunction):
        def process(self, key, context, elements):
            yield {"key": key, "start": context.window().start, "count": next(iter(elements))}

    job = mo.Job("windows", parallelism=2)
    strategy = mo.WatermarkStrategy.bounded_out_of_orderness("1s", lambda n: 10 * n)
    (
        job.source(mo.generate(lambda n: n, count=count, splits=4, rate=8_000), uid="numbers", watermarks=strategy)
        .key_by(lambda n: n % 5)
        .window(mo.TumblingEventTimeWindows("2s"))
        .aggregate(Total(), window_function=Tell(), accumulator_type=int, uid="window")
        .sink(mo.write_files(out, format="jsonl"), uid="files")
    )
    handle = mo.start(job, spark, checkpoints=checkpoints(tmp_path, incremental=True), restart=RESTART)
    kill_a_worker(handle, "1")
    assert handle.wait(PATIENCE) is not None
    expected = Counter((n % 5, 10 * n // 2000 * 2000) for n in range(count))
    assert {(r["key"], r["start"]): r["count"] for r in published(out)} == expected
    assert len(published(out)) == len(expected), "each window is told once"


def test_broadcast_and_operator_state_survive_a_kill_and_a_rescale(spark, tmp_path):
    count, rules_count = 30_000, 400
    out = tmp_path / "out"
    rules = mo.MapStateDescriptor("rules", str, int)

    class Numbered(mo.MapFunction, mo.CheckpointedFunction):
        """Holds up to three records back, in operator state."""

        def initialize_state(self, ctx):
            self.saved = ctx.operator_state.list_state(mo.ListStateDescriptor("held", int))
            self.held = list(self.saved.get())

        def map(self, value):
            self.held.append(value)
            if len(self.held) < 4:
                return []
            out, self.held = self.held, []
            return out

        def finish(self):
            out, self.held = self.held, []
            return [out]

        def snapshot_state(self, ctx):
            self.saved.update(self.held)

    class Apply(mo.KeyedBroadcastProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            self.seen.update(self.seen.value() + 1)
            ctx.timer_service().register_event_time_timer((1 << 63) - 2)

        def process_broadcast_element(self, value, ctx):
            state = ctx.get_broadcast_state(rules)
            state.put(value, state.get(value, 0) + 1)

        def on_timer(self, timestamp, ctx):
            told = dict(ctx.get_broadcast_state(rules).items())
            yield {"key": ctx.get_current_key(), "seen": self.seen.value(), "rules": told}

    def job(rate, parallelism):
        made = mo.Job("rules", parallelism=parallelism, max_parallelism=16)
        numbers = made.source(mo.generate(lambda n: n, count=count, splits=4, rate=rate), uid="numbers")
        held = numbers.rebalance().map(Numbered(), uid="hold").flat_map(lambda ns: ns, uid="let go")
        told = made.source(
            mo.generate(lambda n: "ab"[n % 2], count=rules_count, splits=1, rate=rate and rate / 50), uid="rules"
        )
        connected = held.key_by(lambda n: n % 7).connect(told.broadcast(rules))
        connected.process(Apply(), uid="apply").sink(mo.write_files(out, format="jsonl"), uid="files")
        return made

    config = checkpoints(tmp_path)
    handle = mo.start(job(2_000, 2), spark, checkpoints=config, restart=RESTART)
    kill_a_worker(handle, "2")
    assert handle.stop() is not None
    handle = mo.start(job(None, 3), spark, checkpoints=config, restore="latest")
    assert handle.wait(PATIENCE) is not None
    assert handle.restored_from[-1] > 0
    expected = {"a": rules_count // 2, "b": rules_count // 2}
    found = sorted((r["key"], r["seen"], r["rules"] == expected) for r in published(out))
    assert found == [(key, len(range(key, count, 7)), True) for key in range(7)]


def test_the_counting_source_of_flinks_documentation_goes_on_where_it_was(spark, tmp_path):
    out = tmp_path / "out"

    class CounterSource(mo.SourceFunction, mo.CheckpointedFunction):
        def __init__(self):
            self.offset, self.is_running = 0, True

        def run(self, ctx):
            while self.is_running and self.offset < 3_000:
                with ctx.get_checkpoint_lock():
                    ctx.collect(self.offset)
                    self.offset += 1
                time.sleep(0.001)

        def cancel(self):
            self.is_running = False

        def initialize_state(self, ctx):
            self.state = ctx.operator_state.list_state(mo.ListStateDescriptor("state", int))
            for offset in self.state.get():
                self.offset = offset

        def snapshot_state(self, ctx):
            self.state.clear()
            self.state.add(self.offset)

    job = mo.Job("counter", parallelism=2)
    job.source(CounterSource(), uid="counter").sink(mo.write_files(out, format="jsonl"), uid="files")
    handle = mo.start(job, spark, checkpoints=checkpoints(tmp_path), restart=RESTART)
    kill_a_worker(handle, "0")
    assert handle.wait(PATIENCE) is not None
    assert sorted(published(out)) == sorted([*range(3_000)] * 2)
