"""What a subtask holds in memory is bounded by bytes, whatever the size of its records."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import count, islice

import msgspec
import numpy as np
import pytest
from subtask_worlds import World
from waiting import PATIENCE

import moorline as mo
from moorline.spark.mailbox import READ_AHEAD_BYTES, Mailbox
from moorline.subtask.adaptive_batches import SLICE_BYTES, AdaptiveBatches
from moorline.subtask.operators.read_size import FIRST_RECORDS, READ_BYTES, READ_RECORDS, ReadSize, rough_size
from moorline.subtask.operators.source_thread import QUEUED_BYTES, SourceThread


@dataclass
class Text:
    text: str


class Struct(msgspec.Struct):
    text: str


@pytest.mark.parametrize(
    "record",
    [
        "x" * 100_000,
        b"x" * 100_000,
        ("key", "x" * 100_000),
        {"key": 1, "text": "x" * 100_000},
        Text("x" * 100_000),
        Struct("x" * 100_000),
        np.zeros(12_500),
        [("k", {"deep": "x" * 100_000})],
        ["x" * 100] * 1_000,
    ],
    ids=lambda record: type(record).__name__,
)
def test_the_size_of_a_record_is_about_that_of_the_text_in_it(record):
    assert 90_000 < rough_size(record) < 120_000


def test_small_records_are_read_by_the_thousand_and_large_ones_one_by_one():
    size = ReadSize()
    asked = []
    for _ in range(12):
        asked.append(size.records)
        size.was_read([("key", 1)] * size.records)
    assert asked[0] == FIRST_RECORDS and asked[-1] == READ_RECORDS
    size.was_read(["x" * 1_000_000] * READ_RECORDS)
    assert size.records == 1
    size.was_read(["x" * 2_000_000])
    assert size.records == 1


@pytest.mark.parametrize("length", [100, 10_000, 1_000_000])
def test_a_source_is_asked_for_batches_of_about_as_many_bytes_whatever_the_size_of_a_record(length):
    batches = []

    def record(number: int) -> tuple[int, str]:
        return number, f"{number}" * (length // len(f"{number}"))

    class Noting(mo.Source):
        def open(self, ctx):
            return NotingReader()

    class NotingReader(mo.SourceReader):
        def __init__(self):
            self.next = count(1)

        def read(self, limit):
            records = [record(n) for n in islice(self.next, limit)]
            batches.append(sum(len(text) for _, text in records))
            return records

        def positions(self):
            return {}

    job = mo.Job("sizes")
    job.source(Noting(), uid="in").key_by(lambda r: r[0]).map(lambda r: r, uid="keyed").sink(mo.discard())
    world = World(job, "in").start()
    for _ in range(20):
        world.subtask.work()
        world.rows()
    assert max(batches[1:]) <= max(2 * READ_BYTES, length)
    assert batches[-1] >= min(READ_BYTES // 2, READ_RECORDS * length // 2)


def test_a_chain_that_makes_much_of_little_reads_less():
    job = mo.Job("blow-up")
    source = job.source(mo.generate(lambda n: n, splits=1), uid="in")
    source.map(lambda n: bytes([n % 256]) * 500_000, uid="blow-up").rebalance().sink(mo.discard())
    world = World(job, "in").start()
    sizes = []
    for _ in range(10):
        world.subtask.work()
        sizes.append(sum(map(len, world.rows())))
    assert max(sizes[3:]) <= 2 * READ_BYTES


def test_a_function_that_makes_much_of_little_gets_fewer_records_at_a_time():
    calls, packed = [], [0]

    class Operator:
        def process(self, records, stamps, side=0):
            calls.append(len(records))
            packed[0] += 100_000 * len(records)

    slices = AdaptiveBatches(lambda: 0.0, lambda: False, 4_096, lambda: packed[0])
    for _ in range(3):
        slices.process(Operator(), list(range(1_000)), None, 0)
    assert max(calls[1:]) <= SLICE_BYTES // 100_000
    assert sum(calls) == 3_000


def test_large_frames_are_not_read_ahead_by_number():
    mailbox = Mailbox()
    mailbox.put_frame(bytes(READ_AHEAD_BYTES))
    thread = threading.Thread(target=mailbox.put_frame, args=(b"next",))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive(), "it waits for room"
    mailbox.take_frame()
    thread.join(PATIENCE)
    assert mailbox.take_frame() == b"next"


def test_the_queue_of_a_source_with_a_thread_of_its_own_is_bounded_by_bytes():
    class Large(mo.SourceFunction):
        made = 0

        def run(self, ctx):
            while True:
                self.made += 1
                ctx.collect(b"x" * 1_000_000)

        def cancel(self):
            pass

    function = Large()
    thread = SourceThread(function, None)
    try:
        taken = 0
        while taken < 30:
            taken += len(thread.take(10))
            assert function.made - taken <= QUEUED_BYTES // 1_000_000 + 2 + 10
    finally:
        thread.close()
