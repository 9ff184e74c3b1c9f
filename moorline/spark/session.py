"""The Spark a job runs on: what must be set, checked before anything starts, and the embedded default.

Some settings can only be given when a session is made; :func:`spark_config` has them all. Those that belong to SQL
are set on a session of our own, so the user's own session keeps its.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from moorline.errors import SparkUnsuitable
from moorline.model.options import checks_options

log = logging.getLogger("moorline")

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
#: One row is one frame, so a batch of one costs nothing and waits for nobody.
SQL_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
}
#: Workers are forked from a process that has loaded everything: attempts start in half the time.
START_SETTINGS = {"spark.python.daemon.module": "moorline.spark.daemon"}
#: A subtask lost is an attempt lost: Spark must neither retry it alone nor shun the machine.
FAILURE_SETTINGS = {
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.excludeOnFailure.enabled": "false",
    "spark.deploy.maxExecutorRetries": "-1",
}


#: The embedded JVM starts, plans one job and passes frames on. On few cores a compiler that optimises for hours to
#: come, and a collector with threads of its own, cost the workers more than they bring.
EMBEDDED_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2-embedded.properties').as_uri()}"
)


@checks_options()
def spark_config() -> dict[str, Any]:
    """The settings that a Spark session needs to carry Moorline jobs.

    >>> import moorline as mo
    >>> from pyspark.sql import SparkSession
    >>> builder = SparkSession.builder.appName("orders").config(map=mo.spark_config())
    """
    return {**CORE_SETTINGS, **START_SETTINGS, **FAILURE_SETTINGS}


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
        found = conf.get(name)
        if found is None or (wanted in ("true", "false") and found.lower() != wanted):
            problems.append(f'{name} is {found or "not set"}; make the session with .config("{name}", "{wanted}")')
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


@contextmanager
def embedded(slots: int, failures: int = 1) -> Iterator[SparkSession]:
    """A local Spark, kept for the next job of this process; or the user's that is running already.

    ``failures``: how often a task may fail. One that fails is the end of a streaming attempt. What is kept goes when
    the process does, or when a job needs another one and nobody uses it.
    """
    with _sharing:
        spark = SparkSession.builder.getOrCreate() if _shared.is_of_the_user() else _shared.use(slots, failures)
        is_shared = spark is _shared.spark
        _shared.users += is_shared
    try:
        yield spark
    finally:
        with _sharing:
            _shared.users -= is_shared


class _Shared:
    """The embedded Spark, while there is one, and how many jobs use it."""

    users = 0
    spark: SparkSession | None = None
    _slots = _failures = 0

    def is_of_the_user(self) -> bool:
        """Is a Spark running, and not ours?"""
        active = SparkContext._active_spark_context
        return active is not None and (self.spark is None or active is not self.spark.sparkContext)

    def use(self, slots: int, failures: int) -> SparkSession:
        """The one that is kept, if it is alive and will do; else a new one."""
        if self.spark is not None:
            is_alive = SparkContext._active_spark_context is self.spark.sparkContext
            will_do = slots <= self._slots and failures == self._failures
            if is_alive and (will_do or self.users):
                return self.spark
            self.close()
        return self._open(slots, failures)

    def _open(self, slots: int, failures: int) -> SparkSession:
        require_java()
        log.info("starting a local Spark, which takes some seconds")
        builder = (
            SparkSession.builder.master(f"local[{slots},{failures}]")
            .appName("moorline")
            .config(map={**spark_config(), "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"})
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.extraJavaOptions", EMBEDDED_JVM)
        )
        self.spark, self._slots, self._failures = builder.getOrCreate(), slots, failures
        atexit.register(self.close)
        return self.spark

    def close(self) -> None:
        """End it, and its JVM. May be called twice."""
        spark, self.spark = self.spark, None
        atexit.unregister(self.close)
        if spark is not None:
            spark.stop()
            _end_jvm()


_shared = _Shared()
#: Whoever starts the embedded Spark or ends it holds this: nobody is handed one that is just being stopped.
_sharing = threading.Lock()


def require_java() -> None:
    """Raises unless there is a Java to run Spark with."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        raise SparkUnsuitable(
            ["no Java was found; install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"]
        )
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = told.split('"')[1].split(".")[0] if '"' in told else "0"
    if version.isdigit() and int(version) < 17:
        raise SparkUnsuitable([f"{java} is Java {version}; Spark {pyspark.__version__} needs Java 17 or newer"])


def _end_jvm() -> None:
    """PySpark keeps its JVM for the next session; the embedded one is to leave nothing behind."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
