"""``moorline doctor``: can jobs run here, and if not, what is missing?"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from moorline.cli.output import json_option, long_work, show_json, show_table
from moorline.errors import MoorlineError
from moorline.storage.stores.open import open_store

_EXTRAS = {
    "rich": "demo",
    "psycopg": "postgres",
    "redis": "redis",
    "obstore": "object-store",
    "fsspec": "fsspec",
    "kazoo": "zookeeper",
}


@dataclass(frozen=True)
class _Finding:
    what: str
    #: "ok", "optional" (it is not there, and not needed by everybody) or "missing".
    state: str
    found: str
    #: What to do.
    advice: str = ""


@click.command()
@click.option("--checkpoints", metavar="PATH", help="Try whether checkpoints can be kept here.")
@click.option("--master", metavar="URL", help="Start a session on this Spark master, and look at it.")
@json_option
def command(checkpoints: str | None, master: str | None, as_json: bool) -> None:
    """Check Python, Java, Spark, folders and extras. Exit code 1 if something is missing that every job needs."""
    with long_work("looking around") as say:
        findings = []
        for look in _looks(checkpoints, master):
            findings.append(look())
            say(findings[-1].what)
    if as_json:
        show_json({"findings": [asdict(f) for f in findings], "ok": not _missing(findings)})
    else:
        show_table(("what", "", "found", "what to do"), [(f.what, f.state, f.found, f.advice) for f in findings])
    if _missing(findings):
        raise click.exceptions.Exit(1)


def _missing(findings: list[_Finding]) -> bool:
    return any(f.state == "missing" for f in findings)


def _looks(checkpoints: str | None, master: str | None) -> Iterator[Callable[[], _Finding]]:
    yield _python
    yield _java
    yield _spark
    yield _slots
    yield lambda: _folder("temporary folder", tempfile.gettempdir(), "Set TMPDIR to a folder with room.")
    yield _rocksdb
    if checkpoints is not None:
        yield lambda: _checkpoints(checkpoints)
    if master is not None:
        yield lambda: _master(master)
    for module, extra in _EXTRAS.items():
        yield lambda module=module, extra=extra: _extra(module, extra)  # type: ignore[misc]


def _finding(what: str, is_ok: bool, detail: str, advice: str) -> _Finding:
    return _Finding(what, "ok" if is_ok else "missing", detail, "" if is_ok else advice)


def _python() -> _Finding:
    version = sys.version_info
    return _finding("Python", version >= (3, 11), platform.python_version(), "Use Python 3.11 or newer.")


def _java() -> _Finding:
    version, is_ok = importlib.import_module("moorline.spark.session.machine").java_version()
    return _finding("Java", is_ok, version, "Install a JDK of version 17 or newer, or set JAVA_HOME to one.")


def _spark() -> _Finding:
    version, is_ok = importlib.import_module("moorline.spark.session.machine").spark_version()
    return _finding("Spark", is_ok, version, 'Install the version we run on: pip install "pyspark[sql]>=4.3,<4.4".')


def _slots() -> _Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{cores} cores; in local mode a slot is a thread, so a job may have more"
    return _Finding("slots", "ok", detail)


def _folder(what: str, folder: str, advice: str) -> _Finding:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"moorline")
    except OSError as error:
        return _Finding(what, "missing", f"{folder} cannot be written: {error}", advice)
    return _Finding(what, "ok", folder)


def _rocksdb() -> _Finding:
    try:
        importlib.import_module("rocksdict")
    except ImportError as error:
        return _Finding("RocksDB", "missing", str(error), 'pip install "rocksdict>=0.3.29,<0.4"')
    return _Finding("RocksDB", "ok", f"rocksdict {importlib.metadata.version('rocksdict')}")


def _checkpoints(location: str) -> _Finding:
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
        return _Finding("checkpoints", "missing", str(error), advice)
    detail = store.url if is_ok else f"{store.url} lets two writers create the same file"
    return _finding("checkpoints", is_ok, detail, advice)


def _master(master: str) -> _Finding:
    detail, problems = importlib.import_module("moorline.spark.session.machine").examine(master)
    return _Finding("master", "missing" if problems else "ok", detail or master, "; ".join(problems))


def _extra(module: str, extra: str) -> _Finding:
    try:
        importlib.import_module(module)
    except ImportError:
        return _Finding(module, "optional", "not installed", f'pip install "moorline[{extra}]"')
    where = Path(getattr(sys.modules[module], "__file__", None) or module).parent.name
    return _Finding(module, "ok", where)
