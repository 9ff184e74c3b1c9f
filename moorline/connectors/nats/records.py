"""Messages of JetStream as records: the payload, decoded, or all that comes with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple

import msgspec
from typing_extensions import TypeVar

from moorline.connectors.formats.base import Format

V = TypeVar("V", default=Any)

#: The header of messages that a sink of Moorline leaves for itself: they are no records.
MARK_HEADER = "Moorline-Mark"


class NatsMessage(msgspec.Struct, Generic[V], frozen=True):
    """A message of a JetStream stream, with its place. Of ``mo.read_nats(..., as_records=True)``.

    >>> message = NatsMessage("orders.eu", {"cents": 500}, {"trace": "1"}, 1_700_000_000_000, "ORDERS", 41)
    >>> message.value, message.headers["trace"]
    ({'cents': 500}, '1')
    """

    subject: str
    value: V
    headers: dict[str, str]
    #: When it was stored, in milliseconds since 1970.
    timestamp: int
    stream: str
    sequence: int


class StoredMessage(NamedTuple):
    """A message as it was fetched."""

    sequence: int
    timestamp: int
    subject: str
    data: bytes
    headers: Mapping[str, str] | None


Decode = Callable[[StoredMessage], Any]


def decoder(format: Format[Any], stream: str, as_records: bool) -> Decode:
    """The function from messages to records. It raises for one that is none."""
    decode = format.decode
    if not as_records:
        return lambda message: decode(message.data)

    def record(message: StoredMessage) -> NatsMessage[Any]:
        headers = {str(name): value for name, value in (message.headers or {}).items()}
        return NatsMessage(message.subject, decode(message.data), headers, message.timestamp, stream, message.sequence)

    return record
