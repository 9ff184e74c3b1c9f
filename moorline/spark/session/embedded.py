"""A local Spark for jobs that are given none: started once, kept for the next job of the process, ended with it."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from moorline.errors import SparkUnsuitable
from moorline.spark.session import archive, jvm
from moorline.spark.session.settings import spark_config

log = logging.getLogger("moorline")

#: The embedded JVM starts, plans one job and passes frames on. On few cores a compiler that optimises for hours to
#: come, and a collector with threads of its own, cost the workers more than they bring.
EMBEDDED_JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2-embedded.properties').as_uri()}",
)
#: How long a JVM may take to end; and one that writes an archive of its classes first.
END_SECONDS, ARCHIVING_SECONDS = 10, 900


@contextmanager
def embedded(slots: int, failures: int = 1) -> Iterator[SparkSession]:
    """A local Spark, kept for the next job of this process; or the user's that is running already.

    ``failures``: how often a task may fail. One that fails is the end of a streaming attempt. What is kept goes when
    the process does, or when a job needs another one and no job uses it.
    """
    with _sharing:
        spark = SparkSession.builder.getOrCreate() if shared.is_of_the_user() else shared.use(slots, failures)
        is_shared = spark is shared.spark
        shared.users += is_shared
    try:
        yield spark
    finally:
        with _sharing:
            shared.users -= is_shared


class _Shared:
    """The embedded Spark, while there is one, and how many jobs use it."""

    users = 0
    spark: SparkSession | None = None
    _slots = _failures = 0
    #: The archive of Java's classes that is to be made when we are done.
    _missing: Path | None = None
    _is_archiving = False

    def is_of_the_user(self) -> bool:
        """Is a Spark running, and not ours?"""
        active = SparkContext._active_spark_context
        return active is not None and (self.spark is None or active is not self.spark.sparkContext)

    def use(self, slots: int, failures: int, making: list[str] | None = None) -> SparkSession:
        """The one that is kept, if it is alive and will do; else a new one. ``making``: with these options for Java."""
        if self.spark is not None:
            is_alive = SparkContext._active_spark_context is self.spark.sparkContext
            will_do = slots <= self._slots and failures == self._failures
            if is_alive and (will_do or self.users):
                return self.spark
            self.close()
        return self._open(slots, failures, making)

    def _open(self, slots: int, failures: int, making: list[str] | None) -> SparkSession:
        java = require_java()
        home = jvm.spark_home()
        builder = (
            SparkSession.builder.master(f"local[{slots},{failures}]")
            .appName("moorline")
            .config(map={**spark_config(), "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"})
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.extraJavaOptions", " ".join(EMBEDDED_JVM))
        )
        later = ""
        if SparkContext._gateway is None and jvm.is_plain(os.environ, home):
            options = making if making is not None else self._archive_options(java, home)
            self._is_archiving = making is not None
            if self._missing is not None:
                later = f"; later ones will take fewer: when this process ends, {self._missing.parent} gets an archive"
            log.info("starting a local Spark, which takes some seconds%s", later)
            SparkContext._gateway = self._launch(java, home, options, making is not None)
            SparkContext._jvm = SparkContext._gateway.jvm
        else:
            log.info("starting a local Spark, which takes some seconds")
        self.spark, self._slots, self._failures = builder.getOrCreate(), slots, failures
        atexit.register(self.close)
        return self.spark

    def _launch(self, java: str, home: Path, options: list[str], is_making: bool) -> Any:
        """A JVM with these options. One that does not start with an archive is started without it."""
        try:
            return jvm.launch(java, home, [*EMBEDDED_JVM, *options])
        except SparkUnsuitable as error:
            place = archive.folder(os.environ)
            if is_making or not options or place is None:
                raise
            archive.give_up(archive.archive_in(place, java, jvm.class_path(home)), error.problems[0])
            return jvm.launch(java, home, list(EMBEDDED_JVM))

    def _archive_options(self, java: str, home: Path) -> list[str]:
        """The options with which Java uses the archive of its classes. One that is missing is made when we are done."""
        place = archive.folder(os.environ)
        if place is None:
            return []
        wanted = archive.archive_in(place, java, jvm.class_path(home))
        options = archive.options_to_use(wanted)
        self._missing = wanted if archive.is_wanted(wanted) else None
        return options

    def close(self) -> None:
        """End it, and its JVM. May be called twice."""
        spark, self.spark = self.spark, None
        atexit.unregister(self.close)
        if spark is not None:
            spark.stop()
            _end_jvm(ARCHIVING_SECONDS if self._is_archiving else END_SECONDS)
        missing, self._missing = self._missing, None
        if missing is not None:
            archive.make_beside(missing)


shared = _Shared()
#: Held while the embedded Spark is started or ended: no job is handed one that is just being stopped.
_sharing = threading.Lock()


def require_java() -> str:
    """The Java to run Spark with. Raises unless there is one that will do."""
    java = jvm.find_java()
    if java is None:
        raise SparkUnsuitable(
            ["no Java was found; install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"]
        )
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = shown.split('"')[1].split(".")[0] if '"' in shown else "0"
    if version.isdigit() and int(version) < 17:
        raise SparkUnsuitable([f"{java} is Java {version}; Spark {pyspark.__version__} needs Java 17 or newer"])
    return java


def _end_jvm(seconds: int) -> None:
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
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
