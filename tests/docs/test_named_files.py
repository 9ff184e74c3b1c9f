"""Files that the pages on internals, docstrings and comments name are there, so that a reader can open them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ROOT / "moorline"
PAGES = sorted([*ROOT.glob("docs/internals/**/*.md"), ROOT / "docs/glossary.md"])
IN_A_PAGE = re.compile(r"`([\w-]+(?:/[\w-]+)*(?:/|\.(?:py|md|js|toml)))`")
IN_CODE = re.compile(r"``([\w-]+(?:/[\w-]+)*(?:/|\.(?:py|md|js|toml)))``")
#: Names of files, and those that a user writes.
FILES = {path.name for path in CODE.rglob("*.*")} | {"script.py"}


def missing(text: str, named: re.Pattern[str], beside: Path) -> list[str]:
    """What a text names and is not there: from the project, from the package, or from a folder around the text.

    A name without a folder may be of any file: the sentence before has said where.
    """
    folders = [ROOT, CODE, beside, *(folder for folder in beside.parents if CODE in folder.parents)]
    names = sorted(set(named.findall(text)))
    return [name for name in names if name not in FILES and not any((folder / name).exists() for folder in folders)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_files_that_are_there(page: Path):
    assert missing(page.read_text(), IN_A_PAGE, page.parent) == []


def test_the_code_names_files_that_are_there():
    found = {
        str(path.relative_to(ROOT)): missing(path.read_text(), IN_CODE, path.parent) for path in CODE.rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_the_tour_and_the_journeys_name_files():
    for name in ("tour", "a-record", "a-checkpoint", "a-restart"):
        assert len(IN_A_PAGE.findall((ROOT / f"docs/internals/{name}.md").read_text())) > 10


def test_a_file_that_is_gone_would_be_found():
    assert missing("See `subtask/loop.py` and `model/`.", IN_A_PAGE, ROOT) == ["subtask/loop.py"]
    assert missing("``state/native_rows.py`` reads.", IN_CODE, ROOT) == ["state/native_rows.py"]
