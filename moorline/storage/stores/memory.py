"""A blob store in this process's memory: for tests, the simulator, and jobs whose snapshots need not outlive them.

It keeps the whole contract of ``blobs.py`` except that nothing survives the process. ``open_store("memory://name")``
hands every caller in the process the same store.
"""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Iterable

from moorline.errors import BlobMissing, StorageError
from moorline.storage.blobs import Blob
from moorline.storage.layout import check_path


class MemoryStore:
    """Files in a dict.

    >>> store = MemoryStore()
    >>> store.put_if_absent("history/0000000001.json", b"{}"), store.put_if_absent("history/0000000001.json", b"[]")
    (True, False)
    >>> store.list("history/")
    [Blob(path='history/0000000001.json', size=2)]
    """

    def __init__(self, name: str = "") -> None:
        self._url = f"memory://{name}"
        self._files: dict[str, bytes] = {}
        self._modified: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._url

    def put(self, path: str, data: bytes) -> None:
        if not self.put_if_absent(path, data):
            raise StorageError(f"{self._url}/{path}", "create", "there is a file of that name already")

    def put_if_absent(self, path: str, data: bytes) -> bool:
        check_path(path)
        with self._lock:
            if path in self._files:
                return False
            # A copy, so that a caller who goes on writing to its buffer does not change the file.
            self._files[path] = bytes(data)
            self._modified[path] = time.time()
            return True

    def get(self, path: str) -> bytes:
        check_path(path)
        with self._lock:
            if path not in self._files:
                raise BlobMissing(f"{self._url}/{path}", "read", "there is no such file")
            return self._files[path]

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        return self.get(path)[offset : offset + size]

    def list(self, prefix: str = "") -> builtins.list[Blob]:
        with self._lock:
            return sorted(Blob(path, len(data)) for path, data in self._files.items() if path.startswith(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            check_path(path)
            with self._lock:
                self._files.pop(path, None)
                self._modified.pop(path, None)

    def modified_ms(self, path: str) -> int:
        self.get(path)
        return int(self._modified.get(path, 0.0) * 1000)
