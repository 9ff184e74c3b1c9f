"""The contract suites that pages show are passed by the connectors that they show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["docs/guides/writing-a-sink.md", "docs/guides/writing-a-source.md"])
def test_the_connector_of_a_page_keeps_its_contract(page, tmp_path):
    blocks = [block for block in BLOCK.findall((ROOT / page).read_text()) if "mo.run(" not in block]
    (tmp_path / "test_page.py").write_text("\n".join(blocks))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_page.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 15, done.stdout
