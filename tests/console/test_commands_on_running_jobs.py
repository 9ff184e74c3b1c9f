"""Commands on running jobs: status, query, stop, savepoint, rescale."""

from __future__ import annotations

import json

import pytest
from command_calls import call, shown

from moorline.errors import QueryFailed, SavepointFailed
from moorline.http.server import Console, ConsoleServer


class Job:
    """What a console shows of a job that ends when it is told to."""

    def __init__(self) -> None:
        self.status = "running"

    def status_told(self):
        progress = {"operators": {"count": {"records_in": 1234, "records_out": 5, "keys": 3, "held_bytes": 0}}}
        progress |= {"counters": {"windows": {"late_records": 1_200}}}
        progress |= {"stalled": {"1/0": {"seconds": 75.2, "at": "job.py:12 open"}}}
        told = {"job": "orders", "status": self.status, "attempt": 2, "checkpoints": 4, "last_checkpoint": 9}
        return told | {"restored_from": [0, 7], "failures": ["attempt 1: lost\x1b[31m"], "progress": progress}

    def checkpoints_told(self):
        return []

    def query_encoded(self, uid, state, key, level, timeout_ms):
        if state != "total":
            raise QueryFailed(uid, state, "there is no such state")
        return (key.decode(), level, timeout_ms)

    def savepoint(self, path, timeout_ms):
        if path == "full":
            raise SavepointFailed(path, "there is no room")
        return f"file:///{path}"

    def rescale(self, parallelism, timeout_ms):
        self.status = f"running at {parallelism}"

    def end(self, *, cancel, savepoint, drain, timeout_ms):
        if savepoint == "full":
            raise SavepointFailed(savepoint, "there is no room")
        self.status = "cancelled" if cancel else "finished"


@pytest.fixture
def running(tmp_path):
    console = ConsoleServer(Job(), Console("127.0.0.1:0", str(tmp_path / "token")))
    yield ["--url", console.url, "--token-file", console.token_file]
    console.close()


def test_status_shows_how_a_job_is(running):
    text = shown(call("status", *running))
    assert "job orders: running, attempt 2, 4 checkpoints, newest 9" in text
    assert "1,234" in text
    assert "windows: late records: 1,200" in text
    assert "subtask 1/0 has not moved on for 75 s: it is at job.py:12 open" in text
    assert "\x1b" not in text
    assert json.loads(shown(call("status", *running, "--json")))["job"] == "orders"
    assert "running" in shown(call("status", MOORLINE_URL=running[1], MOORLINE_TOKEN_FILE=running[3]))


def test_query_asks_a_running_job(running):
    assert shown(call("query", "count", "total", "ada", *running)) == "('sada', 'live', 10000)\n"
    later = ("--level", "checkpoint", "--timeout", "1s")
    assert shown(call("query", "count", "total", "ada", *running, *later)) == "('sada', 'checkpoint', 1000)\n"
    result = call("query", "count", "other", "ada", *running)
    assert (result.exit_code, "there is no such state" in result.stderr) == (1, True)


@pytest.mark.parametrize(("options", "status"), [([], "finished"), (["--cancel"], "cancelled")])
def test_stop_ends_a_job_and_waits_for_it(running, options, status):
    assert json.loads(shown(call("stop", *running, *options, "--json"))) == {"job": "orders", "status": status}


def test_stop_with_a_savepoint_that_fails_is_an_error(running):
    told = json.loads(shown(call("stop", *running, "--savepoint", "sp", "--drain", "--json")))
    assert told == {"job": "orders", "status": "finished", "savepoint": "sp"}
    result = call("stop", *running, "--savepoint", "full")
    assert (result.exit_code, "there is no room" in result.stderr) == (1, True)
    assert call("stop", *running, "--drain").exit_code == 2
    assert call("stop", *running, "--cancel", "--savepoint", "sp").exit_code == 2


def test_savepoint_says_where_it_is(running):
    assert shown(call("savepoint", "tmp/sp", *running)) == "savepoint: file:///tmp/sp\n"
    assert json.loads(shown(call("savepoint", "tmp/sp", *running, "--json"))) == {"savepoint": "file:///tmp/sp"}
    result = call("savepoint", "full", *running)
    assert (result.exit_code, "there is no room" in result.stderr) == (1, True)


def test_rescale_takes_a_number_or_one_for_each_uid(running):
    assert "running at 4" in shown(call("rescale", "4", *running))
    assert "running at {'count': 3, 'a=b': 2}" in shown(call("rescale", "count=3", "a=b=2", *running))
    assert call("rescale", "count", *running).exit_code == 2
    assert call("rescale", "-1", *running).exit_code == 2


def test_a_job_that_cannot_be_reached_is_an_error(tmp_path):
    (tmp_path / "token").write_text("t")
    result = call("status", "--url", "http://127.0.0.1:9", "--token-file", tmp_path / "token")
    assert (result.exit_code, "cannot be reached" in " ".join(result.stderr.split())) == (1, True)
    result = call("status", "--url", "http://127.0.0.1:9", "--token-file", tmp_path / "none")
    assert (result.exit_code, "cannot be read" in " ".join(result.stderr.split())) == (1, True)
