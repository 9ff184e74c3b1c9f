"""Pages of the site that are not in ``docs/``: the API reference, the examples, and those at the root of the project.

The pages in ``docs/`` link to files outside of it, which is right for readers of a clone. Here such a
link leads to the page made of that file; one to a test or to a module becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import public_names

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
FOLDERS = ["tutorial", "guides", "concepts", "reference", "api", "internals", "decisions", "examples", "project"]


def slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def made() -> dict[str, str]:
    """The text of each page that is made, by its path in the site."""
    pages = {}
    for title, names in public_names.grouped().items():
        # A constant is an instance: it is shown where it stands, without members.
        pages[f"api/{slug(title)}.md"] = f"# {title}\n\n" + "\n\n".join(f"::: {name}" for name in names) + "\n"
    for example in sorted(ROOT.glob("examples/*.py")):
        title = example.stem.replace("_", " ").capitalize()
        pages[f"examples/{example.stem}.md"] = f"# {title}\n\n```python\n{example.read_text()}```\n"
    for page in sorted(ROOT.glob("*.md")):
        pages[f"project/{page.name.lower()}"] = _rooted(page.read_text())
    return pages


def _rooted(text: str) -> str:
    """A page of the root as it stands in ``project/``: its links lead one level up, and not into ``docs/``."""

    def moved(link: re.Match[str]) -> str:
        target = link[2]
        if "://" in target or target.startswith("#"):
            return link[0]
        path = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
        return f"[{link[1]}](../{path})"

    return _outside_code(text, moved)


def _outside_code(text: str, change: Any) -> str:
    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(change, part) for part in parts)


def on_files(files: Files, config: Any) -> Files:
    for path, text in made().items():
        files.append(File.generated(config, path, content=text))
    config.nav = _nav(files)
    return files


def _nav(files: Files) -> list[Any]:
    paths = sorted(file.src_uri for file in files.documentation_pages())
    nav: list[Any] = ["index.md", "glossary.md"]
    for folder in FOLDERS:
        pages = [path for path in paths if path.startswith(f"{folder}/")]
        nav.append({"API" if folder == "api" else folder.capitalize(): pages})
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = posixpath.dirname(page.file.src_uri)

    def inside(link: re.Match[str]) -> str:
        target, _, anchor = link[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(here, target))
        if files.get_file_from_path(path) is not None or not path.startswith(".."):
            return link[0]
        # Outside of docs/: docs/ is one level below the root, so the first ".." leads to the root.
        rooted = path.removeprefix("../")
        if not (ROOT / rooted).exists():
            return link[0]
        name = posixpath.basename(rooted)
        if rooted.startswith("examples/") and rooted.endswith(".py"):
            page_path = f"examples/{name.removesuffix('.py')}.md"
        elif "/" not in rooted and rooted.endswith(".md"):
            page_path = f"project/{name.lower()}"
        else:
            return link[1]
        return f"[{link[1]}]({posixpath.relpath(page_path, here or '.')}{'#' + anchor if anchor else ''})"

    return _outside_code(markdown, inside)
