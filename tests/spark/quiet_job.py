"""A driver process whose standard error is looked at: a planned rescale, a killed worker, a cancel.

Runs on a Spark session made as a user would, with Spark's own log as it is by default, and with no logging set up.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

import moorline as mo


def build() -> mo.Job:
    job = mo.Job("quiet", parallelism=2)
    (
        job.source(mo.generate(lambda n: n, rate=2_000, splits=4), uid="numbers")
        .key_by(lambda n: n % 10)
        .reduce(lambda a, b: b, uid="last")
        .sink(mo.discard(), uid="out")
    )
    return job


def eventually(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.05)


def mark(section: str) -> None:
    print(f"--- {section}", file=sys.stderr, flush=True)


def main() -> None:
    spark = (
        SparkSession.builder.master("local[8]")
        .config(map=mo.spark_config())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    mark("start")
    handle = mo.start(
        build(),
        spark,
        checkpoints=mo.Checkpoints(sys.argv[1], interval="500ms"),
        restart=mo.FixedDelay(attempts=3, delay="100ms"),
    )
    eventually(lambda: handle.checkpoints)
    mark("rescale")
    handle.rescale(1)
    mark("kill")
    attempt = handle.attempt
    os.kill(handle.worker_pids["1/0"], signal.SIGKILL)
    eventually(lambda: handle.attempt > attempt and handle.status is mo.JobStatus.RUNNING)
    mark("cancel")
    handle.cancel()
    time.sleep(3)  # the last tasks take a moment to be killed
    mark("end")
    spark.stop()


if __name__ == "__main__":
    main()
