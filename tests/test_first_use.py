"""What is loaded when: a worker's process loads what jobs need, and nothing that only a driver or a tool does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import moorline as mo

PROGRAM = """
import sys
import moorline as mo
print(*[name for name in sys.argv[1:] if name in sys.modules])
for name in mo.__all__:
    if not hasattr(mo, name):
        print("missing", name)
"""
LATER = ("pyspark", "pandas", "moorline.client", "moorline.http", "moorline.snapshots.checking")


def test_what_only_drivers_and_tools_need_is_loaded_at_first_use():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "moorline.api.job", *LATER],
        env={**os.environ, "PYTHONPATH": str(Path(mo.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["moorline.api.job"]
