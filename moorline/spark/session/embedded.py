"""A local Spark for jobs that are given none: started once, kept for the next job of the process, ended with it."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from moorline.errors import SparkUnsuitable
from moorline.spark.session.settings import spark_config

log = logging.getLogger("moorline")

#: The embedded JVM starts, plans one job and passes frames on. On few cores a compiler that optimises for hours to
#: come, and a collector with threads of its own, cost the workers more than they bring.
EMBEDDED_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2-embedded.properties').as_uri()}"
)


@contextmanager
def embedded(slots: int, failures: int = 1) -> Iterator[SparkSession]:
    """A local Spark, kept for the next job of this process; or the user's that is running already.

    ``failures``: how often a task may fail. One that fails is the end of a streaming attempt. What is kept goes when
    the process does, or when a job needs another one and no job uses it.
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
#: Held while the embedded Spark is started or ended: no job is handed one that is just being stopped.
_sharing = threading.Lock()


def require_java() -> None:
    """Raises unless there is a Java to run Spark with."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        raise SparkUnsuitable(
            ["no Java was found; install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"]
        )
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = shown.split('"')[1].split(".")[0] if '"' in shown else "0"
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
