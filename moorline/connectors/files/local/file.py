"""Files of a local disk, or of a folder that is mounted: opened, and known again by their print."""

from __future__ import annotations

import os

from moorline.connectors.files.formats.lines import is_utf8
from moorline.connectors.files.identity import Fingerprint, check_same, seen_of
from moorline.connectors.files.opened import OpenedFile, Position


class LocalFile(OpenedFile):
    """See :class:`OpenedFile`. ``identity.py`` says what is in its positions."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stream = open(path, "rb")  # noqa: SIM115  closed by close()
        status = os.fstat(self.stream.fileno())
        self.size = status.st_size
        self._seen = seen_of(status)
        self._print: Fingerprint | None = None

    def check_same(self, position: Position | None) -> None:
        check_same(self.stream.fileno(), self.path, position)

    def begin(self, end: int) -> None:
        self._print = Fingerprint(self.stream.fileno(), end)

    def add(self, pieces: list[bytes]) -> None:
        if self._print is not None:
            self._print.add(pieces)

    def identity(self) -> Position:
        return {} if self._print is None else {"print": str(self._print), "seen": self._seen}

    def fault(self, error: Exception) -> Exception | None:
        # Decoders raise OSErrors too; those of the operating system have a number.
        return error if isinstance(error, OSError) and error.errno is not None else None

    def reopened(self) -> LocalFile:
        return LocalFile(self.path)

    @property
    def arrow(self) -> object:
        # Arrow takes no names that are not UTF-8.
        return self.path if is_utf8(self.path) else self.stream
