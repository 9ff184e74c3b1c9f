"""The files that are given to the type checkers: programs of this folder, pages, examples and tests of the API."""

from __future__ import annotations

import re
from pathlib import Path

from checkers import ROOT

HERE = Path(__file__).parent
#: The code of the README with a mistake at its end.
CANARY = "readme_with_a_mistake.py"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
#: The pages of the protocol have doctests in them, for those who work on Moorline.
WITH_CODE = [p for p in PAGES if BLOCK.search(p.read_text()) and p.parent.name != "protocol"]
CODE = [*sorted(ROOT.glob("examples/*.py")), *sorted(ROOT.glob("tests/api/*.py"))]
PROGRAMS = [*sorted(HERE.glob("right_*.py")), *sorted(HERE.glob("wrong_*.py"))]


def module(path: Path) -> str:
    """A module name of its own for each file."""
    if path.parent == HERE:
        return path.name
    return re.sub(r"\W", "_", str(path.relative_to(ROOT).with_suffix(""))) + ".py"


def code_of(page: Path) -> str:
    """The blocks of a page as one program, in the lines where they stand."""
    text, code = page.read_text(), ""
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code += "\n" * (first - code.count("\n")) + block[1]
    return code
