"""The identity of a map's keys: those that are stored as one, whatever Python's ``==`` says of them.

In memory a map is a dict, and in storage its keys have an encoding. Two kinds of keys would be one here and two there:

    a datetime in the repeated hour of a zone    ``fold`` is left out of ``==`` and of the hash, and is two moments
    NaN                                          is not equal to itself, so it is never found again

So a moment is turned into the same one at a fixed offset, which is what a snapshot gives back, and NaN is refused.
``state/guards.py`` asks for every key of a map that is put or looked for, on every backend.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

#: Keys of these types are what they are.
_PLAIN = frozenset((int, str, bytes, bool))


def is_plain(kind: type | None) -> bool:
    """Can a key of this type be taken as it is?"""
    return kind in _PLAIN


def one_of_equals(key: Any, refuse: Callable[[str], Exception]) -> Any:
    """The key that stands for all that are stored as this one. Raises ``refuse(why)`` for one that is never found.

    >>> from zoneinfo import ZoneInfo
    >>> first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    >>> second = first.replace(fold=1)
    >>> first == second, one_of_equals(first, ValueError) == one_of_equals(second, ValueError)
    (True, False)
    """
    if isinstance(key, datetime):
        offset = key.utcoffset()
        if offset is None or type(key.tzinfo) is timezone:
            return key
        return key.astimezone(timezone(offset))
    if type(key) in (tuple, frozenset):
        parts = [one_of_equals(part, refuse) for part in key]
        return key if all(new is old for new, old in zip(parts, key)) else type(key)(parts)
    if key != key:
        raise refuse("NaN is not equal to itself, so it would never be found again")
    return key
