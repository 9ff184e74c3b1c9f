"""What a user sees on the screen of a job that ends, restarts and is rescaled: one line of ours for each event."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import moorline as mo

pytestmark = pytest.mark.spark

SCRIPT = Path(__file__).with_name("quiet_job.py")
#: How our lines begin: some say which job and attempt they come from.
OURS = r"moorline(?: \[[^]]*\])?: "


def test_a_rescale_a_kill_and_a_cancel_print_lines_of_ours_and_nothing_else(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(mo.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "chk")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sections: dict[str, list[str]] = {}
    for line in done.stderr.splitlines():
        if line.startswith("--- "):
            sections[line[4:]] = []
        elif sections:
            sections[[*sections][-1]].append(line)
    del sections["end"]
    alien = [
        line
        for lines in sections.values()
        for line in lines
        if not re.match(r"[\d:]{8} \w+ moorline(?: \[[^]]*\])?: ", line)
    ]
    assert alien == []
    told = {
        name: "\n".join(re.sub(r"^.* moorline(?: \[[^]]*\])?: ", "", line) for line in lines)
        for name, lines in sections.items()
    }
    assert "job quiet, attempt 1: starts 4 subtasks, empty" in told["start"]
    assert re.search(r"job quiet, attempt 1: runs after \d+\.\d s, with 0 B read", told["start"])
    assert re.search(r"attempt 1: checkpoint 1 is complete: [\d.]+ k?B, [\d.]+ k?B of it new, in", told["start"])
    assert "attempt 1: ends, to go on with another parallelism" in told["rescale"]
    assert re.search(r"attempt 2: starts 2 subtasks, from checkpoint \d", told["rescale"])
    assert re.search(r"attempt 2: fails: subtask 1/0 was lost \('last', 'out': process \d+.* on \w", told["kill"])
    assert "job quiet: restart in 100 ms (subtask 1/0 was lost" in told["kill"]
    assert told["cancel"].endswith("job quiet: cancelled after 3 attempts")
