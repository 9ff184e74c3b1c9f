"""The files of the web page: read once from the package, and sent to whoever asks for them.

They are the same for every job and hold nothing of it, so they are sent without a token: a browser asks for a page
before it can be given one. What the page shows it asks for with the token, which it takes from the fragment of its URL,
and a fragment is never sent to a server.

The policy that goes with them lets a browser run the files of this folder and nothing else: no script or style inside
a page, nothing from another host, no form, no frame around it.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: Sent with every file.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}


class PageFile(NamedTuple):
    """A file, and what it is."""

    content_type: str
    data: bytes


@cache
def page_files() -> dict[str, PageFile]:
    """The files by the path that a browser asks for.

    >>> page_files()["/"].content_type
    'text/html; charset=utf-8'
    """
    found: dict[str, PageFile] = {}
    _collect(resources.files("moorline.http") / "page", "/page", found)
    found["/"] = found.pop("/page/index.html")
    found["/favicon.ico"] = found["/page/icon.svg"]
    return found


def _collect(folder: Traversable, path: str, found: dict[str, PageFile]) -> None:
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            _collect(entry, name, found)
        elif (content_type := _TYPES.get("." + entry.name.rpartition(".")[2])) is not None:
            found[name] = PageFile(content_type, entry.read_bytes())
