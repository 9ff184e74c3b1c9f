"""Names of classes and fields in the text of a type, which is for people and for nothing else."""

from __future__ import annotations

import json
import re

#: Names that stand in a text as they are.
SAFE_CLASS, SAFE_FIELD = re.compile(r"[\w.<>]+"), re.compile(r"\w+")


def class_text(qualname: str) -> str:
    """A class, by its qualified name.

    >>> class_text("f.<locals>.Basket"), class_text("a, b")
    ('f.<locals>.Basket', '"a, b"')
    """
    return _quoted(qualname, SAFE_CLASS)


def field_text(name: str) -> str:
    """The name of a field."""
    return _quoted(name, SAFE_FIELD)


def _quoted(name: str, safe: re.Pattern[str]) -> str:
    """A name as it is; as JSON text, if it could be taken for something else."""
    return name if safe.fullmatch(name) else json.dumps(name)
