"""What a reader has to hold in mind at once stays small: files, functions, classes and folders have a limit.

Who needs more names it here, with a number and a reason. The number is a limit as well, and an exception that is no
longer needed has to go.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = ROOT / "moorline"

#: A docstring is not counted among the lines of a function, nor ``__init__.py`` among the files of a folder. Fields are
#: those of a record, which no method of its own changes: it is read like a table. All else has attributes.
LIMITS = {
    "lines of a file": 400,
    "lines of a function": 60,
    "attributes": 15,
    "fields": 20,
    "methods": 25,
    "files of a folder": 15,
}

SUITE = "a contract: its methods are tests, which are read one by one"
EXCEPTIONS: dict[tuple[str, str], tuple[int, str]] = {
    ("lines of a file", "__init__.py"): (430, "the list of public names, written out by hand"),
    ("lines of a file", "testing/contracts/backend/base.py"): (401, SUITE),
    ("lines of a file", "state/heap/states.py"): (413, "five kinds of state, one below the other, of the same shape"),
    ("lines of a file", "testing/harness.py"): (450, "most of it is documentation: it is read as a page"),
    ("lines of a function", "spark/run.py: start"): (
        90,
        "half of it are the options of a job and their defaults",
    ),
    ("lines of a function", "subtask/windows/batches.py: gathered"): (75, "the loop over every record of a window"),
    ("attributes", "driver/checkpoints/coordinator.py: AttemptCheckpoints"): (
        16,
        "what decides, and what is observed",
    ),
    ("attributes", "state/rocksdb/cells.py: Cells"): (16, "bound once, so that an access looks nothing up"),
    ("attributes", "state/types/composite.py: StructType"): (16, "bound once, so that a value looks nothing up"),
    ("attributes", "subtask/operators/base.py: ChainedOperator"): (17, "what the chain gives to every operator"),
    ("attributes", "subtask/inputs.py: Inputs"): (
        17,
        "used for every frame: another object would be a look-up more",
    ),
    ("attributes", "subtask/output.py: Output"): (
        16,
        "used for every batch: another object would be a look-up more",
    ),
    ("methods", "driver/checkpoints/coordinator.py: AttemptCheckpoints"): (26, "one for each thing that may happen"),
    ("methods", "spark/handle.py: Handle"): (27, "one for each thing that may be asked of a running job"),
    ("methods", "subtask/task.py: Subtask"): (26, "one for each message that the driver may send"),
    ("methods", "testing/harness.py: OperatorHarness"): (28, "one for each thing that a test may do to a function"),
    ("methods", "testing/contracts/backend/timers.py: Timers"): (27, SUITE),
    ("methods", "testing/contracts/backend/values.py: Values"): (28, SUITE),
    ("methods", "testing/contracts/sink.py: SinkContract"): (30, SUITE),
    ("files of a folder", "cli/commands"): (20, "one command each, under its name"),
    ("files of a folder", "model"): (17, "nouns, each used by many packages; those that belong together have rooms"),
    ("files of a folder", "protocol"): (19, "one machine or decision each; the names are the table of contents"),
    ("files of a folder", "subtask"): (16, "the parts of a subtask; those that belong together have rooms"),
    ("files of a folder", "subtask/operators"): (16, "one kind of operator each, beside the base of all"),
}


@cache
def measured() -> list[tuple[str, str, int]]:
    return list(_measured())


def _measured() -> Iterator[tuple[str, str, int]]:
    """What is measured, of which thing, and how large it is."""
    for path in sorted(CODE.rglob("*.py")):
        name, text = str(path.relative_to(CODE)), path.read_text()
        yield "lines of a file", name, text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield "lines of a function", f"{name}: {node.name}", lines_of(node)
            elif isinstance(node, ast.ClassDef):
                yield "fields" if is_record(node) else "attributes", f"{name}: {node.name}", len(attributes_of(node))
                yield "methods", f"{name}: {node.name}", len(methods_of(node))
    for folder in sorted({path.parent for path in CODE.rglob("*.py")}):
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        yield "files of a folder", str(folder.relative_to(CODE)), len(files)


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    has_docstring = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def methods_of(kind: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in kind.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_record(kind: ast.ClassDef) -> bool:
    """Has it fields, and no method that assigns to ``self``?"""
    return any(isinstance(node, ast.AnnAssign) for node in kind.body) and not assigned_in(kind)


def assigned_in(kind: ast.ClassDef) -> set[str]:
    """What methods assign to ``self``."""
    found = set()
    for method in methods_of(kind):
        for node in ast.walk(method):
            match node:
                case ast.Attribute(ast.Name("self"), name, ast.Store()):
                    found.add(name)
    return found


def attributes_of(kind: ast.ClassDef) -> set[str]:
    """Fields that are declared, and all that methods assign to ``self``."""
    fields = [node for node in kind.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    return assigned_in(kind) | {node.target.id for node in fields if "ClassVar" not in ast.unparse(node.annotation)}


@pytest.mark.parametrize("what", LIMITS)
def test_nothing_is_larger_than_it_may_be(what: str):
    too_large = {
        thing: size
        for kind, thing, size in measured()
        if kind == what and size > EXCEPTIONS.get((what, thing), (LIMITS[what], ""))[0]
    }
    assert not too_large, f"more than {LIMITS[what]} {what}: split it, or say in {Path(__file__).name} why it is one"


def test_every_exception_is_needed():
    too_large = {(what, thing) for what, thing, size in measured() if size > LIMITS[what]}
    assert EXCEPTIONS.keys() - too_large == set()


SAMPLE = """
class A:
    x: int

    def f(self):
        '''Two lines,

        and one more.'''
        self.a = self.b, self.c = 1, 2
"""


def test_what_is_too_large_would_be_found():
    (kind,) = ast.parse(SAMPLE).body
    assert isinstance(kind, ast.ClassDef)
    (method,) = methods_of(kind)
    assert (attributes_of(kind), is_record(kind), lines_of(method)) == ({"x", "a", "b", "c"}, False, 2)
