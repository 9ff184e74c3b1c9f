"""Local folders: which one a user means, what in it is not for readers, and how a change of it becomes durable."""

from __future__ import annotations

import errno
import os
from urllib.parse import unquote

from moorline.errors import InvalidArgument
from moorline.model.locations import meant


def local_path(path: str | os.PathLike[str], what: str) -> str:
    """``path`` as an absolute local path; ``file://`` is understood.

    Made absolute where the job is built: a worker's current folder is another one.

    >>> local_path("file:///data/in%20box", "path"), local_path("/data/../in/", "path")
    ('/data/in box', '/in')
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(what, path, "Give the path of a file or folder as a text or a Path.")
    if text.startswith("file://"):
        host, slash, rest = text.removeprefix("file://").partition("/")
        if host not in ("", "localhost") or not slash:
            raise InvalidArgument(what, path, "A file URL has no host: file:///data/in.")
        text = unquote("/" + rest)
    elif "://" in text:
        raise InvalidArgument(what, path, "Give a local path such as /data/in or file:///data/in.")
    elif (url := meant(text)) is not None:
        raise InvalidArgument(what, path, f"Is {url} meant?")
    return os.path.abspath(os.path.expanduser(text))


def is_hidden(name: str) -> bool:
    """Is a file or folder of this name out of bounds for readers? Spark's rule, and that of our sink.

    >>> is_hidden("_SUCCESS"), is_hidden(".moorline-staging"), is_hidden("part-0.parquet"), is_hidden("_day=1")
    (True, True, False, False)
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def sync_folder(folder: str) -> None:
    """Make the names in ``folder`` durable: a file that was synced is lost all the same if its name is not."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder and need not.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
