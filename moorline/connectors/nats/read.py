"""``mo.read_nats``: a JetStream stream as a source, as it is declared. Needs ``pip install moorline[nats]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from moorline.api.sources import Source
from moorline.connectors.broken import OnError, checked_on_error
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.choosing import FormatName, format_for_reading
from moorline.connectors.nats.address import NatsAddress, Option, needs_client
from moorline.connectors.nats.cursors import checked_start
from moorline.connectors.nats.records import NatsMessage
from moorline.connectors.nats.subjects import is_filter, is_subject, overlap
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

T = TypeVar("T")

Servers = str | Sequence[str]
#: A payload, decoded.
Decoding = Format[T] | Callable[[bytes], T]
_No = Literal[False]
_Yes = Literal[True]


class NatsOptions(TypedDict, total=False):
    """The options that have nothing to do with the type of records, for the signatures below."""

    subjects: str | Sequence[str] | None
    start: Literal["earliest", "latest"] | int | datetime
    end: Literal["latest"] | None
    on_error: OnError
    on_lost: Literal["fail", "skip"]
    timeout: float
    patience: float
    options: Mapping[str, Option] | None


@overload
def read_nats(
    servers: Servers, stream: str, *, format: Literal["json"] = ..., as_records: _No = ..., **more: Unpack[NatsOptions]
) -> Source[Any]: ...
@overload
def read_nats(
    servers: Servers, stream: str, *, format: Literal["json"] = ..., as_records: _Yes, **more: Unpack[NatsOptions]
) -> Source[NatsMessage[Any]]: ...
@overload
def read_nats(
    servers: Servers, stream: str, *, format: Literal["text"], as_records: _No = ..., **more: Unpack[NatsOptions]
) -> Source[str]: ...
@overload
def read_nats(
    servers: Servers, stream: str, *, format: Literal["text"], as_records: _Yes, **more: Unpack[NatsOptions]
) -> Source[NatsMessage[str]]: ...
@overload
def read_nats(
    servers: Servers, stream: str, *, format: Literal["bytes"], as_records: _No = ..., **more: Unpack[NatsOptions]
) -> Source[bytes]: ...
@overload
def read_nats(
    servers: Servers, stream: str, *, format: Literal["bytes"], as_records: _Yes, **more: Unpack[NatsOptions]
) -> Source[NatsMessage[bytes]]: ...
@overload
def read_nats(
    servers: Servers, stream: str, *, format: Decoding[T], as_records: _No = ..., **more: Unpack[NatsOptions]
) -> Source[T]: ...
@overload
def read_nats(
    servers: Servers, stream: str, *, format: Decoding[T], as_records: _Yes, **more: Unpack[NatsOptions]
) -> Source[NatsMessage[T]]: ...
@checks_options()
def read_nats(
    servers: Servers,
    stream: str,
    *,
    subjects: str | Sequence[str] | None = None,
    start: Literal["earliest", "latest"] | int | datetime = "earliest",
    end: Literal["latest"] | None = None,
    format: FormatName | Format[Any] | Callable[[bytes], Any] = "json",
    as_records: bool = False,
    on_error: OnError = "fail",
    on_lost: Literal["fail", "skip"] = "fail",
    timeout: float = 10.0,
    patience: float = 60.0,
    options: Mapping[str, Option] | None = None,
) -> Source[Any]:
    """Read the messages of a JetStream stream, each once, by their sequence. Nothing is acknowledged.

    A record is the payload, decoded by ``format``; with ``as_records`` it is a :class:`NatsMessage`, with subject,
    headers, timestamp and sequence. ``on_error``: what becomes of a message that cannot be decoded.

    A stream is read by one subtask. With ``subjects``, which may have wildcards and must not overlap, messages of other
    subjects are left out, and each of them can be read by another subtask.

    ``start``: at the first start; "earliest", "latest", a sequence, or a time (with a time zone). With ``end="latest"``
    the source ends at what is there at the first start. Messages that limits or a purge have taken away before they
    were read end the job; ``on_lost="skip"`` reads on without them.

    ``timeout``: seconds for one request; ``patience``: seconds for which servers may be away. ``options``: of the
    client, such as ``user_credentials``, ``token`` and ``tls_ca``.

    >>> read_nats("nats://n1.example:4222", "ORDERS", subjects=["orders.eu.>", "orders.us.>"])
    read_nats(stream ORDERS in NATS at n1.example:4222)
    """
    if not is_subject(stream) or "." in stream:
        raise InvalidArgument("stream", stream, "Give the name of a stream.")
    filters = [subjects] if isinstance(subjects, str) else list(subjects or ())
    if subjects is not None and not (filters and all(map(is_filter, filters))):
        raise InvalidArgument("subjects", subjects, 'Give subjects such as "orders.eu" and "orders.*.new".')
    for one, other in combinations(filters, 2):
        if overlap(one, other):
            raise InvalidArgument("subjects", [one, other], "A message of both would be read twice.")
    if end not in (None, "latest"):
        raise InvalidArgument("end", end, 'It is "latest", or None for a source without an end.')
    if end == "latest" and start == "latest":
        raise InvalidArgument("start", start, "There is nothing to read between the latest message and itself.")
    if on_lost not in ("fail", "skip"):
        raise InvalidArgument("on_lost", on_lost, 'It is "fail" or "skip".')
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    source: Source[Any] = needs_client("stream_source", "read_nats").NatsSource(
        NatsAddress.of(servers, options, timeout),
        stream,
        filters,
        checked_start(start),
        end is not None,
        format_for_reading(format),
        as_records,
        checked_on_error(on_error),
        on_lost,
        patience,
    )
    return source
