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
    >>> nearest("udi", ["name", "uid"])
    'uid'
    """
    names = {str(k).lower().replace("_", ""): str(k) for k in known}
    given = str(name).lower().replace("_", "")
    if matches := difflib.get_close_matches(given, names, n=1, cutoff=0.7):
        return names[matches[0]]
    # Of a short name two letters in the wrong order are a third of it.
    return next((meant for known_name, meant in names.items() if sorted(known_name) == sorted(given)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The same as a sentence with a space before it, or nothing.

    >>> did_you_mean("uuid", ["uid", "name"])
    " Did you mean 'uid'?"
    """
    suggestion = nearest(name, known)
    return f" Did you mean {suggestion!r}?" if suggestion is not None else ""
