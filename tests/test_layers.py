"""Imports go one way: the tree reads like the data path, and stays so.

The order is in ``pyproject.toml``, checked by import-linter, which sees type-only imports too. Modules that are named
in texts, to be imported when they are needed, are looked for here.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = [{name.strip() for name in layer.split("|")} for layer in CONTRACTS[0]["layers"]]
MODULE = re.compile(r"moorline(\.[a-z_]+)+")


def height(package: str) -> int:
    return next(len(LAYERS) - n for n, layer in enumerate(LAYERS) if package in layer)


def named_modules(path: Path) -> set[str]:
    """Modules of ours that a file names in a text of its own, docstrings left out."""
    constants = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
    found = {node.value for node in constants if isinstance(node.value, str) and MODULE.fullmatch(node.value)}
    return {name for name in found if is_module(name)}


def is_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.is_dir() or place.with_suffix(".py").exists()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "moorline").glob("*/**/*.py")), ids=lambda p: str(p.relative_to(ROOT / "moorline"))
)
def test_modules_that_are_named_lie_below(path: Path):
    package = path.relative_to(ROOT / "moorline").parts[0]
    for name in named_modules(path):
        other = name.split(".")[1]
        assert other == package or height(other) < height(package), f"{path} names {name}"


def test_the_contracts_are_kept():
    assert (checked := lint_imports(ROOT)).returncode == 0, checked.stdout


WRONG = {
    "moorline/protocol/pacing.py": ("from moorline.storage import blobs", "moorline.storage.blobs"),
    "moorline/model/ids.py": (
        "if TYPE_CHECKING:\n    from moorline.driver.attempts import running",
        "moorline.driver.attempts.running",
    ),
    "moorline/subtask/task.py": (
        "def later():\n    from moorline.driver.attempts import running",
        "moorline.driver.attempts.running",
    ),
    "moorline/connectors/items.py": ("import moorline.state.backend", "moorline.state.backend"),
    "moorline/driver/loop.py": ("import pyspark", "pyspark"),
    "moorline/protocol/expiry.py": ("import time", "time"),
    "moorline/protocol/iteration/feedback.py": ("import threading", "threading"),
    "moorline/storage/lease.py": ("from moorline.protocol import recovery", "moorline.protocol.recovery"),
}


def test_wrong_imports_are_found(tmp_path: Path):
    shutil.copytree(ROOT / "moorline", tmp_path / "moorline", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, (line, _) in WRONG.items():
        wrong = tmp_path / module
        wrong.write_text(f"{wrong.read_text()}\n{line}\n")
    found = lint_imports(tmp_path, "--no-cache")
    assert found.returncode == 1
    for module, (_, imported) in WRONG.items():
        assert f"{module.removesuffix('.py').replace('/', '.')} -> {imported} " in found.stdout


def lint_imports(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
