"""Commands on snapshots: list, inspect, fsck, query, diff, plan."""

from __future__ import annotations

import json

import pytest
from command_calls import call, script, shown
from stored_jobs import Totals, write_job_and_savepoint

import moorline as mo
from moorline.model.config.state import RocksDb, StateConfig


@pytest.fixture(params=["heap", "rocksdb"])
def location(request, tmp_path):
    """A checkpoint location with one job, "harness", and a savepoint beside it."""
    rocksdb = RocksDb(memory="8MB", folder=str(tmp_path / "db")) if request.param == "rocksdb" else None
    write_job_and_savepoint(tmp_path / "chk/harness", tmp_path / "sp", StateConfig(rocksdb, rocksdb is not None))
    return tmp_path


def test_list_shows_the_jobs_of_a_location(location):
    assert "harness" in shown(call("list", location / "chk"))
    (job,) = json.loads(shown(call("list", location / "chk", "--json")))["jobs"]
    assert (job["job"], [c["checkpoint"] for c in job["checkpoints"]]) == ("harness", [1])
    assert "no job has checkpoints" in shown(call("list", location / "nowhere"))


@pytest.mark.parametrize("path", ["chk", "chk/harness", "chk/harness/history/0000000002.json", "sp"])
def test_inspect_shows_operators_and_states(location, path):
    text = shown(call("inspect", location / path))
    assert "totals" in text
    assert "str to tuple[int, float]" in text
    told = json.loads(shown(call("inspect", location / path, "--json")))
    assert (told["job"], told["checkpoint"], told["is_savepoint"]) == ("harness", 1, path == "sp")
    names = {name for state in told["states"] for name in state["state"].split(", ")}
    assert {"total", "days"} <= names
    rows = {state["state"]: state["rows"] for state in told["states"]}
    assert rows.get("total", 3) == 3
    assert all(first < end for state in told["states"] for first, end in state["key_groups"])


@pytest.mark.parametrize("path", ["chk", "sp"])
def test_inspect_explains_why_the_state_is_so_large(location, path):
    text = shown(call("inspect", location / path, "--explain", "--top", "1"))
    assert "totals days: the largest of 3 keys" in text
    told = json.loads(shown(call("inspect", location / path, "--explain", "--uid", "totals", "--json")))
    states = {state["state"]: state for state in told["states"]}
    assert {key["key"] for key in states["total"]["largest"]} == {7, "ada", "bob"}
    assert (states["total"]["rows"], states["days"]["keys"]) == (3, 3)
    assert call("inspect", location / path, "--uid", "totals").exit_code == 2, "it needs --explain"
    assert "'totals'" in call("inspect", location / path, "--explain", "--uid", "total").stderr


@pytest.mark.parametrize("path", ["chk", "chk/harness", "sp"])
def test_fsck_finds_what_is_damaged_and_exits_with_1(location, path):
    assert "whole" in shown(call("fsck", location / path))
    assert json.loads(shown(call("fsck", location / path, "--json")))["verdict"] == "sound"
    root = location / ("sp" if path == "sp" else "chk/harness")
    victim = sorted((root / "data").rglob("*.*"))[0]
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    assert call("fsck", location / path, "--quick").exit_code == 0
    result = call("fsck", location / path)
    assert result.exit_code == 1
    assert "wrong bytes" in result.stdout
    assert victim.name in result.stdout
    told = json.loads(call("fsck", location / path, "--json").stdout)
    assert (told["verdict"], told["newest_whole"]) == ("lost", None)
    assert [(p["kind"], p["needed_by"]) for p in told["problems"]] == [("wrong bytes", [1])]


def test_fsck_gives_up_an_entry_that_will_not_come_back_and_nothing_else(location):
    assert call("fsck", location / "chk", "--give-up", "2").exit_code != 0, "it can be read"
    lost = sorted((location / "chk/harness/history").iterdir())[-1]
    lost.unlink()
    result = call("fsck", location / "chk/harness")
    assert result.exit_code == 1
    assert "missing entry" in result.stdout and lost.name in result.stdout
    number = str(int(lost.stem))
    assert call("fsck", location / "chk/harness", "--give-up", number, "--grace", "1h").exit_code == 0
    assert call("fsck", location / "chk/harness", "--give-up", number).exit_code != 0, "once is enough"


def test_fsck_sweeps_what_nobody_needs(location):
    left = location / "sp/data/chk-1/totals/late-0-1-c0ffee.parquet"
    left.write_bytes(b"x")
    assert shown(call("fsck", location / "sp")) != ""
    assert "--sweep" in call("fsck", location / "sp", "--grace", "0s").stdout
    assert "deleted: 1 files" in shown(call("fsck", location / "sp", "--grace", "0s", "--sweep"))
    assert not left.exists()
    assert json.loads(shown(call("fsck", location / "sp", "--grace", "0s", "--sweep", "--json")))["deleted"] == []


@pytest.mark.parametrize("path", ["chk", "sp"])
def test_query_asks_a_snapshot(location, path):
    def asked(*arguments: str) -> str:
        return shown(call("query", "totals", *arguments, "--in", location / path))

    assert asked("total", "ada") == "2\n"
    assert asked("total", '"bob"') == "1\n"
    assert asked("total", "7") == "1\n"
    assert asked("total", '"7"') == "None\n"
    assert asked("days", "ada") == "{'mon': (1, 2.5)}\n"
    told = json.loads(asked("days", "ada", "--json"))
    assert told == {"uid": "totals", "state": "days", "key": "ada", "value": {"mon": {"tuple": [1, 2.5]}}}


def test_query_says_what_there_is_if_there_is_no_such_state(location):
    result = call("query", "totals", "totol", "ada", "--in", location / "sp")
    assert result.exit_code == 1
    assert "days, total" in " ".join(result.stderr.split())
    assert call("query", "totals", "total", "null", "--in", location / "sp").exit_code == 2


def test_diff_shows_what_has_changed_and_exits_with_1(location):
    assert shown(call("diff", location / "sp", location / "chk/harness")) == "nothing has changed\n"
    other = location / "other"
    writer = mo.SnapshotWriter(str(other)).from_snapshot(str(location / "sp"))
    writer.keyed("totals", Totals.total, [{"k": "ada", "value": 9}, {"k": "eve", "value": 1}], key="k").write()
    result = call("diff", location / "sp", other)
    assert result.exit_code == 1
    assert "changed: 'totals' 'total' key 'ada': 2 -> 9" in result.stdout
    told = json.loads(call("diff", location / "sp", other, "--json").stdout)
    assert {"what": "added", "uid": "totals", "state": "total", "key": "eve", "after": 1} in told["changes"]
    cut = call("diff", location / "sp", other, "--limit", "1")
    assert (len(cut.stdout.splitlines()), "--limit 0" in cut.stderr) == (1, True)


def test_plan_exits_with_1_where_state_would_be_lost(location):
    good, bad = (
        script(
            location,
            f"""
            import moorline as mo
            class Totals(mo.KeyedProcessFunction):
                total = mo.ValueState(int, default=0)
                {more}
                def process_element(self, value, ctx):
                    yield value
            job = mo.Job("harness", max_parallelism=128)
            job.source(mo.from_items([1]), uid="input").key_by(lambda n: n).process(Totals(), uid="totals").sink(
                mo.discard(), uid="output")
            """,
            name,
        )
        for name, more in (("good.py", "days = mo.MapState(str, tuple[int, float])"), ("bad.py", ""))
    )
    assert "the job would start" in shown(call("plan", good, "--restore", location / "sp"))
    result = call("plan", bad, "--restore", location / "sp", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["is_safe"]) == (1, False)
    assert {s["state"]: s["verdict"] for s in told["states"] if s["uid"] == "totals"}["days"] == "LOST"
