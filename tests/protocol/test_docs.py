"""The pages in ``docs/internals/protocol`` say what the code says: tables, transcripts and examples.

``REWRITE=1`` prints tables and transcripts into the pages anew.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
from pathlib import Path
from types import ModuleType

import pytest
import transcript

import moorline.protocol

PAGES = Path(__file__).parents[2] / "docs" / "internals" / "protocol"
FOLDER = Path(moorline.protocol.__file__).parent
#: ``supervision/events`` has the words of ``job`` and is on its page.
WITHOUT_PAGE = ("__init__", "events")
#: The files of the package and of its folders. No two have the same name, so each has a page of its name.
FILES = {path.stem: path.relative_to(FOLDER) for path in FOLDER.rglob("*.py") if path.stem not in WITHOUT_PAGE}
MODULES = sorted(FILES)
BLOCK = re.compile(r"<!-- (table|transcript): (\S+) -->\n```text\n(.*?)\n```", re.DOTALL)


def page(module: str) -> Path:
    return PAGES / f"{module}.md"


def imported(module: str) -> ModuleType:
    return importlib.import_module(".".join(["moorline.protocol", *FILES[module].with_suffix("").parts]))


def docstring(module: str) -> str:
    return inspect.cleandoc(imported(module).__doc__ or "")


def table(module: str) -> str:
    """The first indented or bulleted block of a module's docstring, or else its second paragraph."""
    paragraphs = docstring(module).split("\n\n")
    for n, paragraph in enumerate(paragraphs):
        if paragraph.startswith(("    ", "- ")):
            return "\n".join(line.removeprefix("    ") for line in paragraphs[n].splitlines())
    return paragraphs[1]


def printed(kind: str, name: str) -> str:
    return table(name) if kind == "table" else (transcript.FOLDER / name).read_text().rstrip()


@pytest.mark.parametrize("module", MODULES)
def test_every_machine_has_its_page_with_its_table_and_transcripts(module):
    text = page(module).read_text()
    if os.environ.get("REWRITE"):
        text = BLOCK.sub(lambda m: f"<!-- {m[1]}: {m[2]} -->\n```text\n{printed(m[1], m[2])}\n```", text)
        page(module).write_text(text)
    blocks = BLOCK.findall(text)
    assert ("table", module) in [(kind, name) for kind, name, _ in blocks]
    for kind, name, content in blocks:
        assert content == printed(kind, name), f"{kind} {name} in {page(module)} is out of date: REWRITE=1"


@pytest.mark.parametrize("module", MODULES)
def test_every_page_has_something_to_see(module):
    text = page(module).read_text()
    assert "<!-- transcript:" in text or ">>>" in text


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_page_run(module):
    failed, _ = doctest.testfile(str(page(module)), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert not failed


@pytest.mark.parametrize("module", MODULES)
def test_every_event_and_action_is_on_its_page(module):
    code = imported(module)
    text = page(module).read_text()
    for union in ("Event", "Action", "Decision"):
        for cls in getattr(getattr(code, union, None), "__args__", ()):
            assert f"`{cls.__name__}`" in text, f"{cls.__name__} is not explained in {page(module)}"


def test_the_index_leads_to_every_page():
    text = (PAGES / "index.md").read_text()
    for module in MODULES:
        assert f"({module}.md)" in text
    assert sorted(p.stem for p in PAGES.glob("*.md")) == sorted([*MODULES, "index"])


@pytest.mark.parametrize("module", MODULES)
def test_who_drives_a_machine_is_a_file_that_exists(module):
    named = re.findall(r"`((?:driver|subtask|spark|testing|storage|state)/[\w/]+\.py)`", page(module).read_text())
    assert named
    for name in named:
        assert (FOLDER.parent / name).exists(), name
