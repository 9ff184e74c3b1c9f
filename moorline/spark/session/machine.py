"""This machine as a place for jobs on Spark: for ``moorline doctor`` and ``moorline run --master``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import moorline
from moorline.errors import SparkUnsuitable
from moorline.spark import exchange
from moorline.spark.session import settings

#: Spark 4 needs this one or a newer one.
JAVA = 17
#: A probe takes its time to come back; a clock that is wrong is wrong by minutes.
MOST_SECONDS_APART = 60.0


def on_master(master: str, others: dict[str, str] | None = None) -> SparkSession:
    """A session on a Spark master, with all settings that a job needs, and ``others`` in place of some."""
    wanted = {**settings.spark_config(), **(others or {})}
    builder = SparkSession.builder.master(master).appName("moorline").config(map=wanted)
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


def examine_workers(master: str, modules: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    """The workers of a master, and what they lack: the same Python, Moorline, modules, a clock that is right."""
    try:
        spark = on_master(master, CORE_ONLY)
    except SparkUnsuitable as error:
        return "", error.problems
    try:
        settings.same_python(spark)
        slots = max(1, exchange.free_slots(spark))
        asked = ("moorline", "pyarrow", "pandas", "msgspec", "xxhash", *modules)
        reports = spark.sparkContext.parallelize(range(4 * slots), 4 * slots).mapPartitions(_probe(asked)).collect()
    except Exception as error:  # whatever py4j, Java and workers raise
        return "", [f"workers do not run Python: {exchange.in_short(error).splitlines()[0]:.300}"]
    finally:
        spark.stop()
    problems = dict.fromkeys(problem for report in reports for problem in _lacks(report))
    return ", ".join(sorted({report["host"] for report in reports})), list(problems)


#: Without our daemon: a worker that lacks something must still start, to report what it lacks.
CORE_ONLY = {"spark.python.daemon.module": "pyspark.daemon"}


def _probe(modules: tuple[str, ...]) -> Callable[[Any], Iterator[dict[str, Any]]]:
    # An inner function with imports of its own travels by value: workers may be without Moorline.
    def probe(_: Any) -> Iterator[dict[str, Any]]:
        import importlib  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415
        import time  # noqa: PLC0415

        missing = {}
        for module in modules:
            try:
                importlib.import_module(module)
            except Exception as error:  # whatever a module does when it is loaded
                missing[module] = str(error)
        version = getattr(sys.modules.get("moorline"), "__version__", None)
        report = {"host": socket.gethostname(), "python": list(sys.version_info[:2]), "time": time.time()}
        yield report | {"missing": missing, "moorline": version}

    return probe


def _lacks(report: dict[str, Any]) -> list[str]:
    host, here = report["host"], f"{sys.version_info[0]}.{sys.version_info[1]}"
    problems = [f"{host}: {module} cannot be imported ({why})" for module, why in report["missing"].items()]
    if "moorline" in report["missing"]:
        problems.append("install moorline there, or take an archive of `moorline pack`")
    version = ".".join(map(str, report["python"]))
    if version != here:
        problems.append(f"{host}: Python {version}, and {here} here: set spark.pyspark.python to the same")
    if report["moorline"] not in (None, moorline.__version__):
        problems.append(f"{host}: moorline {report['moorline']}, and {moorline.__version__} here")
    if abs(report["time"] - time.time()) > MOST_SECONDS_APART:
        problems.append(f"{host}: its clock is {report['time'] - time.time():+.0f} s from ours: set clocks by NTP")
    return problems


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
