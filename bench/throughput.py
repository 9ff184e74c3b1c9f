"""Records per second of a keyed running average, beside one bare Python loop doing the same in the same run.

100,000 keys, parallelism 2, a Python function per record, checkpoints every 10 s (every 2 s with --quick).

    python bench/throughput.py [--quick]

The last line is one JSON object. ``ratio`` compares with a bare loop that calls the same functions for the same
records with a dict as its state; ``ratio_inline`` with a loop that has everything written out in its body.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time

import moorline as mo

KEYS = 100_000


def payment(number: int) -> tuple[int, int]:
    return number * 2654435761 % KEYS, number % 1000


class Average(mo.KeyedProcessFunction):
    sum = mo.ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value, ctx):
        count, total = self.sum.value()
        count, total = count + 1, total + value[1]
        if count >= 2:
            yield value[0], total / count
            self.sum.clear()
        else:
            self.sum.update((count, total))


def average(state: dict, key: int, value: tuple[int, int]):
    count, total = state.get(key, (0, 0))
    count, total = count + 1, total + value[1]
    if count >= 2:
        yield value[0], total / count
        del state[key]
    else:
        state[key] = (count, total)


def bare_loop(records: int) -> float:
    """Records per second of a loop that calls the same functions."""
    state: dict = {}
    key_of = lambda r: r[0]  # noqa: E731
    began = time.perf_counter()
    for number in range(records):
        record = payment(number)
        for _ in average(state, key_of(record), record):
            pass
    return records / (time.perf_counter() - began)


def inline_loop(records: int) -> float:
    """Records per second of a loop with everything in its body."""
    state: dict = {}
    began = time.perf_counter()
    for number in range(records):
        key, value = payment(number)
        count, total = state.get(key, (0, 0))
        count, total = count + 1, total + value
        if count >= 2:
            _ = (key, total / count)
            del state[key]
        else:
            state[key] = (count, total)
    return records / (time.perf_counter() - began)


def on_spark(seconds: float, interval: str) -> tuple[float, list]:
    """Records per second of the stateful operator in steady state, and the checkpoints taken meanwhile."""
    job = mo.Job("throughput", parallelism=2)
    (
        job.source(mo.generate(payment), uid="payments")
        .key_by(lambda r: r[0])
        .process(Average(), uid="average")
        .sink(mo.discard(), uid="out")
    )
    with tempfile.TemporaryDirectory() as folder:
        handle = mo.start(job, checkpoints=mo.Checkpoints(folder, interval=interval))
        try:
            done = _records(handle)
            while done < 10_000_000:  # until the JVM has compiled what it runs
                time.sleep(0.1)
                done = _records(handle)
            _next_report(handle)
            first, began, taken = _records(handle), time.perf_counter(), len(handle.checkpoints)
            time.sleep(seconds)
            _next_report(handle)
            rate = (_records(handle) - first) / (time.perf_counter() - began)
            return rate, handle.checkpoints[taken:]
        finally:
            handle.cancel()


def _records(handle: mo.Handle) -> int:
    return handle.progress["operators"].get("average", {}).get("records_in", 0)


def _next_report(handle: mo.Handle) -> None:
    before = _records(handle)
    while _records(handle) == before and handle.is_active:
        time.sleep(0.002)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    loops = 1_000_000 if quick else 4_000_000
    bare, inline = bare_loop(loops), inline_loop(loops)
    rate, checkpoints = on_spark(8 if quick else 40, "2s" if quick else "10s")
    bare, inline = (bare + bare_loop(loops)) / 2, (inline + inline_loop(loops)) / 2
    print(f"moorline {rate:,.0f} records/s, bare loop {bare:,.0f}, with everything inline {inline:,.0f}")
    print(
        json.dumps(
            {
                "bench": "throughput",
                "records_per_second": round(rate),
                "bare_loop": round(bare),
                "inline_loop": round(inline),
                "ratio": round(rate / bare, 3),
                "ratio_inline": round(rate / inline, 3),
                "checkpoints": len(checkpoints),
                "checkpoint_sync_ms": max((c.sync_ms for c in checkpoints), default=None),
                "checkpoint_ms": max((c.duration_ms for c in checkpoints), default=None),
                "checkpoint_bytes": max((c.size for c in checkpoints), default=None),
            }
        )
    )


if __name__ == "__main__":
    main()
