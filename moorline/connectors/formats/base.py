"""The contract of a format: bytes of one message to a record, and a record to bytes.

A format travels to the workers, so it can be pickled, and opens nothing before it is used. ``decode`` raises for bytes
that are none of its format, and the source then does what ``on_error`` says. It raises
:class:`~moorline.errors.StorageError` if it needs a server that is away (a schema registry): that is no fault of the
message, which is decoded later.
"""

from __future__ import annotations

from typing import Generic

from typing_extensions import TypeVar

T = TypeVar("T")


class Format(Generic[T]):
    """A way to write records as bytes. Subclass it for one of your own; ``decode`` or ``encode`` alone may do.

    >>> class Numbers(Format[int]):
    ...     def decode(self, data):
    ...         return int.from_bytes(data, "big")
    ...     def encode(self, record):
    ...         return record.to_bytes(8, "big")
    >>> Numbers().decode(Numbers().encode(7))
    7
    """

    def decode(self, data: bytes, /) -> T:
        """The record that these bytes are."""
        raise NotImplementedError(f"{self!r} cannot be read: it has no decode()")

    def encode(self, record: T, /) -> bytes:
        """The bytes of a record."""
        raise NotImplementedError(f"{self!r} cannot be written: it has no encode()")

    def check(self) -> None:
        """Called once on the driver, before anything is started: raise here what can be known to go wrong."""
