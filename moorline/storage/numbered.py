"""Numbered files by create-if-absent, under a job's history and under its lease.

    <folder>/0000000041.json      each number is written once, by one writer of several
    <folder>/0000000042.json

A number is taken by ``put_if_absent``, which one of several writers can do; the others find it taken. That is all the
fencing there is: no clock, no lock. Numbers only grow and the highest one is never removed, but lower ones are. So a
writer that slept may find its number free again because it was used and removed meanwhile. After each append it has to
look at what is above its own, and take its file back if it came too late: ``log.py`` and ``lease.py`` say when that is.
"""

from __future__ import annotations

from collections.abc import Iterable

from moorline.errors import BlobMissing, StorageError
from moorline.storage.blobs import Blob, BlobStore
from moorline.storage.layout import number_of, numbered_path


class NumberedFiles:
    """The numbered files in one folder of ``store``."""

    def __init__(self, store: BlobStore, folder: str) -> None:
        self._store, self._folder = store, folder

    def path(self, number: int) -> str:
        """The path of a number."""
        return numbered_path(self._folder, number)

    def list(self) -> list[tuple[int, Blob]]:
        """The files that are there, with their numbers in ascending order. Other files are left out."""
        numbered = ((number_of(self._folder, blob.path), blob) for blob in self._store.list(self._folder))
        return [(number, blob) for number, blob in numbered if number is not None]

    def append(self, number: int, data: bytes, *, looks_after_error: bool) -> bool:
        """Put ``data`` at a number. False if something else is there; data of our own is ours, however it got there.

        After an error the outcome is unknown. ``looks_after_error``: look whether the data is there, and raise the
        error only if it is not: it is not written again, because the first write may yet arrive.
        """
        path = self.path(number)
        unknown: StorageError | None = None
        try:
            if self._store.put_if_absent(path, data):
                return True
        except StorageError as error:
            if not looks_after_error:
                raise
            unknown = error
        try:
            return self._store.get(path) == data
        except BlobMissing:
            if unknown is not None:
                raise unknown from None
            # Taken a moment ago and removed since.
            return False

    def remove(self, numbers: Iterable[int]) -> None:
        """Delete files: our own that came too late, or old ones."""
        self._store.delete([self.path(number) for number in numbers])
