"""The command line, as people and scripts call it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from click.testing import CliRunner, Result

import moorline as mo
from moorline.cli import output
from moorline.cli.main import cli
from moorline.cli.scripts import load_job
from moorline.errors import InvalidArgument, QueryFailed, SavepointFailed, StartedWhileLoading
from moorline.http.server import Console, ConsoleServer
from moorline.model.config.state import RocksDb, StateConfig
from moorline.storage import entries
from moorline.storage.history import History
from moorline.storage.stores.local import LocalStore
from moorline.testing import OperatorHarness

COMMANDS = (
    "diff",
    "doctor",
    "fsck",
    "inspect",
    "list",
    "plan",
    "query",
    "rescale",
    "run",
    "savepoint",
    "status",
    "stop",
)


def call(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], env=environment, prog_name="moorline")


def shown(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


class Totals(mo.KeyedProcessFunction):
    total = mo.ValueState(int, default=0)
    days = mo.MapState(str, tuple[int, float])

    def process_element(self, value, ctx):
        self.total.update(self.total.value() + 1)
        self.days.put("mon", (1, 2.5))
        yield value


@pytest.fixture(params=["heap", "rocksdb"])
def location(request, tmp_path):
    """A checkpoint location with one job, "harness", and a savepoint beside it."""
    rocksdb = RocksDb(memory="8MB", folder=str(tmp_path / "db")) if request.param == "rocksdb" else None

    def step(stream: mo.Stream) -> mo.Stream:
        return stream.key_by(lambda n: n).process(Totals(), uid="totals")

    with OperatorHarness.of(step, parallelism=2, state=StateConfig(rocksdb, rocksdb is not None)) as harness:
        harness.process_all(["ada", "ada", "bob", 7])
        taken = harness.snapshot()
    for folder in ("chk/harness", "sp"):
        for file in taken.manifest.files():
            LocalStore(tmp_path / folder).put(file.path, taken.store.get(file.path))
    history = History(LocalStore(tmp_path / "chk/harness"), "harness")
    history.claim(True, 1)
    history.publish(taken.manifest)
    (tmp_path / "sp/manifest.json").write_bytes(entries.encode(taken.manifest, "", ""))
    return tmp_path


# --- all of them --------------------------------------------------------------------------------


def test_the_installed_command_is_the_module():
    done = subprocess.run(
        [sys.executable, "-m", "moorline.cli.main", "--help"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name):
    assert shown(call(name, "--help")).startswith(f"Usage: moorline {name}")


def test_a_wrong_call_exits_with_2_and_says_how_it_is_called():
    for arguments in (["nonsense"], ["inspect"], ["list", "a", "b"], ["run", "x.py", "--backend", "disk"], ["status"]):
        result = call(*arguments)
        assert result.exit_code == 2, arguments
        assert "Usage: moorline" in result.stderr


def test_what_goes_wrong_is_one_paragraph_and_exits_with_1(tmp_path):
    result = call("inspect", tmp_path)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "there is no snapshot to use" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_where_it_went_wrong(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "moorline.cli.main", "--debug", "inspect", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr


# --- snapshots ----------------------------------------------------------------------------------


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


# --- a running job ------------------------------------------------------------------------------


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


# --- scripts ------------------------------------------------------------------------------------


def script(folder, text: str, name: str = "job.py") -> str:
    (folder / name).write_text(textwrap.dedent(text))
    return str(folder / name)


@pytest.fixture(autouse=True)
def same_main(monkeypatch):
    """A script becomes ``__main__``: not for the tests after this one."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_job_is_found_by_variable_function_or_name(tmp_path):
    assert load_job(script(tmp_path, "import moorline as mo\njob = mo.Job('one')")).name == "one"
    assert load_job(script(tmp_path, "import moorline as mo\ndef build(): return mo.Job('two')")).name == "two"
    path = script(tmp_path, "import moorline as mo\na = mo.Job('a')\ndef b(): return mo.Job('b')")
    assert (load_job(f"{path}:a").name, load_job(f"{path}:b").name) == ("a", "b")
    with pytest.raises(InvalidArgument, match="It has a: write"):
        load_job(path)


def test_what_a_script_does_when_run_by_itself_is_left_out(tmp_path):
    path = script(
        tmp_path,
        """
        import moorline as mo
        job = mo.Job(__name__)
        if __name__ == "__main__":
            raise SystemExit("started")
        else:
            job = mo.Job("other")
        """,
    )
    assert load_job(path).name == "other"


@pytest.mark.parametrize("call_of", ["mo.run(job)", "mo.start(job)", "mo.run(job, mode='batch')"])
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_script_that_starts_its_job_by_itself_is_refused_and_starts_nothing(tmp_path, command, call_of):
    lines = [
        "import moorline as mo",
        "job = mo.Job('eager')",
        "job.source(mo.from_items([1]), uid='n').sink(mo.collect('out'), uid='out')",
        call_of,
    ]
    result = call(command, script(tmp_path, "\n".join(lines)), "--restore", tmp_path / "none")
    assert result.exit_code == 1
    told = " ".join(result.stderr.split())
    assert f"calls {call_of.partition('(')[0]} while it is loaded" in told
    assert 'if __name__ == "__main__":' in told


def test_a_function_that_runs_the_job_it_builds_is_refused_too(tmp_path):
    lines = ["import moorline as mo", "def build():", "    job = mo.Job('x')", "    mo.run(job)", "    return job"]
    with pytest.raises(StartedWhileLoading, match="build that returns it"):
        load_job(script(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize("text", ["job = 7", "def build(): return 7", "x = 1", "def ("])
def test_a_script_without_a_job_is_an_error_that_says_so(tmp_path, text):
    result = call("run", script(tmp_path, text))
    assert result.exit_code == 1
    assert "job.py" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_script_that_fails_is_told_in_short(tmp_path):
    result = call("run", script(tmp_path, "1 / 0"))
    assert (result.exit_code, "ZeroDivisionError" in result.stderr) == (1, True)
    assert call("run", tmp_path / "none.py").exit_code == 1


def test_options_that_need_others_say_so(tmp_path):
    path = script(tmp_path, "import moorline as mo\njob = mo.Job('one')")
    assert "--claim needs --restore" in call("run", path, "--claim").stderr
    assert "--restore latest needs --checkpoints" in call("run", path, "--restore", "latest").stderr
    assert "--token-file needs --console" in call("run", path, "--token-file", "t").stderr


# --- doctor and output --------------------------------------------------------------------------


def test_doctor_finds_what_is_missing_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "file").write_text("")
    result = call("doctor", "--checkpoints", tmp_path / "file", "--json")
    assert result.exit_code == 1
    told = {finding["what"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert (told["Java"]["state"], "JDK" in told["Java"]["advice"]) == ("missing", True)
    assert told["checkpoints"]["state"] == "missing"
    assert told["Python"]["state"] == "ok"


def test_doctor_leaves_nothing_behind(tmp_path):
    call("doctor", "--checkpoints", tmp_path / "chk")
    assert not [path for path in (tmp_path / "chk").rglob("*") if path.is_file()]


def test_tables_without_rich_are_the_same_columns(monkeypatch, capsys):
    monkeypatch.setattr(output, "HAS_RICH", False)
    output.show_table(("job", "size"), [("a\nb", "7"), ("long name", "123")], numbers=("size",))
    assert capsys.readouterr().out == "job        size\na\\nb          7\nlong name   123\n"
    with output.long_work("work") as say:
        say("half")
    assert capsys.readouterr().err == ""
