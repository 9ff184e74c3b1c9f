"""A JetStream stream as a source: what its splits are, and where each of them begins.

A stream is one split; with subjects each of them is one, so that several subtasks can read. Messages are replayed by
their sequence in the stream (``stream_reader.py``). Nothing is acknowledged: what was read is in the job's checkpoints.

    position      see ``cursors.py``
    enumerator    the splits that were handed out
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from moorline.api.sources import EnumeratorContext, Positions, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.connectors.broken import OnError
from moorline.connectors.formats.base import Format
from moorline.connectors.nats.address import NatsAddress
from moorline.connectors.nats.connection import NatsConnection, NatsSession
from moorline.connectors.nats.consumer import Consumer
from moorline.connectors.nats.cursors import Cursor, StreamState
from moorline.connectors.nats.records import decoder
from moorline.connectors.nats.stream_reader import NatsReader
from moorline.connectors.nats.subjects import is_chosen
from moorline.errors import InvalidArgument, SnapshotCorrupt


class NatsSource(Source):
    """See :func:`moorline.read_nats`."""

    enumerates = True

    def __init__(
        self,
        address: NatsAddress,
        stream: str,
        subjects: list[str],
        start: Any,
        is_bounded: bool,
        format: Format[Any],
        as_records: bool,
        on_error: OnError,
        on_lost: Literal["fail", "skip"],
        patience: float,
    ) -> None:
        self.address, self.stream = address, stream
        #: By split: the subjects that it is about, or None for all.
        self.splits: dict[str, str | None] = {f"{stream} {s}": s for s in subjects} or {stream: None}
        self.start, self.is_bounded = start, is_bounded
        self.format, self.as_records = format, as_records
        self.on_error, self.on_lost, self.patience = on_error, on_lost, patience

    def __repr__(self) -> str:
        return f"read_nats({self.place})"

    @property
    def place(self) -> str:
        """The stream, for people."""
        return f"stream {self.stream} in {self.address.where}"

    def subject_of(self, split: str) -> str | None:
        return self.splits[split]

    def check(self) -> None:
        """Is there such a stream, does it keep its messages, and has it the subjects?"""
        self.format.check()
        session = NatsSession(self.address, self.patience)
        try:
            session.run("read", self._check, self.place)
        finally:
            session.close()

    async def _check(self, connection: NatsConnection) -> None:
        config = (await connection.stream_info(self.stream))["config"]
        if config["retention"] != "limits":
            advice = f"Its retention is {config['retention']}: messages go when others have acknowledged them."
            raise InvalidArgument("stream", self.stream, f"{advice} It cannot be replayed; use one with limits.")
        known = config.get("subjects")
        for subject in self.splits.values():
            if known and subject is not None and not is_chosen(subject, known):
                raise InvalidArgument("subjects", subject, f"The stream has the subjects {', '.join(known)}.")

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader, with a thread that fetches."""
        return NatsReader(self, ctx, decoder(self.format, self.stream, self.as_records))

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        """The enumerator that settles the beginning of splits."""
        return _Splits(self, ctx)


class _Splits(SplitEnumerator):
    def __init__(self, source: NatsSource, ctx: EnumeratorContext) -> None:
        self._source = source
        restored = [] if ctx.restored is None else ctx.restored
        if not (isinstance(restored, list) and all(isinstance(split, str) for split in restored)):
            raise SnapshotCorrupt("the manifest", f"{restored!r:.80} are not splits of a stream of NATS")
        self._known = set(restored)
        self._has_looked = False

    def discover(self) -> Positions | None:
        if self._has_looked:
            return None
        source = self._source
        new = [split for split in source.splits if split not in self._known]
        found: dict[str, Any] = {}
        if new:
            session = NatsSession(source.address, source.patience)
            try:
                cursor = session.run("read", self._begin, source.place)
            finally:
                session.close()
            found = dict.fromkeys(new, cursor.position())
        self._has_looked = True
        self._known |= found.keys()
        return found

    def snapshot(self) -> list[str]:
        return sorted(self._known)

    async def _begin(self, connection: NatsConnection) -> Cursor:
        source = self._source
        state = StreamState.of(await connection.stream_info(source.stream))
        end = state.last if source.is_bounded else None
        match source.start:
            case "earliest":
                next = state.first
            case "latest":
                next = state.last + 1
            case datetime() as time:
                next = await self._first_at(connection, time)
            case int(sequence):
                next = sequence
        if next > state.last + 1:
            raise InvalidArgument("start", source.start, f"The last message of {source.place} is {state.last}.")
        return Cursor(max(next, 1), end, state.created)

    async def _first_at(self, connection: NatsConnection, time: datetime) -> int:
        at = time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        start = {"deliver_policy": "by_start_time", "opt_start_time": at}
        consumer = await Consumer.open(connection, self._source.stream, None, start)
        await consumer.close()
        return consumer.before_first + 1
