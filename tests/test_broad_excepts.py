"""Who catches every exception says why beside it, unless it only tidies up and passes the exception on."""

from __future__ import annotations

import ast
from pathlib import Path

CODE = Path(__file__).parent.parent / "moorline"


def unexplained(text: str) -> list[int]:
    """The lines of broad handlers that say nothing."""
    lines = text.splitlines()
    handlers = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ExceptHandler)]
    return sorted(
        handler.lineno
        for handler in handlers
        if is_broad(handler) and not passes_on(handler) and "#" not in lines[handler.lineno - 1]
    )


def is_broad(handler: ast.ExceptHandler) -> bool:
    caught = [] if handler.type is None else [node for node in ast.walk(handler.type) if isinstance(node, ast.Name)]
    return not caught or any(name.id in ("Exception", "BaseException") for name in caught)


def passes_on(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_every_broad_handler_says_why_it_is_broad():
    found = {str(path): unexplained(path.read_text()) for path in CODE.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_one_that_says_nothing_would_be_found():
    handler = "try:\n    work()\nexcept {}\n    {}\n"
    assert unexplained(handler.format("Exception as error:", "tell(error)")) == [3]
    assert unexplained(handler.format("(ValueError, BaseException):", "pass")) == [3]
    assert unexplained(handler.format(":", "pass").replace(" :", ":")) == [3]
    assert unexplained(handler.format("Exception:  # of the user's", "pass")) == []
    assert unexplained(handler.format("BaseException:", "raise")) == []
    assert unexplained(handler.format("ValueError:", "pass")) == []
