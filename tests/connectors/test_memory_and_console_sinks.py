"""collect, print and discard."""

import dataclasses
from datetime import datetime
from decimal import Decimal
from typing import Any

import cloudpickle
import msgspec
import pytest

from moorline.api.sinks import DeliveryGuarantee, Sink, SinkContext, SinkWriter
from moorline.connectors.collect import collect
from moorline.connectors.printing import Print, discard, print_
from moorline.errors import InvalidArgument, StateTypeMismatch
from moorline.state.types import plain


@dataclasses.dataclass
class Order:
    number: int
    paid: Decimal
    at: datetime
    tags: set[str]


class Word(msgspec.Struct):
    text: str
    raw: bytes


def open_writer(sink: Sink, restored: tuple[Any, ...] = (), subtask: int = 0) -> SinkWriter:
    return sink.open(SinkContext("job", "out", subtask, 2, 1, restored))


def restarted(sink: Sink, writer: SinkWriter) -> SinkWriter:
    """The writer of the next attempt, restored from a snapshot."""
    snapshot = [plain.decode(plain.encode(item)) for item in writer.snapshot()]
    return open_writer(cloudpickle.loads(cloudpickle.dumps(sink)), tuple(snapshot))


def test_collected_records_survive_a_failure() -> None:
    sink = collect("out")
    writer = open_writer(sink)
    writer.write([(1, "a"), {"b": {2}}])
    again = restarted(sink, writer)
    again.write([None])
    assert again.results() == ("out", [(1, "a"), {"b": {2}}, None])


def test_what_was_collected_after_the_snapshot_is_not_in_it() -> None:
    writer = open_writer(collect("out"))
    writer.write([1])
    snapshot = writer.snapshot()
    writer.write([2])
    assert snapshot == [1]


@pytest.mark.parametrize(
    ("type", "records"),
    [
        (Order, [Order(1, Decimal("1.50"), datetime(2026, 1, 1), {"a"})]),
        (Word, [Word("a", b"\xff\x00"), Word("b", b"")]),
        (Word | int, [Word("a", b"x"), 3]),
        (tuple[int, str], [(1, "a")]),
        (dict[str, Any], [{"x": b"\xff"}]),
    ],
)
def test_records_of_a_declared_type_come_back_as_that_type(type: Any, records: list[Any]) -> None:
    sink = collect("out", type=type)
    writer = open_writer(sink)
    writer.write(records)
    assert restarted(sink, writer).results() == ("out", records)


def test_records_that_are_not_plain_need_their_type() -> None:
    writer = open_writer(collect("out"))
    writer.write([Word("a", b"x")])
    with pytest.raises(plain.NotPlain, match="Word"):
        plain.encode(writer.snapshot())


def test_records_of_another_type_are_told() -> None:
    with pytest.raises(StateTypeMismatch, match=r"collect\('out'\).*Word"):
        open_writer(collect("out", type=Word), ("text",))
    writer = open_writer(collect("out", type=Word))
    writer.write([object()])
    with pytest.raises(StateTypeMismatch):
        writer.snapshot()


def test_a_collection_needs_a_name() -> None:
    with pytest.raises(InvalidArgument, match="name"):
        collect("")


def test_records_are_printed_at_once_with_their_subtask(capsys: pytest.CaptureFixture[str]) -> None:
    open_writer(print_()).write(["a", {"b": 1}])
    assert capsys.readouterr().out == "1> a\n1> {'b': 1}\n"
    open_writer(print_("x"), subtask=2).write([1])
    assert capsys.readouterr().out == "x:3> 1\n"


def test_printing_promises_at_least_once_and_has_nothing_to_commit() -> None:
    assert Print.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    writer = open_writer(print_())
    assert writer.prepare(1) == [] and writer.snapshot() == [] and writer.results() is None


def test_discarded_records_are_gone() -> None:
    writer = open_writer(discard())
    writer.write([1, 2])
    assert writer.prepare(1) == [] and writer.snapshot() == [] and writer.results() is None
