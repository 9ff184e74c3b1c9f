"""Flink, installed from PyPI into an environment of its own, and jobs of its SQL in a local cluster, in Java.

The environment is made once per machine, in ``~/.cache/moorline-bench`` (``MOORLINE_BENCH_PEERS`` is another place).
Its Parquet format comes from Maven's central repository, by the ordinary client. It needs classes of Hadoop, which come
with PySpark. What cannot be had is said by :class:`NotInstalled`.

A job is a script that runs under the environment's Python: ``flink_job.py`` beside this file, which is given what to do
as JSON and prints what it has found as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark

VERSION = "2.3.0"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_SCRIPT = Path(__file__).with_name("flink_job.py")


class NotInstalled(Exception):
    """Flink, or a part of it, cannot be had here: which one, and what was said."""


def cache() -> Path:
    """Where the environment and the formats are."""
    chosen = os.environ.get("MOORLINE_BENCH_PEERS")
    return Path(chosen) if chosen else Path.home() / ".cache" / "moorline-bench"


def python() -> Path:
    """A Python that has Flink. Raises :class:`NotInstalled`."""
    folder = cache() / f"flink-{VERSION}"
    found = folder / "bin" / "python"
    if (folder / "installed").exists():
        return found
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)], 120)
    _run([str(found), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"], 900)
    (folder / "installed").touch()
    return found


def parquet() -> list[Path]:
    """The jars that Flink needs to read Parquet. Raises :class:`NotInstalled`."""
    jar = cache() / f"flink-sql-parquet-{VERSION}.jar"
    if not jar.exists():
        if shutil.which("mvn") is None:
            raise NotInstalled("Flink's Parquet format needs Maven, which is not there")
        cache().mkdir(parents=True, exist_ok=True)
        artifact = f"org.apache.flink:flink-sql-parquet:{VERSION}"
        _run(["mvn", "-q", "-B", _COPY, f"-Dartifact={artifact}", "-DoutputDirectory=."], 600, cache())
    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    if not hadoop:
        raise NotInstalled("Flink's Parquet format needs classes of Hadoop, which this PySpark does not have")
    return [jar, *hadoop]


def settings(backend: str, interval: str, parallelism: int = 2) -> dict[str, str]:
    """The settings of a local cluster that are comparable with ours: all else is as Flink has it."""
    return {
        "parallelism.default": str(parallelism),
        "taskmanager.numberOfTaskSlots": str(parallelism),
        "state.backend.type": {"heap": "hashmap"}.get(backend, backend),
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": interval,
        "taskmanager.memory.task.heap.size": "1g",
        "taskmanager.memory.managed.size": "512m",
        "metrics.fetcher.update-interval": "500",
        "table.local-time-zone": "UTC",
    }


def run(job: Mapping[str, Any], jars: Sequence[Path] = (), timeout: float = 300) -> dict[str, Any]:
    """What ``flink_job.py`` finds. ``job``: what it is to do, in the words of its head."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted = {**job, "settings": {**job["settings"], "rest.port": str(port)}, "jars": [jar.as_uri() for jar in jars]}
    # Jars of filesystems and formats are for the whole cluster, which is in the process of the client.
    environment = {**os.environ, "HADOOP_CLASSPATH": os.pathsep.join(str(jar) for jar in jars)}
    command = [str(python()), str(_SCRIPT), json.dumps(wanted)]
    # A session of its own: the cluster is a process below the script, and must not outlive it.
    script = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        out, errors = script.communicate(timeout=timeout)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
    if script.returncode:
        said = [line for line in (errors or out).splitlines() if line.strip()]
        raise RuntimeError("\n".join(["a job of Flink has failed:", *said[-12:]]))
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def _run(command: list[str], timeout: float, folder: Path | None = None) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=timeout, text=True, cwd=folder)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise NotInstalled(f"Flink could not be installed: {said[-1] if said else error}") from error
