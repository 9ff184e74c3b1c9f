"""``mo.read_redis_stream``: Redis streams as a source, as it is declared. Needs ``pip install moorline[redis]``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from moorline.api.sources import Source
from moorline.connectors.broken import OnError, checked_on_error
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.choosing import FormatName, format_for_reading
from moorline.connectors.redis.address import RedisAddress, needs_client
from moorline.connectors.redis.entries import first_id
from moorline.connectors.redis.records import RedisEntry
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options

T = TypeVar("T")

Streams = str | Sequence[str] | None
#: A field of an entry, decoded.
Decoding = Format[T] | Callable[[bytes], T]
_No = Literal[False]
_Yes = Literal[True]


class StreamOptions(TypedDict, total=False):
    """The options that have nothing to do with the type of records, for the signatures below."""

    pattern: str | None
    start: str | datetime
    end: Literal["latest"] | None
    field: str
    on_error: OnError
    on_lost: Literal["fail", "skip"]
    interval: Duration
    cluster: bool
    timeout: float
    patience: float


@overload
def read_redis_stream(
    url: str, streams: Streams = ..., *, format: None = ..., as_records: _No = ..., **more: Unpack[StreamOptions]
) -> Source[dict[str, str]]: ...
@overload
def read_redis_stream(
    url: str, streams: Streams = ..., *, format: None = ..., as_records: _Yes, **more: Unpack[StreamOptions]
) -> Source[RedisEntry[dict[str, str]]]: ...
@overload
def read_redis_stream(
    url: str,
    streams: Streams = ...,
    *,
    format: Literal["json"],
    as_records: _No = ...,
    **more: Unpack[StreamOptions],
) -> Source[Any]: ...
@overload
def read_redis_stream(
    url: str, streams: Streams = ..., *, format: Literal["json"], as_records: _Yes, **more: Unpack[StreamOptions]
) -> Source[RedisEntry[Any]]: ...
@overload
def read_redis_stream(
    url: str,
    streams: Streams = ...,
    *,
    format: Literal["text"],
    as_records: _No = ...,
    **more: Unpack[StreamOptions],
) -> Source[str]: ...
@overload
def read_redis_stream(
    url: str, streams: Streams = ..., *, format: Literal["text"], as_records: _Yes, **more: Unpack[StreamOptions]
) -> Source[RedisEntry[str]]: ...
@overload
def read_redis_stream(
    url: str,
    streams: Streams = ...,
    *,
    format: Literal["bytes"],
    as_records: _No = ...,
    **more: Unpack[StreamOptions],
) -> Source[bytes]: ...
@overload
def read_redis_stream(
    url: str, streams: Streams = ..., *, format: Literal["bytes"], as_records: _Yes, **more: Unpack[StreamOptions]
) -> Source[RedisEntry[bytes]]: ...
@overload
def read_redis_stream(
    url: str, streams: Streams = ..., *, format: Decoding[T], as_records: _No = ..., **more: Unpack[StreamOptions]
) -> Source[T]: ...
@overload
def read_redis_stream(
    url: str, streams: Streams = ..., *, format: Decoding[T], as_records: _Yes, **more: Unpack[StreamOptions]
) -> Source[RedisEntry[T]]: ...
@checks_options()
def read_redis_stream(
    url: str,
    streams: Streams = None,
    *,
    pattern: str | None = None,
    start: str | datetime = "earliest",
    end: Literal["latest"] | None = None,
    format: FormatName | Format[Any] | Callable[[bytes], Any] | None = None,
    field: str = "value",
    as_records: bool = False,
    on_error: OnError = "fail",
    on_lost: Literal["fail", "skip"] = "fail",
    interval: Duration = "10s",
    cluster: bool = False,
    timeout: float = 10.0,
    patience: float = 60.0,
) -> Source[Any]:
    """Read the entries of Redis streams, each once: those in ``streams``, or all whose names match ``pattern``.

    A record is a dict of the entry's fields, as texts; with ``format`` it is the field ``field``, decoded; with
    ``as_records=True`` it is a :class:`RedisEntry`, which has the name of the stream and the id too. The time in an
    entry's id is the record's timestamp. ``on_error``: what becomes of an entry that cannot be decoded.

    ``start`` is for streams that the job has no position of: ``"earliest"``, ``"latest"``, an id or a time (with a time
    zone) to begin at. A stream that ``pattern`` finds later, looking every ``interval``, is read from its beginning.
    With ``end="latest"`` the source ends at what is there at the first start.

    Entries that were trimmed or deleted before they were read end the job, with their number; ``on_lost="skip"`` reads
    on without them. ``cluster``: the server is a node of a Redis Cluster. ``timeout``: seconds for one command;
    ``patience``: seconds for which a server may be away.

    >>> read_redis_stream("redis://cache.example:6379/0", "orders", end="latest").is_bounded
    True
    """
    names = [streams] if isinstance(streams, str) else [] if streams is None else list(streams)
    if not all(isinstance(name, str) and name for name in names) or bool(names) is (pattern is not None):
        raise InvalidArgument("streams", streams, "Give the name of a stream, a list of names, or a pattern=.")
    if pattern is not None and not (isinstance(pattern, str) and pattern):
        raise InvalidArgument("pattern", pattern, 'Give a pattern of names, such as "orders:*".')
    if end not in (None, "latest"):
        raise InvalidArgument("end", end, 'It is "latest", or None for a source without an end.')
    if end == "latest" and start == "latest":
        raise InvalidArgument("start", start, "There is nothing to read between the latest entry and itself.")
    if on_lost not in ("fail", "skip"):
        raise InvalidArgument("on_lost", on_lost, 'It is "fail" or "skip".')
    if not isinstance(field, str) or not field:
        raise InvalidArgument("field", field, "Give the name of the field that the format is for.")
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    source: Source[Any] = needs_client("stream_source", "read_redis_stream").RedisStreamSource(
        RedisAddress(url, cluster, timeout),
        list(dict.fromkeys(names)),
        pattern,
        first_id(start),
        end is not None,
        None if format is None else format_for_reading(format),
        field,
        as_records,
        checked_on_error(on_error),
        on_lost,
        milliseconds(interval, "interval"),
        patience,
    )
    return source
