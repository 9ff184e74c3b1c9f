"""A disk that is really full: the job says so by name, and nothing is lost or doubled once there is space again.

A small file system in memory (tmpfs) is mounted in a namespace of its own, where nobody else sees it and nothing is
left behind. The job runs there in a process of its own (``full_disk_job.py``).
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: With the right to mount, or as root of a user namespace, which many systems allow to anybody.
WAYS = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'
NO_SPACE = "No space left on device"


@functools.cache
def way() -> tuple[str, ...]:
    """How a process gets a disk of its own. Skips if this machine does not let us."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("a small disk cannot be mounted: unshare and mount are not installed")
    said = ""
    for words in WAYS:
        tried = subprocess.run(
            [*words, "sh", "-c", MOUNT, "sh", "64k", "/tmp", "true"], capture_output=True, text=True, check=False
        )
        if tried.returncode == 0:
            return tuple(words)
        said = tried.stderr.strip()
    pytest.skip(f"a small disk cannot be mounted: {said}")


def on_a_small_disk(tmp_path: Path, case: str, size: str) -> dict:
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    disk.mkdir()
    elsewhere.mkdir()
    script = Path(__file__).with_name("full_disk_job.py")
    command = [*way(), "sh", "-c", MOUNT, "sh", size, str(disk), sys.executable, str(script), case]
    paths = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [*command, str(disk), str(elsewhere)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("case", "size", "place"),
    [
        ("checkpoints", "4m", "could not write {disk}/checkpoints/"),
        ("rocksdb", "8m", "{disk}/rocksdb/"),
        ("sink", "16m", "could not stage files in {disk}/sink"),
    ],
)
def test_a_job_on_a_full_disk_says_so_and_goes_on_when_there_is_space(tmp_path, case, size, place):
    seen = on_a_small_disk(tmp_path, case, size)
    for error in seen["errors"]:
        last = error.splitlines()
        assert any(NO_SPACE in line and place.format(disk=tmp_path / "disk") in line for line in last), error
    assert seen["complete"] >= 3
    assert set(seen["restored"]) == {seen["complete"]}, "no checkpoint was taken for damaged"
    assert (seen["missing"], seen["too many"]) == (0, 0)


def test_a_full_disk_does_not_make_a_restored_database_a_damaged_one(tmp_path):
    error = on_a_small_disk(tmp_path, "open", "1m")["error"]
    assert error.startswith("StorageError") and NO_SPACE in error
