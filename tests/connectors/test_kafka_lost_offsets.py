"""Messages that are gone from the broker before they were read: an error that says what was lost, or a choice."""

from __future__ import annotations

import pickle

import pytest
from kafka_server import KafkaServer
from source_readings import Readings

import moorline as mo
from moorline.errors import OffsetsLost


def snapshot_at(kafka_server: KafkaServer, topic: str, offset: int) -> dict:
    """A snapshot of a job that has read up to an offset of partition 0."""
    source = mo.read_kafka(kafka_server.brokers, topic, format="text", start={(topic, 0): offset})
    with Readings(source) as reading:
        return reading.snapshot()


@pytest.fixture
def topic(kafka_server: KafkaServer) -> str:
    """Ten messages, of which the first six were deleted."""
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, [str(n) for n in range(10)])
    kafka_server.delete_records(topic, 0, before=6)
    return topic


def test_retention_that_was_faster_is_an_error_with_all_that_is_known(kafka_server, topic):
    snapshot = snapshot_at(kafka_server, topic, 2)
    source = mo.read_kafka(kafka_server.brokers, topic, format="text")
    with Readings(source, snapshot) as reading, pytest.raises(OffsetsLost) as caught:
        reading.read(1)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.wanted, error.first, error.end, error.lost, error.can_pass) == (2, 6, 10, 4, False)
    assert f"{topic}/0 is to be read from offset 2 on. It has [6,10) now: up to 4 messages are lost" in str(error)
    assert 'on_lost_offsets="earliest"' in str(error)


@pytest.mark.parametrize(
    "policy, expected, lost, later", [("earliest", ["6", "7", "8", "9"], 4, []), ("latest", [], 8, ["new"])]
)
def test_the_job_goes_on_if_that_was_chosen_and_the_loss_is_counted(kafka_server, topic, policy, expected, lost, later):
    snapshot = snapshot_at(kafka_server, topic, 2)
    source = mo.read_kafka(kafka_server.brokers, topic, format="text", on_lost_offsets=policy)
    with Readings(source, snapshot) as reading:
        found = reading.until(lambda: reading.counters, "that the loss is counted")
        assert found + reading.read(len(expected) - len(found)) == expected
        assert reading.counters == {"lost_records": lost}
        [(kind, text)] = reading.notices
        assert kind == "lost_records" and "from offset 2 on" in text and "goes on with offset" in text
        kafka_server.produce(topic, ["new"])
        assert reading.read(1) == ["new"]
        assert reading.positions == {f"{topic}/0": 11}


def test_an_offset_beyond_the_end_is_an_error_too(kafka_server):
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, ["a", "b"])
    snapshot = snapshot_at(kafka_server, topic, 7)
    with Readings(mo.read_kafka(kafka_server.brokers, topic), snapshot) as reading, pytest.raises(OffsetsLost) as error:
        reading.read(1)
    assert (error.value.wanted, error.value.first, error.value.end, error.value.lost) == (7, 0, 2, None)
    assert "It has [0,2) now, which ends before: it was cut off, or deleted and created anew" in str(error.value)


@pytest.mark.parametrize("policy, expected", [("earliest", ["a", "b", "c"]), ("latest", ["c"])])
def test_beyond_the_end_reading_begins_where_it_was_chosen(kafka_server, policy, expected):
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, ["a", "b"])
    snapshot = snapshot_at(kafka_server, topic, 7)
    source = mo.read_kafka(kafka_server.brokers, topic, format="text", on_lost_offsets=policy)
    with Readings(source, snapshot) as reading:
        found = reading.until(lambda: reading.notices, "the warning")
        kafka_server.produce(topic, ["c"])
        assert found + reading.read(len(expected) - len(found)) == expected
        assert reading.counters == {"lost_records": 0}, "how many there were cannot be known"


def test_a_start_that_is_not_there_is_an_error_as_well(kafka_server, topic):
    source = mo.read_kafka(kafka_server.brokers, topic, start={(topic, 0): 5}, end="latest")
    with Readings(source) as reading, pytest.raises(OffsetsLost, match="offset 5"):
        reading.read_to_the_end()


def test_the_earliest_is_what_is_there_and_no_loss(kafka_server, topic):
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format="text")) as reading:
        assert reading.read(4) == ["6", "7", "8", "9"]
        assert reading.counters == {}


def test_with_an_end_that_is_gone_too_there_is_nothing_left(kafka_server, topic):
    ends = {(topic, 0): 4}
    source = mo.read_kafka(
        kafka_server.brokers, topic, start={(topic, 0): 1}, end=ends, format="text", on_lost_offsets="earliest"
    )
    with Readings(source) as reading:
        assert reading.read_to_the_end() == []
