"""Chunks of messages that become visible in one step, together with the mark that says so.

    mark    a message with its own subject in the same stream: <prefix>.<stream>.<job>.<uid>.<lineage>.<slot>
            {"checkpoint": 7, "chunk": 2}

JetStream takes a batch of messages whole or not at all, and takes it only if the last message of a subject is the one
that the sender expects. The mark is the last message of each batch, and its sender expects the mark before. So of two
who publish the same chunk at the same moment one is refused; and a chunk that was published before, however long ago,
shows by its mark or a later one.

**A mark that is not there** may never have been, or may have been taken away by the limits of the stream. A chunk
remembers the last sequence of the stream that was known when it was staged: its mark would come after it. If the head
of the stream has not passed that sequence, the chunk was not published. If it has, it cannot be told, and that is said.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from moorline.api.sinks import SinkCommitter, SinkContext
from moorline.connectors.known_marks import Mark
from moorline.connectors.nats.connection import (
    WRONG_LAST_SEQUENCE,
    JetStreamError,
    NatsConnection,
    NatsSession,
    raise_error,
)
from moorline.connectors.nats.cursors import StreamState
from moorline.connectors.nats.records import MARK_HEADER
from moorline.errors import SnapshotCorrupt, StorageError
from moorline.failpoints import failpoint

if TYPE_CHECKING:
    from moorline.connectors.nats.stream_sink import NatsSink

#: Between two looks at how far the stream has come.
LOOK_SECONDS = 10.0
#: Messages that are published one by one, and not answered yet.
MESSAGES_UNDER_WAY = 100

#: A message: its subject, its payload, and its headers.
Message = tuple[str, bytes, dict[str, str]]


class Chunk(msgspec.Struct, frozen=True):
    """Messages that one slot has staged before a barrier; not more than fit into a batch."""

    stream: str
    #: The subject of its mark.
    mark: str
    checkpoint: int
    number: int
    #: A sequence of the stream that was there when it was staged. Of all that is known, the last.
    since: int
    content: bytes

    @classmethod
    def of(cls, stream: str, mark: str, checkpoint: int, number: int, since: int, messages: list[Message]) -> Chunk:
        return cls(stream, mark, checkpoint, number, since, msgspec.msgpack.encode(messages))

    def plain(self) -> list[Any]:
        """As plain data: it goes through snapshots."""
        return [self.stream, self.mark, self.checkpoint, self.number, self.since, self.content]

    @classmethod
    def restored(cls, committable: Any) -> Chunk:
        match committable:
            case [str(stream), str(mark), int(checkpoint), int(number), int(since), bytes(content)]:
                return cls(stream, mark, checkpoint, number, since, content)
        raise _strange(committable)

    def messages(self) -> list[Message]:
        try:
            return msgspec.msgpack.decode(self.content, type=list[Message])
        except msgspec.DecodeError:
            raise _strange(self.content) from None


def _strange(committable: Any) -> SnapshotCorrupt:
    return SnapshotCorrupt("the manifest", f"{committable!r:.80} is not what a sink of NATS has staged")


class NatsCommitter(SinkCommitter):
    """The committer of one subtask, with a connection of its own."""

    def __init__(self, sink: NatsSink, ctx: SinkContext) -> None:
        self._sink, self._known = sink, sink.known.of(ctx)
        self._session = NatsSession(sink.address, sink.patience, ctx.outage)
        #: By stream, whether an older mark may be removed by a newer one.
        self._rolls_up: dict[str, bool] = {}
        self._has_compared = False
        self._known.floor = max(self._known.floor, *(mark[2] for mark in self._known.restored.values()), 0)
        if sink.exactly_once and sink.stream is not None:
            self._session.every(LOOK_SECONDS, self._look)

    async def _look(self, connection: NatsConnection) -> None:
        """Note how far the stream has come: what is staged from now on comes after that."""
        assert self._sink.stream is not None
        last = StreamState.of(await connection.stream_info(self._sink.stream)).last
        self._known.floor = max(self._known.floor, last)

    def commit(self, committables: list[Any]) -> None:
        if not self._has_compared:
            for (stream, mark), least in self._known.restored.items():
                compare = partial(self._compare, stream=stream, mark=mark, least=least)
                self._session.run("compare marks in", compare, self._sink.where)
            self._has_compared = True
        commit = self._commit if self._sink.exactly_once else self._publish_each
        for plain in committables:
            chunk = Chunk.restored(plain)
            chunk.messages()  # before anything is asked
            operation = f"commit checkpoint {chunk.checkpoint} to"
            self._session.run(operation, partial(commit, chunk=chunk), self._sink.where)

    def close(self) -> None:
        self._session.close()

    async def _compare(self, connection: NatsConnection, stream: str, mark: str, least: Mark) -> None:
        """Has the server what an earlier attempt knew? A mark that is not there is looked at with its chunk."""
        found = await self._find(connection, stream, mark)
        if found is None:
            await self._explain_missing(connection, stream, mark, least)
        elif found < least[:2]:
            raise self._lost(mark, least, f"has come to checkpoint {found[0]}")

    # --- exactly once -----------------------------------------------------------------------------

    async def _commit(self, connection: NatsConnection, chunk: Chunk) -> None:
        while True:
            least = self._known.least(chunk.stream, chunk.mark)
            found = await self._find(connection, chunk.stream, chunk.mark)
            if found is not None and least is not None and found[:2] < least[:2]:
                raise self._lost(chunk.mark, least, f"has come to checkpoint {found[0]}")
            if found is not None and found[:2] >= (chunk.checkpoint, chunk.number):
                self._known.note(chunk.stream, chunk.mark, found)
                return
            if found is None and not await self._is_new(connection, chunk, least):
                return
            try:
                sequence = await self._publish(connection, chunk, 0 if found is None else found[2])
            except JetStreamError as error:
                if error.number != WRONG_LAST_SEQUENCE:
                    raise
                continue  # another one was quicker: look at its mark
            self._known.note(chunk.stream, chunk.mark, (chunk.checkpoint, chunk.number, sequence))
            self._known.floor = max(self._known.floor, sequence)
            return

    async def _find(self, connection: NatsConnection, stream: str, mark: str) -> Mark | None:
        """Checkpoint, chunk and sequence of a mark."""
        message = await connection.message(stream, last_by_subj=mark)
        if message is None:
            return None
        try:
            content = json.loads(base64.b64decode(message.get("data", "")))
            return int(content["checkpoint"]), int(content["chunk"]), int(message["seq"])
        except (ValueError, TypeError, KeyError):
            cause = f"its message {message['seq']} is not a mark of this sink"
            raise StorageError(f"{mark} in {self._sink.where}", "read the mark", cause, can_pass=False) from None

    async def _is_new(self, connection: NatsConnection, chunk: Chunk, least: Mark | None) -> bool:
        """There is no mark: was the chunk never published?"""
        if least is not None:
            await self._explain_missing(connection, chunk.stream, chunk.mark, least)
        state = StreamState.of(await connection.stream_info(chunk.stream))
        if state.last < chunk.since:
            known = (chunk.checkpoint, chunk.number, chunk.since)
            raise self._lost(chunk.mark, known, f"would come after message {chunk.since}, and the last is {state.last}")
        if state.first <= chunk.since + 1 or self._sink.on_unknown == "write":
            return True
        if self._sink.on_unknown == "skip":
            return False
        cause = (
            f"it cannot be told whether checkpoint {chunk.checkpoint} was written: its mark {chunk.mark} would come "
            f"after message {chunk.since}, and the limits of the stream have taken away all before {state.first}. Look "
            'at what is there, and say on_unknown="write" or "skip"'
        )
        raise StorageError(self._sink.where, "commit to", cause, can_pass=False)

    async def _explain_missing(self, connection: NatsConnection, stream: str, mark: str, least: Mark) -> None:
        """A mark that was seen is not there: that is right only if the head of the stream has passed it."""
        state = StreamState.of(await connection.stream_info(stream))
        if state.last < least[2]:
            raise self._lost(mark, least, f"was message {least[2]}, and the last message is {state.last}")
        if state.first <= least[2]:
            raise self._lost(mark, least, f"was message {least[2]}, and is not there")

    async def _publish(self, connection: NatsConnection, chunk: Chunk, expected: int) -> int:
        """All messages of a chunk and its mark in one step. The sequence of the mark."""
        if chunk.stream not in self._rolls_up:
            config = (await connection.stream_info(chunk.stream))["config"]
            # A server that does not know batches would publish each message as it comes.
            self._sink.check_config(config)
            self._rolls_up[chunk.stream] = bool(config.get("allow_rollup_hdrs"))
        id, messages = uuid.uuid4().hex, chunk.messages()
        for number, (subject, data, headers) in enumerate(messages, 1):
            batch = {"Nats-Batch-Id": id, "Nats-Batch-Sequence": str(number)}
            await connection.client.publish(subject, data, headers={**headers, **batch})
        last = {
            "Nats-Batch-Id": id,
            "Nats-Batch-Sequence": str(len(messages) + 1),
            "Nats-Batch-Commit": "1",
            "Nats-Expected-Stream": chunk.stream,
            "Nats-Expected-Last-Subject-Sequence": str(expected),
            MARK_HEADER: "1",
        }
        if self._rolls_up[chunk.stream]:
            last["Nats-Rollup"] = "sub"
        mark = {"checkpoint": chunk.checkpoint, "chunk": chunk.number}
        failpoint("sink.commit.middle")
        answer = json.loads((await connection.request(chunk.mark, json.dumps(mark).encode(), last)).data)
        raise_error(answer)
        sequence: int = answer["seq"]
        return sequence

    def _lost(self, mark: str, least: Mark, what: str) -> StorageError:
        cause = (
            f"checkpoint {least[0]} was committed to it, but its mark {mark} {what}. It has lost data (it came back "
            "without its disk or from a backup), someone has removed the mark, or it is another server. Bring the data "
            "back; or go on without, by giving the sink another uid"
        )
        return StorageError(self._sink.where, "commit to", cause, can_pass=False)

    # --- at least once ----------------------------------------------------------------------------

    async def _publish_each(self, connection: NatsConnection, chunk: Chunk) -> None:
        """Each by itself, with an id: the server drops those that it has seen within its window."""
        messages = chunk.messages()
        for first in range(0, len(messages), MESSAGES_UNDER_WAY):
            answers = []
            for number, (subject, data, headers) in enumerate(messages[first : first + MESSAGES_UNDER_WAY], first):
                id = f"{chunk.mark}/{chunk.checkpoint}/{chunk.number}/{number}"
                named = {**headers, "Nats-Msg-Id": id, "Nats-Expected-Stream": chunk.stream}
                answers.append(connection.request(subject, data, named))
            for answer in await asyncio.gather(*answers):
                raise_error(json.loads(answer.data))
