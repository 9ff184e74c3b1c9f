"""Tasks of a batch job that are lost and run again change nothing."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from batch_worlds import BatchWorld
from keyed_batch_jobs import BY_TIME, Count, key, keyed

import moorline as mo


def busy_job(seed, folder):
    """Several stages, a broadcast, windows, timers, unions, files."""
    rng = random.Random(seed)
    limit = mo.MapStateDescriptor("limit", str, int)

    class Below(mo.KeyedBroadcastProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_broadcast_element(self, value, ctx):
            state = ctx.get_broadcast_state(limit)
            state.put("limit", max(value, state.get("limit", 0)))

        def process_element(self, value, ctx):
            self.seen.update(self.seen.value() + 1)
            if self.seen.value() <= ctx.get_broadcast_state(limit).get("limit"):
                yield value

    records = [(rng.randrange(12), rng.randrange(60_000)) for _ in range(300)]
    job = mo.Job("busy", parallelism=rng.choice([1, 2, 3]))
    limits = job.source(mo.from_items([5, 20, 10]), uid="limits")
    events = job.source(mo.from_items(records), uid="events", watermarks=BY_TIME).rebalance().map(tuple, uid="map")
    below = events.key_by(key).connect(limits.broadcast(limit)).process(Below(), uid="below")
    windows = below.key_by(key).window(mo.TumblingEventTimeWindows("10s"))
    counts = windows.apply(lambda k, w, values: [(k, w.start, len(values))], uid="windows")
    counts.sink(mo.collect("out"), uid="out", parallelism=rng.choice([1, 2]))
    counts.union(below.map(lambda r: (r[0], -1, r[1]), uid="raw")).map(list, uid="lists").sink(
        mo.write_files(folder, format="jsonl"), uid="files"
    )
    kept = [r for k in range(12) for r in sorted((r for r in records if r[0] == k), key=lambda r: r[1])[:20]]
    windowed = Counter((k, t // 10_000 * 10_000) for k, t in kept)
    expected = sorted((*ident, n) for ident, n in windowed.items())
    return job, expected, sorted(expected + [(k, -1, t) for k, t in kept])


@pytest.mark.parametrize("seed", range(25))
def test_lost_tasks_change_nothing(seed, tmp_path):
    job, expected, in_files = busy_job(seed, tmp_path)
    world = BatchWorld(job, seed, faults=0.08, rows_per_batch=1 + seed % 9).run()
    assert sorted(world.collected["out"]) == expected
    assert not list(tmp_path.glob("part-*"))
    sink = world.plan.graph.by_uid["files"].function
    for _ in range(2):  # committing twice is harmless
        for _, committables in world.staged:
            sink.commit(committables)
    sink.clean_up("busy", "files")
    lines = [tuple(json.loads(line)) for f in tmp_path.glob("part-*") for line in f.read_text().splitlines()]
    assert sorted(lines) == in_files
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith("part-")] == []


def test_tasks_are_lost_at_all():
    job = keyed(Count(), [(n % 7, n) for n in range(100)])
    clean, faulty = BatchWorld(job).run(), BatchWorld(job, 1, faults=0.2).run()
    assert faulty.attempts > clean.attempts
    assert faulty.collected == clean.collected
