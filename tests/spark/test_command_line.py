"""The life of a job by the command line alone: run, savepoint, rescale, stop, plan, diff, run again."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from console.command_calls import call
from waiting import eventually

pytestmark = pytest.mark.spark

MOORLINE = [sys.executable, "-m", "moorline.cli.main"]

SCRIPT = """
    import moorline as mo

    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, n, ctx):
            self.seen.update(self.seen.value() + 1)
            yield {"n": n, "seen": self.seen.value()}

    def build(count=None):
        job = mo.Job("lived", parallelism=1, max_parallelism=16)
        numbers = job.source(mo.generate(lambda n: n, count=count, splits=2, rate=300), uid="numbers")
        counts = numbers.key_by(lambda n: n % 5).process(Count(), uid="count")
        counts.sink(mo.write_files("OUT", format="jsonl"), uid="files")
        return job

    def short():
        with open("COUNT") as file:
            return build(count=int(file.read()))
"""

#: Seconds until a command is taken for one that hangs; on a loaded machine a start of Spark alone takes many.
PATIENCE = 600


def moorline(*arguments: object, code: int = 0) -> dict:
    """What a command prints. In this process: only the job that others ask has to have one of its own."""
    done = call(*arguments, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def explained_keys(explained: dict) -> list[int]:
    """The keys of the state ``seen``, as far as a checkpoint has them."""
    states = [state for state in explained["states"] if state["state"] == "seen"]
    return sorted(key["key"] for state in states for key in state["largest"][: state["keys"]])


def test_a_job_lives_by_the_command_line_alone(spark, own_main, tmp_path):
    script, out, token, count = (tmp_path / name for name in ("job.py", "out", "token", "count"))
    script.write_text(textwrap.dedent(SCRIPT.replace("OUT", str(out)).replace("COUNT", str(count))))
    where = ["--checkpoints", tmp_path / "chk", "--interval", "300ms"]
    run = [
        *MOORLINE,
        "run",
        script,
        *where,
        "--master",
        "local[6]",
        "--console",
        "127.0.0.1:0",
        "--token-file",
        token,
        "--savepoints",
        tmp_path / "sp",
    ]
    running = subprocess.Popen([*map(str, run)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        url = next(line for line in running.stderr if line.startswith("console: ")).split()[1]
        at = ["--url", url, "--token-file", token]
        eventually(lambda: moorline("status", *at)["checkpoints"], "a checkpoint is complete")
        # The first checkpoint may have been taken before the first record.
        eventually(lambda: explained_keys(moorline("inspect", *at, "--uid", "count")) == [0, 1, 2, 3, 4], "all keys")
        lines = moorline("logs", *at)["lines"]
        assert any("attempt 1: runs" in line["text"] for line in lines)
        (job,) = moorline("top", "--console", url, token, tmp_path / "chk")["jobs"]
        assert (job["job"], job["status"], job["attempt"]) == ("lived", "running", 1)
        assert job["bytes"] > 0, "what storage knows of it is there as well"
        moorline("savepoint", tmp_path / "sp" / "first", *at)
        assert moorline("rescale", "2", *at)["status"] == "running"
        assert moorline("stop", "--savepoint", tmp_path / "sp" / "second", *at)["status"] in ("finished", "ended")
        assert running.wait(PATIENCE) == 0
    finally:
        running.kill()
        running.stderr.close()

    changed = moorline("diff", tmp_path / "sp" / "first", tmp_path / "sp" / "second", code=1)["changes"]
    assert {c["state"] for c in changed if c["uid"] == "count"} == {"seen"}
    assert moorline("plan", script, "--restore", tmp_path / "sp" / "second")["is_safe"]
    # How far it came until it was stopped is up to the machine. It goes on for some thousand more.
    end = (max(row["n"] for row in rows(out)) // 1_000 + 2) * 1_000
    count.write_text(str(end))
    told = moorline("run", f"{script}:short", *where, "--restore", tmp_path / "sp" / "second", "--parallelism", "2")
    assert told["failures"] == []
    assert sorted(row["n"] for row in rows(out)) == list(range(end))
    assert max(row["seen"] for row in rows(out)) == end // 5


def rows(out: Path) -> list[dict]:
    """What is visible in the folder."""
    return [json.loads(line) for part in out.glob("part-*.jsonl") for line in part.read_text().splitlines()]
