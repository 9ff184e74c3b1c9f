"""The process that forks Python workers, with everything a subtask needs loaded beforehand.

Spark starts this once per executor (``spark.python.daemon.module``) instead of its own daemon, which it then becomes.
Workers are forked from it, so none of them has to import Arrow, pandas and us again: an attempt starts in a fraction
of the time. Nothing is opened here; files, sockets and threads belong to the workers.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

import moorline.spark.entry  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
