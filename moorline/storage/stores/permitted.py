"""Whether a folder that a client names lies where the operator has said that snapshots may go.

By text alone: nothing is opened, looked up or resolved for a caller that may not write there. What is left below a
permitted location must be plain names, so neither ``..`` nor an encoding of it nor a second URL leads out of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from moorline.errors import SavepointNotPermitted

_NAMES = re.compile(r"(/[A-Za-z0-9_=][A-Za-z0-9._=-]*)+")


def check_savepoint(path: str, permitted: Sequence[str]) -> None:
    """Raise :class:`SavepointNotPermitted` unless ``path`` lies below one of the locations.

    >>> check_savepoint("s3://bucket/savepoints/monday", ["s3://bucket/savepoints"])
    >>> check_savepoint("s3://elsewhere/monday", ["s3://bucket/savepoints"])
    Traceback (most recent call last):
    moorline.errors.SavepointNotPermitted: no savepoint can be asked for at 's3://elsewhere/monday'...
    """
    wanted = _canonical(path)
    for location in map(_canonical, permitted):
        if wanted.startswith(location) and _NAMES.fullmatch(wanted.removeprefix(location)):
            return
    raise SavepointNotPermitted(path, tuple(permitted))


def _canonical(url: str) -> str:
    """A URL as all spellings of the same folder have it; a folder is its absolute path."""
    if "://" in url and not url.startswith("file:"):
        return url.rstrip("/")
    folder = url
    if url.startswith("file:"):
        # file:/x, file:///x and file://localhost/x are one folder; what is none of these is not opened later either.
        folder = unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", url))
    return str(Path(folder).absolute()).rstrip("/")
