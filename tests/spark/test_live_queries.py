"""State of a job on real Spark, asked for while it runs: by its handle, by another process, past a killed worker."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from console.command_calls import call, script, shown
from waiting import eventually

import moorline as mo
from moorline.errors import ConsoleRefused, QueryFailed
from moorline.http.client import JobClient

pytestmark = pytest.mark.spark

KEYS = 8
MOORLINE = (sys.executable, "-m", "moorline.cli.main")
#: Machines may be busy, and a job that starts is waited for.
PATIENCE = "240s"


def counting(parallelism: int = 2) -> mo.Job:
    key_count = KEYS

    @dataclasses.dataclass(frozen=True)
    class Last:
        number: int
        text: str

    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)
        last = mo.ValueState(Last)
        parity = mo.MapState(str, int)

        def process_element(self, n, ctx):
            self.seen.update(self.seen.value() + 1)
            self.last.update(Last(n, str(n)))
            name = "odd" if n // key_count % 2 else "even"
            self.parity[name] = self.parity.get(name, 0) + 1
            yield n

    job = mo.Job("queried", parallelism=parallelism)
    source = job.source(mo.generate(lambda n: n, rate=2_000), uid="numbers")
    source.key_by(lambda n: n % key_count).process(Count(), uid="count").sink(mo.discard(), uid="out")
    return job


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_live_state_grows_and_a_checkpoint_stands_still(spark, tmp_path, backend):
    checkpoints = mo.Checkpoints(str(tmp_path / "chk"), interval="300ms")
    handle = mo.start(counting(), spark, checkpoints=checkpoints, backend=backend, console=True)
    assert handle.console is not None
    try:
        first = [
            eventually(lambda k=k: handle.query("count", "seen", k, timeout=PATIENCE), "a record") for k in range(KEYS)
        ]
        eventually(lambda: handle.checkpoints, "a checkpoint")
        # From another process, as anybody would: it knows the URL and may read the file.
        done = subprocess.run(
            [*MOORLINE, "query", "count", "parity", "3", "--json", "--timeout", "25s"],
            env=os.environ | {"MOORLINE_URL": handle.console.url, "MOORLINE_TOKEN_FILE": handle.console.token_file},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        value = json.loads(done.stdout)["value"]
        assert value.keys() <= {"odd", "even"}
        assert sum(value.values()) >= first[3]
        client = JobClient(handle.console.url, handle.console.token)
        for key in range(KEYS):
            stored = handle.query("count", "seen", key, level="checkpoint")
            live = client.query("count", "seen", key, timeout="25s")
            assert (stored or 0) <= live
            assert live >= first[key]
            assert client.query("count", "last", key, timeout="25s")["number"] % KEYS == key
        assert handle.query("count", "seen", "nobody", timeout=PATIENCE) is None
        with pytest.raises(QueryFailed, match="'nothing'"):
            client.query("count", "nothing", 1)

        # All state goes where the job was started with, and nowhere else.
        for ask in (client.savepoint, lambda path: client.stop(savepoint=path)):
            with pytest.raises(ConsoleRefused, match="no savepoint can be asked for"):
                ask(str(tmp_path / "elsewhere"))
        assert not (tmp_path / "elsewhere").exists()
        assert client.savepoint(str(tmp_path / "chk" / "savepoint")) == (tmp_path / "chk" / "savepoint").as_uri()

        # Asked all the time, checkpoints go on.
        before, number = len(handle.checkpoints), 0
        while len(handle.checkpoints) < before + 2:
            handle.query("count", "seen", number % KEYS, timeout=PATIENCE)
            number += 1
        assert handle.failures == []
    finally:
        handle.stop()
    # Now only storage knows; the last checkpoint has all that was ever live.
    with pytest.raises(QueryFailed, match="the job is finished"):
        handle.query("count", "seen", 1)
    with pytest.raises(ConsoleRefused):
        client.status()
    assert not Path(handle.console.token_file).exists()
    total = sum(mo.query_snapshot(str(tmp_path / "chk"), "count", "seen", key) for key in range(KEYS))
    assert total >= sum(first)
    assert handle.query("count", "seen", 1, level="checkpoint") == mo.query_snapshot(
        str(tmp_path / "chk/queried"), "count", "seen", 1
    )


def test_a_query_waits_for_a_job_that_is_restarting(spark, tmp_path):
    handle = mo.start(counting(), spark, checkpoints=mo.Checkpoints(str(tmp_path), interval="300ms"))
    try:
        eventually(lambda: handle.checkpoints, "a checkpoint")
        os.kill(next(iter(handle.worker_pids.values())), signal.SIGKILL)
        eventually(lambda: handle.failures, "the failure")
        assert eventually(lambda: handle.query("count", "seen", 5, timeout=PATIENCE), "a record") > 0
        assert handle.restored_from[-1] > 0
    finally:
        handle.cancel()


SCRIPT = """
    import moorline as mo

    class Item:
        def __init__(self, number):
            self.number = number

    job = mo.Job("scripted")
    source = job.source(mo.from_items(range(10)), uid="numbers").map(Item, uid="items")
    same = source.key_by(lambda item: item.number % 2).map(lambda item: item.number, uid="same")
    same.sink(mo.collect("out"), uid="out")

    if __name__ == "__main__":
        raise SystemExit("this is not to be executed")
"""


def test_the_command_runs_a_script_to_its_end(spark, own_main, tmp_path):
    path = script(tmp_path, SCRIPT)
    told = json.loads(shown(call("run", path, "--json", "--checkpoints", tmp_path / "chk")))
    assert (told["status"], told["collected"], told["failures"]) == ("finished", {"out": 10}, [])
