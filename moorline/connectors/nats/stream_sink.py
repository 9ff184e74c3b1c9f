"""A sink into a JetStream stream: messages are staged in checkpoints, and published in batches (``batches.py``).

This file has what is known before the job starts (which stream, may it be written to, is it fit for it) and the writer.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from moorline.api.sinks import DeliveryGuarantee, Sink, SinkCommitter, SinkContext, SinkWriter
from moorline.connectors.formats.base import Format
from moorline.connectors.known_marks import KnownBySubtask
from moorline.connectors.nats.address import NatsAddress
from moorline.connectors.nats.batches import Chunk, Message, NatsCommitter
from moorline.connectors.nats.connection import NatsConnection, NatsSession, raise_error
from moorline.connectors.nats.cursors import StreamState
from moorline.connectors.nats.subjects import as_part, is_chosen, is_subject, overlap
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, MoorlineError

log = logging.getLogger("moorline")

#: Messages in a batch, or bytes of them. A server takes 1,000, with the mark, and waits 10 seconds for the next one.
MESSAGES_AT_ONCE, BYTES_AT_ONCE = 500, 1 << 20
#: What a batch adds to the headers of a message.
_BATCH_HEADERS = 120
#: Beside the time for which a commit is repeated, a mark must be there at least for so long.
SHORTEST_AGE_SECONDS = 120


@dataclass(frozen=True)
class FoundStream:
    """The stream as the check before the start has found it."""

    subjects: tuple[str, ...] = ()
    #: Bytes of a message with its headers.
    max_payload: int = 1 << 20
    #: The number of the newest message.
    last: int = 0


class NatsSink(Sink):
    """See :func:`moorline.write_nats`."""

    commits_in_background = True

    def __init__(
        self,
        address: NatsAddress,
        subject: str | Callable[[Any], str],
        stream: str | None,
        format: Format[Any],
        headers: Callable[[Any], Mapping[str, str]] | None,
        marks: str,
        adjust_stream: bool,
        exactly_once: bool,
        on_unknown: Literal["fail", "write", "skip"],
        on_roll_back: Literal["fail", "repeat"],
        patience: float,
    ) -> None:
        self.address, self.subject, self.stream, self.format, self.headers = address, subject, stream, format, headers
        self.marks, self.adjust_stream, self.exactly_once = marks, adjust_stream, exactly_once
        self.on_unknown, self.on_roll_back, self.patience = on_unknown, on_roll_back, patience
        self.guarantee = DeliveryGuarantee.EXACTLY_ONCE if exactly_once else DeliveryGuarantee.AT_LEAST_ONCE
        self.known = KnownBySubtask(numbers=3)
        #: Known once it was checked.
        self.found = FoundStream()

    def __repr__(self) -> str:
        return f"write_nats({self.where})"

    @property
    def where(self) -> str:
        """The stream or the subject, for people."""
        place = f"stream {self.stream}" if self.stream else f"subject {self.subject}"
        return f"{place} in {self.address.where}"

    def mark_subject(self, stream: str, *parts: str) -> str:
        """The subject of marks."""
        return ".".join([self.marks, stream, *parts])

    # --- before the start -------------------------------------------------------------------------

    def check(self) -> None:
        """Find the stream, see whether it is fit, and try to write to it."""
        self.format.check()
        session = NatsSession(self.address, self.patience)
        try:
            session.run("write to", self._check, self.where)
        finally:
            session.close()

    async def _check(self, connection: NatsConnection) -> None:
        if self.stream is None:
            found = (await connection.api("STREAM.NAMES", {"subject": self.subject}))["streams"]
            if not found:
                raise InvalidArgument("subject", self.subject, f"No stream in {self.address.where} has it.")
            self.stream = found[0]
        info = await connection.stream_info(self.stream)
        config = info["config"]
        if self.exactly_once and self.adjust_stream:
            config = await self._adjust(connection, config)
        self.check_config(config)
        if config["storage"] == "memory":
            log.warning("write_nats: %s is in memory: what was committed is lost when the server stops", self.where)
        subjects = config.get("subjects") or []
        if isinstance(self.subject, str) and not is_chosen(self.subject, subjects):
            advice = f"The stream {self.stream} has the subjects {', '.join(subjects)}."
            raise InvalidArgument("subject", self.subject, advice)
        self.found = FoundStream(tuple(subjects), connection.max_payload, StreamState.of(info).last)
        if self.exactly_once:
            for subject in (self.mark_subject(self.stream, "trial"), self.subject):
                if isinstance(subject, str):
                    await self._try(connection, subject)

    async def _adjust(self, connection: NatsConnection, config: dict[str, Any]) -> dict[str, Any]:
        """Let the stream take batches and marks."""
        wanted = self.mark_subject(config["name"], ">")
        subjects = config.get("subjects") or []
        subjects = subjects if is_chosen(wanted, subjects) else [*subjects, wanted]
        adjusted = {**config, "subjects": subjects, "allow_atomic": True}
        if adjusted != config:
            answer = await connection.api(f"STREAM.UPDATE.{config['name']}", adjusted)
            config = answer["config"]
            log.info("write_nats: %s takes batches, and marks at %s", self.where, wanted)
        return config

    async def _try(self, connection: NatsConnection, subject: str) -> None:
        """Begin a batch, which the server forgets: has it the subject, and may we send to it?"""
        headers = {"Nats-Batch-Id": uuid.uuid4().hex, "Nats-Batch-Sequence": "1"}
        answer = (await connection.request(subject, b"", headers)).data
        if answer:
            raise_error(json.loads(answer))

    def check_config(self, config: dict[str, Any]) -> None:
        """Is the stream one that batches and marks can be kept in?"""
        name = config["name"]
        if not self.exactly_once:
            return
        wanted = self.mark_subject(name, ">")
        subjects = config.get("subjects") or []
        if not config.get("allow_atomic") or not is_chosen(wanted, subjects):
            # As the command line of NATS has it.
            command = f"nats stream edit {name} --subjects='{','.join([*subjects, wanted])}' --allow-batch"
            advice = (
                f"It needs allow_atomic (NATS 2.12 or newer) and the subject {wanted} for marks: {command}; or "
                "adjust_stream=True, which does it at the start; or exactly_once=False."
            )
            raise InvalidArgument("stream", name, advice)
        if reason := self._unfit(config, wanted):
            raise InvalidArgument("stream", name, f"Marks cannot be kept in it: {reason}.")

    def _unfit(self, config: dict[str, Any], wanted: str) -> str:
        """The reason why marks cannot be kept in a stream; empty if they can."""
        if config["retention"] != "limits":
            return f"its retention is {config['retention']}, and marks go when others acknowledge them"
        if config.get("discard_new_per_subject"):
            return "it refuses a new message of a subject that has one"
        if config.get("sealed"):
            return "it is sealed"
        if overlap(wanted, (config.get("subject_transform") or {}).get("src") or "-"):
            return f"it changes the subject {wanted}"
        shortest = self.patience + SHORTEST_AGE_SECONDS
        if 0 < config.get("max_age", 0) < shortest * 1e9:
            return f"it keeps messages for less than patience and {SHORTEST_AGE_SECONDS} s, which are {shortest:g} s"
        return ""

    # --- in the worker ----------------------------------------------------------------------------

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that keeps its records until the next barrier."""
        return _NatsWriter(self, ctx)

    def open_subtask_committer(self, ctx: SinkContext) -> SinkCommitter:
        """A committer with a connection of its own."""
        return NatsCommitter(self, ctx)


class _NatsWriter(SinkWriter):
    def __init__(self, sink: NatsSink, ctx: SinkContext) -> None:
        if sink.stream is None:
            raise InvalidArgument("stream", None, "Give stream=, or call check() before.")
        self._sink, self._ctx, self._stream = sink, ctx, sink.stream
        self._known = sink.known.of(ctx)
        self._mark = sink.mark_subject(self._stream, *map(as_part, (ctx.job, ctx.uid, ctx.lineage, str(ctx.subtask))))
        self._own = sink.mark_subject(self._stream, ">")
        self._messages: list[Message] = []

    def write(self, records: list[Any]) -> None:
        sink = self._sink
        for record in records:
            try:
                subject = sink.subject if isinstance(sink.subject, str) else sink.subject(record)
                message = (subject, sink.format.encode(record), self._headers(record))
            except MoorlineError:
                raise
            except Exception as error:  # of the user's functions and format
                raise self._unfit(record, f"{type(error).__name__}: {error}") from error
            self._check(record, *message)
            self._messages.append(message)

    def _headers(self, record: Any) -> dict[str, str]:
        if self._sink.headers is None:
            return {}
        headers = dict(self._sink.headers(record))
        for name, value in headers.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"the header {name!r} is not a text with a text")
            if name.lower().startswith(("nats-", "moorline-")):
                raise ValueError(f"the header {name} is not ours to give")
            if "\n" in value or "\r" in value or value != value.strip():
                raise ValueError(f"the header {name} would come out as another text")
        return headers

    def _check(self, record: Any, subject: Any, data: bytes, headers: dict[str, str]) -> None:
        stream = self._sink.found
        if not is_subject(subject):
            raise self._unfit(record, f"{subject!r:.80} is not a subject")
        if (stream.subjects and not is_chosen(subject, stream.subjects)) or overlap(subject, self._own):
            known = ", ".join(one for one in stream.subjects if one != self._own)
            raise self._unfit(record, f"the subject {subject} is not one of the stream's, which are {known}")
        size = len(data) + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items()) + _BATCH_HEADERS
        if size > stream.max_payload:
            taken = stream.max_payload
            raise self._unfit(record, f"it has {size} bytes with its headers, and the server takes {taken}")

    def _unfit(self, record: Any, cause: str) -> UnfitRecord:
        return UnfitRecord(self._sink.where, f"{record!r:.200}", cause, "")

    def prepare(self, checkpoint: int) -> list[Any]:
        messages, self._messages = self._messages, []
        since = max(self._sink.found.last, self._known.floor)
        return [
            Chunk.of(self._stream, self._mark, checkpoint, number, since, chunk).plain()
            for number, chunk in enumerate(_chunks(messages))
        ]

    def snapshot(self) -> list[Any]:
        return self._known.snapshot()


def _chunks(messages: list[Message]) -> Iterator[list[Message]]:
    """Messages that go into one batch."""
    chunk: list[Message] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += len(message[1])
        if len(chunk) >= MESSAGES_AT_ONCE or size >= BYTES_AT_ONCE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
