"""The command line as a whole: help, errors, the doctor, tables."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_calls import call, shown

from moorline.cli import output
from moorline.cli.examination import EXTRAS

COMMANDS = (
    "completion",
    "diff",
    "doctor",
    "fsck",
    "init",
    "inspect",
    "list",
    "logs",
    "pack",
    "plan",
    "query",
    "rescale",
    "run",
    "savepoint",
    "status",
    "stop",
    "top",
)


# --- all of them --------------------------------------------------------------------------------


def test_a_misspelt_command_is_answered_with_the_one_that_is_meant():
    done = call("inspekt", "/data")
    assert done.exit_code == 2
    assert "No such command 'inspekt'. Did you mean 'inspect'?" in done.output


def test_the_installed_command_is_the_module():
    done = subprocess.run(
        [sys.executable, "-m", "moorline.cli.main", "--help"], capture_output=True, text=True, timeout=600
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
        timeout=600,
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr


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


def test_doctor_finds_a_port_that_is_taken_and_looks_at_clock_host_and_disk(tmp_path):
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        told = json.loads(call("doctor", "--port", port, "--checkpoints", tmp_path / "chk", "--json").stdout)
    found = {finding["what"]: finding for finding in told["findings"]}
    assert found["port"]["state"] == "missing" and str(port) in found["port"]["found"]
    assert found["clock"]["state"] == "ok", found["clock"]
    assert {"host name", "free disk"} <= set(found)
    assert call("doctor", "--module", "x").exit_code == 2


@pytest.mark.spark
@pytest.mark.slow
def test_doctor_finds_modules_that_workers_lack():
    code = (
        "from moorline.spark.session.machine import examine_workers;"
        "print(examine_workers('local[2]', ('moorline', 'no_such_module')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert "no_such_module cannot be imported" in done.stdout
    assert "moorline cannot be imported" not in done.stdout


def test_doctor_looks_for_every_extra_that_there_is():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    # Python has zstd itself from some version on, and the others are for those who work on Moorline.
    assert set(EXTRAS.values()) == set(project["optional-dependencies"]) - {"zstd", "docs", "dev"}


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
