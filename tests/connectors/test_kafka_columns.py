"""read_kafka with a schema: messages as columns, with the offsets, times and broken messages of reading records."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.wrappers_pb2 import Int64Value
from kafka_server import KafkaServer
from source_readings import Readings

import moorline as mo
from moorline.api.columns.streams import ColumnStream
from moorline.connectors.columns.records import decoder_of
from moorline.connectors.formats.choosing import format_for_reading
from moorline.errors import InvalidArgument, UnreadableRecord
from moorline.model.columns import ColumnBatch
from moorline.testing import OperatorHarness

BROKEN = mo.OutputTag("broken")
DDL = "user string, cents bigint"
ORDERS = [{"user": f"u{n}", "cents": n} for n in range(300)]
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "user", "type": "string"}, {"name": "n", "type": "long"}],
}


@pytest.fixture
def topic(kafka_server: KafkaServer) -> str:
    return kafka_server.new_topic()


def test_messages_come_as_columns_and_offsets_are_those_of_records(kafka_server, topic):
    kafka_server.produce(topic, [json.dumps({**order, "more": [1]}) for order in ORDERS])
    with Readings(mo.read_kafka(kafka_server.brokers, topic, schema=DDL)) as source:
        source.read(100, 25)
        first = [row for row, _ in source.by_split[f"{topic}/0"]]
        snapshot = source.snapshot()
    with Readings(mo.read_kafka(kafka_server.brokers, topic), snapshot) as source:
        rest = source.read(300 - len(first))
    assert first == ORDERS[: len(first)]
    assert rest == [{**order, "more": [1]} for order in ORDERS[len(first) :]]


def test_a_read_is_one_batch(kafka_server, topic):
    kafka_server.produce(topic, list(map(json.dumps, ORDERS)))
    with Readings(mo.read_kafka(kafka_server.brokers, topic, schema=DDL)) as source:
        batches: list[Any] = []
        while sum(map(len, batches)) < len(ORDERS):
            batch = source.readers[0].read(2048)
            assert isinstance(batch, (ColumnBatch, list))
            assert isinstance(batch, ColumnBatch) or not batch
            batches.append(batch)
        assert [row for batch in batches for row in batch] == ORDERS


def test_what_comes_with_messages_are_columns_too(kafka_server, topic):
    kafka_server.produce(topic, ['{"cents":5}'], key="ada", timestamp=1_700_000_000_000)
    kafka_server.produce(topic, ['{"cents":6}'], timestamp=1_700_000_000_001)
    parts = {"who": "key", "sent": "timestamp", "topic": "topic", "partition": "partition", "at": "offset"}
    source = mo.read_kafka(kafka_server.brokers, topic, schema="cents bigint", metadata=parts, key_format="text")
    assert source.schema.names == ["cents", *parts]
    with Readings(source) as readings:
        first, second = readings.read(2)
        assert [stamp for _, stamp in readings.by_split[f"{topic}/0"]] == [1_700_000_000_000, 1_700_000_000_001]
    sent = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert first == {"cents": 5, "who": "ada", "sent": sent, "topic": topic, "partition": 0, "at": 0}
    assert (second["who"], second["at"]) == (None, 1)


def test_broken_messages_are_taken_out_one_by_one(kafka_server, topic):
    values = [*map(json.dumps, ORDERS[:3]), "{oops", '{"cents":"x"}', None, *map(json.dumps, ORDERS[3:6])]
    kafka_server.produce(topic, values, timestamp=1000)
    with Readings(mo.read_kafka(kafka_server.brokers, topic, schema=DDL, on_error=BROKEN)) as source:
        assert source.read(6) == ORDERS[:6]
        assert [one.position for one in source.side] == [3, 4, 5]
        assert "deletion" in source.side[2].cause
    with (
        Readings(mo.read_kafka(kafka_server.brokers, topic, schema=DDL)) as source,
        pytest.raises(UnreadableRecord, match="offset 3"),
    ):
        source.read(6)


def test_a_value_that_leaves_its_type_is_broken(kafka_server, topic):
    kafka_server.produce(topic, ['{"n":1}', '{"n":300}', '{"n":2}'])
    with Readings(mo.read_kafka(kafka_server.brokers, topic, schema="n tinyint", on_error=BROKEN)) as source:
        assert source.read(2) == [{"n": 1}, {"n": 2}]
        assert [one.position for one in source.side] == [1]


def test_watermarks_of_a_column_wait_for_the_slowest_partition(kafka_server):
    topic = kafka_server.new_topic(2)
    kafka_server.produce(topic, ['{"at":50000}'] * 5, 0)
    source = mo.read_kafka(kafka_server.brokers, topic, schema="at bigint")
    strategy = mo.WatermarkStrategy.for_monotonous_timestamps(timestamp="at")
    with OperatorHarness.of(lambda job: job.source(source, uid="in", watermarks=strategy), inputs=0) as harness:
        assert len(harness.read(5)) == 5
        harness.advance_clock(1000)
        assert [w for w in harness.watermarks if w is not None and w > 0] == []
        kafka_server.produce(topic, ['{"at":30000}'], 1)
        assert harness.read(1) == [{"at": 30000}]
        harness.advance_clock(1000)
        assert harness.watermarks[-1] == 29_999


# --- without a broker ---------------------------------------------------------------------------------


def test_a_stream_of_columns_begins_at_the_source():
    source = mo.read_kafka("localhost:9092", "orders", schema=DDL)
    stream = mo.Job("orders").source(source, uid="in")
    assert isinstance(stream, ColumnStream)
    assert stream.schema.names == ["user", "cents"]


@pytest.mark.parametrize(
    "options, about",
    [
        ({"as_records": True}, "metadata="),
        ({"format": "text"}, "no columns"),
        ({"metadata": {"cents": "key"}}, "does not have"),
        ({"metadata": {"sent": "timestam"}}, "timestamp"),
        ({"metadata": ["key"]}, "names of columns"),
        ({"metadata": {"who": "key"}, "key_format": "json"}, '"bytes" or "text"'),
        ({"schema": None, "metadata": {"who": "key"}}, "as_records="),
    ],
)
def test_what_makes_no_sense_is_refused(options, about):
    with pytest.raises(InvalidArgument, match=about):
        mo.read_kafka("localhost:9092", "orders", **{"schema": DDL, **options})


def columns_of(format, ddl, messages):
    decode, columns = decoder_of(format_for_reading(format), ddl)
    return columns(list(map(decode, messages))).to_pylist()


def test_avro_and_protobuf_and_types_of_ones_own_have_columns():
    avro = mo.avro_format(AVRO)
    schema = pa.schema([("n", pa.int32()), ("user", pa.string())])
    messages = [avro.encode({"user": "ada", "n": n}) for n in range(3)]
    assert columns_of(avro, schema, messages) == [{"n": n, "user": "ada"} for n in range(3)]
    number = pa.schema([("value", pa.int64())])
    protobuf = mo.protobuf_format(Int64Value)
    assert columns_of(protobuf, number, [Int64Value(value=7).SerializeToString()]) == [{"value": 7}]
    with pytest.raises(ValueError, match="no column"):
        columns_of(protobuf, pa.schema([("cents", pa.int64())]), [b"\x08\x07"])
    with pytest.raises(ValueError, match="no column cents"):
        columns_of(avro, pa.schema([("cents", pa.int64())]), messages)
    assert columns_of(json.loads, number, [b'{"value": 5, "more": 1}']) == [{"value": 5}]
