"""A store that counts what is read from it, so that a restore can say how many bytes it took."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from moorline.storage.blobs import Blob, BlobStore


@dataclass
class Reads:
    """The bytes read so far, in how many reads, and the file that is being read just now."""

    bytes: int = 0
    count: int = 0
    path: str = ""

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        self.path = path
        try:
            yield
        finally:
            self.path, self.count = "", self.count + 1


class CountedStore:
    """The same store, with every byte that comes out of it counted.

    >>> from moorline.storage.stores.memory import MemoryStore
    >>> reads, store = Reads(), MemoryStore()
    >>> store.put("a", b"12345")
    >>> CountedStore(store, reads).get_range("a", 1, 3)
    b'234'
    >>> reads
    Reads(bytes=3, count=1, path='')
    """

    def __init__(self, store: BlobStore, reads: Reads) -> None:
        self._store, self._reads = store, reads

    @property
    def url(self) -> str:
        return self._store.url

    def get(self, path: str) -> bytes:
        with self._reads.reading(path):
            data = self._store.get(path)
        self._reads.bytes += len(data)
        return data

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        with self._reads.reading(path):
            data = self._store.get_range(path, offset, size)
        self._reads.bytes += len(data)
        return data

    def put(self, path: str, data: bytes) -> None:
        self._store.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._store.put_if_absent(path, data)

    def list(self, prefix: str = "") -> builtins.list[Blob]:
        return self._store.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        self._store.delete(paths)

    def modified_ms(self, path: str) -> int:
        return self._store.modified_ms(path)
