"""Imports go one way: the tree reads like the data path, and stays so."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "moorline"

#: What each package may import, beside itself, errors and failpoints.
ALLOWED = {
    "model": set(),
    "api": {"model"},
    "protocol": {"model"},
    "state": {"model", "api", "protocol"},
    "storage": {"model", "protocol"},
    "subtask": {"model", "api", "protocol", "state", "storage"},
    "snapshots": {"model", "api", "protocol", "state", "storage"},
    "driver": {"model", "api", "protocol", "state", "storage", "snapshots"},
    "tables": {"model", "api", "protocol", "state", "storage", "snapshots"},
    "connectors": {"model", "api"},
    "testing": {"model", "api", "protocol", "state", "storage", "subtask", "driver", "connectors"},
    "endpoint": {"model"},
    "spark": {"model", "api", "protocol", "state", "storage", "subtask", "driver", "tables", "endpoint"},
    "console": {
        *("model", "api", "protocol", "state", "storage", "subtask", "driver", "tables"),
        *("endpoint", "client", "connectors", "spark", "planning"),
    },
}
#: No clock, no thread, no log, no file.
IMPURE = {"time", "threading", "logging", "socket", "os", "io", "pathlib", "subprocess", "tempfile", "asyncio"}
MODULES = [(package, path) for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]


def imports(path: Path) -> set[str]:
    """Every module that a file imports, type-checking imports left out."""
    tree = ast.parse(path.read_text())
    ignored = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "TYPE_CHECKING" in ast.unparse(test.test)
        for node in ast.walk(test)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "moorline":
                found |= {f"moorline.{alias.name}" for alias in node.names}
            else:
                found.add(node.module)
    return found


@pytest.mark.parametrize(("package", "path"), MODULES, ids=lambda v: str(v) if isinstance(v, str) else v.stem)
def test_a_package_imports_only_what_lies_below_it(package: str, path: Path):
    packages = {name.split(".")[1] for name in imports(path) if name.startswith("moorline.")}
    assert packages - {package, "errors", "failpoints"} <= ALLOWED[package]


@pytest.mark.parametrize("path", sorted((ROOT / "protocol").glob("*.py")), ids=lambda p: p.stem)
def test_decisions_are_pure(path: Path):
    assert not {name.split(".")[0] for name in imports(path)} & IMPURE


def test_only_one_package_knows_spark():
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] != "spark":
            assert not {name for name in imports(path) if name.split(".")[0] in ("pyspark", "py4j")}, path


def test_subtask_and_driver_never_import_each_other():
    for one, other in (("subtask", "driver"), ("driver", "subtask")):
        for path in (ROOT / one).glob("*.py"):
            assert not {n for n in imports(path) if n.startswith(f"moorline.{other}")}, path
