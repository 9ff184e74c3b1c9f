"""Folders on the worker's disk: one for each subtask and attempt, and none left behind for long."""

from __future__ import annotations

import subprocess
import sys

from moorline.subtask.restore.scratch_dir import make_local_folder


def test_no_two_are_the_same(tmp_path):
    made = {make_local_folder(str(tmp_path), "job", "op", 0, 1) for _ in range(3)}
    assert len(made) == 3
    assert all(path.is_dir() for path in made)


def test_what_a_killed_worker_left_is_removed_and_what_a_living_one_uses_is_not(tmp_path):
    mine = make_local_folder(str(tmp_path), "job", "op", 0, 1)
    script = (
        "import os, signal, sys; from moorline.subtask.restore.scratch_dir import make_local_folder;"
        "print(make_local_folder(sys.argv[1], 'job', 'op', 1, 1)); sys.stdout.flush(); os.kill(os.getpid(), 9)"
    )
    dead = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=600)
    assert dead.returncode == -9
    left = tmp_path / dead.stdout.strip().rsplit("/", 1)[-1]
    assert left.is_dir()
    other = tmp_path / "moorline-elsewhere"
    other.mkdir()
    make_local_folder(str(tmp_path), "another job", "op", 0, 2)
    assert not left.exists()
    assert mine.is_dir()
    assert other.is_dir(), "it is not one of ours"
