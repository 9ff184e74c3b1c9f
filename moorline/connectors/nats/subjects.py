"""Subjects of NATS: texts with dots, in which ``*`` stands for one part and a final ``>`` for one or more.

This file performs no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

#: A part of a subject, in which nothing means anything.
_PART = re.compile(r"[^\s.*>\x00-\x1f\x7f]+")


def is_subject(text: object) -> bool:
    """Can a message be sent to it?

    >>> [is_subject(text) for text in ("orders.eu", "orders.*", "orders..eu", "a b", "")]
    [True, False, False, False, False]
    """
    return isinstance(text, str) and all(_PART.fullmatch(part) for part in text.split("."))


def is_filter(text: object) -> bool:
    """Can messages be chosen by it?

    >>> [is_filter(text) for text in ("orders.eu", "orders.*", ">", "orders.>.eu", "orders.e*")]
    [True, True, True, False, False]
    """
    if not isinstance(text, str):
        return False
    *parts, last = text.split(".")
    return all(part == "*" or _PART.fullmatch(part) for part in parts) and bool(
        last in ("*", ">") or _PART.fullmatch(last)
    )


def overlap(one: str, other: str) -> bool:
    """Is there a subject that both filters choose?

    >>> overlap("a.*", "a.b"), overlap("a.>", "*.b.c"), overlap("a.*", "a.b.c"), overlap("a.>", "a")
    (True, True, False, False)
    """
    left, right = one.split("."), other.split(".")
    for a, b in zip(left, right):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(left) == len(right)


def is_chosen(subject: str, filters: Iterable[str]) -> bool:
    """Does one of the filters choose a subject?"""
    return any(overlap(subject, filter) for filter in filters)


def as_part(text: str) -> str:
    """A part of a subject for any text, another one for each.

    >>> as_part("orders.eu/1 a")
    'orders%2Eeu%2F1%20a'
    """
    return quote(text, safe="").replace(".", "%2E") or "%"
