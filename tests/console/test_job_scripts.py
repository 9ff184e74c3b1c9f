"""Scripts of jobs: how the command line finds the job in them."""

from __future__ import annotations

import sys

import pytest
from command_calls import call, script

from moorline.cli.scripts import load_job
from moorline.errors import InvalidArgument, StartedWhileLoading


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
