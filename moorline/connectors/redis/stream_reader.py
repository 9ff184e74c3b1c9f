"""The reader of some Redis streams: a thread that fetches entries, and the reader that decodes them.

thread    for all streams in turn: entries after the cursor, and what Redis says about the stream, in one step
   |      a batch of one stream, with the cursor before it
reader    decodes, and moves the stream's position entry by entry
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from moorline.api.sources import Positions, SourceContext, SourceReader, SplitId
from moorline.connectors import retry
from moorline.connectors.broken import BrokenRecords
from moorline.connectors.prefetch import Prefetch
from moorline.connectors.redis.connection import ERRORS, RedisConnection, is_transient, words_of
from moorline.connectors.redis.entries import BEGINNING, Cursor, EntryId, EntryLoss, StreamFacts, find_loss
from moorline.connectors.redis.records import DecodeEntry
from moorline.errors import MoorlineError, SnapshotCorrupt, StorageError

if TYPE_CHECKING:
    from moorline.connectors.redis.stream_source import RedisStreamSource

#: Of one stream at a time: so many entries, and about so many bytes. How large they are shows the first time.
FIRST_ENTRIES, ENTRIES_AT_ONCE, BYTES_AT_ONCE = 16, 1_000, 1 << 20
#: So many bytes wait for the reader, and a batch more.
BUFFERED_BYTES = 8 << 20
#: Streams that are asked about in one round trip.
STREAMS_AT_ONCE = 16
#: Between two looks at streams that had nothing new.
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.002, 0.05

#: KEYS: the stream. ARGV: the first and the last id, and how many. Nothing if there is no such stream.
_FETCH = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local facts, all = {}, redis.call('XINFO', 'STREAM', KEYS[1])
for n = 1, #all, 2 do
    if type(all[n + 1]) == 'string' or type(all[n + 1]) == 'number' then
        facts[#facts + 1] = all[n]
        facts[#facts + 1] = all[n + 1]
    end
end
return {redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3]), facts}
"""

#: What entries that are gone before they were read are counted as.
LOST = "lost_entries"

#: An entry as Redis returns it: its id, and its fields and values in turn.
Entry = tuple[bytes, list[bytes]]


def fetch(client: Any, stream: str, cursor: Cursor, count: int) -> Any:
    """Ask for entries after a cursor. ``client`` may be a pipeline."""
    end = "+" if cursor.end is None else str(cursor.end)
    return client.eval_ro(_FETCH, 1, stream, f"({cursor.id}", end, count)


def look(client: Any, stream: str) -> StreamFacts | None:
    """The facts of a stream, as Redis says; None if there is none."""
    answer = fetch(client, stream, Cursor(BEGINNING), 1)
    return StreamFacts.of(answer[1]) if answer else None


@dataclass
class EntryBatch:
    """Entries of one stream, in their order."""

    stream: str
    #: The place before the first of them.
    cursor: Cursor
    entries: list[Entry]
    #: What was lost before them, if the user has chosen to go on.
    loss: EntryLoss | None = None
    #: Nothing of this stream comes after them.
    is_last: bool = False


class EntryFetcher:
    """The thread, and what it shares with its reader: streams that were added, and the buffer."""

    def __init__(self, source: RedisStreamSource, report: Callable[[str | None], None]) -> None:
        self._source = source
        self.buffer = Prefetch[EntryBatch](BUFFERED_BYTES)
        self._connection = RedisConnection(source.address, source.patience)
        self._outage = retry.Outage(
            source.patience, lambda cause: report(None if cause is None else source.address.hidden(cause))
        )
        self._lock = threading.Lock()
        self._added: dict[str, Cursor] = {}
        self._cursors: dict[str, Cursor] = {}
        #: By stream: how many entries make about :data:`BYTES_AT_ONCE`.
        self._counts: dict[str, int] = {}
        self._thread: threading.Thread | None = None

    def add(self, cursors: dict[str, Cursor]) -> None:
        """Read these streams too."""
        with self._lock:
            self._added.update(cursors)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="moorline-redis-read", daemon=True)
            self._thread.start()
        self.buffer.wake()

    def close(self) -> None:
        """Stop. The thread lets go of its connection when its last command is over."""
        self.buffer.close()

    # --- on the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        pause = SHORTEST_PAUSE_SECONDS
        try:
            while not self.buffer.is_closed:
                with self._lock:
                    self._cursors.update(self._added)
                    self._added = {}
                if self._round():
                    pause = SHORTEST_PAUSE_SECONDS
                else:
                    self.buffer.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        except Exception as error:  # whatever ends this thread is for the reader to raise
            self.buffer.fail(error)
        finally:
            self._connection.close()

    def _round(self) -> bool:
        """Ask about all streams once. Was there anything?"""
        streams, has_news = list(self._cursors), False
        for first in range(0, len(streams), STREAMS_AT_ONCE):
            asked = streams[first : first + STREAMS_AT_ONCE]
            answers = self._ask(asked)
            if answers is None:
                return False
            for stream, answer in zip(asked, answers):
                if not self.buffer.wait_for_room():
                    return False
                has_news |= self._take(stream, answer)
        return has_news

    def _ask(self, streams: list[str]) -> list[Any] | None:
        """The answers, one for each stream; None if the server is away just now."""
        try:
            answers = self._connection.once(lambda client: self._fetch_all(client, streams))
        except ERRORS as error:
            if not is_transient(error):
                raise self._connection.failure("read streams from", error) from None
            try:
                self._outage.failed(error)
            except ERRORS:
                raise self._connection.failure("read streams from", error) from None
            self._outage.pause()
            return None
        self._outage.over()
        return answers

    def _fetch_all(self, client: Any, streams: list[str]) -> list[Any]:
        counts = [self._counts.get(stream, FIRST_ENTRIES) for stream in streams]
        if self._source.address.cluster:
            # Streams may be on several nodes, and a pipeline of a cluster takes no scripts.
            return [fetch(client, stream, self._cursors[stream], n) for stream, n in zip(streams, counts)]
        pipeline = client.pipeline(transaction=False)
        for stream, count in zip(streams, counts):
            fetch(pipeline, stream, self._cursors[stream], count)
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        for stream, answer in zip(streams, answers):
            if isinstance(answer, Exception):
                cause = words_of(self._source.address, answer)
                if is_transient(answer):
                    raise answer
                raise StorageError(self._source.place(stream), "read", cause, can_pass=False)
        return answers

    def _take(self, stream: str, answer: Any) -> bool:
        """Put what was fetched into the buffer. Was there anything?"""
        cursor, count = self._cursors[stream], self._counts.get(stream, FIRST_ENTRIES)
        entries, facts = (answer[0], StreamFacts.of(answer[1])) if answer else ([], None)
        has_all = len(entries) < count
        # All that is left after the cursor, if it is known.
        rest = len(entries) if has_all and cursor.end is None else None
        loss = find_loss(cursor, facts, rest)
        if loss is not None:
            if facts is not None or not cursor.at_end:
                self._refuse(stream, cursor, loss)
            self._cursors[stream] = loss.cursor
            self.buffer.put(EntryBatch(stream, loss.cursor, [], loss), 1)
            if loss.cursor.id != cursor.id:
                return True  # what came was asked for from the old place
            cursor = loss.cursor
        if self._source.is_bounded and cursor.end is None:
            # A snapshot of a job that had no end.
            self._cursors[stream] = replace(cursor, end=cursor.id if facts is None else facts.last)
            return True
        if facts is not None:
            cursor = cursor.seen_with(facts, rest)
        self._cursors[stream], size = cursor, 1
        if entries:
            size = sum(len(part) for _, parts in entries for part in parts) + 50 * len(entries)
            self._counts[stream] = max(1, min(ENTRIES_AT_ONCE, BYTES_AT_ONCE * len(entries) // size))
            after = cursor.after(EntryId.of(entries[-1][0]), len(entries))
            self._cursors[stream] = replace(after, at_end=rest is not None)
        is_last = cursor.end is not None and has_all
        if is_last:
            del self._cursors[stream]
        if entries or is_last:
            self.buffer.put(EntryBatch(stream, cursor, entries, None, is_last), size)
        return bool(entries)

    def _refuse(self, stream: str, cursor: Cursor, loss: EntryLoss) -> None:
        """Raise, unless the user has chosen to go on."""
        if self._source.on_lost == "fail":
            number = "Entries" if loss.count is None else f"{loss.count} entries"
            unknown = ", perhaps" if loss.count is None else ""
            cause = (
                f"{loss.what}. {number} after {cursor.id} are gone{unknown}, and were not read. "
                'Read on without them with on_lost="skip", or begin anew'
            )
            raise StorageError(self._source.place(stream), "go on reading", cause, can_pass=False)


class RedisStreamReader(SourceReader):
    """See :func:`moorline.read_redis_stream`."""

    def __init__(self, source: RedisStreamSource, ctx: SourceContext, decode: DecodeEntry) -> None:
        self._source, self._ctx, self._decode = source, ctx, decode
        self._broken = BrokenRecords(source.on_error, ctx)
        self._fetcher = EntryFetcher(source, ctx.outage)
        #: A format may need a server of its own, which may be away.
        self._format_outage = retry.Outage(source.patience, ctx.outage)
        self._positions: dict[str, Cursor] = {}
        self._unfinished: set[str] = set()
        self._batch: EntryBatch | None = None
        self._has_all = False

    def add_splits(self, splits: Positions) -> None:
        cursors = {}
        for stream, position in splits.items():
            if not isinstance(stream, str):
                raise SnapshotCorrupt("the manifest", f"{stream!r:.80} is not the name of a Redis stream")
            cursor = Cursor.restored(position)
            if self._source.is_chosen(stream):
                cursors[stream] = cursor if self._source.is_bounded else replace(cursor, end=None)
            else:
                text = f"no longer reads {self._source.place(stream)}: it is not among its streams any more"
                self._ctx.notice(f"dropped {stream}", text)
        self._positions.update(cursors)
        self._unfinished |= cursors.keys()
        self._fetcher.add(cursors)

    def no_more_splits(self) -> None:
        self._has_all = True

    def splits(self) -> list[SplitId]:
        return [stream for stream in self._positions if stream in self._unfinished]

    def positions(self) -> Positions:
        return {stream: cursor.position() for stream, cursor in self._positions.items()}

    def close(self) -> None:
        self._fetcher.close()

    def read(self, limit: int) -> list[Any] | None:
        self.timestamps = None
        if not self._format_outage.is_due():
            return []
        if self._batch is None and not self._next_batch():
            is_over = self._source.is_bounded and self._has_all and not self._unfinished
            return None if is_over else []
        assert self._batch is not None
        self.split = self._batch.stream
        records = self._records(self._batch, limit)
        self.side_outputs = self._broken.take()
        return records

    def _next_batch(self) -> bool:
        self._batch = batch = self._fetcher.buffer.take()
        if batch is None:
            return False
        if batch.loss is not None:
            self._note(batch.stream, batch.loss)
        self._positions[batch.stream] = batch.cursor
        return True

    def _note(self, stream: str, loss: EntryLoss) -> None:
        counters, place = self._ctx.counters, self._source.place(stream)
        counters[LOST] = counters.get(LOST, 0) + (loss.count or 0)
        number = "" if loss.count is None else f"{loss.count} "
        self._ctx.notice(f"lost {stream}", f"reads {place} on without {number}entries that are gone: {loss.what}")

    def _records(self, batch: EntryBatch, limit: int) -> list[Any]:
        """Decode up to ``limit`` entries, and move on behind them."""
        records, times, decoded = [], [], 0
        for id, parts in batch.entries[:limit]:
            try:
                records.append(self._decode(batch.stream, id, parts))
                times.append(int(id.partition(b"-")[0]))
            except StorageError as error:
                # A format that cannot do its work just now: the entry stays where it is.
                if not error.can_pass:
                    raise
                self._format_outage.failed(error)
                break
            except MoorlineError:
                raise
            except Exception as error:  # of the user's format
                self._add_broken(batch.stream, id, parts, error)
            decoded += 1
        else:
            self._format_outage.over()
        if decoded:
            last = EntryId.of(batch.entries[decoded - 1][0])
            batch.cursor = self._positions[batch.stream] = batch.cursor.after(last, decoded)
            batch.entries = batch.entries[decoded:]
        if not batch.entries:
            self._batch = None
            if batch.is_last:
                self._unfinished.discard(batch.stream)
        self.timestamps = times
        return records

    def _add_broken(self, stream: str, id: bytes, parts: list[bytes], error: Exception) -> None:
        fields = {name.decode(errors="replace"): value for name, value in zip(parts[::2], parts[1::2])}
        field = self._source.field.encode()
        content = next((value for name, value in zip(parts[::2], parts[1::2]) if name == field), b"")
        cause = f"its entry {id.decode()} cannot be decoded: {type(error).__name__}: {error}"
        self._broken.add(self._source.place(stream), id.decode(), content, cause, details={"fields": fields})
