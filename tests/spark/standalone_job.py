"""A driver on a standalone cluster, as a process: counts numbers into files, and may stand by for another.

    python standalone_job.py FOLDER --master spark://... --host 10.0.0.1 [--standby] [--archive FILE]

Prints a line when it has started, and one when it has ended. It stops when there is a file FOLDER/stop.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

import moorline as mo

KEYS, SPLITS = 7, 4
#: Where this Moorline lies: executors have the same file system.
HERE = str(Path(mo.__file__).parents[1])


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, n, ctx):
        self.seen.update(self.seen.value() + 1)
        yield {"n": n, "key": ctx.current_key, "seen": self.seen.value()}


def build(folder: Path) -> mo.Job:
    job = mo.Job("standalone", parallelism=2, max_parallelism=16)
    numbers = job.source(mo.generate(lambda n: n, splits=SPLITS, rate=200), uid="numbers")
    counts = numbers.key_by(lambda n: n % KEYS).process(Count(), uid="count")
    counts.sink(mo.write_files(str(folder / "out"), format="jsonl"), uid="out")
    return job


def session(options: argparse.Namespace) -> SparkSession:
    places = {} if options.archive else {"spark.executorEnv.PYTHONPATH": HERE}
    return (
        SparkSession.builder.master(options.master)
        .appName("standalone")
        .config(map={**mo.spark_config(archive=options.archive), **places})
        .config("spark.driver.host", options.host)
        .config("spark.driver.bindAddress", options.host)
        .config("spark.executor.memory", "512m")
        .config("spark.executor.heartbeatInterval", "1s")
        .config("spark.network.timeout", "30s")
        .config("spark.network.timeoutInterval", "2s")
        .config("spark.storage.blockManagerHeartbeatTimeoutMs", "25s")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(options.folder / "spark"))
        .getOrCreate()
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--archive")
    parser.add_argument("--control-port", type=int, default=0)
    options = parser.parse_args()
    spark = session(options)
    handle = mo.start(
        build(options.folder),
        spark,
        checkpoints=mo.Checkpoints(str(options.folder / "checkpoints"), interval="500ms"),
        restore="latest",
        restart=mo.FixedDelay(attempts=20, delay="500ms"),
        heartbeat_timeout="20s",
        ha=mo.StorageLease(ttl="20s") if options.standby else None,
        control=mo.ControlPort(port=options.control_port),
    )
    print("started", flush=True)
    while handle.is_active and not (options.folder / "stop").exists():
        handle.wait(0.5)
    handle.stop()
    result = handle.wait()
    print(f"ended {len(result.failures)} {result.restored_from}", flush=True)


if __name__ == "__main__":
    main()
