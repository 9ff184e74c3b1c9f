"""The reader of a JetStream stream: a thread that fetches messages, and the reader that decodes them.

thread    for each split a consumer from the cursor on; after any doubt a new one, and a look at the stream's head
   |      a batch of one split, with the cursor behind it
reader    decodes, and moves the split's position message by message
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from moorline.api.sources import Positions, SourceContext, SourceReader, SplitId
from moorline.connectors import retry
from moorline.connectors.broken import BrokenRecords
from moorline.connectors.nats.connection import ERRORS, LoopThread, NatsConnection, failure, is_transient
from moorline.connectors.nats.consumer import HEARTBEAT_SECONDS, Consumer, ConsumerGone
from moorline.connectors.nats.cursors import Cursor, MessageLoss, StreamState, find_loss, lost_between
from moorline.connectors.nats.records import MARK_HEADER, Decode, StoredMessage
from moorline.connectors.prefetch import Prefetch
from moorline.errors import MoorlineError, SnapshotCorrupt, StorageError

if TYPE_CHECKING:
    from moorline.connectors.nats.stream_source import NatsSource

#: Of one split at a time: so many messages, and about so many bytes. How large they are shows the first time.
FIRST_MESSAGES, MESSAGES_AT_ONCE, BYTES_AT_ONCE = 16, 1_000, 1 << 20
#: So many bytes wait for the reader, and a batch more.
BUFFERED_BYTES = 8 << 20
#: Between two looks whether the reader has made room, or it is time to try again.
PAUSE_SECONDS = 0.005
#: What messages that are gone before they were read are counted as.
LOST = "lost_messages"


@dataclass
class MessageBatch:
    """Messages of one split, in their order."""

    split: str
    messages: list[StoredMessage]
    #: The place behind the last of them.
    cursor: Cursor
    #: What was lost before them, if the user has chosen to go on.
    loss: MessageLoss | None = None


class MessageFetcher:
    """The thread, and what it shares with its reader: splits that were added, and the buffer."""

    def __init__(self, source: NatsSource, report: Callable[[str | None], None]) -> None:
        self._source = source
        self.buffer = Prefetch[MessageBatch](BUFFERED_BYTES)
        self._outage = retry.Outage(
            source.patience, lambda cause: report(None if cause is None else source.address.hidden(cause))
        )
        self._loop: LoopThread | None = None
        # Of the thread alone:
        self._cursors: dict[str, Cursor] = {}
        self._added = asyncio.Event()
        self._connection: NatsConnection | None = None

    def add(self, cursors: dict[str, Cursor]) -> None:
        """Read these splits too."""
        if self._loop is None and cursors:
            self._loop = LoopThread("moorline-nats-read")
            self._loop.begin(self._run())

        def add() -> None:
            self._cursors.update(cursors)
            self._added.set()

        if self._loop is not None:
            self._loop.soon(add)

    def close(self) -> None:
        """Stop. The thread hangs up and ends."""
        self.buffer.close()
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close(self._hang_up)

    # --- on the thread ----------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self.buffer.is_closed:
            try:
                self._connection = await NatsConnection.open(self._source.address)
                await self._serve(self._connection)
            except Exception as errors:  # also a group of errors; which one counts is found out next
                error = _first(errors)
                try:
                    self._note(error)
                except Exception as last:  # it will not pass: for the reader to raise
                    self.buffer.fail(last)
                    return
                await self._pause()
            finally:
                await self._hang_up()

    async def _pause(self) -> None:
        while not self._outage.is_due():
            await asyncio.sleep(PAUSE_SECONDS)

    def _note(self, error: Exception) -> None:
        """Go on after an error, or raise what the reader is to raise."""
        if not isinstance(error, ERRORS):
            raise error
        try:
            if is_transient(error):
                self._outage.failed(error)
                return
        except ERRORS:
            pass
        raise failure(self._source.address, "read", error, self._source.place) from None

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _serve(self, connection: NatsConnection) -> None:
        """Read all splits over one connection, until something fails."""
        begun: set[str] = set()
        async with asyncio.TaskGroup() as group:
            group.create_task(_until_closed(connection))
            while True:
                for split in self._cursors.keys() - begun:
                    begun.add(split)
                    group.create_task(self._read(connection, split))
                await self._added.wait()
                self._added.clear()

    async def _read(self, connection: NatsConnection, split: str) -> None:
        """Read one split to its end, if it has one."""
        while not self._cursors[split].is_finished:
            consumer = await self._open(connection, split)
            try:
                await self._consume(connection, consumer, split)
            except ConsumerGone as error:
                connection.raise_lasting()
                self._outage.failed(error)
                await self._pause()
            finally:
                if not connection.closed.is_set():
                    await consumer.close()

    async def _open(self, connection: NatsConnection, split: str) -> Consumer:
        """A consumer from the cursor on, if what it stands on is still there."""
        source, cursor = self._source, self._cursors[split]
        state = StreamState.of(await connection.stream_info(source.stream))
        if source.is_bounded and cursor.end is None:
            # A snapshot of a job that had no end.
            cursor = self._cursors[split] = replace(cursor, end=state.last)
        if loss := find_loss(cursor, state):
            self._lose(split, loss)
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": self._cursors[split].next}
        return await Consumer.open(connection, source.stream, source.subject_of(split), start)

    async def _consume(self, connection: NatsConnection, consumer: Consumer, split: str) -> None:
        count = FIRST_MESSAGES
        looked = time.monotonic()
        is_at_end = consumer.pending == 0
        while True:
            idle_since = time.monotonic() - looked
            if is_at_end and (self._source.is_bounded or idle_since >= HEARTBEAT_SECONDS):
                await self._look(connection, split)
                looked = time.monotonic()
            if self._cursors[split].is_finished:
                self._put(split, [], 1)
                return
            while not self.buffer.has_room():
                await asyncio.sleep(PAUSE_SECONDS)
            messages = await consumer.messages(count)
            self._outage.over()
            if messages:
                size = await self._take(connection, split, messages)
                count = max(1, min(MESSAGES_AT_ONCE, BYTES_AT_ONCE * len(messages) // size))
            is_at_end = consumer.pending == 0

    async def _take(self, connection: NatsConnection, split: str, messages: list[StoredMessage]) -> int:
        """Put what was fetched into the buffer. Returns its size."""
        cursor = self._cursors[split]
        sequences = [message.sequence for message in messages]
        if sequences[-1] - cursor.next >= len(sequences):
            # Some are missing in between. Those that the head of the stream has passed were taken away.
            state = StreamState.of(await connection.stream_info(self._source.stream))
            if lost := lost_between(cursor.next, sequences, state.first):
                what = f"messages after {cursor.next - 1} were taken away by a limit or a purge"
                self._lose(split, MessageLoss(what, lost, cursor))
        if cursor.end is not None:
            messages = [message for message in messages if message.sequence <= cursor.end]
        self._cursors[split] = cursor.moved(sequences[-1] + 1)
        records = [message for message in messages if MARK_HEADER not in (message.headers or ())]
        size = sum(len(message.data) + 100 for message in messages)
        self._put(split, records, size)
        return max(1, size)

    async def _look(self, connection: NatsConnection, split: str) -> None:
        """All has arrived that the server has: move the cursor over what is of other subjects, and see what is lost."""
        source, cursor = self._source, self._cursors[split]
        state = StreamState.of(await connection.stream_info(source.stream))
        if loss := find_loss(cursor, state):
            self._lose(split, loss)
            cursor = self._cursors[split]
        # By the leader of the stream, which has the last sequence too: a consumer may be elsewhere, and behind.
        found = await connection.message(source.stream, seq=cursor.next, next_by_subj=source.subject_of(split) or ">")
        if (found is None or found["seq"] > state.last) and state.last >= cursor.next:
            self._cursors[split] = cursor.moved(state.last + 1)
            self._put(split, [], 1)

    def _lose(self, split: str, loss: MessageLoss) -> None:
        """Raise, unless the user has chosen to go on."""
        source, cursor = self._source, self._cursors[split]
        if source.on_lost == "fail":
            number = "Messages" if loss.count is None else f"Up to {loss.count} messages"
            cause = (
                f"{loss.what}. {number} from {cursor.next} on are gone, and were not read. "
                'Read on without them with on_lost="skip", or begin anew'
            )
            raise StorageError(source.place, "go on reading", cause, can_pass=False)
        self._cursors[split] = loss.cursor
        self.buffer.put(MessageBatch(split, [], loss.cursor, loss), 1)

    def _put(self, split: str, records: list[StoredMessage], size: int) -> None:
        self.buffer.put(MessageBatch(split, records, self._cursors[split]), size)


async def _until_closed(connection: NatsConnection) -> None:
    await connection.closed.wait()
    raise ConnectionError("the connection is closed")


def _first(error: Exception) -> Exception:
    """The error that ended a group of tasks; one that says more than that the line is closed, if there is one."""
    if not isinstance(error, ExceptionGroup):
        return error
    errors = [_first(inner) for inner in error.exceptions]
    return next((inner for inner in errors if not isinstance(inner, ERRORS)), errors[0])


class NatsReader(SourceReader):
    """See :func:`moorline.read_nats`."""

    def __init__(self, source: NatsSource, ctx: SourceContext, decode: Decode) -> None:
        self._source, self._ctx, self._decode = source, ctx, decode
        self._broken = BrokenRecords(source.on_error, ctx)
        self._fetcher = MessageFetcher(source, ctx.outage)
        #: A format may need a server of its own, which may be away.
        self._format_outage = retry.Outage(source.patience, ctx.outage)
        self._positions: dict[str, Cursor] = {}
        self._batch: MessageBatch | None = None
        self._has_all = False

    def add_splits(self, splits: Positions) -> None:
        cursors = {}
        for split, position in splits.items():
            cursor = Cursor.restored(position)
            if not isinstance(split, str):
                raise SnapshotCorrupt("the manifest", f"{split!r:.80} is not a stream of NATS")
            if split in self._source.splits:
                cursors[split] = cursor if self._source.is_bounded else replace(cursor, end=None)
            else:
                self._ctx.notice(f"dropped {split}", f"no longer reads {split}: it is not among its subjects any more")
        self._positions.update(cursors)
        self._fetcher.add(cursors)

    def no_more_splits(self) -> None:
        self._has_all = True

    def splits(self) -> list[SplitId]:
        return [split for split, cursor in self._positions.items() if not cursor.is_finished]

    def positions(self) -> Positions:
        return {split: cursor.position() for split, cursor in self._positions.items()}

    def close(self) -> None:
        self._fetcher.close()

    def read(self, limit: int) -> list[Any] | None:
        self.timestamps = None
        if not self._format_outage.is_due():
            return []
        if self._batch is None and not self._next_batch():
            is_over = self._source.is_bounded and self._has_all and not self.splits()
            return None if is_over else []
        assert self._batch is not None
        self.split = self._batch.split
        records = self._records(self._batch, limit)
        self.side_outputs = self._broken.take()
        return records

    def _next_batch(self) -> bool:
        self._batch = batch = self._fetcher.buffer.take()
        if batch is not None and batch.loss is not None:
            counters, loss = self._ctx.counters, batch.loss
            counters[LOST] = counters.get(LOST, 0) + (loss.count or 0)
            text = f"reads {self._source.place} on without messages that are gone: {loss.what}"
            self._ctx.notice(f"lost {batch.split}", text)
        return batch is not None

    def _records(self, batch: MessageBatch, limit: int) -> list[Any]:
        """Decode up to ``limit`` messages, and move on behind them."""
        records, times, decoded = [], [], 0
        for message in batch.messages[:limit]:
            try:
                records.append(self._decode(message))
                times.append(message.timestamp)
            except StorageError as error:
                # A format that cannot do its work just now: the message stays where it is.
                if not error.can_pass:
                    raise
                self._format_outage.failed(error)
                break
            except MoorlineError:
                raise
            except Exception as error:  # of the user's format
                cause = f"its message {message.sequence} cannot be decoded: {type(error).__name__}: {error}"
                details = {"subject": message.subject, "headers": dict(message.headers or {})}
                self._broken.add(self._source.place, message.sequence, message.data, cause, details=details)
            decoded += 1
        else:
            self._format_outage.over()
        if decoded:
            behind = replace(batch.cursor, next=batch.messages[decoded - 1].sequence + 1)
            self._positions[batch.split] = behind
            batch.messages = batch.messages[decoded:]
        if not batch.messages:
            self._positions[batch.split] = batch.cursor
            self._batch = None
        self.timestamps = times
        return records
