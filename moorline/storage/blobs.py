"""The storage system as we need it: seven guarantees, and nothing else.

Checkpoints rest on these. A storage system that keeps them can carry Moorline; one that does not cannot, however
close it comes. ``testing/contracts/store.py`` checks each of them, for our stores and for yours.

    1  put            makes a new file. It is durable when put returns. Names are never reused: a path that is
                      taken is an error and the file there stays as it was.
    2  put_if_absent  is atomic. Of several callers, in any process, at most one gets True, and then its bytes are
                      the file, durably. The others get False and change nothing.
    3  no partial     a file is seen whole or not at all, by get, by get_range and by list.
    4  get            returns what the writer wrote, as soon as the write has returned (no stale reads). A file
                      that is not there is BlobMissing. get_range returns fewer bytes only where the file ends.
    5  list           shows every file under a prefix whose write has returned and whose delete was not called.
    6  delete         removes what is there, durably, and does not mind what is not.
    7  failures       are StorageError. After one from put, put_if_absent or delete the outcome is unknown: the
                      file is there, whole, or it is not. The caller looks if it matters.

A path is relative, with ``/`` between its parts, and passes ``layout.check_path``; no store reaches outside of its
root. ``stores/open.py`` finds the store for a URL.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import NamedTuple, Protocol


class Blob(NamedTuple):
    """One file in a listing."""

    path: str
    size: int


class BlobStore(Protocol):
    """A folder of immutable files, somewhere. The module says what each method guarantees."""

    @property
    def url(self) -> str:
        """The address: ``open_store(url)`` opens the same folder in another process."""

    def put(self, path: str, data: bytes) -> None:
        """Make a new file, durably."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Make a new file, durably, unless the path is taken. Did we?"""

    def get(self, path: str) -> bytes:
        """The whole file."""

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        """``size`` bytes of a file from ``offset``; fewer where it ends."""

    # builtins.list: inside this class, ``list`` is the method.
    def list(self, prefix: str = "") -> builtins.list[Blob]:
        """Every file whose path begins with ``prefix``, at any depth, sorted by path."""

    def delete(self, paths: Iterable[str]) -> None:
        """Remove these files. Those that are not there are no problem."""

    def modified_ms(self, path: str) -> int:
        """The time a file was written, by the storage's clock: for people and grace times, never for order."""
