"""Rows between the Spark tasks of a batch job, and the order in which they are worked off.

    slot     int     the partition of the next stage that the row goes to
    place    int     stage << 16 | slot that it is for; one that is for a later stage is passed on
    rank     long    what is worked off first: see below
    key      binary  the encoded key; empty where there is none
    time     long    when its records happened, if they share one time; MIN_TIME: see the payload
    seq      long    link << 51 | sender << 31 | number: where it comes from, and in which order
    payload  binary  pickle of a list of records, or of such a list and the bytes of their timestamps; for a step that
                     works off key groups in columns, these as Arrow, and the key is the key group's

Spark sorts the rows of a partition by rank, key, time and seq:

    -1         hello: one row without payload for every slot, so that a task learns which one it is
    0          to be passed on
    1 << 61    broadcast records
    2 << 61    other records without a key
    3 << 61    keyed records, with 61 bits of the key's hash: so they come by key group, then by key

The order is the same however often Spark computes a partition and in whatever order it fetches the blocks: what is
computed again after a failure is what was lost.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from moorline.model import keys
from moorline.model.times import MIN_TIME
from moorline.model.wire import elements
from moorline.model.wire.elements import NO_STAGE

SCHEMA = "slot int, place int, rank long, key binary, time long, seq long, payload binary"
ORDER = ("rank", "key", "time", "seq")
ARROW_SCHEMA = pa.schema(
    [
        ("slot", pa.int32()),
        ("place", pa.int32()),
        ("rank", pa.int64()),
        ("key", pa.binary()),
        ("time", pa.int64()),
        ("seq", pa.int64()),
        ("payload", pa.binary()),
    ]
)

HELLO, PASS_ON = -1, 0
BROADCAST, REGULAR, KEYED = 1 << 61, 2 << 61, 3 << 61
#: The place of what is for the driver.
RESULT = NO_STAGE << 16

SENDER_BITS, NUMBER_BITS = 20, 31
_LINK_SHIFT = SENDER_BITS + NUMBER_BITS

#: A batch of rows is passed on when it has so many bytes or rows.
BATCH_BYTES = 4 << 20
BATCH_ROWS = 1 << 14


def place(stage: int, slot: int) -> int:
    return stage << 16 | slot


def first_seq(link: int, sender: int) -> int:
    """The number of the first row that ``sender`` sends over ``link``."""
    return link << _LINK_SHIFT | sender << NUMBER_BITS


def keyed_rank(key: bytes) -> int:
    """The rank by which rows with this key are worked off."""
    return KEYED | keys.encoded_hash(key) >> 3


def link_of(seq: int) -> int:
    return seq >> _LINK_SHIFT


def pack(records: list[Any], timestamps: list[int] | None) -> bytes:
    """The payload of records that need not share a timestamp."""
    return elements.pickled((records, array("q", timestamps).tobytes()) if timestamps else records)


def unpack(payload: bytes, time: int) -> tuple[list[Any], list[int] | None]:
    """Records, and their timestamps if they have any."""
    content = pickle.loads(payload)
    if type(content) is list:
        return content, None if time == MIN_TIME else [time] * len(content)
    records, packed = content
    timestamps = array("q")
    timestamps.frombytes(packed)
    return records, timestamps.tolist()


class BatchRows:
    """Rows on their way out, in batches of bounded size."""

    def __init__(self) -> None:
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [], [], [])
        self._size = 0
        self._full: list[pa.RecordBatch] = []

    def add(self, slot: int, place: int, rank: int, key: bytes, time: int, seq: int, payload: bytes) -> None:
        # Written out: with few records in a row this is a good part of what a record costs.
        slots, places, ranks, keys, times, seqs, payloads = self._columns
        slots.append(slot)
        places.append(place)
        ranks.append(rank)
        keys.append(key)
        times.append(time)
        seqs.append(seq)
        payloads.append(payload)
        self._size += len(payload)
        if self._size >= BATCH_BYTES or len(slots) >= BATCH_ROWS:
            self._close_batch()

    def add_many(self, *columns: Sequence[Any]) -> None:
        """The same for many rows, given as columns: a fraction of the time for each."""
        payloads = columns[-1]
        # No more at a time than fit into a batch, going by their mean.
        step = max(1, min(BATCH_ROWS, BATCH_BYTES * len(payloads) // max(1, sum(map(len, payloads)))))
        if self._columns[0]:
            self._close_batch()
        for start in range(0, len(payloads), step):
            for column, values in zip(self._columns, columns):
                column += values[start : start + step]
            self._close_batch()

    @property
    def is_waiting(self) -> bool:
        """Is there enough to be passed on?"""
        return bool(self._full)

    def take(self) -> list[pa.RecordBatch]:
        """The batches that are full."""
        full, self._full = self._full, []
        return full

    def take_all(self) -> list[pa.RecordBatch]:
        if self._columns[0]:
            self._close_batch()
        return self.take()

    def _close_batch(self) -> None:
        arrays = [pa.array(column, field.type) for column, field in zip(self._columns, ARROW_SCHEMA, strict=True)]
        self._full.append(pa.record_batch(arrays, schema=ARROW_SCHEMA))
        for column in self._columns:
            column.clear()
        self._size = 0
