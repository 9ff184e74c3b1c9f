"""Control messages: a closed set. Whatever else comes in is a msgspec error and nothing worse."""

import random

import msgspec
import pytest

from moorline.model.manifest import ElementsHandle, OperatorHandles, RowsHandle, Segment, SnapshotFile
from moorline.model.type_tree.tree import INT, Tuple
from moorline.model.wire import messages
from moorline.model.wire.messages import (
    Abort,
    Acknowledged,
    Confirm,
    Connected,
    Declined,
    Failed,
    InputEnded,
    Noticed,
    Progress,
    ReaderReported,
    Running,
    Trigger,
)

FILE = SnapshotFile("data/chk-7/a", 100, [Segment(0, 64, 0, 80, "0" * 16), Segment(0, 0, 80, 20, "f" * 16)])
HANDLES = OperatorHandles(
    "count",
    [RowsHandle("sum", "value", Tuple((INT, INT)), 0, 64, 12, FILE)],
    [ElementsHandle("offsets", "union", 2, inline=[b"\x01", b"\x02"]), ElementsHandle("big", "split", 9, file=FILE)],
)
REPORTS = [
    Connected(pid=4711, host="node-3", executor="2"),
    Running(pid=4711),
    Acknowledged(checkpoint=7, operators=[HANDLES], align_ms=3, sync_ms=1, async_ms=40, spilled_bytes=9),
    Acknowledged(checkpoint=8, operators=[]),
    Declined(checkpoint=7, reason="UPLOAD_FAILED", detail="no space"),
    InputEnded(),
    ReaderReported(report=b"x"),
    Progress(records_in=5, records_out=6, keys=7, blocked_bytes=8, busy_ms=9, backpressured_ms=10),
    Progress(records_in=0, records_out=0, stalled_ms=9_000, stalled_at="job.py:3 open", reading="data/x"),
    Progress(records_in=1, records_out=0, counters={"windows": {"late_records": 3}}),
    Noticed(uid="windows", kind="late_records", text="drops records"),
    Failed(error="ValueError: x", traceback="…", uid="count", name="Count", position=3, record="'r'", can_pass=False),
]
ORDERS = [
    Trigger(checkpoint=7, triggered_ms=1_700_000_000_000),
    Trigger(checkpoint=8, triggered_ms=0, final=True),
    Confirm(checkpoint=7),
    Confirm(checkpoint=8, final=True),
    Abort(checkpoint=9),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda m: type(m).__name__)
def test_a_report_comes_back_as_it_was(report):
    assert messages.decode_report(messages.encode(report)) == report


@pytest.mark.parametrize("order", ORDERS, ids=lambda m: type(m).__name__)
def test_an_order_comes_back_as_it_was(order):
    assert messages.decode_order(messages.encode(order)) == order


@pytest.mark.parametrize("order", ORDERS, ids=lambda m: type(m).__name__)
def test_an_order_is_no_report(order):
    with pytest.raises(msgspec.ValidationError):
        messages.decode_report(messages.encode(order))


@pytest.mark.parametrize("report", REPORTS, ids=lambda m: type(m).__name__)
def test_a_report_is_no_order(report):
    with pytest.raises(msgspec.ValidationError):
        messages.decode_order(messages.encode(report))


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"type": "Sabotage"},
        {"type": "Abort"},
        {"type": "Abort", "checkpoint": "7"},
        {"type": "Abort", "checkpoint": None},
        {"type": "Trigger", "checkpoint": 7},
        {"type": 3},
        [],
        "Abort",
        7,
    ],
)
def test_an_unknown_or_half_message_is_a_validation_error(content):
    data = msgspec.msgpack.encode(content)
    with pytest.raises(msgspec.ValidationError):
        messages.decode_order(data)


def test_a_field_of_a_newer_version_is_passed_over():
    data = msgspec.msgpack.encode({"type": "Abort", "checkpoint": 7, "since": "0.9"})
    assert messages.decode_order(data) == Abort(checkpoint=7)


def test_a_bomb_of_nested_lists_is_a_decode_error():
    bomb = msgspec.msgpack.encode({"type": "Abort", "x": 0})[:-1] + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(msgspec.DecodeError):
        messages.decode_order(bomb)


def mutant(data: bytes, chance: random.Random) -> bytes:
    mutated = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(mutated) + 1)
        match chance.randrange(4):
            case 0:
                mutated[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del mutated[at : at + chance.randint(1, 5)]
            case 2:
                mutated[at:at] = chance.randbytes(chance.randint(1, 5))
            case 3:
                mutated = mutated[:at]
        if not mutated:
            break
    return bytes(mutated)


@pytest.mark.parametrize("decode", [messages.decode_report, messages.decode_order])
def test_two_thousand_mutants_raise_nothing_but_msgspec_errors(decode):
    chance = random.Random(20)
    encoded = [messages.encode(m) for m in REPORTS + ORDERS]
    refused = 0
    for _ in range(2000):
        try:
            decode(mutant(chance.choice(encoded), chance))
        except msgspec.MsgspecError:
            refused += 1
    assert refused > 1000


def test_noise_raises_nothing_but_msgspec_errors():
    chance = random.Random(21)
    for _ in range(2000):
        with pytest.raises(msgspec.MsgspecError):
            messages.decode_report(chance.randbytes(chance.randrange(60)))
