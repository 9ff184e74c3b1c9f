"""Elements that travel between subtasks, and their bytes.

A frame is one row of the exchange: a head that says where it goes and where it comes from, and a body.

    0     1        5      6     8     10      12
    kind  attempt  stage  slot  link  sender  body …
    u8    u32      u8     u16   u16   u16

    kind       body
    1 batch    any number of parts: u8 kind, u32 length, and
                 0 records     pickle of a list
                 1 stamped     pickle of a list and of the timestamps' bytes
                 2 watermark   i64, milliseconds: nothing earlier follows on this channel, or so it is hoped
                 3 idle        nothing: do not wait for this channel's watermark until it says something again
                 8 columns     an Arrow stream of one batch (``model/wire/columns.py``)
    2 barrier  checkpoint u64, triggered at (ms) i64, flags u8, completed u64, savepoint: text
                 flags: 1 final, 2 pause, 4 drain
    3 end      nothing: no more records on this channel
    4 result   records for the driver: u16 length + name, pickle of a list; passed on to the last stage
    5 mark     round u32, clean u8: goes round a loop to find out whether it is empty

Pickle is for records between subtasks of one job only: the bytes never leave Spark's own shuffle, or the lines that
lead back in a loop, where nothing is unpickled that does not bear the attempt's seal (``subtask/iteration/lines.py``).
"""

from __future__ import annotations

import pickle
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from moorline.model.columns import ColumnBatch
from moorline.model.ids import CheckpointId
from moorline.model.wire import columns, user_code
from moorline.model.wire.objects import together

HEAD = struct.Struct(">BIBHHH")
_BARRIER = struct.Struct(">QqBQ")
_NAME = struct.Struct(">H")
_PART = struct.Struct(">BI")
_WATERMARK = struct.Struct(">q")

_MARK = struct.Struct(">I?")

BATCH, BARRIER, END, RESULT, MARK = 1, 2, 3, 4, 5
_FINAL, _PAUSE, _DRAIN = 1, 2, 4
RECORDS, STAMPED, WATERMARK, IDLE, COLUMNS = 0, 1, 2, 3, 8

#: A result has no slot: it goes on until there is no further stage.
NO_STAGE = 255


class FrameHead(NamedTuple):
    """The head of a frame: its target and its sender."""

    kind: int
    attempt: int
    stage: int
    slot: int
    link: int
    sender: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """Everything before it belongs to the checkpoint, nothing after it does."""

    checkpoint: CheckpointId
    triggered_ms: int
    #: After this one no record follows: the job ends when the checkpoint is complete.
    final: bool = False
    #: The newest checkpoint that was complete when this one was started: it may build on that one's files.
    completed: int = 0
    #: Where the snapshot goes if it is a savepoint.
    savepoint: str = ""
    #: After this one no record follows until the attempt ends, and nothing fires.
    pause: bool = False
    #: Before it time has ended, in the middle of the stream.
    drain: bool = False


def head(frame: bytes) -> FrameHead:
    return FrameHead._make(HEAD.unpack_from(frame))


def pickled(records: Any) -> bytes:
    """Records as bytes, for processes that run the same job."""
    try:
        return pickle.dumps(records, 5)
    except (pickle.PicklingError, AttributeError, TypeError):
        # Classes made inside a function have no name to be found by: they go along by value, at a price.
        return user_code.dumps(records)


def pack_records(records: list[Any], timestamps: list[int] | None = None) -> bytes:
    """Records, and their timestamps if they have any, as a part of a batch."""
    if not timestamps:
        content = pickled(together(records))
        return _PART.pack(RECORDS, len(content)) + content
    content = pickled((together(records), array("q", timestamps).tobytes()))
    return _PART.pack(STAMPED, len(content)) + content


def pack_columns(batch: pa.RecordBatch, timestamps: Sequence[int] | None = None) -> bytes:
    """A batch of columns, and the timestamps of its rows if they have any, as a part of a batch."""
    content = columns.to_bytes(batch, timestamps)
    return _PART.pack(COLUMNS, content.size) + memoryview(content)


def pack_any(records: Any, timestamps: list[int] | None = None) -> bytes:
    """Records, be they a list or columns, as a part of a batch."""
    if isinstance(records, ColumnBatch):
        return pack_columns(records.batch, timestamps)
    return pack_records(records, timestamps)


def pack_watermark(time: int) -> bytes:
    return _PART.pack(WATERMARK, 8) + _WATERMARK.pack(time)


PACKED_IDLE = _PART.pack(IDLE, 0)

#: A part of a batch: what it is; its records and timestamps, or the time of a watermark.
Part = tuple[int, Any, Any]


def unpack_part(frame: bytes, at: int) -> tuple[int, Any, Any, int]:
    """The part of a batch that begins at byte ``at``, and where the next one does."""
    kind, length = _PART.unpack_from(frame, at)
    start, end = at + _PART.size, at + _PART.size + length
    if kind == RECORDS:
        return kind, pickle.loads(memoryview(frame)[start:end]), None, end
    if kind == STAMPED:
        records, packed = pickle.loads(memoryview(frame)[start:end])
        timestamps = array("q")
        timestamps.frombytes(packed)
        return kind, records, timestamps.tolist(), end
    if kind == COLUMNS:
        batch, stamps = columns.from_bytes(memoryview(frame)[start:end])
        return kind, batch, stamps, end
    if kind == WATERMARK:
        return kind, _WATERMARK.unpack_from(frame, start)[0], None, end
    return kind, None, None, end


def unpack_batch(frame: bytes) -> Iterator[Part]:
    """The parts of a batch, one after the other."""
    at = HEAD.size
    while at < len(frame):
        kind, content, timestamps, at = unpack_part(frame, at)
        yield kind, content, timestamps


def record_parts(frame: bytes) -> Iterator[bytes]:
    """The parts of a batch that hold records, as they are. Time is left out."""
    at = HEAD.size
    while at < len(frame):
        kind, length = _PART.unpack_from(frame, at)
        end = at + _PART.size + length
        if kind in (RECORDS, STAMPED, COLUMNS):
            yield frame[at:end]
        at = end


def pack_barrier(head: bytes, barrier: Barrier) -> bytes:
    flags = _FINAL * barrier.final | _PAUSE * barrier.pause | _DRAIN * barrier.drain
    fixed = _BARRIER.pack(barrier.checkpoint, barrier.triggered_ms, flags, barrier.completed)
    return head + fixed + barrier.savepoint.encode()


def unpack_barrier(frame: bytes) -> Barrier:
    checkpoint, triggered_ms, flags, completed = _BARRIER.unpack_from(frame, HEAD.size)
    savepoint = frame[HEAD.size + _BARRIER.size :].decode()
    final, pause, drain = (bool(flags & flag) for flag in (_FINAL, _PAUSE, _DRAIN))
    return Barrier(CheckpointId(checkpoint), triggered_ms, final, completed, savepoint, pause, drain)


def pack_mark(head: bytes, number: int, clean: bool) -> bytes:
    return head + _MARK.pack(number, clean)


def unpack_mark(frame: bytes) -> tuple[int, bool]:
    number, clean = _MARK.unpack_from(frame, HEAD.size)
    return number, clean


def pack_result(attempt: int, sender: int, name: str, records: list[Any]) -> bytes:
    head = HEAD.pack(RESULT, attempt, NO_STAGE, 0, 0, sender)
    encoded = name.encode()
    return head + _NAME.pack(len(encoded)) + encoded + pickled(records)


def unpack_results(frames: list[bytes]) -> dict[str, list[Any]]:
    """All results by name, in the order of the subtasks they come from."""
    results: dict[str, list[Any]] = {}
    for frame in sorted(frames, key=lambda frame: head(frame).sender):
        (length,) = _NAME.unpack_from(frame, HEAD.size)
        at = HEAD.size + _NAME.size
        records = pickle.loads(memoryview(frame)[at + length :])
        results.setdefault(frame[at : at + length].decode(), []).extend(records)
    return results
