"""What ``moorline init`` writes runs, literally; what ``moorline pack`` and ``completion`` make can be used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from command_calls import call, shown

import moorline
from moorline.cli.packing import LABEL, distributions, pack
from moorline.errors import InvalidArgument

HERE = str(Path(moorline.__file__).parents[1])


def make(folder: Path, *targets: str) -> str:
    command = ["make", "-s", f"PYTHON={sys.executable}", *targets]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tests_of_a_new_project_pass(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", HERE)
    text = shown(call("init", "word-count", "--in", tmp_path))
    assert "make test" in text
    assert "3 passed" in make(tmp_path / "word-count", "test")


@pytest.mark.spark
@pytest.mark.slow
def test_the_job_of_a_new_project_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", HERE)
    shown(call("init", "word-count", "--in", tmp_path))
    folder = tmp_path / "word-count"
    assert "job word-count finished" in make(folder, "run")
    rows = [json.loads(line) for part in (folder / "build/out").glob("part-*") for line in part.open()]
    assert len(rows) == 50
    assert "counts" in make(folder, "inspect")
    assert "job word-count finished" in make(folder, "watch")


def test_init_overwrites_nothing_and_takes_no_odd_names(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "job.py").write_text("mine")
    assert call("init", "mine", "--in", tmp_path).exit_code == 1
    assert (tmp_path / "mine" / "job.py").read_text() == "mine"
    for odd in ("../up", "1st", "a b", "a/b"):
        assert call("init", odd, "--in", tmp_path).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


# --- pack ---------------------------------------------------------------------------------------


def test_an_archive_has_moorline_and_what_it_needs_and_not_what_spark_brings(tmp_path):
    (tmp_path / "rates.py").write_text("RATE = 1\n")
    told = json.loads(shown(call("pack", "-o", tmp_path / "a.tar.gz", "--also", tmp_path / "rates.py", "--json")))
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        names = archive.getnames()
        label = json.load(archive.extractfile(LABEL))
    assert {"moorline/__init__.py", "moorline/spark/daemon.py", "rates.py", "msgspec/__init__.py"} <= set(names)
    assert not [name for name in names if name.startswith(("pyarrow/", "pandas/", "numpy/", "pyspark/", "/", ".."))]
    assert label["distributions"] == told["distributions"]
    assert label["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")


def test_the_same_content_makes_the_same_archive(tmp_path):
    pack(tmp_path / "a.tar.gz")
    pack(tmp_path / "b.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_extras_and_other_distributions_come_with_what_they_need(tmp_path):
    plain = distributions()
    assert {"msgspec", "xxhash", "rocksdict", "cloudpickle", "click"} <= set(plain)
    assert set(distributions(["redis"])) - set(plain) == {"redis"}
    assert {"pyarrow", "numpy", "pandas"} <= set(distributions(everything=True))
    assert "pyspark" not in distributions(everything=True)
    with pytest.raises(InvalidArgument, match="neither an extra"):
        pack(tmp_path / "c.tar.gz", ["no-such-thing"])
    with pytest.raises(InvalidArgument, match="no such file"):
        pack(tmp_path / "c.tar.gz", also=[tmp_path / "nowhere.py"])


def test_the_settings_for_an_archive_unpack_it_and_find_it():
    packed = moorline.spark_config(archive="hdfs:///moorline.tar.gz")
    assert packed["spark.archives"] == "hdfs:///moorline.tar.gz#moorline"
    assert packed["spark.executorEnv.PYTHONPATH"] == "moorline"
    assert "spark.archives" not in moorline.spark_config()


# --- completion ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell):
    assert "_MOORLINE_COMPLETE" in shown(call("completion", shell))


#: What a shell does when somebody presses the tab key after these words.
TAB = """
eval "$(moorline completion bash)"
complete -p moorline
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _moorline_completion moorline
echo "=${COMPREPLY[*]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["moorline", "ins"], "inspect"),
        (["moorline", "run", "--backend", "ro"], "rocksdb"),
        (["moorline", "run", "--checkp"], "--checkpoints"),
    ],
)
def test_bash_completes_what_is_typed(tmp_path, words, found):
    program = tmp_path / "moorline"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m moorline.cli.main "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": HERE}
    command = ["bash", "-c", TAB, "bash", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert f"={found}" in done.stdout.splitlines(), done.stdout + done.stderr


@pytest.mark.parametrize(
    "typed", ["run ", "run job.py --checkpoints ", "inspect ", "serve ", "plan job.py --restore ", "stop --savepoint "]
)
def test_files_are_completed_where_a_path_is_asked_for(typed):
    """The shell completes them itself when it is told that a file is wanted."""
    count = str(len(f"moorline {typed}".split()))
    result = call(COMP_WORDS=f"moorline {typed}", COMP_CWORD=count, _MOORLINE_COMPLETE="bash_complete")
    assert result.output.splitlines() == ["file,"]


def test_commands_are_completed():
    result = call(COMP_WORDS="moorline ins", COMP_CWORD="1", _MOORLINE_COMPLETE="bash_complete")
    assert "inspect" in result.output
