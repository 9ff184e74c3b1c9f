"""From records to Kafka messages: value, key, topic, partition, headers and timestamp, as the user declares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moorline.api.watermarks import to_ms
from moorline.connectors.formats.base import Format
from moorline.connectors.kafka.writing.staging import Message
from moorline.connectors.row_tables import UnfitRecord


@dataclass(frozen=True)
class MessageMaker:
    """Makes the messages of batches of records."""

    topic: str | Callable[[Any], str]
    format: Format[Any]
    value: Callable[[Any], Any] | None = None
    key: Callable[[Any], Any] | None = None
    key_format: Format[Any] | None = None
    partition: Callable[[Any], int] | None = None
    headers: Callable[[Any], Mapping[str, Any] | Iterable[tuple[str, Any]]] | None = None
    timestamp: Callable[[Any], int | datetime] | None = None

    def make(self, records: list[Any]) -> list[tuple[str, list[Message], int]]:
        """The messages of a batch by topic, and the bytes of their values."""
        values = self._values(records)
        if self.key is None:
            messages: list[Message] = [{"value": value} for value in values]
        else:
            messages = [{"value": value, "key": key} for value, key in zip(values, self._keys(records))]
        if self.partition is not None:
            for message, record in zip(messages, records):
                message["partition"] = self._partition(record)
        if self.timestamp is not None:
            for message, record in zip(messages, records):
                message["timestamp"] = self._timestamp(record)
        if self.headers is not None:
            for message, record in zip(messages, records):
                if found := self._headers(record):
                    message["headers"] = found
        if isinstance(self.topic, str):
            return [(self.topic, messages, sum(map(len, filter(None, values))))]
        return self._by_topic(records, messages)

    def _values(self, records: list[Any]) -> list[bytes | None]:
        encode = self.format.encode
        if self.value is None:
            return [encode(record) for record in records]
        chosen = map(self.value, records)
        return [None if value is None else encode(value) for value in chosen]

    def _keys(self, records: list[Any]) -> list[bytes | None]:
        assert self.key is not None
        keys = list(map(self.key, records))
        kinds = set(map(type, keys))
        if kinds == {str} and self.key_format is None:
            return [key.encode() for key in keys]
        return [self._key(key, record) for key, record in zip(keys, records)]

    def _key(self, key: Any, record: Any) -> bytes | None:
        if key is None or type(key) is bytes:
            return key
        if self.key_format is not None:
            return self.key_format.encode(key)
        if isinstance(key, str):
            return key.encode()
        raise _wrong("key", key, "A key is bytes, a text or None; for another one give key_format=.", record)

    def _partition(self, record: Any) -> int:
        assert self.partition is not None
        partition = self.partition(record)
        if type(partition) is not int or partition < 0:
            raise _wrong("partition", partition, "Give its number.", record)
        return partition

    def _timestamp(self, record: Any) -> int:
        assert self.timestamp is not None
        moment = self.timestamp(record)
        if isinstance(moment, datetime):
            return to_ms(moment)
        if type(moment) is not int or moment < 0:
            raise _wrong("timestamp", moment, "Give milliseconds since 1970, or a datetime.", record)
        return moment

    def _headers(self, record: Any) -> list[tuple[str, bytes | None]]:
        assert self.headers is not None
        given = self.headers(record)
        pairs = list(given.items() if isinstance(given, Mapping) else given)
        for name, value in pairs:
            if not isinstance(name, str) or not (value is None or isinstance(value, (str, bytes))):
                raise _wrong(
                    "headers", (name, value), "Headers have names, and values that are bytes or texts.", record
                )
        return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]

    def _by_topic(self, records: list[Any], messages: list[Message]) -> list[tuple[str, list[Message], int]]:
        assert callable(self.topic)
        found: dict[str, list[Message]] = {}
        for record, message in zip(records, messages):
            topic = self.topic(record)
            if not isinstance(topic, str) or not topic:
                raise _wrong("topic", topic, "Give the name of a topic.", record)
            found.setdefault(topic, []).append(message)
        return [(topic, some, sum(len(m["value"] or b"") for m in some)) for topic, some in found.items()]


def _wrong(what: str, given: Any, advice: str, record: Any) -> UnfitRecord:
    return UnfitRecord("Kafka", f"{record!r:.200}", f"its {what} is {given!r:.80}", advice)
