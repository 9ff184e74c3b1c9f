"""The store that a URL names.

    /data/x, file:///data/x              a folder that every machine sees             stores/local.py
    memory://name                        this process's memory, for tests             stores/memory.py
    s3://…, gs://…, az://…               a bucket, by obstore (extra object-store)    stores/object_store.py
    fsspec+<protocol>://…, hdfs://…,     any filesystem of fsspec's (extra fsspec)    stores/fsspec.py
    sftp://… and so on

Locations come from the user and travel to workers as text, so both sides open their store here. What it takes to open
one beside the URL (credentials, an endpoint) is given to each process once, by :func:`remember_options`, and is found
again by location: a savepoint in the bucket of the checkpoints needs nothing said twice.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from moorline.errors import InvalidArgument
from moorline.model.locations import meant
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.probe import probe

_memory: dict[str, MemoryStore] = {}
_options: dict[str, dict[str, Any]] = {}
_lock = threading.Lock()

_SCHEME = re.compile(r"([a-z0-9+.]+)://")
_PASSWORD = re.compile(r"([a-z0-9+.]+://[^/@:]*):[^/]*@", re.IGNORECASE)
_BUCKETS = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
#: Schemes that fsspec would fetch from, but that cannot be written to.
_NOT_STORAGE = ("http", "https", "data", "github", "git", "zip", "tar", "libarchive", "reference", "filecache")
_SUPPORTED = (
    "Supported are a folder that every machine of the cluster sees (a path, or file:///path), a bucket (s3://, gs://, "
    "az://), a filesystem of fsspec's (fsspec+<protocol>://), and memory://name, which lives and dies with the process."
)


def open_store(url: str) -> BlobStore:
    """The store at ``url``. Nothing is created before the first write.

    >>> open_store("memory://tour").url
    'memory://tour'
    >>> open_store("/data/checkpoints").url
    'file:///data/checkpoints'
    """
    _refuse_password(url)
    if url.startswith("memory://"):
        name = url.removeprefix("memory://").strip("/")
        with _lock:
            return _memory.setdefault(name, MemoryStore(name))
    scheme = match[1] if (match := _SCHEME.match(url)) else ""
    if scheme in _BUCKETS:
        store: BlobStore = _extra("moorline.storage.stores.object_store", "object-store", url).ObjectStore(
            url, _options_of(url)
        )
        return store
    if scheme not in ("", "file", *_NOT_STORAGE) and (scheme.startswith("fsspec+") or _is_known_to_fsspec(scheme)):
        store = _extra("moorline.storage.stores.fsspec", "fsspec", url).FsspecStore(url, _options_of(url))
        return store
    return LocalStore(_folder(url), shared=_is_shared(url))


def _refuse_password(url: str) -> None:
    """A location is shown and logged in many places, so nothing secret may be in it."""
    if (match := _PASSWORD.match(url)) is not None:
        raise InvalidArgument(
            "storage location",
            f"{match[1]}:***@{url[match.end() :]}",
            "A location is shown and logged: give user and password in storage_options={...} instead.",
        )


def remember_options(location: str, options: Mapping[str, Any] | None) -> None:
    """From now on, stores at ``location``, or elsewhere in its bucket, are opened with these options."""
    if not location:
        return
    place = _place(location)
    if place.startswith("file:"):
        _check_local(location, options or {})
    with _lock:
        if options:
            _options[place] = dict(options)
        else:
            _options.pop(place, None)


def open_for_history(url: str, allow_unfenced: bool) -> BlobStore:
    """The store at ``url``, if it can be written to, and if two drivers cannot spoil each other's history there.

    ``allow_unfenced``: the user takes the risk of the second.
    """
    store = open_store(url)
    if getattr(store, "is_fenced", True) or allow_unfenced:
        probe(store, exclusive=not allow_unfenced)
        return store
    raise InvalidArgument(
        "checkpoints",
        url,
        "This filesystem cannot create a file on the condition that there is none, so a driver that was given up and "
        "its successor could both write the job's history. Use a folder, s3://, gs:// or az:// (obstore), or s3fs or "
        "gcsfs by fsspec; or see to it yourself that there is never a second driver, and say allow_unfenced=True.",
    )


def _options_of(url: str) -> dict[str, Any]:
    """Those of the longest location that ``url`` lies in, else of one in the same bucket or on the same host."""
    with _lock:
        within = [place for place in _options if f"{url}/".startswith(f"{place}/")]
        beside = [place for place in _options if place.split("/")[:3] == url.split("/")[:3]]
        place = max(within, key=len) if within else beside[-1] if beside else None
        return dict(_options[place]) if place is not None else {}


def _place(url: str) -> str:
    """A URL under which options are kept; that of a folder has all spellings of it in one."""
    is_folder = url.startswith("file:") or "://" not in url
    return (_folder(url).absolute().as_uri() if is_folder else url).rstrip("/")


def _is_shared(url: str) -> bool:
    return bool(_options_of(_place(url)).get("shared"))


def _check_local(location: str, options: Mapping[str, Any]) -> None:
    if options.keys() - {"shared"} or not isinstance(options.get("shared", False), bool):
        advice = f"For a folder such as {location} there is 'shared' alone. True: for others too, as the umask says."
        raise InvalidArgument("storage_options", sorted(options), advice)


def _is_known_to_fsspec(scheme: str) -> bool:
    try:
        return scheme in importlib.import_module("fsspec").available_protocols()
    except ImportError:
        return False


def _extra(module: str, extra: str, url: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        advice = f"It needs a package that is not there ({error.name}): pip install 'moorline[{extra}]'."
        raise InvalidArgument("storage location", url, advice) from error


def _folder(url: str) -> Path:
    path = url
    if url.startswith("file:"):
        path = url.removeprefix("file:")
        if path.startswith("//"):
            host, _, rest = path.removeprefix("//").partition("/")
            # file://data/x is nearly always a slash too few, and would be a machine called "data".
            path = f"/{rest}" if host in ("", "localhost") else ""
        path = unquote(path) if path.startswith("/") else ""
    elif "://" in url and meant(url) is None:
        path = ""
    if not path or "\0" in path:
        raise InvalidArgument("storage location", url, _SUPPORTED)
    if (url_meant := meant(path)) is not None:
        raise InvalidArgument("storage location", url, f"Is {url_meant} meant? {_SUPPORTED}")
    path = os.path.expanduser(path)
    return Path(path)
