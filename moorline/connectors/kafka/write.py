"""``mo.write_kafka``: Kafka topics as a sink, as it is declared. Needs ``pip install moorline[kafka]``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from moorline.api.sinks import DeliveryGuarantee, Sink
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.choosing import FormatName, format_for_writing
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

_GUARANTEES = {"exactly-once": DeliveryGuarantee.EXACTLY_ONCE, "at-least-once": DeliveryGuarantee.AT_LEAST_ONCE}


@checks_options()
def write_kafka(
    brokers: str | Sequence[str],
    topic: str | Callable[[Any], str],
    *,
    format: FormatName | Format[Any] | Callable[[Any], bytes] = "json",
    value: Callable[[Any], Any] | None = None,
    key: Callable[[Any], Any] | str | None = None,
    key_format: FormatName | Format[Any] | Callable[[Any], bytes] | None = None,
    partition: Callable[[Any], int] | None = None,
    headers: Callable[[Any], Mapping[str, Any] | Iterable[tuple[str, Any]]] | None = None,
    timestamp: Callable[[Any], int | datetime] | None = None,
    guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once",
    marker_topic: str = "moorline-markers",
    on_missing_markers: Literal["fail", "ignore"] = "fail",
    on_roll_back: Literal["fail", "repeat"] = "fail",
    patience: float = 60.0,
    options: Mapping[str, str | int | float | bool] | None = None,
) -> Sink[Any]:
    """Write the records to a Kafka topic, or to the one that a function chooses for each.

    A message has the record as its value, in ``format``, or what ``value`` makes of it, where None is a tombstone.
    ``key`` gives bytes, a text or None, or anything that ``key_format`` can write; it is a function, or the name of a
    column. ``partition``, ``headers`` and ``timestamp`` are functions of the record too, and the client's own choice
    where they are left out. Batches of columns become messages of JSON without a dict for each, unless a function is
    to see the records.

    *Exactly once*: messages become visible to readers of committed messages with the checkpoint that covers them, in
    one transaction for each subtask, together with a marker in ``marker_topic``. *At least once*: messages are written
    as they come, and again after a restart. ``on_missing_markers``: if markers are behind what was committed, end the
    job or go on, where messages may then come twice. ``on_roll_back``: what to do if the job has to go back past a
    damaged checkpoint whose messages are in Kafka.

    ``patience``: seconds for which the job waits for brokers that are away. ``options`` are those of librdkafka, with
    or without ``kafka.`` in front.

    >>> import moorline as mo
    >>> sink = mo.write_kafka("localhost:9092", "totals", key=lambda r: r["customer"])
    >>> sink
    write_kafka('localhost:9092', 'totals')
    """
    if not callable(topic) and not (isinstance(topic, str) and topic):
        raise InvalidArgument("topic", topic, "Give the name of a topic, or a function from a record to one.")
    if guarantee not in _GUARANTEES:
        raise InvalidArgument("guarantee", guarantee, 'It is "exactly-once" or "at-least-once".')
    if on_missing_markers not in ("fail", "ignore"):
        raise InvalidArgument("on_missing_markers", on_missing_markers, 'It is "fail" or "ignore".')
    if on_roll_back not in ("fail", "repeat"):
        raise InvalidArgument("on_roll_back", on_roll_back, 'It is "fail" or "repeat".')
    chosen = {"value": value, "key": key, "partition": partition, "headers": headers, "timestamp": timestamp}
    for option, function in chosen.items():
        if function is not None and not callable(function) and not (option == "key" and isinstance(function, str)):
            raise InvalidArgument(option, function, "Give a function of the record.")
    if key_format is not None and key is None:
        raise InvalidArgument("key_format", key_format, "Messages have a key if key= says which.")
    if not isinstance(marker_topic, str) or not marker_topic or marker_topic == topic:
        raise InvalidArgument("marker_topic", marker_topic, "Give the name of a topic for markers alone.")
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    kafka, messages = _kafka("writing.sink"), _kafka("writing.messages")
    cluster = _kafka("client").KafkaCluster.of(brokers, options)
    value_format = format_for_writing(format)
    keys = None if key_format is None else format_for_writing(key_format, "key_format")
    maker = messages.MessageMaker(topic, value_format, value, key, keys, partition, headers, timestamp)
    markers = _kafka("writing.markers").Markers(cluster, marker_topic, on_missing_markers)
    sink: Sink[Any] = kafka.KafkaSink(cluster, maker, _GUARANTEES[guarantee], markers, on_roll_back, patience)
    return sink


def _kafka(module: str) -> Any:
    try:
        return importlib.import_module(f"moorline.connectors.kafka.{module}")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "confluent_kafka":
            raise
        advice = "Install it: pip install 'moorline[kafka]'."
        raise InvalidArgument("write_kafka", "no confluent-kafka", advice) from None
