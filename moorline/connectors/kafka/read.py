"""``mo.read_kafka``: topics as a source, as they are declared. Needs ``pip install moorline[kafka]``."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import pyarrow as pa

from moorline.api.columns.schemas import schema_of
from moorline.api.sources import ColumnSource, Source
from moorline.connectors.broken import OnError, checked_on_error
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.choosing import FormatName, format_for_reading
from moorline.connectors.kafka.places import place
from moorline.connectors.kafka.record import KafkaRecord
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options

T = TypeVar("T")

Brokers = str | Sequence[str]
Topics = str | Sequence[str] | None
Offsets = Mapping[tuple[str, int], int]
Start = Literal["earliest", "latest"] | datetime | int | Offsets
End = Literal["latest"] | datetime | int | Offsets
Isolation = Literal["read_committed", "read_uncommitted"]
OnLostOffsets = Literal["fail", "earliest", "latest"]
ClientOptions = Mapping[str, str | int | float | bool]


class KafkaOptions(TypedDict, total=False):
    """The options that have nothing to do with the type of records, for the signatures below."""

    pattern: str | None
    start: Start
    end: End | None
    key_format: FormatName | Format[Any] | Callable[[bytes], Any]
    isolation: Isolation
    group: str | None
    on_error: OnError
    on_lost_offsets: OnLostOffsets
    interval: Duration
    patience: float
    options: ClientOptions | None


_No = Literal[False]
_Yes = Literal[True]
_Json = Literal["json"]
_Text = Literal["text"]
_Bytes = Literal["bytes"]
_Decoding = Format[T] | Callable[[bytes], T]


@overload
def read_kafka(
    brokers: Brokers,
    topics: Topics = ...,
    *,
    schema: str | pa.Schema | type[Any],
    metadata: Mapping[str, str] = ...,
    format: _Json | Format[Any] | Callable[[bytes], Any] = ...,
    **more: Unpack[KafkaOptions],
) -> ColumnSource: ...
@overload
def read_kafka(
    brokers: Brokers, topics: Topics = ..., *, format: _Json = ..., as_records: _No = ..., **more: Unpack[KafkaOptions]
) -> Source[Any]: ...
@overload
def read_kafka(
    brokers: Brokers, topics: Topics = ..., *, format: _Json = ..., as_records: _Yes, **more: Unpack[KafkaOptions]
) -> Source[KafkaRecord[Any]]: ...
@overload
def read_kafka(
    brokers: Brokers, topics: Topics = ..., *, format: _Text, as_records: _No = ..., **more: Unpack[KafkaOptions]
) -> Source[str]: ...
@overload
def read_kafka(
    brokers: Brokers, topics: Topics = ..., *, format: _Text, as_records: _Yes, **more: Unpack[KafkaOptions]
) -> Source[KafkaRecord[str]]: ...
@overload
def read_kafka(
    brokers: Brokers, topics: Topics = ..., *, format: _Bytes, as_records: _No = ..., **more: Unpack[KafkaOptions]
) -> Source[bytes]: ...
@overload
def read_kafka(
    brokers: Brokers, topics: Topics = ..., *, format: _Bytes, as_records: _Yes, **more: Unpack[KafkaOptions]
) -> Source[KafkaRecord[bytes]]: ...
@overload
def read_kafka(
    brokers: Brokers, topics: Topics = ..., *, format: _Decoding[T], as_records: _No = ..., **more: Unpack[KafkaOptions]
) -> Source[T]: ...
@overload
def read_kafka(
    brokers: Brokers, topics: Topics = ..., *, format: _Decoding[T], as_records: _Yes, **more: Unpack[KafkaOptions]
) -> Source[KafkaRecord[T]]: ...
@checks_options()
def read_kafka(
    brokers: Brokers,
    topics: Topics = None,
    *,
    pattern: str | None = None,
    start: Start = "earliest",
    end: End | None = None,
    format: FormatName | Format[Any] | Callable[[bytes], Any] = "json",
    key_format: FormatName | Format[Any] | Callable[[bytes], Any] = "bytes",
    as_records: bool = False,
    schema: str | pa.Schema | type[Any] | None = None,
    metadata: Mapping[str, str] | None = None,
    isolation: Isolation = "read_committed",
    group: str | None = None,
    on_error: OnError = "fail",
    on_lost_offsets: OnLostOffsets = "fail",
    interval: Duration = "10s",
    patience: float = 60.0,
    options: ClientOptions | None = None,
) -> Source[Any]:
    """Read topics of Kafka: ``topics``, or all whose whole name matches the regular expression ``pattern``.

    Offsets are kept in checkpoints. Partitions and topics that come to be while the job runs are found within
    ``interval``, and read from their first message on.

    ``start``: at the first start only; "earliest", "latest", a time, or offsets such as ``{("orders", 0): 12}``.
    ``end``: read up to there, and end: what is there at the first start ("latest"), a time, or offsets. Without it the
    source goes on for ever.

    ``format``: of values, see the guide. ``as_records`` gives a :class:`KafkaRecord`, with key (in ``key_format``),
    headers, timestamp and place. ``on_error``: of messages that are none of the format, "fail", "skip" or an OutputTag.

    With a ``schema`` (Spark's DDL, a ``pyarrow.Schema``, a dataclass or a ``msgspec.Struct``) the source begins a
    stream of columns. They are taken by name from the values, and ``metadata`` adds columns of what comes with them:
    ``{"sent": "timestamp"}``, or "key", "topic", "partition" and "offset". What does not fit the schema is broken.

    ``on_lost_offsets``: if messages that were not read yet are gone from the brokers: "fail", or go on with what is
    there ("earliest") or with what comes ("latest"). ``group``: a consumer group that shows others how far the job is.
    ``patience``: seconds for which brokers may be away. ``options``: of librdkafka, such as those for TLS and SASL.

    >>> orders = read_kafka("broker:9092", "orders", options={"sasl.password": "hush"})
    >>> orders, orders.is_bounded
    (read_kafka('broker:9092', ['orders']), False)
    """
    names = [topics] if isinstance(topics, str) else list(topics or ())
    if bool(names) is (pattern is not None) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument("topics", topics, 'Give the names of topics, or pattern="orders-.*".')
    if pattern is not None:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise InvalidArgument("pattern", pattern, f"It is no regular expression: {error}.") from None
    if isolation not in ("read_committed", "read_uncommitted"):
        raise InvalidArgument("isolation", isolation, 'It is "read_committed" or "read_uncommitted".')
    if on_lost_offsets not in ("fail", "earliest", "latest"):
        raise InvalidArgument("on_lost_offsets", on_lost_offsets, 'It is "fail", "earliest" or "latest".')
    if group is not None and not (isinstance(group, str) and group):
        raise InvalidArgument("group", group, "It is the name of a consumer group.")
    if start == "latest" and end == "latest":
        raise InvalidArgument("end", end, "There is nothing between the latest and the latest: leave one of them out.")
    if schema is None and metadata is not None:
        raise InvalidArgument("metadata", metadata, "It adds columns to those of schema=; records have as_records=.")
    kafka = _kafka()
    columns = {} if schema is None else {"schema": schema_of(schema), "metadata": {} if metadata is None else metadata}
    source: Source[Any] = (kafka.ColumnKafkaSource if columns else kafka.KafkaSource)(
        kafka.KafkaCluster.of(brokers, options),
        kafka.Topics(tuple(names), pattern),
        start=place("start", start, ["earliest", "latest"]),
        end=None if end is None else place("end", end, ["latest"]),
        format=format_for_reading(format),
        key_format=format_for_reading(key_format, "key_format"),
        as_records=as_records,
        isolation=isolation,
        group=group,
        on_error=checked_on_error(on_error),
        on_lost_offsets=on_lost_offsets,
        interval_ms=milliseconds(interval, "interval"),
        patience=patience,
        **columns,
    )
    return source


def _kafka() -> Any:
    try:
        return importlib.import_module("moorline.connectors.kafka.reading.source")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "confluent_kafka":
            raise
        raise InvalidArgument(
            "read_kafka", "no confluent-kafka", "Install it: pip install 'moorline[kafka]'."
        ) from None
