"""Messages of one partition to records, quickly if all are whole, and one by one if one is not.

Reading an attribute of a message costs as much as decoding some messages, so as few as possible are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Message

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.formats.base import Format
from moorline.connectors.kafka.record import KafkaRecord
from moorline.errors import StorageError

#: Records, and the messages that they were.
Decoded = tuple[Sequence[Any], list[Message]]


class Undecoded(Exception):
    """The rest of the messages must wait: a server that is needed to decode them does not answer."""

    def __init__(self, decoded: Decoded, done: int, error: StorageError) -> None:
        super().__init__(str(error))
        self.decoded, self.done, self.error = decoded, done, error


class MessageDecoder:
    """The decoder of a reader."""

    def __init__(self, format: Format[Any], key_format: Format[Any], as_records: bool, broken: BrokenRecords) -> None:
        self._format, self._broken = format, broken
        self._decode, self._decode_key = format.decode, key_format.decode
        self._as_records = as_records

    def decode(self, messages: list[Message]) -> Decoded:
        """The records of messages, without those that are broken. Raises :class:`Undecoded`."""
        decode = self._decode
        try:
            if self._as_records:
                return [self._record(message) for message in messages], messages
            # A message without a value is a deletion, of which there is nothing to decode.
            return [None if value is None else decode(value) for value in map(Message.value, messages)], messages
        except Exception:  # which message it is, and what it means, is found out below
            pass
        return self._one_by_one(messages)

    def _one_by_one(self, messages: list[Message]) -> tuple[list[Any], list[Message]]:
        records: list[Any] = []
        whole: list[Message] = []
        for number, message in enumerate(messages):
            try:
                records.append(self._record(message) if self._as_records else self._value(message))
                whole.append(message)
            except StorageError as error:
                if error.can_pass is False:
                    raise
                raise Undecoded((records, whole), number, error) from None
            except Exception as error:  # of the user's format
                self._break(message, error)
        return records, whole

    def _break(self, message: Message, error: Exception) -> None:
        place = f"{message.topic()}/{message.partition()}"
        value = message.value() or b""
        cause = (
            f"the message at offset {message.offset()} is none of the format {self._format!r}: "
            f"{type(error).__name__}: {error}. It is {value[:100]!r}"
        )
        details = {"key": message.key(), "headers": message.headers() or [], "timestamp": message.timestamp()[1]}
        self._broken.add(place, message.offset() or 0, value, cause, details=details)

    def _value(self, message: Message) -> Any:
        value = message.value()
        return None if value is None else self._decode(value)

    def _record(self, message: Message) -> KafkaRecord[Any]:
        key, value, stamp = message.key(), message.value(), message.timestamp()[1]
        return KafkaRecord(
            None if key is None else self._decode_key(key),
            None if value is None else self._decode(value),
            tuple(message.headers() or ()),
            None if stamp < 0 else stamp,
            message.topic(),
            message.partition(),
            message.offset(),
        )
