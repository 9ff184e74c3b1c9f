"""The tutorial as a reader does it: the five pages one after the other, in one folder, with every command they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(ROOT.glob("docs/tutorial/*.md"))
STEP = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
def test_the_tutorial_can_be_done_from_the_first_page_to_the_last_in_one_folder(monkeypatch, tmp_path, spark):
    assert [page.name[0] for page in PAGES] == list("12345")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    for page in PAGES:
        text = page.read_text()
        # Every page is a script of its own: what is defined in it travels to workers by value.
        namespace = {"__name__": "__main__"}
        for step in STEP.finditer(text):
            if step[1] == "sh":
                command = subprocess.run(["bash", "-ec", step[2]], capture_output=True, text=True, check=False)
                assert command.returncode == 0, f"{page.name}: {step[2]}{command.stderr}"
                assert command.stdout, f"{page.name}: {step[2]}shows nothing"
            else:
                first = text.count("\n", 0, step.start(2))
                exec(compile("\n" * first + step[2], page.name, "exec"), namespace)
