"""Topics of Kafka keep the contract for sources: with and without an end, with transactions, several of them."""

from __future__ import annotations

import time

import pytest
from kafka_server import KafkaServer

import moorline as mo
from moorline.testing.contracts.source import SourceContract

PARTITIONS, EACH = 4, 30
VALUES = [f"{partition}-{n}" for partition in range(PARTITIONS) for n in range(EACH)]


class KafkaContract(SourceContract):
    #: Brokers on a busy machine take their time to find a leader, or to end a long poll.
    patience = 120.0


class FetchedFirst(mo.Source):
    """A source whose readers wait a moment before they read for the first time.

    A client needs some milliseconds until it has fetched something. The suite crashes sources after a few reads, which
    would all be empty otherwise.
    """

    enumerates = True

    def __init__(self, source: mo.Source) -> None:
        self.source = source

    def open(self, ctx):
        reader = self.source.open(ctx)
        read = reader.read

        def first_read(limit):
            if not reader.splits():
                return read(limit)
            reader.read = read
            give_up = time.monotonic() + 0.5
            while not (records := read(limit)) and time.monotonic() < give_up:
                time.sleep(0.002)
            return records

        reader.read = first_read
        return reader

    def open_enumerator(self, ctx):
        return self.source.open_enumerator(ctx)


@pytest.fixture(scope="module")
def topic(kafka_server: KafkaServer) -> str:
    topic = kafka_server.new_topic(PARTITIONS)
    for partition in range(PARTITIONS):
        kafka_server.produce(topic, [v for v in VALUES if v.startswith(f"{partition}-")], partition)
    return topic


@pytest.fixture(scope="module")
def transactional_topic(kafka_server: KafkaServer) -> str:
    """Each second transaction was aborted, and the last thing in each partition is the mark of an abort."""
    topic = kafka_server.new_topic(PARTITIONS)
    producer = kafka_server.producer(transactional_id=topic)
    producer.init_transactions(60)
    for first in range(0, EACH, 10):
        for is_good in (True, False):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                for n in range(first, first + 10):
                    producer.produce(topic, f"{partition}-{n}" if is_good else "aborted", partition=partition)
            producer.flush(60)
            producer.commit_transaction(60) if is_good else producer.abort_transaction(60)
    return topic


class TestWithoutAnEnd(KafkaContract):
    @pytest.fixture
    def source(self, kafka_server, topic):
        return FetchedFirst(mo.read_kafka(kafka_server.brokers, topic, format="text"))

    @pytest.fixture
    def expected(self):
        return VALUES


class TestWithAnEnd(KafkaContract):
    @pytest.fixture
    def source(self, kafka_server, topic):
        return FetchedFirst(mo.read_kafka(kafka_server.brokers, topic, format="text", end="latest"))

    @pytest.fixture
    def expected(self):
        return VALUES


class TestTransactions(KafkaContract):
    @pytest.fixture
    def source(self, kafka_server, transactional_topic):
        source = mo.read_kafka(kafka_server.brokers, transactional_topic, format="text", end="latest")
        return FetchedFirst(source)

    @pytest.fixture
    def expected(self):
        return VALUES


class TestSeveralTopics(KafkaContract):
    @pytest.fixture
    def source(self, kafka_server, topic, transactional_topic):
        return FetchedFirst(mo.read_kafka(kafka_server.brokers, [topic, transactional_topic], format="text"))

    @pytest.fixture
    def expected(self):
        return VALUES + VALUES
