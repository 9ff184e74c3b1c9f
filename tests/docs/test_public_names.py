"""Guides, the tutorial and the examples show only what users may rely on: public modules, and the names they list."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/guides/*.md"), *ROOT.glob("docs/tutorial/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
#: With the suites for parts of a user's own, which are imported one by one: they need pytest.
PUBLIC = {
    *("moorline", "moorline.errors", "moorline.http.client", "moorline.snapshots", "moorline.testing"),
    *(f"moorline.testing.contracts.{suite}" for suite in ("backend", "external", "sink", "source", "store")),
}
#: Earlier places of public modules, which keep working.
EARLIER = {
    "moorline.client": "moorline.http.client",
    **{
        f"moorline.testing.{suite}_contract": f"moorline.testing.contracts.{suite}"
        for suite in ("external", "sink", "store")
    },
    "moorline.testing.backend_contract": "moorline.testing.contracts.backend",
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_of(page: Path) -> list[ast.Module]:
    blocks = [page.read_text()] if page.suffix == ".py" else BLOCK.findall(page.read_text())
    return [ast.parse(block) for block in blocks]


def is_public(module: str, imported: str | None = None) -> bool:
    if module not in PUBLIC:
        return False
    listed = getattr(importlib.import_module(module), "__all__", None)
    return imported is None or (not imported.startswith("_") if listed is None else imported in listed)


def private_names(code: ast.AST) -> list[str]:
    """What a piece of code uses of Moorline that is not public."""
    found = []
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.partition(".")[0] == "moorline" and not is_public(a.name)]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "moorline":
            assert node.module is not None
            found += [f"{node.module}.{a.name}" for a in node.names if not is_public(node.module, a.name)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mo":
            found += [f"mo.{node.attr}"] if not is_public("moorline", node.attr) else []
    return found


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=name)
def test_a_page_uses_public_names_only(page: Path):
    assert [private for code in code_of(page) for private in private_names(code)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import moorline.driver.loop",
        "from moorline.snapshots.tables.diff import diff",
        "from moorline import driver",
        "mo.api",
    ],
)
def test_a_name_that_is_not_public_would_be_found(line: str):
    assert private_names(ast.parse(line))


@pytest.mark.parametrize("earlier", EARLIER)
def test_the_earlier_place_of_a_module_has_the_same_names(earlier: str):
    module, now = importlib.import_module(earlier), importlib.import_module(EARLIER[earlier])
    assert module.__all__
    assert [getattr(module, name) for name in module.__all__] == [getattr(now, name) for name in module.__all__]
