"""Tests that share a Spark or a server go to one worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
import os
import pytest

@pytest.mark.parametrize("n", range(12))
@pytest.mark.xdist_group("together")
def test_in_one_process(n, tmp_path_factory):
    seen = tmp_path_factory.getbasetemp().parent / "pids"
    with seen.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    assert len(set(seen.read_text().split())) == 1
"""


def test_a_group_is_run_by_one_worker(tmp_path: Path):
    # Versions of pytest and xdist that do not fit each other spread it silently.
    (tmp_path / "test_suite.py").write_text(SUITE)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadgroup", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
