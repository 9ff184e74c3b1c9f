"""Decisions know nothing of the world: no clock, no thread, no file, no log."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import moorline.protocol

ALLOWED = {"__future__", "collections.abc", "itertools", "dataclasses", "enum", "random", "typing"}
FILES = sorted(Path(moorline.protocol.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_decision_imports_nouns_errors_and_other_decisions_only(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert (
                name in ALLOWED or name == "moorline.errors" or name.startswith(("moorline.model", "moorline.protocol"))
            ), name


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_chance_is_an_argument(path):
    assert "random.random(" not in path.read_text()
    assert "random.uniform(" not in path.read_text()
