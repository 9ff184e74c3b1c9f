"""Messages behind the number of their schema, and the registry that has the schemas."""

from __future__ import annotations

import base64
from typing import Any

import cloudpickle
import msgspec
import pytest
from google.protobuf import descriptor_pb2, type_pb2, wrappers_pb2
from registry_server import RegistryServer, registry_server

import moorline as mo
from moorline.errors import InvalidArgument, StorageError

OLD = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "customer", "type": "string"}, {"name": "cents", "type": "long"}],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}
#: As Confluent's own serializers write them, with 1 for the first schema and 2 for the second.
AVRO = b"\x00\x00\x00\x00\x01\x06ada\xe8\x07"
FIELD = b'\x00\x00\x00\x00\x01\x02\x02"\x01x'
RANGE = b"\x00\x00\x00\x00\x01\x04\x04\x00\x08\x03"


@pytest.fixture
def registry():
    with registry_server() as server:
        yield server


def client(server: RegistryServer, **options: Any) -> Any:
    return mo.schema_registry(server.url, **options)


# --- Avro ---------------------------------------------------------------------------------------


def test_the_writers_schema_is_fetched_once(registry):
    registry.register("orders-value", OLD)
    orders = mo.avro_format(registry=client(registry))
    assert [orders.decode(AVRO) for _ in range(3)] == [{"customer": "ada", "cents": 500}] * 3
    assert registry.asked == ["GET /schemas/ids/1"]
    assert cloudpickle.loads(cloudpickle.dumps(orders)).decode(AVRO)["cents"] == 500, "and anew in a worker"


def test_old_messages_are_resolved_to_the_schema_that_is_given(registry):
    registry.register("orders-value", OLD)
    registry.register("orders-value", NEW)
    orders = mo.avro_format(NEW, registry=client(registry), subject="orders-value")
    assert orders.decode(AVRO) == {"customer": "ada", "cents": 500, "currency": "EUR"}
    written = orders.encode({"customer": "bob", "cents": 1, "currency": "GBP"})
    assert written[:5] == b"\x00\x00\x00\x00\x02" and orders.decode(written)["currency"] == "GBP"
    old = mo.avro_format(OLD, registry=client(registry))
    assert old.decode(written) == {"customer": "bob", "cents": 1}, "new messages are read by old jobs"


def test_a_schema_is_registered_only_if_that_is_said(registry):
    with pytest.raises(InvalidArgument, match="register=True"):
        mo.avro_format(OLD, registry=client(registry), subject="orders-value").check()
    assert registry.schemas == {}
    orders = mo.avro_format(OLD, registry=client(registry), subject="orders-value", register=True)
    orders.check()
    assert registry.schemas == {}, "a check changes nothing"
    assert orders.encode({"customer": "ada", "cents": 500}) == AVRO
    assert registry.subjects == {"orders-value": [1]}
    mo.avro_format(OLD, registry=client(registry), subject="orders-value").check()


def test_to_write_it_takes_a_schema_and_a_subject(registry):
    with pytest.raises(InvalidArgument, match="<topic>-value"):
        mo.avro_format(OLD, registry=client(registry)).encode({"customer": "ada", "cents": 500})


def test_schemas_that_refer_to_others(registry):
    registry.register("money", {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]})
    price = {"type": "record", "name": "Price", "fields": [{"name": "net", "type": "Money"}]}
    registry.register("price", price, references=[{"name": "Money", "subject": "money", "version": 1}])
    order = {"type": "record", "name": "Order", "fields": [{"name": "price", "type": "Price"}]}
    registry.register("order", order, references=[{"name": "Price", "subject": "price", "version": 1}])
    record = mo.avro_format(registry=client(registry)).decode(b"\x00\x00\x00\x00\x03\xe8\x07")
    assert record == {"price": {"net": {"cents": 500}}}


@pytest.mark.parametrize(
    "data, cause",
    [
        (b"", "does not begin with the five bytes"),
        (b"\x00\x00\x00\x00", "does not begin with the five bytes"),
        (b'{"a": 1}', "leave out registry="),
        (b"\x00\x00\x00\x00\x09...", "Schema not found"),
        (b"\x00\x00\x00\x00\x02...", "one of PROTOBUF, and not of Avro"),
        (AVRO + b"!", "left over"),
    ],
)
def test_messages_that_name_no_schema_are_broken(registry, data, cause):
    registry.register("orders-value", OLD)
    registry.register("other", "", kind="PROTOBUF")
    with pytest.raises(ValueError, match=cause):
        mo.avro_format(registry=client(registry)).decode(data)


# --- Protobuf -----------------------------------------------------------------------------------


def test_protobuf_as_others_write_it(registry):
    file = type_pb2.DESCRIPTOR
    registry.register("fields-value", base64.b64encode(file.serialized_pb).decode(), "PROTOBUF")
    fields = mo.protobuf_format(type_pb2.Field, registry=client(registry), subject="fields-value")
    fields.check()
    assert fields.decode(FIELD) == type_pb2.Field(name="x")
    assert fields.encode(type_pb2.Field(name="x")) == FIELD
    assert registry.asked.count("GET /schemas/ids/1?format=serialized") == 1
    assert cloudpickle.loads(cloudpickle.dumps(fields)).decode(FIELD).name == "x"


def test_messages_within_messages_have_a_path(registry):
    message = descriptor_pb2.DescriptorProto.ExtensionRange
    ranges = mo.protobuf_format(message, registry=client(registry), subject="ranges-value", register=True)
    assert ranges.encode(message(start=3)) == RANGE
    assert ranges.decode(RANGE).start == 3


def test_the_message_of_another_class_is_broken(registry):
    values = client(registry)
    mo.protobuf_format(wrappers_pb2.Int64Value, registry=values, subject="v", register=True).encode(
        wrappers_pb2.Int64Value(value=7)
    )
    other = mo.protobuf_format(wrappers_pb2.BoolValue, registry=values)
    with pytest.raises(ValueError, match=r"it is a message google\.protobuf\.Int64Value"):
        other.decode(b"\x00\x00\x00\x00\x01\x02\x04\x08\x07")


@pytest.mark.parametrize("path", [b"", b"\x02", b"\x02\x63", b"\xff\xff\xff\xff\xff\xff"])
def test_a_path_that_leads_nowhere_is_broken(registry, path):
    registry.register("v", base64.b64encode(wrappers_pb2.DESCRIPTOR.serialized_pb).decode(), "PROTOBUF")
    with pytest.raises(ValueError):
        mo.protobuf_format(wrappers_pb2.Int64Value, registry=client(registry)).decode(b"\x00\x00\x00\x00\x01" + path)


# --- JSON ---------------------------------------------------------------------------------------


class Order(msgspec.Struct, frozen=True):
    customer: str
    cents: int


JSON = b'\x00\x00\x00\x00\x01{"customer":"ada","cents":500}'


def test_json_as_others_write_it(registry):
    registry.register("orders-value", {"type": "object"}, "JSON")
    plain = mo.json_format(registry=client(registry), schema={"type": "object"}, subject="orders-value")
    plain.check()
    assert [plain.decode(JSON) for _ in range(3)] == [{"customer": "ada", "cents": 500}] * 3
    assert registry.asked.count("GET /schemas/ids/1") == 1
    assert plain.encode({"customer": "ada", "cents": 500}) == JSON
    typed = cloudpickle.loads(cloudpickle.dumps(mo.json_format(Order, registry=client(registry))))
    assert typed.decode(JSON) == Order("ada", 500)
    with pytest.raises(ValueError, match=r"Expected `int`, got `str` - at `\$\.cents`"):
        typed.decode(JSON.replace(b"500", b'"many"'))


def test_the_schema_of_a_type_is_registered_only_if_that_is_said(registry):
    with pytest.raises(InvalidArgument, match="register=True"):
        mo.json_format(Order, registry=client(registry), subject="orders-value").check()
    orders = mo.json_format(Order, registry=client(registry), subject="orders-value", register=True)
    orders.check()
    assert registry.schemas == {}, "a check changes nothing"
    assert orders.encode(Order("ada", 500)) == JSON
    assert registry.schemas[1]["schemaType"] == "JSON" and "cents" in registry.schemas[1]["schema"]
    mo.json_format(Order, registry=client(registry), subject="orders-value").check()


@pytest.mark.parametrize(
    "data, cause",
    [(b'{"a": 1}', "leave out registry="), (AVRO, "one of AVRO, and not of JSON"), (b"\0" * 5, "not found")],
)
def test_messages_that_name_no_schema_of_json_are_broken(registry, data, cause):
    registry.register("orders-value", OLD)
    with pytest.raises(ValueError, match=cause):
        mo.json_format(registry=client(registry)).decode(data)


def test_to_write_json_it_takes_a_subject_and_a_schema(registry):
    for options in ({"schema": {}}, {"subject": "orders-value"}):
        with pytest.raises(InvalidArgument, match="under subject="):
            mo.json_format(registry=client(registry), **options).encode({})
    with pytest.raises(InvalidArgument, match="give registry= as well"):
        mo.json_format(Order, subject="orders-value")
    with pytest.raises(InvalidArgument, match=r"mo\.schema_registry"):
        mo.json_format(Order, registry="http://registry.example")  # type: ignore[call-overload]


# --- the registry itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "credentials, header",
    [
        ({"username": "ada", "password": "s3cret"}, "Basic YWRhOnMzY3JldA=="),
        ({"token": "s3cret"}, "Bearer s3cret"),
    ],
)
def test_credentials_are_sent_and_not_shown(registry, credentials, header):
    registry.register("orders-value", OLD)
    registry.authorization = header
    known = client(registry, **credentials)
    orders = mo.avro_format(registry=known)
    assert orders.decode(AVRO)["cents"] == 500
    assert cloudpickle.loads(cloudpickle.dumps(orders)).decode(AVRO)["cents"] == 500
    registry.authorization = "something else"
    with pytest.raises(StorageError, match="401: who are you") as error:
        mo.avro_format(registry=known).check()
    assert error.value.can_pass is False
    texts = [repr(known), repr(orders), str(error.value)]
    assert [t for t in texts if "s3cret" in t or "YWRhOnMzY3JldA" in t] == []


def test_a_registry_that_is_away_is_no_fault_of_the_message(registry):
    registry.register("orders-value", OLD)
    orders = mo.avro_format(registry=client(registry))
    registry.refusal = 503
    with pytest.raises(StorageError, match="503: out of order") as error:
        orders.decode(AVRO)
    assert error.value.can_pass is True
    registry.close()
    with pytest.raises(StorageError, match="Connection refused") as error:
        orders.decode(AVRO)
    assert error.value.can_pass is True
    with registry_server(registry.port) as again:
        again.register("orders-value", OLD)
        assert orders.decode(AVRO)["cents"] == 500


@pytest.mark.parametrize(
    "url, options, advice",
    [
        ("registry.example", {}, "https://"),
        ("ftp://registry.example", {}, "https://"),
        ("https://ada:s3cret@registry.example", {}, "beside it"),
        ("https://registry.example", {"username": "ada"}, "both"),
        ("https://registry.example", {"username": "ada", "password": "s3cret", "token": "s3cret"}, "not both"),
    ],
)
def test_mistakes_are_refused(url, options, advice):
    with pytest.raises(InvalidArgument, match=advice) as error:
        mo.schema_registry(url, **options)
    assert "s3cret" not in str(error.value)
