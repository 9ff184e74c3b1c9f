"""Partitions and topics that come, go, and are created anew while a job runs."""

from __future__ import annotations

import logging
import uuid

import pytest
from kafka_server import KafkaServer
from source_readings import Readings

import moorline as mo
from moorline.errors import InvalidArgument, StorageError
from moorline.state.types import plain


def test_new_partitions_are_read_from_their_first_message(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(1)
    source = mo.read_kafka(kafka_server.brokers, topic, format="text", start="latest")
    with Readings(source) as reading:
        kafka_server.grow_topic(topic, 3)
        kafka_server.produce(topic, ["a", "b"], 1)
        kafka_server.produce(topic, ["c"], 2)
        assert reading.quiet() == []
        assert reading.look() == {f"{topic}/1": 0, f"{topic}/2": 0}, "though it has started with the latest"
        assert sorted(reading.read(3)) == ["a", "b", "c"]
        assert reading.look() == {}
        snapshot = reading.snapshot()
    kafka_server.grow_topic(topic, 4)
    kafka_server.produce(topic, ["d"], 3)
    with Readings(source, snapshot, parallelism=2) as again:
        assert again.read(1) == ["d"]
        assert again.positions == {f"{topic}/0": 0, f"{topic}/1": 2, f"{topic}/2": 1, f"{topic}/3": 1}


def test_topics_that_match_a_pattern_are_found_when_they_come(kafka_server: KafkaServer):
    prefix = f"orders-{uuid.uuid4().hex[:8]}"
    first = kafka_server.new_topic(1, name=f"{prefix}.eu")
    kafka_server.produce(first, ["a"])
    kafka_server.new_topic(1, name=f"other-{prefix}.eu")
    source = mo.read_kafka(kafka_server.brokers, pattern=rf"{prefix}\..*", format="text", start="latest")
    with Readings(source) as reading:
        assert list(reading.positions) == [f"{first}/0"], "its whole name matches"
        second = kafka_server.new_topic(2, name=f"{prefix}.us")
        kafka_server.produce(second, ["b"], 1)
        assert reading.look() == {f"{second}/0": 0, f"{second}/1": 0}
        assert reading.read(1) == ["b"]


def test_a_pattern_may_match_nothing_yet_unless_reading_has_an_end(kafka_server: KafkaServer):
    name = f"later-{uuid.uuid4().hex[:8]}"
    source = mo.read_kafka(kafka_server.brokers, pattern=f"{name}-.*", format="text")
    source.check()
    with Readings(source) as reading:
        assert reading.once() == [] and reading.positions == {}
        topic = kafka_server.new_topic(1, name=name)
        kafka_server.produce(topic, ["a"])
        reading.look()
        assert reading.read(1) == ["a"]
    with pytest.raises(InvalidArgument, match="has no topic that matches"):
        mo.read_kafka(kafka_server.brokers, pattern=f"no-{name}", end="latest").check()


def test_kafkas_own_topics_match_no_pattern(kafka_server: KafkaServer):
    kafka_server.produce(topic := kafka_server.new_topic(), ["a"])
    with Readings(mo.read_kafka(kafka_server.brokers, topic, group=f"g-{topic}")) as reading:
        reading.snapshot()
        reading.confirm()
    kafka_server.group_offsets(f"g-{topic}", topic)  # now there is a topic __consumer_offsets
    with Readings(mo.read_kafka(kafka_server.brokers, pattern=".*", start="latest")) as everything:
        assert topic in {split.rpartition("/")[0] for split in everything.positions}
        assert [split for split in everything.positions if split.startswith("__")] == []


def test_nothing_is_found_twice_after_a_restore(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(2)
    source = mo.read_kafka(kafka_server.brokers, topic, format="text")
    with Readings(source) as reading:
        snapshot = reading.snapshot()
    with Readings(source, snapshot) as again:
        assert again.look() == {}


def test_with_an_end_partitions_that_come_later_are_not_read(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(1)
    kafka_server.produce(topic, ["a"])
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format="text", end="latest")) as reading:
        kafka_server.grow_topic(topic, 2)
        kafka_server.produce(topic, ["b"], 1)
        assert reading.read_to_the_end() == ["a"]


def test_a_topic_that_is_created_anew_is_another_one(kafka_server: KafkaServer, caplog):
    topic = kafka_server.new_topic(1)
    kafka_server.produce(topic, ["a", "b"])
    strict = mo.read_kafka(kafka_server.brokers, topic, format="text")
    lenient = mo.read_kafka(kafka_server.brokers, topic, format="text", on_lost_offsets="earliest")
    with Readings(strict) as reading:
        reading.read(2)
        snapshot = reading.snapshot()
    kafka_server.recreate_topic(topic, 2)
    kafka_server.produce(topic, ["x", "y", "z"], 0)  # so that the offset is there, and of another message
    with pytest.raises(StorageError, match=f"the topic {topic} was deleted and created anew") as error:
        Readings(strict, snapshot)
    assert error.value.can_pass is False
    with caplog.at_level(logging.WARNING, "moorline"), Readings(lenient, snapshot) as reading:
        assert "was deleted and created anew" in caplog.text
        assert f"{topic}/1" in reading.positions, "partitions that the old one did not have are read"
        assert reading.read(1) == ["z"]
        caplog.clear()
        reading.look()
        assert caplog.text == "", "it is said once"


def test_a_topic_with_fewer_partitions_is_another_one_also_where_topics_have_no_ids(kafka_server: KafkaServer, caplog):
    topic = kafka_server.new_topic(1)
    strict = mo.read_kafka(kafka_server.brokers, topic, format="text")
    lenient = mo.read_kafka(kafka_server.brokers, topic, format="text", on_lost_offsets="earliest")
    with Readings(strict) as reading:
        snapshot = reading.snapshot()
    # As a cluster without ids would have left it, when there were three.
    snapshot["enumerated"] = plain.encode({**plain.decode(snapshot["enumerated"]), "topics": {topic: ["", 3]}})
    with pytest.raises(StorageError, match=f"the topic {topic} has 1 partitions and had 3") as error:
        Readings(strict, snapshot)
    assert error.value.can_pass is False
    with caplog.at_level(logging.WARNING, "moorline"), Readings(lenient, snapshot) as reading:
        reading.look()
        assert caplog.text.count("has 1 partitions and had 3") == 1


def test_a_topic_that_is_gone_ends_the_job(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(1)
    with Readings(mo.read_kafka(kafka_server.brokers, topic, patience=5)) as reading:
        kafka_server.delete_topic(topic)
        with pytest.raises(StorageError, match=f"there is no topic {topic}") as error:
            reading.look()
        assert error.value.can_pass is False


def test_a_topic_of_a_pattern_that_is_gone_ends_the_job_unless_lost_offsets_may_be(kafka_server: KafkaServer, caplog):
    topic = kafka_server.new_topic(1, name=f"gone-{uuid.uuid4().hex[:8]}")
    strict = mo.read_kafka(kafka_server.brokers, pattern=f"{topic}")
    lenient = mo.read_kafka(kafka_server.brokers, pattern=f"{topic}", on_lost_offsets="latest")
    with Readings(strict) as strictly, Readings(lenient) as leniently:
        kafka_server.delete_topic(topic)
        with pytest.raises(StorageError, match=f"the topic {topic} is gone"):
            strictly.look()
        with caplog.at_level(logging.WARNING, "moorline"):
            assert leniently.look() == {} and leniently.look() == {}
        assert caplog.text.count("is gone") == 1
