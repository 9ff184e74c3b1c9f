"""The settings that a job needs of Spark, checked before anything starts.

Some settings can only be given when a session is made; :func:`spark_config` has them all. Those that belong to SQL
are set on a session of our own, so the user's own session keeps its.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from moorline.errors import SparkUnsuitable
from moorline.model.options import checks_options

SUPPORTED = "4.3"

#: Without these frames sit in buffers, or pile up by the hundred megabytes in front of a slow subtask.
CORE_SETTINGS = {
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.udf.pipelined.queueDepth": "1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.buffer.size": "256",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
    "spark.shuffle.streaming.readerMaxMemory": "1048576",
    "spark.shuffle.streaming.writerMaxMemory": "1048576",
}
#: One row is one frame, so a batch of one costs nothing and waits for no other. Spark only copies our rows: no code is
#: generated and compiled for that, which took more than half a second of a first job's start.
SQL_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
#: Workers are forked from a process that has loaded everything: attempts start in half the time.
START_SETTINGS = {"spark.python.daemon.module": "moorline.spark.daemon"}
#: Where an archive of ``moorline pack`` is unpacked, below the working directory of each executor.
UNPACKED = "moorline"
#: A subtask lost is an attempt lost: Spark must neither retry it alone nor shun the machine.
FAILURE_SETTINGS = {
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.excludeOnFailure.enabled": "false",
    "spark.deploy.maxExecutorRetries": "-1",
}


@checks_options()
def spark_config(*, archive: str | None = None) -> dict[str, Any]:
    """The settings that a Spark session needs to carry Moorline jobs.

    ``archive`` is what ``moorline pack`` has written, for executors on which Moorline is not installed.

    >>> import moorline as mo
    >>> from pyspark.sql import SparkSession
    >>> builder = SparkSession.builder.appName("orders").config(map=mo.spark_config())
    """
    packed = {"spark.archives": f"{archive}#{UNPACKED}", "spark.executorEnv.PYTHONPATH": UNPACKED} if archive else {}
    return {**CORE_SETTINGS, **START_SETTINGS, **FAILURE_SETTINGS, **packed}


def same_python(spark: SparkSession) -> None:
    """On this machine workers are to see what the driver sees; PySpark would take the first python3 of the PATH."""
    if "PYSPARK_PYTHON" not in os.environ and (spark.sparkContext.master or "").startswith("local"):
        spark.sparkContext.pythonExec = sys.executable


def own_session(spark: SparkSession) -> SparkSession:
    """A session of our own on the user's Spark, with the SQL settings a job needs."""
    same_python(spark)
    session = spark.newSession()
    for name, value in SQL_SETTINGS.items():
        session.conf.set(name, value)
    return session


def check(spark: Any, *, is_pipelined: bool = True) -> None:
    """Raises :class:`SparkUnsuitable` with everything that is wrong at once. A batch job needs no settings."""
    if "connect" in type(spark).__module__:
        raise SparkUnsuitable(
            ["it is a Spark Connect session; start the driver in classic mode (spark.api.mode=classic, spark-submit)"]
        )
    problems = []
    if not spark.version.startswith(SUPPORTED + "."):
        problems.append(f"it is Spark {spark.version}; this version of Moorline runs on Spark {SUPPORTED}.x")
    conf = spark.sparkContext.getConf()
    for name, wanted in CORE_SETTINGS.items() if is_pipelined else ():
        value = conf.get(name)
        if value is None or (wanted in ("true", "false") and value.lower() != wanted):
            problems.append(f'{name} is {value or "not set"}; make the session with .config("{name}", "{wanted}")')
    for name in ("spark.dynamicAllocation.enabled", "spark.speculation") if is_pipelined else ():
        if (conf.get(name) or "false").lower() == "true":
            problems.append(f"{name} is true; a pipelined job needs it off")
    if problems and not is_pipelined:
        raise SparkUnsuitable(problems)
    if problems:
        problems.append("mo.spark_config() returns all settings: SparkSession.builder.config(map=mo.spark_config())")
        raise SparkUnsuitable(problems)


def control_host(spark: SparkSession) -> tuple[str, str]:
    """The address the control server binds to, and the one that subtasks connect to."""
    conf = spark.sparkContext.getConf()
    if (conf.get("spark.master") or "").startswith("local["):
        return "127.0.0.1", "127.0.0.1"
    host = conf.get("spark.driver.host") or "127.0.0.1"
    return conf.get("spark.driver.bindAddress") or host, host
