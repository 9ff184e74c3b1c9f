"""Records per second of a keyed running average, for five kinds of records, beside a bare Python loop over the same.

100,000 keys in no order, parallelism 2, a Python function per record, checkpoints every 10 s (every 2 s with --quick).
Beside it, if it can be installed into an environment of its own, the same with bytewax on one worker.

    python bench/throughput.py [--quick] [--backend rocksdb] [--kinds ints,dicts] [--no-peer]

The last line is one JSON object. ``ratio`` compares with a bare loop that calls the same functions for the same
records with a dict as its state; ``ratio_inline`` with a loop that has everything written out in its body (ints).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import moorline as mo

KEYS = 100_000


def scattered(number: int) -> int:
    """A key for a number, in no order: neighbours in the stream are far apart in memory."""
    return (number * 0x9E3779B97F4A7C15 >> 20) % KEYS


@dataclass(frozen=True)
class Payment:
    key: int
    value: int
    currency: str
    rate: float
    is_new: bool


class PaymentStruct(msgspec.Struct, frozen=True):
    key: int
    value: int
    currency: str
    rate: float
    is_new: bool


#: By kind: how record number i is made, its key, and its value.
KINDS: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any], Callable[[Any], int]]] = {
    "ints": (lambda i: (scattered(i), i % 1000), lambda r: r[0], lambda r: r[1]),
    "texts": (lambda i: (f"user-{scattered(i)}", i % 1000), lambda r: r[0], lambda r: r[1]),
    "dicts": (
        lambda i: {"key": scattered(i), "value": i % 1000, "currency": "EUR", "rate": 1.5, "is_new": True},
        lambda r: r["key"],
        lambda r: r["value"],
    ),
    "dataclasses": (lambda i: Payment(scattered(i), i % 1000, "EUR", 1.5, True), lambda r: r.key, lambda r: r.value),
    "structs": (lambda i: PaymentStruct(scattered(i), i % 1000, "EUR", 1.5, True), lambda r: r.key, lambda r: r.value),
}


class Average(mo.KeyedProcessFunction):
    sum = mo.ValueState(tuple[int, int], default=(0, 0))

    def __init__(self, key_of: Callable[[Any], Any], value_of: Callable[[Any], int]) -> None:
        self.key_of, self.value_of = key_of, value_of

    def process_element(self, value, ctx):
        count, total = self.sum.value()
        count, total = count + 1, total + self.value_of(value)
        if count >= 2:
            yield self.key_of(value), total / count
            self.sum.clear()
        else:
            self.sum.update((count, total))


def average(state: dict, key: Any, value: int):
    count, total = state.get(key, (0, 0))
    count, total = count + 1, total + value
    if count >= 2:
        yield key, total / count
        del state[key]
    else:
        state[key] = (count, total)


def bare_loop(kind: str, records: int) -> float:
    """Records per second of a loop that calls the same functions."""
    make, key_of, value_of = KINDS[kind]
    state: dict = {}
    began = time.perf_counter()
    for number in range(records):
        record = make(number)
        for _ in average(state, key_of(record), value_of(record)):
            pass
    return records / (time.perf_counter() - began)


def inline_loop(records: int) -> float:
    """Records per second of a loop over ints with everything in its body."""
    state: dict = {}
    began = time.perf_counter()
    for number in range(records):
        key, value = (number * 0x9E3779B97F4A7C15 >> 20) % KEYS, number % 1000
        count, total = state.get(key, (0, 0))
        count, total = count + 1, total + value
        if count >= 2:
            _ = (key, total / count)
            del state[key]
        else:
            state[key] = (count, total)
    return records / (time.perf_counter() - began)


def on_spark(kind: str, seconds: float, interval: str, backend: str) -> tuple[float, list]:
    """Records per second of the stateful operator in steady state, and the checkpoints taken meanwhile."""
    make, key_of, value_of = KINDS[kind]
    job = mo.Job("throughput", parallelism=2)
    (
        job.source(mo.generate(make), uid="payments")
        .key_by(key_of)
        .process(Average(key_of, value_of), uid="average")
        .sink(mo.discard(), uid="out")
    )
    with tempfile.TemporaryDirectory() as folder:
        handle = mo.start(job, checkpoints=mo.Checkpoints(folder, interval=interval), backend=backend)
        try:
            began = time.perf_counter()
            while _records(handle) == 0 and handle.is_active:
                time.sleep(0.1)
            # Until the JVM has compiled what it runs.
            while _records(handle) < 5_000_000 and time.perf_counter() - began < 20:
                time.sleep(0.1)
            _next_report(handle)
            first, began, taken = _records(handle), time.perf_counter(), len(handle.checkpoints)
            time.sleep(seconds)
            _next_report(handle)
            if not handle.is_active:
                handle.wait()  # raises what the job has failed with
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


# --- bytewax -------------------------------------------------------------------------------------

#: The same job: made, keyed by a text as bytewax wants it, averaged in pairs. Prints records per second.
PEER = """
import sys, time
import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSource, TestingSink, run_main
from dataclasses import dataclass
import msgspec
@dataclass(frozen=True)
class Payment:
    key: int
    value: int
    currency: str
    rate: float
    is_new: bool
class PaymentStruct(msgspec.Struct, frozen=True):
    key: int
    value: int
    currency: str
    rate: float
    is_new: bool
records, make, key_of, value_of = int(sys.argv[1]), {make}, {key_of}, {value_of}
def scattered(number):
    return (number * 0x9E3779B97F4A7C15 >> 20) % 100_000
def average(state, value):
    count, total = state or (0, 0)
    count, total = count + 1, total + value_of(value)
    return (None, (total / count,)) if count >= 2 else ((count, total), ())
flow, out = Dataflow("average"), []
stream = op.input("in", flow, TestingSource(map(make, range(records)), batch_size=2048))
keyed = op.key_on("key", stream, lambda r: str(key_of(r)))
op.output("out", op.stateful_flat_map("average", keyed, average), TestingSink(out))
began = time.perf_counter()
run_main(flow)
print(records / (time.perf_counter() - began))
"""
PEER_KINDS = {
    "ints": ("lambda i: (scattered(i), i % 1000)", "lambda r: r[0]", "lambda r: r[1]"),
    "texts": ('lambda i: (f"user-{scattered(i)}", i % 1000)', "lambda r: r[0]", "lambda r: r[1]"),
    "dicts": (
        'lambda i: {"key": scattered(i), "value": i % 1000, "currency": "EUR", "rate": 1.5, "is_new": True}',
        'lambda r: r["key"]',
        'lambda r: r["value"]',
    ),
    "dataclasses": (
        'lambda i: Payment(scattered(i), i % 1000, "EUR", 1.5, True)',
        "lambda r: r.key",
        "lambda r: r.value",
    ),
    "structs": (
        'lambda i: PaymentStruct(scattered(i), i % 1000, "EUR", 1.5, True)',
        "lambda r: r.key",
        "lambda r: r.value",
    ),
}


def install_peer(folder: str) -> tuple[Path | None, str]:
    """A Python that has bytewax, in an environment of its own; or why there is none."""
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, timeout=120)
        python = Path(folder) / "bin" / "python"
        command = [python, "-m", "pip", "install", "--quiet", "bytewax", "msgspec"]
        subprocess.run(command, check=True, capture_output=True, timeout=240, text=True)
        return python, ""
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return None, f"bytewax could not be installed: {said[-1] if said else error}"


def with_peer(python: Path, kind: str, records: int) -> float:
    make, key_of, value_of = PEER_KINDS[kind]
    script = PEER.replace("{make}", make).replace("{key_of}", key_of).replace("{value_of}", value_of)
    ran = subprocess.run([python, "-c", script, str(records)], check=True, capture_output=True, text=True, timeout=300)
    return float(ran.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--backend", default="heap", choices=["heap", "rocksdb"])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--no-peer", action="store_true")
    asked = parser.parse_args()
    quick, loops = asked.quick, 500_000 if asked.quick else 2_000_000
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        peer, why = (None, "not asked for") if asked.no_peer else install_peer(folder)
        for kind in asked.kinds.split(","):
            bare = bare_loop(kind, loops)
            rate, checkpoints = on_spark(kind, 8 if quick else 30, "2s" if quick else "10s", asked.backend)
            bare = (bare + bare_loop(kind, loops)) / 2
            found[kind] = {
                "records_per_second": round(rate),
                "bare_loop": round(bare),
                "ratio": round(rate / bare, 3),
                "checkpoints": len(checkpoints),
                "checkpoint_ms": max((c.duration_ms for c in checkpoints), default=None),
                "checkpoint_bytes": max((c.size for c in checkpoints), default=None),
            }
            if kind == "ints":
                found[kind]["ratio_inline"] = round(rate / inline_loop(loops), 3)
            if peer is not None:
                found[kind]["bytewax"] = round(with_peer(peer, kind, loops // 4))
                found[kind]["times_bytewax"] = round(rate / found[kind]["bytewax"], 1)
            print(f"{kind}: {found[kind]}", flush=True)
    first = next(iter(found.values()))
    told = {"bench": "throughput", "backend": asked.backend, "peer": why or "bytewax"}
    print(json.dumps({**told, **first, "by_kind": found}))


if __name__ == "__main__":
    main()
