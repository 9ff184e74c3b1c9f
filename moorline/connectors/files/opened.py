"""One file, opened to be read: what the formats see of the filesystem that it lies on.

``local/`` has the files of a disk, ``remote/`` those of a bucket or of another machine. Both say what a file looks
like, and that goes into the positions of its reader: so a file whose content was exchanged is found out.
"""

from __future__ import annotations

from typing import IO, Any

Position = dict[str, Any]


class OpenedFile:
    """A file that is open: its bytes, and what it looks like. Closed by the format that reads it."""

    #: Its name for people and messages; may have bytes in it that are not UTF-8.
    path: str
    #: As far as it reached when it was opened. One that grows fast must not keep a reader from the others.
    size: int
    #: Its bytes; can be read from any place.
    stream: IO[bytes]

    def check_same(self, position: Position | None) -> None:
        """Raises StorageError if this is not the file that was read up to ``position``."""
        raise NotImplementedError

    def begin(self, end: int) -> None:
        """The first ``end`` bytes are taken as read."""
        raise NotImplementedError

    def add(self, pieces: list[bytes]) -> None:
        """These bytes were read next."""
        raise NotImplementedError

    def identity(self) -> Position:
        """The part of a position that says what the file looked like when it was read. Nothing before ``begin``."""
        raise NotImplementedError

    def fault(self, error: Exception) -> Exception | None:
        """The failure of the filesystem behind an error of a decoder, or None if it is about what is in the file."""
        raise NotImplementedError

    def reopened(self) -> OpenedFile:
        """The same file once more, to be read from its beginning."""
        raise NotImplementedError

    @property
    def arrow(self) -> Any:
        """The file in a form that Arrow reads fastest."""
        return self.stream

    def close(self) -> None:
        """Give the file back."""
        self.stream.close()
