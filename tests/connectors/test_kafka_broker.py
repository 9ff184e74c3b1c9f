"""The Kafka broker that tests stand on: it keeps what it has when it is killed, and guards its secure port."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from kafka_server import KafkaServer


def test_a_broker_that_is_killed_has_its_messages_when_it_is_started_again(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(partitions=2)
    kafka_server.produce(topic, ["a", "b"], partition=0)
    kafka_server.produce(topic, ["c"], partition=1, key="k", timestamp=1_700_000_000_000, headers=[("h", b"1")])
    kafka_server.kill()
    kafka_server.start()
    assert kafka_server.values(topic) == [b"a", b"b", b"c"]
    assert kafka_server.read_all(topic)[-1].timestamp()[1] == 1_700_000_000_000


def test_its_secure_port_wants_the_password(kafka_server: KafkaServer):
    topic = kafka_server.new_topic()
    options = {"bootstrap.servers": kafka_server.secure_brokers, "log_level": 0, **kafka_server.secure_options}
    assert topic in AdminClient(options).list_topics(timeout=30).topics
