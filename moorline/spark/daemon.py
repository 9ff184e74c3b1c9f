"""The process that forks Python workers, with everything a subtask needs loaded beforehand.

Spark starts this once per executor (``spark.python.daemon.module``) instead of its own daemon, which it then becomes.
Workers are forked from it, so none of them has to import Arrow, pandas and us again: an attempt starts in a fraction
of the time. Nothing is opened here; files, sockets and threads belong to the workers. Users have the name of this
module in their settings, so it stays where it is.

What is loaded by then is taken out of the garbage collector's sight: Spark has a worker collect garbage after every
task, which would go through all of it, and copy the memory that forked processes share.
"""

from __future__ import annotations

import gc
import os
import time
from typing import Any

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pyspark.worker
from pyspark import daemon

import moorline.spark.entry  # noqa: F401

#: A worker waits so long before it says that it is free for another task. With pipelined input Spark 4.3 interrupts
#: the thread that wrote a task's input when the task is over, and an interrupt that finds it on its way out of its last
#: write closes the line to a worker that others can have by then: the task that gets it fails. The thread needs
#: microseconds, unless others want its core; by then they have had their turn. On a machine with more to do than cores
#: the wait is longer by as much: 20 ms were too few for 12 that wanted each core.
FREE_AFTER_SECONDS = 0.02

_main: Any = pyspark.worker.main
_worker: Any = daemon.worker


def main(infile: Any, outfile: Any) -> None:
    """A worker's task. Spark's "worker idle" byte is buffered in ``outfile`` and flushed when we return."""
    _main(infile, outfile)
    if "SPARK_PIPELINED_UDF" in os.environ:
        time.sleep(FREE_AFTER_SECONDS * max(1.0, wanted_cores() / (os.cpu_count() or 1)))


def wanted_cores() -> float:
    """The number of threads that want a core: of the last minute, or right now if those are more."""
    try:
        with open("/proc/loadavg") as file:
            minute, _, _, now, _ = file.read().split()
        return max(float(minute), float(now.partition("/")[0]))
    except (OSError, ValueError):
        return os.getloadavg()[0]


def worker(sock: Any, authenticated: bool) -> int:
    """One task of a worker. A cancelled one finds its line closed, which is nothing to print."""
    try:
        code: int = _worker(sock, authenticated)
        return code
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    pyspark.worker.main, daemon.worker = main, worker
    gc.collect()
    gc.freeze()
    daemon.manager()
