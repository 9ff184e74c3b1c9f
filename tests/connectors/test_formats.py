"""Formats of messages: what they decode, what they refuse, and that they travel."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import cloudpickle
import msgspec
import pytest
from google.protobuf import type_pb2, wrappers_pb2

import moorline as mo
from moorline.connectors.formats.choosing import format_for_reading, format_for_writing
from moorline.errors import InvalidArgument

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    ],
}
ORDER = {"customer": "ada", "cents": 500, "day": datetime.date(2026, 11, 2)}


class Order(msgspec.Struct, frozen=True):
    customer: str
    cents: int = 0


@dataclasses.dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    "format, record, data",
    [
        ("json", {"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'.encode()),
        ("text", "né", b"n\xc3\xa9"),
        ("bytes", b"\x00\xff", b"\x00\xff"),
        (mo.json_format(Order), Order("ada", 5), b'{"customer":"ada","cents":5}'),
        (mo.json_format(Point), Point(1, 2), b'{"x":1,"y":2}'),
        (mo.json_format(dict[str, int]), {"a": 1}, b'{"a":1}'),
        (mo.avro_format(SCHEMA), ORDER, b"\x06ada\xe8\x07\x02\xae\xc4\x02"),
        (mo.protobuf_format(wrappers_pb2.Int64Value), wrappers_pb2.Int64Value(value=7), b"\x08\x07"),
    ],
    ids=["json", "text", "bytes", "struct", "dataclass", "dict", "avro", "protobuf"],
)
def test_a_record_is_the_same_there_and_back_also_in_a_worker(format, record, data):
    writing, reading = format_for_writing(format), format_for_reading(format)
    assert writing.encode(record) == data
    assert reading.decode(data) == record
    assert cloudpickle.loads(cloudpickle.dumps(writing)).encode(record) == data
    assert cloudpickle.loads(cloudpickle.dumps(reading)).decode(data) == record


@pytest.mark.parametrize(
    "format, data, cause",
    [
        ("json", b"{oops", "JSON is malformed"),
        ("json", b"", "truncated"),
        ("text", b"\xff", "invalid start byte"),
        (mo.json_format(Order), b'{"customer": 7}', r"Expected `str`, got `int` - at `\$.customer`"),
        (mo.json_format(Order), b"{}", "missing required field `customer`"),
        (mo.avro_format(SCHEMA), b"\x06ad", "Expected 3 bytes"),
        (mo.avro_format(SCHEMA), b"\x06ada\xe8\x07\x00more", "4 bytes are left over"),
        (mo.protobuf_format(wrappers_pb2.Int64Value), b"\x08", "parsing"),
    ],
)
def test_bytes_that_are_none_of_the_format_are_refused(format, data, cause):
    with pytest.raises(Exception, match=cause) as error:
        format_for_reading(format).decode(data)
    assert not isinstance(error.value, mo.errors.StorageError), "it is the message that is broken, and no server"


@pytest.mark.parametrize(
    "format, record, cause",
    [
        ("text", b"bytes", "is a str"),
        ("bytes", "text", "is bytes"),
        (mo.avro_format(SCHEMA), {"customer": "ada"}, "cents"),
        (mo.avro_format(SCHEMA), {**ORDER, "surname": "byron"}, "surname"),
        (mo.protobuf_format(wrappers_pb2.Int64Value), type_pb2.Field(), "is a Int64Value, and not Field"),
    ],
)
def test_records_that_do_not_fit_are_not_written(format, record, cause):
    with pytest.raises(Exception, match=cause):
        format_for_writing(format).encode(record)


def test_fields_with_a_default_need_not_be_given():
    orders = mo.avro_format(SCHEMA)
    assert orders.decode(orders.encode({"customer": "ada", "cents": 1}))["day"] is None


def test_a_function_decodes_for_a_source_and_encodes_for_a_sink():
    assert format_for_reading(int).decode(b"12") == 12
    assert format_for_writing(lambda n: b"%d" % n).encode(12) == b"12"
    with pytest.raises(NotImplementedError, match=r"cannot be written: it has no encode\(\)"):
        format_for_reading(int).encode(12)


class Halves(mo.Format[float]):
    def decode(self, data: bytes) -> float:
        return int(data) / 2


def test_a_format_of_ones_own_may_do_one_way_only():
    assert format_for_reading(Halves()).decode(b"3") == 1.5
    with pytest.raises(NotImplementedError):
        Halves().encode(1.5)


def refused(call: Any) -> str:
    with pytest.raises(InvalidArgument) as error:
        call()
    return str(error.value)


def test_mistakes_are_refused_with_advice():
    assert "Did you mean 'json'?" in refused(lambda: format_for_reading("jsn"))
    assert "Halves()" in refused(lambda: format_for_reading(Halves))
    assert "or a function" in refused(lambda: format_for_reading(None))
    assert "cannot be decoded to it" in refused(lambda: mo.json_format(dict[bytes, list[complex | Order | Point]]))
    assert "no schema of Avro" in refused(lambda: mo.avro_format({"type": "recrod"}))
    assert "no schema of Avro" in refused(lambda: mo.avro_format("{"))
    assert "the registry that has it" in refused(lambda: mo.avro_format())
    assert "Only a registry" in refused(lambda: mo.avro_format(SCHEMA, subject="orders-value"))
    assert "mo.schema_registry" in refused(lambda: mo.avro_format(registry="http://localhost"))
    assert "protoc" in refused(lambda: mo.protobuf_format(Order))
