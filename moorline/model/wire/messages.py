"""Messages between subtasks and the driver: a closed set of types, as msgpack.

    subtask to driver: Connected, Running, Acknowledged, Declined, InputEnded, InputTaken, ReaderReported, Progress,
                       Noticed, Answer, Failed
    driver to subtask: SendBackTo, SendAhead, AddSplits, Trigger, Overtake, Hold, Confirm, Abort, Query

Reports are past tense, orders imperative. Every line is opened by a handshake that settles job, attempt and
subtask (``model/wire/handshake.py``), so a message need not repeat them; a message of another attempt has no line
to come in by.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from moorline.model.manifest import OperatorHandles
from moorline.model.type_tree.tree import PLAIN, StateType
from moorline.model.wire.figures import OperatorFigures, ProcessFigures


class Connected(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The control line is open: who is at the other end of it, for people."""

    pid: int
    host: str
    #: Spark's name for the executor, if it can be found out.
    executor: str = ""


class Running(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The subtask has its state back, its functions are open, records may come."""

    pid: int = 0
    #: What it has read of the snapshot that it was restored from.
    read_bytes: int = 0
    #: Where it receives what comes back round a loop, if it is of the head of one.
    address: tuple[str, int] | None = None


class Acknowledged(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The subtask's part of a checkpoint is durable."""

    checkpoint: int
    operators: list[OperatorHandles]
    align_ms: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    spilled_bytes: int = 0
    #: Records that are part of it, unprocessed.
    in_flight_records: int = 0


class Declined(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The subtask could not take its part of a checkpoint."""

    checkpoint: int
    #: The name of a FailureReason.
    reason: str
    detail: str = ""


class InputEnded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A source has read its input to the end."""


class InputTaken(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The subtask has taken so much off the exchange, for those who send to it (``protocol/flow.py``).

    Of each channel: link, index of the sender, bytes taken so far, and bytes that may be on their way.
    """

    channels: list[tuple[int, int, int, int]]


class ReaderReported(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A word from the reader of a source to its enumerator."""

    #: Plain data as ``state/types/plain.py`` encodes it.
    report: bytes


class Progress(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The progress of the subtask: also its sign of life."""

    records_in: int
    records_out: int
    keys: int = 0
    blocked_bytes: int = 0
    #: What it has sent and the receivers have not taken yet, as far as it has heard.
    in_flight_bytes: int = 0
    #: Time spent working, waiting for the next stage and waiting for something to do, since the subtask started.
    busy_ms: int = 0
    backpressured_ms: int = 0
    idle_ms: int = 0
    #: For how long its thread has not moved on, if that is long, and where it is; and the file it is just reading.
    stalled_ms: int = 0
    stalled_at: str = ""
    reading: str = ""
    #: Whatever else operators count, by their uids and by the name of the counter, since the subtask started.
    counters: dict[str, dict[str, int]] = {}
    #: Outside systems that do not answer just now: why, by the uid of the source or sink.
    outages: dict[str, str] = {}
    #: What came over the exchange, and what was sent over it or round a loop.
    bytes_in: int = 0
    bytes_out: int = 0
    #: In the order of the chain.
    operators: list[OperatorFigures] = []
    process: ProcessFigures = ProcessFigures()


class Noticed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A warning for the people who run the job. Sent once for each operator and kind."""

    uid: str
    kind: str
    text: str


class Answer(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The rows that the subtask has under the key of a :class:`Query`."""

    id: int
    #: value, list, map, reducing or aggregating; and the stored type.
    kind: str = ""
    stored_type: StateType = PLAIN
    #: The rows of the key as a snapshot would hold them, in Arrow's stream format (``state/peeking.py``); or nothing.
    rows: bytes = b""
    #: Why there is no answer.
    error: str = ""


class Failed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The subtask is about to die of this."""

    error: str
    traceback: str
    uid: str = ""
    name: str = ""
    position: int = -1
    record: str = ""
    #: Can it pass by itself? None: unknown.
    can_pass: bool | None = None
    #: The file of the restored snapshot that turned out to be damaged.
    corrupt: str = ""


class SendBackTo(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The addresses at which subtasks of loops' heads receive feedback: vertex, index, host and port of each."""

    addresses: list[tuple[int, int, str, int]]


class SendAhead(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The subtask may be so far ahead of those it sends to, as they have said in :class:`InputTaken`.

    Of each channel: link, index of the receiver, bytes taken so far, and bytes that may be on their way.
    """

    channels: list[tuple[int, int, int, int]]


class AddSplits(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A source: read these splits as well. The first one comes when the driver has first looked, be it without any."""

    #: Plain data as ``state/types/plain.py`` encodes it: pairs of split and position.
    splits: list[bytes]
    #: There will never be another.
    no_more: bool = False
    #: What the enumerator announces to all readers, as plain data; nothing if that is what it was.
    announced: bytes = b""


class Trigger(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Sources: emit the barrier of this checkpoint now."""

    checkpoint: int
    triggered_ms: int
    #: Read no further: nothing follows this barrier.
    final: bool = False
    #: The newest complete checkpoint: this one may build on its files.
    completed: int = 0
    #: It is a savepoint, to be written there.
    savepoint: str = ""
    #: Read no further, though another barrier follows: the job is about to stop or to be rescaled.
    pause: bool = False
    #: Before that, end time: all timers and windows fire.
    drain: bool = False


class Overtake(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Do not process what comes before this checkpoint's barriers: put it aside and make it part of the snapshot."""

    checkpoint: int


class Hold(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Sources: read nothing for a while, or go on. Triggers are to be answered all the same."""

    on: bool


class Confirm(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The checkpoint is complete: commit what it covers."""

    checkpoint: int
    #: The job ends here.
    final: bool = False


class Abort(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The checkpoint will never be complete. Its data is covered by the next one."""

    checkpoint: int


class Query(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A request for the rows under a key right now. Changes nothing."""

    id: int
    uid: str
    state: str
    #: The key's stable encoding (``model/keys/encoding.py``): keys of any class can be asked for.
    key: bytes


T = TypeVar("T")
Report = (
    Connected
    | Running
    | Acknowledged
    | Declined
    | InputEnded
    | InputTaken
    | ReaderReported
    | Progress
    | Noticed
    | Answer
    | Failed
)
Order = SendBackTo | SendAhead | AddSplits | Trigger | Overtake | Hold | Confirm | Abort | Query

_encoder = msgspec.msgpack.Encoder()
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
_orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)


def encode(message: Report | Order) -> bytes:
    return _encoder.encode(message)


def decode_report(data: bytes) -> Report:
    """Raises ``msgspec.DecodeError`` for anything else."""
    return _decode(_reports, data)


def decode_order(data: bytes) -> Order:
    """Raises ``msgspec.DecodeError`` for anything else."""
    return _decode(_orders, data)


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:  # which msgspec lets through
        raise msgspec.DecodeError(str(error)) from None
