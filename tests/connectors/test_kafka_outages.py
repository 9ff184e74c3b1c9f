"""Brokers that are killed, come back, or stay away, and the group that shows how far a job is."""

from __future__ import annotations

import random
import threading

import pytest
from confluent_kafka.admin import ResourceType
from kafka_server import PASSWORD, KafkaServer
from source_readings import Readings
from waiting import PATIENCE, eventually

import moorline as mo
from moorline.errors import StorageError

#: Nothing listens there.
NOWHERE = "127.0.0.1:9"


def test_a_broker_that_is_killed_while_it_is_read_loses_and_doubles_nothing(kafka_server: KafkaServer):
    topic, quiet_topic = kafka_server.new_topic(4), kafka_server.new_topic()
    for partition in range(4):
        kafka_server.produce(topic, [f"{partition}-{n:04}" for n in range(1000)], partition)
    kafka_server.produce(quiet_topic, ["1"])
    chance = random.Random(4)
    with (
        Readings(mo.read_kafka(kafka_server.brokers, topic, format="text"), parallelism=2) as source,
        Readings(mo.read_kafka(kafka_server.brokers, quiet_topic)) as quiet,
    ):
        found = source.read(500, limit=7)
        quiet.read(1)
        kafka_server.kill()
        try:
            while batch := source.once(chance.randrange(1, 50)):  # what was fetched before
                found += batch
            found += source.until(lambda: source.outages, "that the broker is away")
            assert "Connection refused" in str(source.outages[0]) and "Kafka at 127.0.0.1" in str(source.outages[0])
            quiet.until(lambda: quiet.outages, "that the broker is away")
        finally:
            kafka_server.start()
        found += source.read(4000 - len(found))
        assert source.quiet() == []
        for split, records in source.by_split.items():
            assert [r for r, _ in records] == [f"{split.rpartition('/')[2]}-{n:04}" for n in range(1000)], "in order"
        # Also where nothing new comes.
        quiet.until(lambda: quiet.outages[-1] is None, "that it is back")
        kafka_server.produce(quiet_topic, ["2"])
        assert quiet.read(1) == [2]


def test_brokers_that_stay_away_end_the_attempt_in_their_words():
    source = mo.read_kafka(NOWHERE, "orders", patience=1.0)
    reader = source.open(mo.SourceContext("in", 0, 1, 1))
    try:
        reader.add_splits({"orders/0": 0})
        with pytest.raises(StorageError, match=r"could not read from Kafka at .*: _TRANSPORT: .*refused") as error:
            eventually(lambda: reader.read(1), "the end of patience")
        assert error.value.can_pass is True
    finally:
        reader.close()
    with pytest.raises(StorageError, match=r"could not find the topics of Kafka at .*refused") as error:
        source.open_enumerator(mo.EnumeratorContext("job", "in", 1)).discover()
    assert error.value.can_pass is True
    with pytest.raises(StorageError, match="refused"):
        source.check()


def test_nothing_waits_for_brokers_that_are_away():
    reader = mo.read_kafka(NOWHERE, "orders", group="group").open(mo.SourceContext("in", 0, 1, 1))
    reader.add_splits({"orders/0": 3})
    done = threading.Event()

    def work() -> None:
        for _ in range(500):
            assert reader.read(1) == []
        assert reader.positions() == {"orders/0": 3}
        reader.notify_checkpoint_complete(1)
        reader.read(1)
        reader.close()
        done.set()

    threading.Thread(target=work, daemon=True).start()
    assert done.wait(PATIENCE), "a checkpoint would wait too"


def test_a_password_that_is_no_longer_right_ends_the_attempt_at_once(kafka_server: KafkaServer):
    topic = kafka_server.new_topic()
    wrong = {**kafka_server.secure_options, "sasl.password": "wrong-" + PASSWORD}
    source = mo.read_kafka(kafka_server.secure_brokers, topic, options=wrong, patience=600)
    reader = source.open(mo.SourceContext("in", 0, 1, 1))
    try:
        reader.add_splits({f"{topic}/0": 0})
        with pytest.raises(StorageError, match="Invalid username or password") as error:
            eventually(lambda: reader.read(1), "the refusal")
    finally:
        reader.close()
    assert error.value.can_pass is False and PASSWORD not in str(error.value)


def test_a_topic_that_may_not_be_read_any_more_is_refused_by_name(kafka_server: KafkaServer):
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, ["1"])
    source = mo.read_kafka(kafka_server.secure_brokers, topic, options=kafka_server.secure_options)
    with Readings(source) as reading:
        reading.read(1)
        kafka_server.forbid(ResourceType.TOPIC, topic)
        with pytest.raises(StorageError, match="TOPIC_AUTHORIZATION_FAILED") as error:
            reading.read(1)
        assert error.value.can_pass is False
        with pytest.raises(StorageError, match="TOPIC_AUTHORIZATION_FAILED"):
            reading.look()
    with pytest.raises(StorageError, match="TOPIC_AUTHORIZATION_FAILED"):
        source.check()


def test_a_topic_of_which_the_client_says_nothing_is_asked_for(kafka_server: KafkaServer, monkeypatch):
    """It was forbidden before the first fetch: the client waits for it in silence."""
    monkeypatch.setattr("moorline.connectors.kafka.reading.watch.SILENT_SECONDS", 0.5)
    topic = kafka_server.new_topic()
    kafka_server.forbid(ResourceType.TOPIC, topic)
    source = mo.read_kafka(kafka_server.secure_brokers, topic, options=kafka_server.secure_options)
    reader = source.open(mo.SourceContext("in", 0, 1, 1))
    try:
        reader.add_splits({f"{topic}/0": 0})
        with pytest.raises(StorageError, match="TOPIC_AUTHORIZATION_FAILED"):
            eventually(lambda: reader.read(1), "the refusal")
    finally:
        reader.close()


def test_a_topic_that_is_deleted_before_its_end_was_read_is_noticed(kafka_server: KafkaServer, monkeypatch):
    monkeypatch.setattr("moorline.connectors.kafka.reading.watch.SILENT_SECONDS", 0.5)
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, ["1"])
    source = mo.read_kafka(kafka_server.brokers, topic, end={(topic, 0): 5}, patience=1.0)
    with Readings(source) as reading:
        reading.read(1)
        kafka_server.delete_topic(topic)
        with pytest.raises(StorageError, match="UNKNOWN_TOPIC_OR_PART"):
            reading.read(1)


# --- the group that shows offsets -------------------------------------------------------------------


def test_offsets_of_a_complete_checkpoint_are_shown_in_the_group(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(2)
    kafka_server.produce(topic, ["1", "2", "3"], 0)
    source = mo.read_kafka(kafka_server.brokers, topic, group=f"group-{topic}")
    with Readings(source) as reading:
        reading.read(3)
        assert kafka_server.group_offsets(f"group-{topic}", topic) == {}
        snapshot = reading.snapshot()
        kafka_server.produce(topic, ["4"], 1)
        reading.read(1)
        reading.confirm()
        shown = {0: 3, 1: 0}
        eventually(lambda: kafka_server.group_offsets(f"group-{topic}", topic) == shown, "the offsets")
    with Readings(source, snapshot) as again:
        assert again.read(1) == [4], "its offsets come from the snapshot, and not from the group"


def test_a_group_that_may_not_be_used_is_a_warning(kafka_server: KafkaServer):
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, ["1", "2"])
    kafka_server.forbid(ResourceType.GROUP, "forbidden")
    options = kafka_server.secure_options
    with Readings(mo.read_kafka(kafka_server.secure_brokers, topic, group="forbidden", options=options)) as reading:
        assert reading.read(2) == [1, 2]
        reading.snapshot()
        reading.confirm()
        reading.until(lambda: reading.notices, "a warning")
        assert reading.notices[0][0] == "group_offsets" and "'forbidden'" in reading.notices[0][1]
        kafka_server.produce(topic, ["3"])
        assert reading.read(1) == [3]


def test_without_a_group_none_is_needed(kafka_server: KafkaServer):
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, ["1"])
    kafka_server.forbid(ResourceType.GROUP, "moorline")
    source = mo.read_kafka(kafka_server.secure_brokers, topic, options=kafka_server.secure_options)
    with Readings(source) as reading:
        assert reading.read(1) == [1]
        assert reading.quiet(1.0) == [] and reading.outages == [] and reading.notices == []


def test_many_messages_come_once(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(4)
    producer = kafka_server.producer(queue_buffering_max_messages=1_000_000)
    for n in range(50_000):
        producer.produce(topic, b'{"n":%d}' % n, partition=(n // 100) % 4)
    assert producer.flush(120) == 0
    with Readings(mo.read_kafka(kafka_server.brokers, topic, end="latest"), parallelism=2) as source:
        found = source.read_to_the_end()
    assert sorted(record["n"] for record in found) == list(range(50_000))
