"""How many processor cores a job takes that has little to do: at 1, 1,000 and 20,000 records/s, parallelism 2 and 8.

Source, key_by, stateful operator, sink, checkpoints every ten seconds, on the embedded Spark. Processor time of the JVM
and of every Python worker over some seconds in which the job runs. What the JVM's compiler takes, which is at work when
a JVM is young, stands by itself, and is no part of the sum.

    python bench/idle.py [--quick] [--flush 10ms]

The last line is one JSON object: cores by parallelism and rate, of the JVM, of the workers and of this process, which
is the driver; and of the JVM's compiler.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path

import psutil

import moorline as mo


class Count(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.count.update(self.count.value() + 1)
        yield value


def processor_seconds() -> dict[str, float]:
    """Seconds of processor time so far: of the driver, of the JVM, of its compiler, of the workers."""
    me = psutil.Process()
    found = {"driver": sum(me.cpu_times()[:2]), "jvm": 0.0, "compiler": 0.0, "workers": 0.0}
    for child in me.children(recursive=True):
        try:
            kind = "jvm" if "java" in child.name() else "workers"
            found[kind] += sum(child.cpu_times()[:2])
            if kind == "jvm":
                compiling = _compiler_seconds(child)
                found["compiler"] += compiling
                found["jvm"] -= compiling
        except psutil.Error:
            pass
    return found


def _compiler_seconds(jvm: psutil.Process) -> float:
    """The share of the threads that compile; 0 where threads have no names."""
    found = 0.0
    for thread in jvm.threads():
        try:
            name = Path(f"/proc/{jvm.pid}/task/{thread.id}/comm").read_text()
        except OSError:
            continue
        if re.match(r"C\d CompilerThre", name):
            found += thread.user_time + thread.system_time
    return found


def cores(parallelism: int, rate: float, seconds: float, flush: str | None) -> dict[str, float]:
    """Cores that a job takes at ``rate`` records per second, once it runs and the JVM has settled."""
    job = mo.Job("idle", parallelism=parallelism)
    (
        job.source(mo.generate(lambda n: (n * 2654435761 % 1009, n), rate=rate), uid="numbers")
        .key_by(lambda r: r[0])
        .process(Count(), uid="count")
        .sink(mo.discard(), uid="out")
    )
    with tempfile.TemporaryDirectory() as folder:
        options = {} if flush is None else {"flush": flush}
        handle = mo.start(job, checkpoints=mo.Checkpoints(folder, interval="10s"), **options)
        try:
            while handle.status is not mo.JobStatus.RUNNING and handle.is_active:
                time.sleep(0.1)
            time.sleep(seconds)
            before, began = processor_seconds(), time.perf_counter()
            time.sleep(seconds)
            after, took = processor_seconds(), time.perf_counter() - began
        finally:
            handle.cancel()
    found = {kind: round((after[kind] - before[kind]) / took, 3) for kind in after}
    return {"all": round(sum(found.values()) - found["compiler"], 3), **found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--flush", default=None)
    options = parser.parse_args()
    found = {}
    for parallelism in (2,) if options.quick else (2, 8):
        for rate in (1000,) if options.quick else (1, 1_000, 20_000):
            taken = cores(parallelism, rate, 10 if options.quick else 20, options.flush)
            found[f"parallelism {parallelism}, {rate}/s"] = taken
            print(f"parallelism {parallelism}, {rate:,} records/s: {taken['all']:.2f} cores {taken}", flush=True)
    print(json.dumps({"bench": "idle", "flush": options.flush or "default", "cores": found}))


if __name__ == "__main__":
    main()
