"""Sizes as people write them: ``"256MB"``, or a number of bytes."""

from __future__ import annotations

import re

from moorline.errors import InvalidArgument

_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def size_in_bytes(size: str | int, what: str = "size") -> int:
    """``size`` in bytes; a kilobyte has 1,024 of them.

    >>> size_in_bytes("1.5MB"), size_in_bytes(100)
    (1572864, 100)
    """
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?i?b)\s*", size.lower()) if isinstance(size, str) else None
    if not match or match[2] not in _UNITS:
        raise InvalidArgument(what, size, 'Write a number of bytes or a text such as "256MB" or "2GB".')
    return int(float(match[1]) * _UNITS[match[2]])
