"""Stores that count, fail or lie, around a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moorline.errors import StorageError
from moorline.storage.blobs import Blob, BlobStore
from moorline.storage.stores.memory import MemoryStore


class WrappedStore:
    """Passes everything on. ``before`` sees each operation first and may raise."""

    def __init__(self, inner: BlobStore | None = None, before: Callable[[str, str], None] | None = None) -> None:
        self.inner: BlobStore = inner if inner is not None else MemoryStore("wrapped")
        self.before: Callable[[str, str], None] = before or (lambda operation, path: None)
        self.ranges: list[tuple[str, int, int]] = []

    @property
    def url(self) -> str:
        return self.inner.url

    def put(self, path: str, data: bytes) -> None:
        self.before("put", path)
        self.inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.before("put_if_absent", path)
        return self.inner.put_if_absent(path, data)

    def get(self, path: str) -> bytes:
        self.before("get", path)
        return self.inner.get(path)

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        self.before("get_range", path)
        self.ranges.append((path, offset, size))
        return self.inner.get_range(path, offset, size)

    def list(self, prefix: str = "") -> list[Blob]:
        self.before("list", prefix)
        return self.inner.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        # One by one, so that a crash can fall between two of them.
        for path in paths:
            self.before("delete", path)
            self.inner.delete([path])


class Crash(BaseException):
    """The process is gone. No handler of ours catches it."""


def crash_at(step: int) -> Callable[[str, str], None]:
    """Crash right before the ``step``-th change to the store."""
    left = step

    def before(operation: str, path: str) -> None:
        nonlocal left
        if operation in ("put", "put_if_absent", "delete"):
            if left == 0:
                raise Crash
            left -= 1

    return before


class UnsureStore(WrappedStore):
    """The next put_if_absent fails: before it took effect, or after, or its reply is lost and it arrives late."""

    def __init__(self, inner: BlobStore, how: str) -> None:
        super().__init__(inner)
        self.how = how
        self.late: tuple[str, bytes] | None = None

    def put_if_absent(self, path: str, data: bytes) -> bool:
        how, self.how = self.how, "fine"
        if how == "fine":
            if self.late is not None:
                (late_path, late_data), self.late = self.late, None
                self.inner.put_if_absent(late_path, late_data)
            return super().put_if_absent(path, data)
        if how == "after":
            super().put_if_absent(path, data)
        if how == "late":
            self.late = path, data
        raise StorageError(path, "write", "the connection was reset")
