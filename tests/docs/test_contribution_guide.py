"""What CONTRIBUTING.md and the hooks for commits name is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
CONFIG = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
HOOKS = [hook for repo in CONFIG["repos"] for hook in repo["hooks"]]
#: Paths in the project or in the package. Those that a bug report is asked for are of a job.
PATHS = sorted(set(re.findall(r"`([\w.-]+/[\w./-]*)`", GUIDE.partition("## Reporting a bug")[0])))


@pytest.mark.parametrize("path", PATHS)
def test_every_path_of_the_guide_is_there(path):
    assert (ROOT / path).exists() or (ROOT / "moorline" / path).exists() or path.startswith(".venv/")


def test_the_guide_names_paths():
    assert len(PATHS) > 20


def test_every_command_of_the_guide_is_a_target():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([\w-]+)", GUIDE, re.MULTILINE))
    assert len(named) > 5
    assert named <= targets


def test_hooks_are_local_and_need_nothing_from_elsewhere():
    assert [repo["repo"] for repo in CONFIG["repos"]] == ["local"]
    assert {hook["language"] for hook in HOOKS} == {"system"}


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs_a_tool_of_the_environment(hook):
    program, *arguments = shlex.split(hook["entry"])
    assert program.startswith(".venv/bin/")
    scripts = [argument for argument in arguments if argument.endswith(".py")]
    assert [script for script in scripts if not (ROOT / script).exists()] == []
    tool = Path(program).name
    assert tool == "python" or f"$(BIN)/{tool}" in (ROOT / "Makefile").read_text(), "as make lint and make types do"
