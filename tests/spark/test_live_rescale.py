"""A job under load is made wider and narrower while it runs, and workers are killed in between."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter

import pytest
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark

#: Keys; and of each, how many records make a sum that is told.
KEYS, TOLD = 40, 10
SPLITS = 8


def summing(out, rate):
    """Counts each key, and tells by a timer and a list what it has seen: keyed state of several kinds, and timers."""

    class Sum(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)
        last = mo.ListState(int)

        def process_element(self, n, ctx):
            self.seen.update(self.seen.value() + 1)
            self.last.add(n)
            if self.seen.value() % TOLD == 0:
                ctx.timer_service().register_event_time_timer(1 << 60)
                yield {"key": ctx.current_key, "until": self.seen.value(), "numbers": list(self.last.get())}
                self.last.clear()

        def on_timer(self, timestamp, ctx):
            yield {"key": ctx.current_key, "until": self.seen.value(), "numbers": list(self.last.get()), "end": True}

    job = mo.Job("summing", parallelism=2, max_parallelism=64)
    (
        job.source(mo.generate(lambda n: n, splits=SPLITS, rate=rate), uid="numbers")
        .key_by(lambda n: n % KEYS)
        .process(Sum(), uid="sum")
        .sink(mo.write_files(out, format="jsonl"), uid="files")
    )
    return job


def audit(out):
    rows = [json.loads(line) for path in sorted(out.glob("part-*.jsonl")) for line in path.read_text().splitlines()]
    numbers = sorted(n for row in rows for n in row["numbers"])
    for split in range(SPLITS):
        # Each was read from its beginning, however far.
        mine = [n for n in numbers if n % SPLITS == split]
        assert mine == list(range(split, split + SPLITS * len(mine), SPLITS)), "every number is told once"
    ends = Counter((row["key"], row["until"]) for row in rows if "end" in row)
    assert ends == Counter(Counter(n % KEYS for n in numbers).items()), "every key's timer fired, and once"
    told = Counter((row["key"], row["until"]) for row in rows if "end" not in row)
    assert set(told.values()) == {1}, "no key was counted by two subtasks"


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_2_to_4_to_3_to_8_under_load_with_kills_in_between_ends_exactly_once(spark, tmp_path, backend):
    out, chance = tmp_path / "out", random.Random(7)
    handle = mo.start(
        summing(out, rate=3_000),
        spark,
        checkpoints=mo.Checkpoints(str(tmp_path / "chk"), interval="500ms"),
        restart=mo.FixedDelay(20, "100ms"),
        backend=backend,
    )
    eventually(lambda: len(handle.checkpoints) >= 1, "a checkpoint")
    kills = 0
    for width in (4, 3, 8):
        handle.rescale(width, timeout=600)
        assert len(handle.worker_pids) == 2 * width
        if width == 8:
            continue
        restores = len(handle.restored_from)
        os.kill(handle.worker_pids[chance.choice(list(handle.worker_pids))], signal.SIGKILL)
        kills += 1
        eventually(
            lambda before=restores, width=width: (
                len(handle.restored_from) > before and len(handle.worker_pids) == 2 * width
            ),
            "it is back at the same width",
        )
    assert handle.is_active, "it was all under load"
    assert handle.stop(savepoint=str(tmp_path / "end"), drain=True) is not None
    assert len(handle.failures) == kills, "a rescale is no failure"
    assert all(n > 0 for n in handle.restored_from[1:]), "and goes on from a checkpoint"
    audit(out)
