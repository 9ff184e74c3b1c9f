"""Messages between the barrier and the commit: bytes in a snapshot, in chunks of a megabyte or so.

    committable    the slot and the checkpoint, and its chunks in their order
    chunk          [size, bytes]: msgpack of {topic: [messages]}, compressed
    message        {"value", "key", "partition", "timestamp", "headers"}: those that it has

A message is the dict that the client's ``produce_batch`` takes, so that nothing has to be made of it at the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from moorline.connectors.slot_markers import Known
from moorline.errors import SnapshotCorrupt

#: Content that is collected before it becomes a chunk.
CHUNK_BYTES = 1 << 20
#: Content that a message is reckoned to have beside its value.
MESSAGE_BYTES = 32
CODEC = "lz4"
#: No input of this codec decodes to more.
MAX_RATIO = 256

Message = dict[str, Any]


class StagedMessages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The messages of one slot for one checkpoint, as plain data: it goes through snapshots."""

    lineage: str
    #: The attempt and the subtask that wrote them.
    attempt: int
    slot: int
    checkpoint: int
    #: The last checkpoint before it for which the slot had messages in this attempt; 0: none.
    previous: int
    chunks: list[tuple[int, bytes]]
    #: The id of the topic with the markers at the start of the job; empty: the cluster gives none.
    markers: str = ""
    #: Slots of an earlier attempt, which must have been committed so far before.
    known: list[Known] = []

    @classmethod
    def of(cls, committable: Any) -> StagedMessages:
        """Read what comes back from a snapshot."""
        try:
            return msgspec.convert(committable, cls)
        except msgspec.ValidationError as error:
            raise SnapshotCorrupt("the manifest", f"{committable!r:.80} is not staged for Kafka: {error}") from None

    def messages(self) -> Iterator[tuple[str, list[Message]]]:
        """The messages by topic, a chunk at a time."""
        for size, data in self.chunks:
            yield from _decoded(size, data).items()


class Staging:
    """Collects messages until the next barrier."""

    def __init__(self) -> None:
        self._open: dict[str, list[Message]] = {}
        self._bytes = 0
        self._chunks: list[tuple[int, bytes]] = []

    def add(self, topic: str, messages: list[Message], content: int) -> None:
        """Keep messages for a topic; ``content``: the bytes of their values."""
        self._open.setdefault(topic, []).extend(messages)
        self._bytes += content + MESSAGE_BYTES * len(messages)
        if self._bytes >= CHUNK_BYTES:
            self._close_chunk()

    def take(self) -> list[tuple[int, bytes]]:
        """Everything that was added since the last call."""
        if self._open:
            self._close_chunk()
        chunks, self._chunks = self._chunks, []
        return chunks

    def _close_chunk(self) -> None:
        data = msgspec.msgpack.encode(self._open)
        self._chunks.append((len(data), pa.compress(data, CODEC, asbytes=True)))
        self._open, self._bytes = {}, 0


def _decoded(size: int, data: bytes) -> dict[str, list[Message]]:
    if not 0 < size <= MAX_RATIO * len(data):
        raise SnapshotCorrupt("the manifest", f"{len(data)} bytes staged for Kafka cannot be {size} bytes of messages")
    try:
        content = pa.decompress(data, size, CODEC)
        return msgspec.msgpack.decode(content, type=dict[str, list[Message]])
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise SnapshotCorrupt("the manifest", f"messages staged for Kafka cannot be read: {error}") from None
