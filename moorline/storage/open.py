"""Which store a URL means.

Locations come from the user and travel to workers as text, so both sides open their store here.
"""

from __future__ import annotations

import threading
from pathlib import Path
from urllib.parse import unquote

from moorline.errors import InvalidArgument
from moorline.storage.blobs import BlobStore
from moorline.storage.local import LocalStore
from moorline.storage.memory import MemoryStore

_memory: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()

_SUPPORTED = (
    "Supported are a folder that every machine of the cluster sees (a path, or file:///path) "
    "and memory://name, which lives and dies with this process."
)


def open_store(url: str) -> BlobStore:
    """The store at ``url``. Nothing is created before the first write.

    >>> open_store("memory://tour").url
    'memory://tour'
    >>> open_store("/data/checkpoints").url
    'file:///data/checkpoints'
    """
    if url.startswith("memory://"):
        name = url.removeprefix("memory://").strip("/")
        with _memory_lock:
            return _memory.setdefault(name, MemoryStore(name))
    return LocalStore(_folder(url))


def _folder(url: str) -> Path:
    path = url
    if url.startswith("file:"):
        path = url.removeprefix("file:")
        if path.startswith("//"):
            host, _, rest = path.removeprefix("//").partition("/")
            # file://data/x is nearly always a slash too few, and would be a machine called "data".
            path = f"/{rest}" if host in ("", "localhost") else ""
        path = unquote(path) if path.startswith("/") else ""
    elif "://" in url:
        path = ""
    if not path or "\0" in path:
        raise InvalidArgument("storage location", url, _SUPPORTED)
    return Path(path)
