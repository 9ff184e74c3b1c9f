"""This machine as a place for jobs on Spark: for ``moorline doctor`` and ``moorline run --master``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from moorline.errors import SparkUnsuitable
from moorline.spark import exchange
from moorline.spark.session import settings

#: Spark 4 needs this one or a newer one.
JAVA = 17


def on_master(master: str) -> SparkSession:
    """A session on a Spark master, with all settings that a job needs."""
    builder = SparkSession.builder.master(master).appName("moorline").config(map=settings.spark_config())
    try:
        return builder.getOrCreate()
    except Exception as error:  # whatever py4j and Java raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SparkUnsuitable([f"no session on {master} can be made: {first}"]) from error


def spark_version() -> tuple[str, bool]:
    """The version of PySpark, and whether it is one that we run on."""
    version = pyspark.__version__
    return version, version.startswith(settings.SUPPORTED + ".")


def java_version() -> tuple[str, bool]:
    """The Java that Spark would start, and whether it will do."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return "not found" + (f" in JAVA_HOME={home}" if home else ""), False
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} does not start: {error}", False
    version = re.search(r'version "(\d+)', shown)
    number = int(version[1]) if version else 0
    return f"{number} ({java})" if number else f"{java} does not tell its version", number >= JAVA


def examine(master: str) -> tuple[str, list[str]]:
    """The slots of a master, and what keeps it from running jobs. Starts a session and ends it."""
    try:
        spark = on_master(master)
    except SparkUnsuitable as error:
        return "", error.problems
    try:
        settings.check(spark)
        return f"{exchange.free_slots(spark)} slots, Spark {spark.version}", []
    except SparkUnsuitable as error:
        return "", error.problems
    finally:
        spark.stop()
