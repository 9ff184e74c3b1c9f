"""Checkpoints under back-pressure on real Spark: they overtake what is queued, and what was in flight comes back."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from pathlib import Path

import pytest
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark

SPLITS, KEYS = 4, 20
#: Records per second of each source subtask, and of the sink.
RATE, SINK_RATE = 1_000, 50
#: So many records between source and sink are a full queue. It takes the sink some ten seconds to work it off.
QUEUE = 600
#: A record is large, so that few of them fill the buffers of Spark's shuffle.
PAYLOAD = "x" * 16_000


def job(folder: Path, *, total: str = "total", **options) -> mo.Job:
    """Running counts per key, written by one subtask that is 20 times too slow until the file ``fast`` is there."""
    payload, keys, splits, every, pause = PAYLOAD, KEYS, SPLITS, 5 / RATE, 1 / SINK_RATE
    fast = folder / "fast"

    class Paced(mo.Source):
        """Numbers without end, five at a time: unlike ``generate`` it never makes up for lost time."""

        def open(self, ctx):
            return PacedReader(ctx)

    class PacedReader(mo.SourceReader):
        def __init__(self, ctx):
            self.at = {s: ctx.positions.get(s, s) for s in range(splits) if ctx.owns(s)}
            self.due, self.turn = time.monotonic(), 0

        def read(self, limit):
            if time.monotonic() < self.due or not self.at:
                return []
            self.due, self.turn = time.monotonic() + every, self.turn + 1
            split = sorted(self.at)[self.turn % len(self.at)]
            first, self.at[split] = self.at[split], self.at[split] + 5 * splits
            return [(n, payload) for n in range(first, self.at[split], splits)]

        def positions(self):
            return dict(self.at)

    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            self.seen.update(self.seen.value() + 1)
            yield value[0], self.seen.value(), value[1]

    def slowly(value):
        if not fast.exists():
            time.sleep(pause)
        return {"n": value[0], "count": value[1]}

    made = mo.Job("pressed", max_parallelism=8, **options)
    (
        made.source(Paced(), uid="numbers")
        .key_by(lambda r: r[0] % keys)
        .process(Count(), uid=total)
        .map(slowly, uid="slow", parallelism=1)
        .sink(mo.write_files(folder / "out", format="jsonl"), uid="files", parallelism=1)
    )
    return made


def audit(folder: Path) -> int:
    """Every number of every split from its beginning on, once, and every count once. Returns how many there are."""
    rows = [json.loads(row) for p in (folder / "out").glob("part-*.jsonl") for row in p.read_text().splitlines()]
    numbers = sorted(row["n"] for row in rows)
    for split in range(SPLITS):
        mine = [n for n in numbers if n % SPLITS == split]
        assert mine == list(range(split, split + SPLITS * len(mine), SPLITS))
    for key in range(KEYS):
        mine = [row for row in rows if row["n"] % KEYS == key]
        assert sorted(row["count"] for row in mine) == list(range(1, len(mine) + 1))
    return len(rows)


def checkpoints(folder: Path, **options) -> mo.Checkpoints:
    return mo.Checkpoints(str(folder / "chk"), **{"interval": "500ms", "timeout": "5min", **options})


def completed(handle: mo.Handle, count: int) -> list:
    have = len(handle.checkpoints)
    eventually(lambda: len(handle.checkpoints) >= have + count or not handle.is_active, "checkpoints")
    return handle.checkpoints[have:]


def queued(handle: mo.Handle) -> int:
    """How many records the sources have read and the sink has not seen."""
    operators = handle.progress.get("operators", {})
    if not operators.keys() >= {"numbers", "slow"}:
        return 0
    return operators["numbers"]["records_in"] - operators["slow"]["records_in"]


def in_flight(folder: Path, checkpoint: int) -> dict[str, int]:
    """How many records a checkpoint has in flight, by the operator they are on their way to."""
    for path in (folder / "chk" / "pressed" / "history").glob("*.json"):
        entry = json.loads(path.read_text())["entry"]
        if entry.get("checkpoint") == checkpoint:
            return {
                o["uid"]: sum(h["records"] for s in o["subtasks"] for h in s["in_flight"]) for o in entry["operators"]
            }
    raise AssertionError(f"checkpoint {checkpoint} is gone")


def test_unaligned_checkpoints_are_ten_times_sooner_and_what_was_in_flight_comes_back_once(spark, tmp_path):
    # As much in flight as Spark's buffers hold: by default it would be a quarter of a second's work.
    handle = mo.start(job(tmp_path, parallelism=2), spark, checkpoints=checkpoints(tmp_path), in_flight="10min")
    eventually(lambda: queued(handle) > QUEUE, "queues are full")
    # The second from here on was started after that.
    aligned = completed(handle, 2)[-1]
    handle.cancel()
    assert aligned.in_flight == 0

    options = {"checkpoints": checkpoints(tmp_path, unaligned=True), "restart": mo.FixedDelay(attempts=3, delay="10ms")}
    options["in_flight"] = "10min"
    handle = mo.start(job(tmp_path, parallelism=2), spark, restore="latest", **options)
    eventually(lambda: sum(c.in_flight > QUEUE for c in handle.checkpoints) >= 3, "checkpoints with full queues")
    unaligned = [c for c in handle.checkpoints if c.in_flight > QUEUE]
    print(aligned, unaligned)
    assert statistics.median(c.duration_ms for c in unaligned) * 10 <= aligned.duration_ms

    # At the same parallelism, after a kill -9 of the counting subtask, whose input and output are full.
    os.kill(handle.worker_pids["1/1"], signal.SIGKILL)
    eventually(lambda: len(handle.restored_from) == 2 and handle.status is mo.JobStatus.RUNNING, "a second attempt")
    restored = handle.restored_from[-1]
    assert next(c for c in handle.checkpoints if c.checkpoint == restored).in_flight > QUEUE

    # At another parallelism.
    eventually(lambda: handle.checkpoints[-1].checkpoint > restored and handle.checkpoints[-1].in_flight, "one more")
    handle.cancel()
    (tmp_path / "fast").touch()
    last = handle.checkpoints[-1].checkpoint
    found = in_flight(tmp_path, last)
    assert found["total"] > 0 < found["slow"], "in flight on a keyed link and on another"
    result = mo.start(job(tmp_path, parallelism=3), spark, restore="latest", **options).stop()
    assert result.restored_from == [last]
    assert result.checkpoints[-1].final and result.checkpoints[-1].in_flight == 0
    assert audit(tmp_path) > sum(found.values())


def test_an_aligned_checkpoint_waits_for_little_where_a_sink_is_too_slow(spark, tmp_path):
    handle = mo.start(job(tmp_path, parallelism=2), spark, checkpoints=checkpoints(tmp_path))
    eventually(lambda: handle.progress["operators"].get("slow", {}).get("records_in", 0) > 5 * SINK_RATE, "it runs")
    taken = completed(handle, 4)
    in_flight = queued(handle)
    handle.cancel()
    assert in_flight < QUEUE / 3
    # What Spark's buffers hold takes the sink twelve seconds and more.
    assert statistics.median(c.duration_ms for c in taken) < 1_000 * QUEUE / SINK_RATE / 3
