"""The things that keep a job from running, each looked at by itself: for ``moorline doctor``."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from moorline.cli.output import size
from moorline.errors import MoorlineError
from moorline.storage.stores.open import open_store

#: With less room than this nothing goes well for long.
LEAST_FREE_BYTES = 1 << 30
#: More than a listing of files is rounded by, and far less than the grace that files are given.
MOST_SECONDS_APART = 30.0

#: What each extra brings.
EXTRAS = {
    "rich": "demo",
    "psycopg": "postgres",
    "sqlalchemy": "sql",
    "redis": "redis",
    "nats": "nats",
    "confluent_kafka": "kafka",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    "fastavro": "avro",
    "google.protobuf": "protobuf",
    "obstore": "object-store",
    "fsspec": "fsspec",
    "kazoo": "zookeeper",
    "opentelemetry": "otel",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    #: "ok", "optional" (it is not there, and not needed by everybody) or "missing".
    state: str
    found: str
    #: What to do.
    advice: str = ""


def looks(
    checkpoints: str | None, master: str | None, port: int | None, modules: tuple[str, ...]
) -> Iterator[Callable[[], Finding]]:
    """The examinations, in their order."""
    yield _python
    yield _java
    yield _spark
    yield _slots
    yield lambda: _folder("temporary folder", tempfile.gettempdir(), "Set TMPDIR to a folder with room.")
    yield _disk
    yield _host
    if port is not None:
        yield lambda: _port(port)
    yield _rocksdb
    if checkpoints is not None:
        yield lambda: _checkpoints(checkpoints)
        yield lambda: _clock(checkpoints)
    if master is not None:
        yield lambda: _master(master)
        yield lambda: _workers(master, modules)
    for module, extra in EXTRAS.items():
        yield lambda module=module, extra=extra: _extra(module, extra)  # type: ignore[misc]


def _finding(what: str, is_ok: bool, detail: str, advice: str) -> Finding:
    return Finding(what, "ok" if is_ok else "missing", detail, "" if is_ok else advice)


def _python() -> Finding:
    version = sys.version_info
    return _finding("Python", version >= (3, 11), platform.python_version(), "Use Python 3.11 or newer.")


def _java() -> Finding:
    version, is_ok = importlib.import_module("moorline.spark.session.machine").java_version()
    return _finding("Java", is_ok, version, "Install a JDK of version 17 or newer, or set JAVA_HOME to one.")


def _spark() -> Finding:
    version, is_ok = importlib.import_module("moorline.spark.session.machine").spark_version()
    return _finding("Spark", is_ok, version, 'Install the version we run on: pip install "pyspark[sql]>=4.3,<4.4".')


def _slots() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{cores} cores; in local mode a slot is a thread, so a job may have more"
    return Finding("slots", "ok", detail)


def _folder(what: str, folder: str, advice: str) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"moorline")
    except OSError as error:
        return Finding(what, "missing", f"{folder} cannot be written: {error}", advice)
    return Finding(what, "ok", folder)


def _rocksdb() -> Finding:
    try:
        importlib.import_module("rocksdict")
    except ImportError as error:
        return Finding("RocksDB", "missing", str(error), 'pip install "rocksdict>=0.3.29,<0.4"')
    return Finding("RocksDB", "ok", f"rocksdict {importlib.metadata.version('rocksdict')}")


def _checkpoints(location: str) -> Finding:
    """Try the needs of a job on its storage: create if absent, read back, delete."""
    path, data = f"doctor-{uuid.uuid4().hex}", b"moorline"
    advice = "Give a folder that the driver and all workers can read and write."
    try:
        store = open_store(location)
        is_new = store.put_if_absent(path, data)
        try:
            is_ok = is_new and not store.put_if_absent(path, b"other") and store.get(path) == data
        finally:
            store.delete([path])
    except (MoorlineError, OSError) as error:
        return Finding("checkpoints", "missing", str(error), advice)
    detail = store.url if is_ok else f"{store.url} lets two writers create the same file"
    return _finding("checkpoints", is_ok, detail, advice)


def _disk() -> Finding:
    """RocksDB and records that wait lie on the local disk."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    advice = "Make room, or set TMPDIR to a folder with room: state in RocksDB lies there."
    return _finding("free disk", free >= LEAST_FREE_BYTES, f"{size(free)} in {tempfile.gettempdir()}", advice)


def _host() -> Finding:
    """Spark's driver listens on the address that the host's name stands for."""
    name, advice = socket.gethostname(), "Give the host's name an address (/etc/hosts), or set SPARK_LOCAL_IP."
    try:
        address = socket.gethostbyname(name)
        with socket.create_server((address, 0)):
            return Finding("host name", "ok", f"{name} is {address}")
    except OSError as error:
        return Finding("host name", "missing", f"{name}: {error}", advice)


def _port(port: int) -> Finding:
    try:
        with socket.create_server(("0.0.0.0", port)):
            return Finding("port", "ok", f"{port} is free")
    except OSError as error:
        return Finding("port", "missing", f"{port}: {error}", "Give each job a port of its own, or 0 for any free one.")


def _clock(location: str) -> Finding:
    """Grace times and leases of unused files compare our clock with that of the storage."""
    path = f"doctor-{uuid.uuid4().hex}"
    try:
        store = open_store(location)
        store.put(path, b"moorline")
        try:
            apart = abs(store.modified_ms(path) - time.time_ns() // 1_000_000) / 1000
        finally:
            store.delete([path])
    except (MoorlineError, OSError) as error:
        return Finding("clock", "missing", str(error), "See above: the checkpoints' location cannot be used.")
    advice = "Set the clocks by NTP: time to live and grace times of checkpoints go by them."
    return _finding("clock", apart <= MOST_SECONDS_APART, f"{apart:.1f} s apart from the storage", advice)


def _workers(master: str, modules: tuple[str, ...]) -> Finding:
    found, problems = importlib.import_module("moorline.spark.session.machine").examine_workers(master, modules)
    return Finding("workers", "missing" if problems else "ok", found, "; ".join(problems))


def _master(master: str) -> Finding:
    detail, problems = importlib.import_module("moorline.spark.session.machine").examine(master)
    return Finding("master", "missing" if problems else "ok", detail or master, "; ".join(problems))


def _extra(module: str, extra: str) -> Finding:
    try:
        importlib.import_module(module)
    except ImportError:
        return Finding(module, "optional", "not installed", f'pip install "moorline[{extra}]"')
    return Finding(module, "ok", str(getattr(sys.modules[module], "__version__", "installed")))
