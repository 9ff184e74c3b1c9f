"""Mistakes in the declaration of a Kafka source, refused before anything is started; and secrets, shown nowhere."""

from __future__ import annotations

import logging
from datetime import datetime

import cloudpickle
import pytest
from kafka_server import PASSWORD, KafkaServer
from registry_server import registry_server

import moorline as mo
from moorline.errors import InvalidArgument, StorageError, UnknownOption


@pytest.mark.parametrize(
    "options, advice",
    [
        ({}, "Give the names of topics"),
        ({"topics": []}, "Give the names of topics"),
        ({"topics": ["a", 7]}, "Give the names of topics"),
        ({"topics": "a", "pattern": "b"}, "Give the names of topics"),
        ({"pattern": "("}, "no regular expression"),
        ({"start": "newest"}, '"earliest", "latest", a datetime'),
        ({"start": datetime(2026, 1, 1)}, "time zone"),
        ({"start": -1}, "not negative"),
        ({"start": True}, "a datetime"),
        ({"start": {}}, "offsets"),
        ({"start": {"a/0": 1}}, "A partition is a pair"),
        ({"start": {("a", 0): -2}}, "not negative"),
        ({"end": "earliest"}, '"latest", a datetime'),
        ({"start": "latest", "end": "latest"}, "nothing between"),
        ({"format": "avro"}, "mo.json_format"),
        ({"format": "jsonl"}, "Did you mean 'json'"),
        ({"key_format": None}, "key_format"),
        ({"isolation": "committed"}, "read_committed"),
        ({"on_lost_offsets": "skip"}, "earliest"),
        ({"on_error": "ignore"}, "OutputTag"),
        ({"group": ""}, "consumer group"),
        ({"interval": "soon"}, "10s"),
        ({"options": {"group.id": "g"}}, "group="),
    ],
)
def test_what_cannot_be_meant_is_refused_with_advice(options, advice):
    given = {"topics": "orders", **options} if "pattern" not in options and options else options
    with pytest.raises(InvalidArgument, match=advice):
        mo.read_kafka("localhost:9092", **given)


def test_a_misspelt_option_is_refused_with_the_right_one():
    with pytest.raises(UnknownOption, match="Did you mean 'topics'"):
        mo.read_kafka("localhost:9092", topic="orders")


def test_a_topic_that_is_not_there_is_refused_with_the_one_that_may_be_meant(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(name="payments")
    with pytest.raises(InvalidArgument, match=f"no such topic. Did you mean '{topic}'"):
        mo.read_kafka(kafka_server.brokers, [topic, topic.replace("payments", "paymnts")]).check()


def test_what_is_right_passes_the_check(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(2)
    mo.read_kafka(kafka_server.brokers, topic).check()
    mo.read_kafka([kafka_server.brokers], pattern=f"{topic}.*", end="latest").check()
    mo.read_kafka(kafka_server.brokers, topic, start={(topic, 0): 1, (topic, 1): 0}).check()
    options = {"kafka.fetch.min.bytes": 1, **kafka_server.secure_options}
    mo.read_kafka(kafka_server.secure_brokers, topic, options=options).check()


def test_options_that_the_client_refuses_are_refused(kafka_server: KafkaServer):
    with pytest.raises(InvalidArgument, match=r"librdkafka refuses them: .*fetch\.min\.bites"):
        mo.read_kafka(kafka_server.brokers, "orders", options={"fetch.min.bites": 1}).check()


def test_a_wrong_password_is_refused(kafka_server: KafkaServer):
    options = {**kafka_server.secure_options, "sasl.password": "wrong-" + PASSWORD}
    with pytest.raises(StorageError, match="Invalid username or password"):
        mo.read_kafka(kafka_server.secure_brokers, "orders", options=options, patience=600).check()


def test_a_registry_that_is_not_there_is_refused(kafka_server: KafkaServer):
    with registry_server() as registry:
        orders = mo.avro_format(registry=mo.schema_registry(registry.url))
        source = mo.read_kafka(kafka_server.brokers, kafka_server.new_topic(), format=orders)
        source.check()
    with pytest.raises(StorageError, match=r"schema registry http://127\.0\.0\.1:"):
        source.check()


def test_secrets_are_in_no_text(kafka_server: KafkaServer, caplog, capfd):
    secret = "another-" + PASSWORD
    options = {**kafka_server.secure_options, "sasl.password": secret}
    source = mo.read_kafka(kafka_server.secure_brokers, "orders", options=options, patience=1)
    texts = [repr(source), str(source), repr(vars(source))]
    with caplog.at_level(logging.DEBUG):
        for call in (source.check, lambda: source.open_enumerator(mo.EnumeratorContext("job", "in", 1)).discover()):
            with pytest.raises(StorageError) as error:
                call()
            texts += [str(error.value), repr(error.value)]
    texts += [caplog.text, *capfd.readouterr()]
    assert [text for text in texts if PASSWORD in text] == []
    assert cloudpickle.loads(cloudpickle.dumps(source)).cluster.options["sasl.password"] == secret, "workers need it"
