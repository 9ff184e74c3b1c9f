"""What a message becomes: its value, key, headers and time; messages that are broken; watermarks of partitions."""

from __future__ import annotations

import pytest
from kafka_server import KafkaServer
from registry_server import registry_server
from source_readings import Readings

import moorline as mo
from moorline.errors import StorageError, UnreadableRecord
from moorline.testing import OperatorHarness

BROKEN = mo.OutputTag("broken")
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "cents", "type": "long"}]}


@pytest.fixture
def topic(kafka_server: KafkaServer) -> str:
    return kafka_server.new_topic()


def read(kafka_server: KafkaServer, topic: str, count: int, **options) -> list:
    with Readings(mo.read_kafka(kafka_server.brokers, topic, **options)) as source:
        return source.read(count)


def test_json_is_the_format_unless_another_is_named(kafka_server, topic):
    kafka_server.produce(topic, ['{"cents": 500}', "[1]", "null", None])
    assert read(kafka_server, topic, 4) == [{"cents": 500}, [1], None, None]
    assert read(kafka_server, topic, 4, format="bytes") == [b'{"cents": 500}', b"[1]", b"null", None]


def test_a_record_has_all_that_comes_with_a_message(kafka_server, topic):
    headers = [("trace", b"1"), ("empty", None), ("trace", b"2")]
    kafka_server.produce(topic, ["{}"], key="ada", timestamp=1_700_000_000_000, headers=headers)
    kafka_server.produce(topic, [None], timestamp=1_700_000_000_001)
    first, second = read(kafka_server, topic, 2, as_records=True, key_format="text")
    assert first == mo.KafkaRecord("ada", {}, tuple(headers), 1_700_000_000_000, topic, 0, 0)
    assert (first.header("trace"), first.header("empty"), first.header("none")) == (b"2", None, None)
    assert second == mo.KafkaRecord(None, None, (), 1_700_000_000_001, topic, 0, 1)


def test_timestamps_come_with_records_by_partition(kafka_server):
    topic = kafka_server.new_topic(2)
    for n in range(3):
        kafka_server.produce(topic, [str(n)], 0, timestamp=1000 + n)
        kafka_server.produce(topic, [str(n)], 1, timestamp=2000 + n)
    with Readings(mo.read_kafka(kafka_server.brokers, topic)) as source:
        source.read(6)
        expected = {f"{topic}/{p}": [(n, 1000 * (p + 1) + n) for n in range(3)] for p in range(2)}
        assert source.by_split == expected


def test_watermarks_wait_for_the_slowest_partition(kafka_server):
    topic = kafka_server.new_topic(2)
    kafka_server.produce(topic, ["0"] * 5, 0, timestamp=50_000)
    source = mo.read_kafka(kafka_server.brokers, topic)
    strategy = mo.WatermarkStrategy.for_monotonous_timestamps()
    with OperatorHarness.of(lambda job: job.source(source, uid="in", watermarks=strategy), inputs=0) as harness:
        assert harness.read(5) == [0] * 5
        harness.advance_clock(1000)
        assert [w for w in harness.watermarks if w is not None and w > 0] == [], "partition 1 may have older messages"
        kafka_server.produce(topic, ["1"], 1, timestamp=30_000)
        assert harness.read(1) == [1]
        harness.advance_clock(1000)
        assert harness.watermarks[-1] == 29_999


# --- messages that are broken -----------------------------------------------------------------------


def produce_poison(kafka_server: KafkaServer, topic: str) -> None:
    kafka_server.produce(topic, ["1"], timestamp=1000)
    kafka_server.produce(topic, ["{oops"], key="k", timestamp=2000, headers=[("h", b"x")])
    kafka_server.produce(topic, ["2"], timestamp=3000)
    kafka_server.produce(topic, ["", "3"], timestamp=4000)


def test_a_broken_message_fails_the_job_and_is_known_by_its_place(kafka_server, topic):
    produce_poison(kafka_server, topic)
    cause = "the message at offset 1 is none of the format 'json'"
    with (
        Readings(mo.read_kafka(kafka_server.brokers, topic)) as source,
        pytest.raises(UnreadableRecord, match=cause) as error,
    ):
        source.read(2)
    assert (error.value.path, error.value.position, error.value.can_pass) == (f"{topic}/0", 1, False)
    assert "{oops" in str(error.value)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_broken_messages_are_skipped_and_counted(kafka_server, topic, limit):
    produce_poison(kafka_server, topic)
    with Readings(mo.read_kafka(kafka_server.brokers, topic, on_error="skip")) as source:
        assert source.read(3, limit) == [1, 2, 3]
        assert source.by_split == {f"{topic}/0": [(1, 1000), (2, 3000), (3, 4000)]}, "with their own timestamps"
        assert source.counters == {"broken_records": 2}
        assert source.positions == {f"{topic}/0": 5}
        assert [kind for kind, _ in source.notices] == ["broken_records"]


@pytest.mark.parametrize("limit", [1, 100])
def test_broken_messages_go_to_a_side_output_with_all_that_is_known(kafka_server, topic, limit):
    produce_poison(kafka_server, topic)
    with Readings(mo.read_kafka(kafka_server.brokers, topic, on_error=BROKEN)) as source:
        assert source.read(3, limit) == [1, 2, 3]
        first, second = source.side
    assert (first.origin, first.position, first.content) == (f"{topic}/0", 1, b"{oops")
    assert first.details == {"key": b"k", "headers": [("h", b"x")], "timestamp": 2000}
    assert "JSON is malformed" in first.cause
    assert (second.position, second.content) == (3, b"")


def test_a_position_stands_behind_broken_messages_at_the_end(kafka_server, topic):
    kafka_server.produce(topic, ["1", "{", "{"])
    source = mo.read_kafka(kafka_server.brokers, topic, on_error=BROKEN)
    with Readings(source) as first:
        first.until(lambda: len(first.side) == 2, "broken messages")
        assert first.positions == {f"{topic}/0": 3}
        snapshot = first.snapshot()
    kafka_server.produce(topic, ["2"])
    with Readings(source, snapshot) as again:
        assert again.read(1) == [2] and again.side == []


def test_a_key_that_is_broken_is_a_broken_message(kafka_server, topic):
    kafka_server.produce(topic, ["1"], key=b"\xff")
    source = mo.read_kafka(kafka_server.brokers, topic, as_records=True, key_format="text", on_error=BROKEN)
    with Readings(source) as reading:
        reading.until(lambda: reading.side, "the broken message")
        assert "invalid start byte" in reading.side[0].cause


def test_a_function_that_raises_breaks_the_message(kafka_server, topic):
    kafka_server.produce(topic, ["1", "x", "2"])
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format=int, on_error=BROKEN)) as source:
        assert source.read(2) == [1, 2]
        assert "ValueError: invalid literal" in source.side[0].cause


# --- a schema registry ------------------------------------------------------------------------------


def test_messages_wait_for_a_registry_that_is_away(kafka_server, topic):
    with registry_server() as registry:
        orders = mo.avro_format(AVRO, registry=mo.schema_registry(registry.url), subject="s", register=True)
        kafka_server.produce(topic, [orders.encode({"cents": n}) for n in range(3)])
        registry.refusal = 503
        reading = mo.avro_format(registry=mo.schema_registry(registry.url))
        with Readings(mo.read_kafka(kafka_server.brokers, topic, format=reading, on_error="skip")) as source:
            assert source.until(lambda: source.outages, "that the registry is away") == []
            assert "503" in str(source.outages[0])
            assert source.positions == {f"{topic}/0": 0} and source.counters == {}, "no fault of the messages"
            registry.refusal = 0
            assert source.read(3) == [{"cents": n} for n in range(3)]
            assert source.outages[-1] is None


def test_a_registry_that_stays_away_ends_the_attempt(kafka_server, topic):
    with registry_server() as registry:
        orders = mo.avro_format(AVRO, registry=mo.schema_registry(registry.url), subject="s", register=True)
        kafka_server.produce(topic, [orders.encode({"cents": 1})])
        registry.refusal = 503
        format = mo.avro_format(registry=mo.schema_registry(registry.url))
        with Readings(mo.read_kafka(kafka_server.brokers, topic, format=format, patience=0.2)) as source:
            with pytest.raises(StorageError, match="503: out of order") as error:
                source.read(1)
            assert error.value.can_pass is True
