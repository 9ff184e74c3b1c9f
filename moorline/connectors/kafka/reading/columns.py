"""Messages of one partition to columns of a schema, and columns of what comes with them.

The struct or record of a message is made as everywhere; its columns are made for all messages of a read at once. A
message that does not fit the schema is broken, as one that cannot be decoded, and so is a deletion, which has no
columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.columns.fields import UnfitColumns, batch_of_fitting
from moorline.connectors.columns.records import decoder_of
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.plain import TextFormat
from moorline.connectors.kafka.reading.decoding import Decoded, MessageDecoder, Undecoded
from moorline.model.columns import ColumnBatch


class ColumnDecoder(MessageDecoder):
    """The decoder of a reader of columns."""

    def __init__(
        self,
        format: Format[Any],
        key_format: Format[Any],
        broken: BrokenRecords,
        schema: pa.Schema,
        metadata: Mapping[str, str],
    ) -> None:
        super().__init__(format, key_format, False, broken)
        self._metadata, self._keys_are_texts = metadata, isinstance(key_format, TextFormat)
        self._decode, self._columns = decoder_of(format, value_schema(schema, metadata))
        self._schema = schema

    def decode(self, messages: list[Message]) -> Decoded:
        decode = self._decode
        try:
            batch = self._columns([decode(value) for value in map(Message.value, messages)])
            return self._whole(batch, messages), messages
        except Exception:  # which message it is, and what it means, is found out below
            pass
        try:
            return self._fitting(*self._one_by_one(messages))
        except Undecoded as undecoded:
            raise Undecoded(self._fitting(*undecoded.decoded), undecoded.done, undecoded.error) from None

    def _value(self, message: Message) -> Any:
        value = message.value()
        if value is None:
            raise UnfitColumns("it is a deletion, which has no columns")
        return self._decode(value)

    def _fitting(self, records: Sequence[Any], messages: list[Message]) -> Decoded:
        pairs = list(zip(records, messages, strict=True))
        unfit: set[int] = set()

        def columns(pairs: Sequence[tuple[Any, Message]]) -> pa.RecordBatch:
            batch = self._columns([record for record, _ in pairs])
            return self._whole(batch, [message for _, message in pairs]).batch

        def broken(place: int, error: UnfitColumns) -> None:
            unfit.add(place)
            self._break(messages[place], error)

        batch = batch_of_fitting(pairs, columns, broken)
        return ColumnBatch(batch), [message for place, message in enumerate(messages) if place not in unfit]

    def _whole(self, batch: pa.RecordBatch, messages: list[Message]) -> ColumnBatch:
        """The columns of values, with those of what comes with them."""
        if not self._metadata:
            return ColumnBatch(batch)
        arrays = [
            self._part(self._metadata[field.name], messages, field.type)
            if field.name in self._metadata
            else batch.column(field.name)
            for field in self._schema
        ]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _part(self, part: str, messages: list[Message], type: pa.DataType) -> pa.Array:
        if part == "timestamp":
            stamps = [stamp for _, stamp in map(Message.timestamp, messages)]
            return pa.array([None if stamp < 0 else stamp for stamp in stamps], pa.int64()).cast(type)
        read = {"key": Message.key, "topic": Message.topic, "partition": Message.partition, "offset": Message.offset}
        values = list(map(read[part], messages))
        if part == "key" and self._keys_are_texts:
            try:
                values = [None if key is None else key.decode() for key in values]
            except UnicodeDecodeError as error:
                raise UnfitColumns(f"its key is no text: {error}") from None
        return pa.array(values, type)


#: What comes with a message, and the type of its column; that of a key is told by its format.
PARTS: dict[str, pa.DataType | None] = {
    "key": None,
    "timestamp": pa.timestamp("ms", "UTC"),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
}


def value_schema(schema: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """The columns that values have."""
    return pa.schema([field for field in schema if field.name not in metadata])


def whole_schema(values: pa.Schema, metadata: Mapping[str, str], key_format: Format[Any]) -> pa.Schema:
    """The columns of values, and after them those of what comes with a message."""
    key = pa.string() if isinstance(key_format, TextFormat) else pa.binary()
    return pa.schema([*values, *((name, PARTS[part] or key) for name, part in metadata.items())])
