"""Docstrings as the site shows them: they are written for a reader of the code and of ``help()``.

Roles such as ``:class:`Job``` become plain code, and doctests become blocks of code.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
from public_names import without_roles

#: A doctest: from a line that begins with a prompt to the next empty line or the end.
DOCTEST = re.compile(r"^( *)>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def shown(docstring: str) -> str:
    """The Markdown of a docstring."""
    return DOCTEST.sub(lambda test: f"{test[1]}```pycon\n{test[0]}\n{test[1]}```", without_roles(docstring))


class Docstrings(griffe.Extension):
    """Rewrites each docstring when it is found."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)
