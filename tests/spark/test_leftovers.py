"""A job leaves no thread and no port behind, and a process that used the embedded Spark no process and no file."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import moorline as mo

pytestmark = pytest.mark.spark

SCRIPT = """
import json, os, sys, threading, time
from contextlib import suppress
import psutil
import moorline as mo
from moorline.errors import JobFailed

folder = sys.argv[1]
me = psutil.Process()
family = set()

def job(name, function, **source):
    made = mo.Job(name, parallelism=2)
    numbers = made.source(mo.generate(lambda n: n, **source), uid="numbers").key_by(lambda n: n % 7)
    mapped = numbers.map(function, uid="map")
    mapped.map(lambda n: {"n": n}).sink(mo.write_files(f"{folder}/out-{name}", format="jsonl"), uid="files")
    mapped.filter(lambda n: n < 2).sink(mo.print("seen"), uid="print")
    return made

def jvms():
    found = []
    for p in me.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a worker may just end
            found += [p.pid] if "java" in p.name() else []
    return found

def run(name, function, end, **source):
    handle = mo.start(
        job(name, function, **source), checkpoints=mo.Checkpoints(f"{folder}/chk", interval="100ms", at_end="delete")
    )
    family.update(p.pid for p in me.children(recursive=True))
    ended = "finished"
    try:
        end(handle)
    except mo.MoorlineError as error:
        ended = type(error).__name__
    assert not handle.is_active
    return {
        "name": name,
        "ended": ended,
        "jvms": jvms(),
        "listening": [str(c.laddr) for c in me.net_connections() if c.status == psutil.CONN_LISTEN],
        "threads": sorted(t.name for t in threading.enumerate()),
    }

def fail(n):
    raise ValueError("no")

def cancel(handle):
    while not handle.checkpoints:
        time.sleep(0.01)
    family.update(p.pid for p in me.children(recursive=True))
    handle.cancel()
    handle.wait()

def share(handle):
    # The next job starts while this one is about to be closed.
    while handle.is_active:
        time.sleep(0.001)
    other = mo.Job("other")
    other.source(mo.generate(lambda n: n, rate=1000, splits=1)).sink(mo.discard())
    second = mo.start(other)
    handle.wait()
    assert second.stop().checkpoints[-1].final

for report in (
    run("good", lambda n: n, share, count=1000),
    run("bad", fail, lambda handle: handle.wait(), count=1000),
    run("endless", lambda n: n, cancel, rate=1000),
):
    print("REPORT", json.dumps(report), flush=True)
print("FAMILY", len(family), flush=True)
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """An empty folder with a short name: Spark puts Unix sockets there, whose paths end at 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="mo-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


def test_an_embedded_spark_is_gone_without_a_trace(tmp_path: Path, temporary: Path):
    here, folder = tmp_path / "here", tmp_path / "folder"
    for made in (here, folder):
        made.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(mo.__file__).parents[1]),
        "TMPDIR": str(temporary),
        # Java does not look at TMPDIR. Spark's own scratch space is to go there as well, so that it is seen.
        "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}",
        "SPARK_LOCAL_DIRS": str(temporary),
        # The one process that may be left, once on a machine, makes an archive of Java's classes.
        "MOORLINE_CACHE": "off",
    }
    # A process group of its own, so that whatever is left can be found by it.
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env=environment,
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, err
    reports = [json.loads(line.partition(" ")[2]) for line in out.splitlines() if line.startswith("REPORT")]
    assert [(r["name"], r["ended"]) for r in reports] == [
        ("good", "finished"),
        ("bad", "JobFailed"),
        ("endless", "JobCancelled"),
    ]
    assert len({tuple(report["jvms"]) for report in reports}) == 1, "all jobs ran on the same Spark"
    assert len(reports[0]["jvms"]) == 1
    assert set(re.findall(r"^seen:[12]> (\d)$", out + err, re.MULTILINE)) == {"0", "1"}, "what is printed is seen"
    assert "BrokenPipe" not in err and err.count("starting a local Spark") == 1, err
    for report in reports:
        assert report["listening"] == [], report
        assert [name for name in report["threads"] if name.startswith("moorline")] == [], report
    # Spark's start script leaves an ended child to Java that only init can collect: a zombie runs no more.
    left = [p for p in psutil.process_iter(["status"]) if _session_of(p.pid) == process.pid]
    assert [p for p in left if p.info["status"] != psutil.STATUS_ZOMBIE] == []
    # Nothing of ours and nothing of Spark's: an embedded Spark is stopped in order, so it removes its own folders.
    assert [str(p.relative_to(temporary)) for p in temporary.rglob("*")] == []
    assert list(here.iterdir()) == []
    # What was asked for is there, and nothing that was staged.
    assert list(folder.rglob(".moorline*")) == [] or {p.parent.name for p in folder.rglob(".moorline*")} <= {
        "out-bad",
        "out-endless",
    }, "only a job that ended well cleans up: what another has staged may yet be published by its successor"
    numbers = sorted(
        json.loads(line)["n"] for p in folder.glob("out-good/part-*") for line in p.read_text().splitlines()
    )
    assert numbers == list(range(1000))


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1
