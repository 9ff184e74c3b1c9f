"""The documentation as a site, built as ``make docs`` does: a link or an anchor that leads nowhere is fatal."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
public_names = importlib.import_module("public_names")

pytest.importorskip("mkdocstrings", reason="the site needs: pip install '.[docs]'")
site_pages = importlib.import_module("site_pages")
site_docstrings = importlib.import_module("site_docstrings")


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: warnings that are not printed do not count, and --strict would let everything pass.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(target)]
    settings = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("site")
    built = build(ROOT / "mkdocs.yml", target)
    assert built.returncode == 0, built.stderr
    return target


def test_every_public_name_has_a_place_in_the_reference(site):
    text = "".join(page.read_text() for page in site.glob("api/*.html"))
    ids = set(re.findall(r'id="([\w.]+)"', text))
    assert [n for names in public_names.grouped().values() for n in names if n not in ids] == []


def test_the_site_fetches_nothing_from_elsewhere(site):
    fetched = re.compile(r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//[^"]*"|<link[^>]*href="(?:https?:)?//[^"]*"')
    assert [
        fetched.findall(page.read_text()) for page in site.rglob("*.html") if fetched.search(page.read_text())
    ] == []


def test_roles_and_doctests_of_docstrings_are_shown_as_code(site):
    text = (site / "api/state.html").read_text()
    assert ":class:" not in text
    assert "&gt;&gt;&gt;" in text
    assert "<blockquote>" not in text


def test_a_page_links_to_examples_and_to_pages_of_the_root(site):
    assert 'href="../examples/broadcast_rules.html"' in (site / "guides/broadcast-state.html").read_text()
    assert 'href="project/readme.html"' in (site / "index.html").read_text()


@pytest.mark.parametrize("link", ["guides/missing.md", "glossary.md#missing", "#missing"])
def test_a_link_that_leads_nowhere_is_fatal(link, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Page\n\n[text]({link})\n")
    (docs / "glossary.md").write_text("# Glossary\n")
    validation = (ROOT / "mkdocs.yml").read_text().partition("\nvalidation:")[2]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\ndocs_dir: {docs}\nvalidation:{validation}")
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode != 0
    assert "missing" in built.stderr


def test_a_docstring_becomes_markdown():
    assert site_docstrings.shown("See :class:`~a.b.Job`.\n\n>>> 1 + 1\n2\n\nEnd.") == (
        "See `Job`.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nEnd."
    )
