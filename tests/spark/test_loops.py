"""Loops on real Spark: records go back from worker to worker, and a kill in the middle changes nothing."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter

import pytest
from waiting import PATIENCE, eventually

import moorline as mo

pytestmark = pytest.mark.spark

RESTART = mo.FixedDelay(5, "50ms")


def published(out):
    return [tuple(json.loads(line)) for path in sorted(out.glob("part-*.jsonl")) for line in path.open()]


def checkpoints(tmp_path, **options):
    return mo.Checkpoints(str(tmp_path / "chk"), interval="200ms", timeout="60s", **options)


def rounds(n: int) -> int:
    """How many steps of Collatz's from n to 1."""
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


def collatz(job, count, rate=None, parallelism=2):
    """Start numbers go round until they are 1; each step is at another key, and counted there."""

    class Step(mo.KeyedProcessFunction):
        visits = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            start, number, steps = value
            self.visits.update(self.visits.value() + 1)
            if number == 1:
                yield "done", start, steps
            else:
                yield "more", start, number // 2 if number % 2 == 0 else 3 * number + 1, steps + 1
            ctx.timer_service().register_event_time_timer(1 << 50)

        def on_timer(self, timestamp, ctx):
            yield "visits", ctx.get_current_key(), self.visits.value()

    def once(loop):
        stepped = loop.process(Step(), uid="step")
        again = stepped.filter(lambda r: r[0] == "more", uid="more").map(lambda r: r[1:], uid="strip")
        return again, stepped.filter(lambda r: r[0] != "more", uid="out of it")

    numbers = job.source(mo.generate(lambda n: (n + 1, n + 1, 0), count=count, rate=rate), uid="numbers")
    return numbers.key_by(lambda r: r[1] % 16).iterate(once)


def expected(count):
    visits, found = Counter(), Counter()
    for start in range(1, count + 1):
        number = start
        visits[number % 16] += 1
        while number != 1:
            number = number // 2 if number % 2 == 0 else 3 * number + 1
            visits[number % 16] += 1
        found["done", start, rounds(start)] += 1
    return found + Counter({("visits", key, n): 1 for key, n in visits.items()})


def test_a_bounded_job_ends_when_its_loop_is_empty(spark):
    job = mo.Job("collatz", parallelism=2)
    collatz(job, 300).sink(mo.collect("out"), uid="out")
    assert Counter(mo.run(job, spark).collected("out")) == expected(300)


@pytest.mark.parametrize("mode", [{}, {"unaligned": True}])
def test_a_killed_worker_in_the_middle_of_a_loop_changes_nothing(spark, tmp_path, mode):
    job = mo.Job("collatz-killed", parallelism=2)
    collatz(job, 1500, rate=200).sink(mo.write_files(tmp_path / "out", format="jsonl"), uid="out")
    handle = mo.start(job, spark, checkpoints=checkpoints(tmp_path, **mode), restart=RESTART)
    eventually(lambda: any(c.in_flight for c in handle.checkpoints), "a checkpoint of a loop with something in it")
    pid = next(pid for name, pid in handle.worker_pids.items() if name.startswith("1/"))
    os.kill(pid, signal.SIGKILL)
    result = handle.wait(PATIENCE)
    assert result is not None
    assert len(result.restored_from) > 1
    assert result.restored_from[-1] > 0
    assert Counter(published(tmp_path / "out")) == expected(1500)


def test_what_goes_round_is_in_a_savepoint_and_goes_on_at_another_parallelism(spark, tmp_path):
    out, place = tmp_path / "out", str(tmp_path / "savepoint")
    job = mo.Job("collatz-saved", parallelism=2)
    collatz(job, 900, rate=300).sink(mo.write_files(out, format="jsonl"), uid="out")
    handle = mo.start(job, spark, checkpoints=checkpoints(tmp_path), restart=RESTART)
    eventually(lambda: any(c.in_flight for c in handle.checkpoints), "something in the loop")
    handle.rescale(3, timeout=600)
    handle.stop(savepoint=place, timeout=600)
    mo.run(job, spark, restore=place, parallelism=1, checkpoints=checkpoints(tmp_path / "other"))
    assert Counter(published(out)) == expected(900)


def test_a_loop_with_more_in_it_than_any_buffer_holds_does_not_lock_up(spark, tmp_path):
    """40 MB go round four times, everything at once, past a step in another stage."""
    count, size, times = 4000, 10_000, 4

    def once(loop):
        grown = loop.map(lambda r: (r[0], r[1] + 1, r[2]), uid="count")
        passed = grown.rebalance().map(lambda r: r, uid="elsewhere")
        return passed.filter(lambda r: r[1] < times, uid="again"), passed.filter(lambda r: r[1] == times, uid="done")

    job = mo.Job("large", parallelism=2)
    numbers = job.source(mo.generate(lambda n: (n, 0, bytes(size)), count=count), uid="numbers")
    out = numbers.key_by(lambda r: r[0]).iterate(once).map(lambda r: r[:2], uid="strip")
    out.sink(mo.collect("out"), uid="out")
    result = mo.run(job, spark, checkpoints=checkpoints(tmp_path))
    assert Counter(result.collected("out")) == Counter((n, times) for n in range(count))
