"""The pictures of the web page in the documentation: of every view, and made by its tests (``make pictures``)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/web-page.md").read_text()


def test_every_picture_is_shown_and_made_by_a_test():
    there = {path.stem for path in (ROOT / "docs/images").glob("*.png")}
    shown = {
        name for page in ROOT.glob("docs/**/*.md") for name in re.findall(r"images/([\w-]+)\.png", page.read_text())
    }
    tests = "".join(path.read_text() for path in (ROOT / "tests/page").glob("test_*.py"))
    made = set(re.findall(r'picture\(\w+, "([\w-]+)"', tests))
    assert there == shown
    assert shown <= made


def test_the_guide_has_a_row_and_a_picture_of_every_view():
    app = (ROOT / "moorline/http/page/app.js").read_text()
    views = re.findall(r'^  "?(\w*)"?: \["([\w ]+)", \w+\]', app, re.MULTILINE)
    assert len(views) == 8
    for view, title in views:
        assert f"| {title} |" in GUIDE
        assert f"page-{view or 'overview'}.png" in GUIDE
