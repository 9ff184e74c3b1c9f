"""``mo.KafkaRecord``: a message with all that comes with it."""

from __future__ import annotations

from typing import Any, Generic

import msgspec
from typing_extensions import TypeVar

V = TypeVar("V", default=Any)


class KafkaRecord(msgspec.Struct, Generic[V], frozen=True):
    """A message of Kafka, with its key, its headers and its place. Of ``mo.read_kafka(..., as_records=True)``.

    >>> record = KafkaRecord(b"ada", {"cents": 500}, (("trace", b"1"),), 1_700_000_000_000, "orders", 3, 41)
    >>> record.value, record.header("trace"), record.header("none")
    ({'cents': 500}, b'1', None)
    """

    #: As ``key_format`` decodes it: bytes, if it is left out. None, if the message has none.
    key: Any
    #: None is a deletion, in a topic that is compacted.
    value: V
    #: In their order; a name may come twice.
    headers: tuple[tuple[str, bytes | None], ...]
    #: Milliseconds since 1970; None, if the message has none.
    timestamp: int | None
    topic: str
    partition: int
    offset: int

    def header(self, name: str) -> bytes | None:
        """The last header of a name, or None."""
        return next((value for known, value in reversed(self.headers) if known == name), None)
