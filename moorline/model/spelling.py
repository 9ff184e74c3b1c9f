"""The nearest known name to one that is not known: one way to say "did you mean" in every message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was probably meant to be, if there is one.

    >>> nearest("proces_element", ["process_element", "on_timer"])
    'process_element'
    >>> nearest("colour", ["process_element", "on_timer"]) is None
    True
    """
    names = {str(k).lower().replace("_", ""): str(k) for k in known}
    matches = difflib.get_close_matches(str(name).lower().replace("_", ""), names, n=1, cutoff=0.7)
    return names[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The same as a sentence with a space before it, or nothing.

    >>> did_you_mean("uuid", ["uid", "name"])
    " Did you mean 'uid'?"
    """
    suggestion = nearest(name, known)
    return f" Did you mean {suggestion!r}?" if suggestion is not None else ""
