"""From records to Kafka messages: value, key, topic, partition, headers and timestamp, as the user declares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from moorline.api.watermarks import to_ms
from moorline.connectors.columns.json import JsonRows
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.json import JsonFormat
from moorline.connectors.kafka.writing.staging import Message
from moorline.connectors.row_tables import UnfitRecord
from moorline.model.columns import ColumnBatch, values_of


@dataclass(frozen=True)
class MessageMaker:
    """Makes the messages of batches of records."""

    topic: str | Callable[[Any], str]
    format: Format[Any]
    value: Callable[[Any], Any] | None = None
    #: A function of the record, or the name of a column.
    key: Callable[[Any], Any] | str | None = None
    key_format: Format[Any] | None = None
    partition: Callable[[Any], int] | None = None
    headers: Callable[[Any], Mapping[str, Any] | Iterable[tuple[str, Any]]] | None = None
    timestamp: Callable[[Any], int | datetime] | None = None

    @cached_property
    def is_of_columns(self) -> bool:
        """Can messages be made of columns, without a record of each?"""
        functions = (self.value, self.partition, self.timestamp, self.headers)
        plain = type(self.format) is JsonFormat and isinstance(self.topic, str) and not callable(self.key)
        return plain and all(function is None for function in functions)

    def make(self, records: list[Any] | ColumnBatch) -> list[tuple[str, list[Message], int]]:
        """The messages of a batch by topic, and the bytes of their values."""
        if isinstance(records, ColumnBatch) and self.is_of_columns:
            assert isinstance(self.topic, str)
            values: list[bytes | None] = list(map(self.format.encode, self._json_rows.of(records.batch)))
            messages = self._with_keys(values, records)
            return [(self.topic, messages, sum(map(len, filter(None, values))))]
        records = list(records)
        values = self._values(records)
        messages = self._with_keys(values, records)
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

    @cached_property
    def _json_rows(self) -> JsonRows:
        return JsonRows()

    def _with_keys(self, values: list[bytes | None], records: list[Any] | ColumnBatch) -> list[Message]:
        if self.key is None:
            return [{"value": value} for value in values]
        return [{"value": value, "key": key} for value, key in zip(values, self._keys(records), strict=True)]

    def _keys(self, records: list[Any] | ColumnBatch) -> list[bytes | None]:
        keys = self._chosen_keys(records)
        kinds = set(map(type, keys))
        if kinds == {str} and self.key_format is None:
            return [key.encode() for key in keys]
        return [self._key(key, records, place) for place, key in enumerate(keys)]

    def _chosen_keys(self, records: list[Any] | ColumnBatch) -> list[Any]:
        if callable(self.key):
            return list(map(self.key, records))
        assert self.key is not None
        if isinstance(records, ColumnBatch) and self.key in records.batch.schema.names:
            return values_of(records.batch.column(self.key))
        for record in records:
            if not isinstance(record, dict) or self.key not in record:
                raise _wrong("key", self.key, "Give a column that all rows have, or a function of the record.", record)
        return [record[self.key] for record in records]

    def _key(self, key: Any, records: list[Any] | ColumnBatch, place: int) -> bytes | None:
        if key is None or type(key) is bytes:
            return key
        if self.key_format is not None:
            return self.key_format.encode(key)
        if isinstance(key, str):
            return key.encode()
        raise _wrong("key", key, "A key is bytes, a text or None; for another one give key_format=.", records[place])

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
