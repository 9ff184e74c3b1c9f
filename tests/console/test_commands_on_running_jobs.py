"""Commands on running jobs: status, query, stop, savepoint, rescale."""

from __future__ import annotations

import json
import threading

import pytest
from command_calls import call, shown

from moorline.errors import QueryFailed, SavepointFailed
from moorline.http.console import Console
from moorline.http.server import ConsoleServer
from moorline.storage.history import History
from moorline.storage.stores.local import LocalStore


class Job:
    """What a console shows of a job that ends when it is told to."""

    def __init__(self) -> None:
        self.status = "running"

    def status_told(self):
        counts = {"records_in": 1234, "records_out": 5, "keys": 3, "held_bytes": 0, "busy": 0.5}
        progress = {"operators": {"count": counts}, "records_in": 1234}
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

    def explained(self, uid, top):
        key = {"key": "ada\x1b[2J", "key_group": 3, "rows": 1, "bytes": 900}
        state = {"uid": uid or "count", "state": "seen", "table": "keyed", "kind": "value", "keys": 2, "rows": 2}
        state |= {"bytes": 1000, "stored": 400, "written": 100, "replaced": 1, "growth": {"bytes": -24}}
        state |= {"expired": {"rows": 1, "bytes": 100, "undated": 1, "now_ms": 5}, "largest": [key][:top]}
        state |= {"key_groups": [{"key_group": 3, "rows": 1, "bytes": 900}, {"key_group": 4, "rows": 1, "bytes": 100}]}
        operator = {"uid": "count", "parallelism": 2, "rows": 2, "bytes": 1000, "stored": 400}
        operator |= {"hottest": [{"key": "eve\x1b[2J", "share": 0.25, "records_per_second": 1_200.0}]}
        head = {"job": "orders", "checkpoint": 9, "created_ms": 0, "stored": 400}
        head |= {"since": 8, "since_ms": 0, "since_stored": 424}
        return head | {"operators": [operator], "states": [state]}

    def log_told(self, after):
        levels = ("INFO", "WARNING", "INFO")
        lines = [
            {"number": n, "time_ms": 0, "level": level, "text": f"line {n}\x1b[2J"} for n, level in enumerate(levels, 1)
        ]
        return [line for line in lines if line["number"] > after]

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


def test_inspect_without_a_path_has_the_job_explain_its_newest_checkpoint(running):
    text = shown(call("inspect", *running))
    assert "checkpoint 9" in text and "-24 B since checkpoint 8" in text
    assert "ada" in text and "\x1b" not in text, "a key is shown as text, whatever it holds"
    assert "a time to live would remove 1 rows" in text
    assert 'eve\\u001b[2J"  25.0 %, 1,200 records/s' in text
    told = json.loads(shown(call("inspect", *running, "--uid", "count", "--top", "0", "--json")))
    assert (told["states"][0]["uid"], told["states"][0]["largest"]) == ("count", [])


def test_logs_shows_the_last_lines_from_a_level_on(running):
    text = shown(call("logs", *running))
    assert [line.split(" ", 1)[1] for line in text.splitlines()] == [
        "INFO line 1\\x1b[2J",
        "WARNING line 2\\x1b[2J",
        "INFO line 3\\x1b[2J",
    ]
    assert "line 2" not in shown(call("logs", *running, "--last", "1"))
    (line,) = json.loads(shown(call("logs", *running, "--level", "warning", "--json")))["lines"]
    assert line["number"] == 2
    assert call("logs", *running, "--json", "--follow").exit_code == 2


def test_logs_follows_a_job_until_its_console_is_gone(tmp_path):
    console = ConsoleServer(Job(), Console("127.0.0.1:0", str(tmp_path / "token")))
    timer = threading.Timer(0.5, console.close)
    timer.start()
    text = shown(call("logs", "--url", console.url, "--token-file", console.token_file, "--follow"))
    assert len(text.splitlines()) == 3, "no line is shown twice"


def test_top_shows_jobs_by_their_consoles_and_by_their_checkpoints(running, tmp_path):
    history = History(LocalStore(tmp_path / "chk/stored"), "stored")
    history.claim(True, 1)
    at = ["--console", running[1], running[3], "--console", "http://127.0.0.1:9", running[3]]
    text = shown(call("top", *at, tmp_path / "chk", "--once"))
    assert "orders" in text and "count 50 %" in text
    assert "unreachable" in text
    told = {job["job"]: job for job in json.loads(shown(call("top", *at, tmp_path / "chk", "--json")))["jobs"]}
    assert (told["orders"]["status"], told["orders"]["records_in"], told["orders"]["checkpoint"]) == (
        "running",
        1234,
        9,
    )
    assert (told["stored"]["status"], told["stored"]["checkpoint"]) == ("running or lost", None)
    assert call("top").exit_code == 2


def test_top_shows_every_job_although_two_have_one_name(tmp_path):
    places = [tmp_path / "production", tmp_path / "staging"]
    for place in places:
        History(LocalStore(place / "orders"), "orders").claim(True, 1)
    told = json.loads(shown(call("top", *places, places[0], "--json")))["jobs"]
    assert [job["job"] for job in told] == [f"orders in {(p / 'orders').as_uri()}" for p in places]


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
