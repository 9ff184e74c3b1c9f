"""Topics of Kafka as a source: where reading starts and ends, and what a snapshot brings back."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from kafka_server import KafkaServer
from source_readings import Readings
from waiting import eventually

import moorline as mo
from moorline.errors import InvalidArgument, RestoreError, SnapshotCorrupt

NOON = 1_767_268_800_000  # 2026-01-01 12:00 UTC


@pytest.fixture(scope="module")
def topic(kafka_server: KafkaServer) -> str:
    """Two partitions with ten messages each, one a second from noon on."""
    topic = kafka_server.new_topic(2)
    for partition in range(2):
        for n in range(10):
            kafka_server.produce(topic, [f"{partition}-{n}"], partition, timestamp=NOON + 1000 * n)
    return topic


def numbers(partition: int, first: int, end: int) -> list[str]:
    return [f"{partition}-{n}" for n in range(first, end)]


def all_of(kafka_server: KafkaServer, topic: str, **options) -> list[str]:
    """What a source with an end reads, in the order of each partition."""
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format="text", **{"end": "latest", **options})) as source:
        records = source.read_to_the_end()
        assert source.positions == {}, "partitions that are read are forgotten"
        for split, found in source.by_split.items():
            assert [r for r, _ in found] == sorted(r for r, _ in found), f"{split} in its order"
    return sorted(records)


def test_from_the_earliest_to_what_is_there(kafka_server, topic):
    assert all_of(kafka_server, topic) == numbers(0, 0, 10) + numbers(1, 0, 10)


@pytest.mark.parametrize("as_what", ["datetime", "milliseconds"])
def test_from_a_time_to_a_time(kafka_server, topic, as_what):
    start, end = NOON + 3000, NOON + 6000
    if as_what == "datetime":
        start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (start, end))
    assert all_of(kafka_server, topic, start=start, end=end) == numbers(0, 3, 6) + numbers(1, 3, 6)


def test_a_time_after_the_last_message_is_the_end(kafka_server, topic):
    assert all_of(kafka_server, topic, start=NOON + 8001, end=NOON + 10**9) == ["0-9", "1-9"]
    assert all_of(kafka_server, topic, start=NOON + 10**8, end=NOON + 10**9) == []


def test_offsets_for_each_partition(kafka_server, topic):
    start, end = {(topic, 0): 2, (topic, 1): 7}, {(topic, 0): 4, (topic, 1): 8}
    assert all_of(kafka_server, topic, start=start, end=end) == ["0-2", "0-3", "1-7"]
    assert all_of(kafka_server, topic, start=start, end={(topic, 0): 2, (topic, 1): 8}) == ["1-7"]


def test_an_end_that_is_not_there_yet_is_waited_for(kafka_server):
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, ["a", "b"])
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format="text", end={(topic, 0): 3})) as source:
        assert source.read(2) == ["a", "b"]
        assert source.quiet() == []
        kafka_server.produce(topic, ["c", "d"])
        assert source.read_to_the_end() == ["c"]


def test_from_the_latest_on(kafka_server):
    topic = kafka_server.new_topic(2)
    kafka_server.produce(topic, ["old"], 0)
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format="text", start="latest")) as source:
        assert source.positions == {f"{topic}/0": 1, f"{topic}/1": 0}
        kafka_server.produce(topic, ["new"], 0)
        kafka_server.produce(topic, ["new, too"], 1)
        assert sorted(source.read(2)) == ["new", "new, too"]
        assert source.positions == {f"{topic}/0": 2, f"{topic}/1": 1}


def test_the_start_is_that_of_the_first_start_only(kafka_server, topic):
    first = mo.read_kafka(kafka_server.brokers, topic, format="text", start={(topic, 0): 8, (topic, 1): 9})
    with Readings(first) as source:
        assert sorted(source.read(3)) == ["0-8", "0-9", "1-9"]
        snapshot = source.snapshot()
    later = mo.read_kafka(kafka_server.brokers, topic, format="text", start="earliest")
    with Readings(later, snapshot, parallelism=2) as source:
        assert source.quiet() == []
        assert source.positions == {f"{topic}/0": 10, f"{topic}/1": 10}


@pytest.mark.parametrize("seed", range(4))
def test_crashes_and_rescales_in_the_middle_of_reading(kafka_server, topic, seed):
    """As in the contract, but each attempt waits until it has read something: brokers are not there at once."""
    chance = random.Random(seed)
    source = mo.read_kafka(kafka_server.brokers, topic, format="text", end="latest")
    kept: list[str] = []
    snapshot = None
    while True:
        with Readings(source, snapshot, parallelism=chance.randrange(1, 4)) as running:
            if running.positions == {}:
                break
            kept += running.read(1, limit=chance.randrange(1, 4))
            snapshot = running.snapshot()
            if running.positions:
                running.read(1, limit=1)  # lost with the crash, and read again
    assert sorted(kept) == numbers(0, 0, 10) + numbers(1, 0, 10)


def test_partitions_take_turns(kafka_server):
    topic = kafka_server.new_topic(3)
    for partition in range(3):
        kafka_server.produce(topic, [str(partition)] * 600, partition)
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format="text")) as source:
        first = [record for _ in range(6) for record in source.read(1, limit=50)]
        # What the client has fetched first may be of one partition; from then on none waits for another's end.
        rest = source.read(1800 - len(first), limit=50)
    turns = [record for i, record in enumerate(first + rest) if i % 50 == 0]
    assert turns[:24] != sorted(turns[:24]), turns
    assert sorted(first + rest) == ["0"] * 600 + ["1"] * 600 + ["2"] * 600


def test_large_messages_come_a_few_at_a_time(kafka_server):
    topic = kafka_server.new_topic()
    large = "x" * 900_000
    kafka_server.produce(topic, [large] * 40)
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format="text")) as source:
        sizes = [len(source.read(1, limit=1000))]
        while sum(sizes) < 40:
            sizes.append(len(source.read(1, limit=1000)))
    assert sum(sizes) == 40 and max(sizes[1:]) < 12, "8 MiB at a time, once their size is known"


# --- transactions ---------------------------------------------------------------------------------


def test_messages_of_transactions_are_read_when_they_are_committed(kafka_server):
    topic = kafka_server.new_topic()
    producer = kafka_server.producer(transactional_id=topic)
    producer.init_transactions(60)
    source = mo.read_kafka(kafka_server.brokers, topic, format="text")
    dirty = mo.read_kafka(kafka_server.brokers, topic, format="text", isolation="read_uncommitted")
    with Readings(source) as committed, Readings(dirty) as uncommitted:
        producer.begin_transaction()
        producer.produce(topic, "a")
        producer.flush(60)
        assert uncommitted.read(1) == ["a"]
        assert committed.quiet() == []
        producer.commit_transaction(60)
        assert committed.read(1) == ["a"]
        producer.begin_transaction()
        producer.produce(topic, "b")
        producer.flush(60)
        producer.abort_transaction(60)
        assert uncommitted.read(1) == ["b"]
        committed.until(lambda: committed.positions == {f"{topic}/0": 4}, "the position after the marks")
        assert committed.quiet() == []
        snapshot = committed.snapshot()
        kafka_server.produce(topic, ["c"])
        assert committed.read(1) == ["c"]
    with Readings(source, snapshot) as again:
        assert again.read(1) == ["c"]


def test_the_end_of_a_topic_lies_before_transactions_that_are_open(kafka_server):
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, ["a"])
    producer = kafka_server.producer(transactional_id=topic)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "b open")
    producer.flush(60)
    kafka_server.produce(topic, ["c after"])
    assert all_of(kafka_server, topic) == ["a"]
    assert all_of(kafka_server, topic, isolation="read_uncommitted") == ["a", "b open", "c after"]
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format="text", start="latest")) as source:
        producer.commit_transaction(60)
        assert source.read(2) == ["b open", "c after"], "what is open at the start is not lost"


def test_an_end_amid_aborted_messages_is_reached(kafka_server):
    topic = kafka_server.new_topic()
    kafka_server.produce(topic, ["a"])
    producer = kafka_server.producer(transactional_id=topic)
    producer.init_transactions(60)
    producer.begin_transaction()
    for n in range(5):
        producer.produce(topic, f"aborted {n}")
    producer.flush(60)
    producer.abort_transaction(60)  # offsets 1 to 5, and the mark at 6
    for end in (1, 3, 6, 7):
        assert all_of(kafka_server, topic, end={(topic, 0): end}) == ["a"]
    kafka_server.produce(topic, ["b"])
    for end in (1, 3, 6, 7):
        assert all_of(kafka_server, topic, end={(topic, 0): end}) == ["a"]
    assert all_of(kafka_server, topic, end={(topic, 0): 8}) == ["a", "b"]


# --- what a snapshot may have in it -----------------------------------------------------------------


@pytest.mark.parametrize("position", [-1, 2**63, "12", [1], [-1, 4], [2**70, 2**71], None, {}])
def test_positions_that_are_none_are_refused(kafka_server, position):
    reader = mo.read_kafka(kafka_server.brokers, "t").open(mo.SourceContext("in", 0, 1, 1))
    try:
        with pytest.raises(SnapshotCorrupt, match="not a position"):
            reader.add_splits({"t/0": position})
    finally:
        reader.close()


@pytest.mark.parametrize("split", ["t", "t/", "/0", "t/x", "t/-1", "t/4294967296", 7, "t/²"])
def test_splits_that_are_none_are_refused(kafka_server, split):
    reader = mo.read_kafka(kafka_server.brokers, "t").open(mo.SourceContext("in", 0, 1, 1))
    try:
        with pytest.raises(SnapshotCorrupt, match="not a partition"):
            reader.add_splits({split: 0})
    finally:
        reader.close()


@pytest.mark.parametrize(
    "state",
    [
        7,
        {},
        {"topics": [], "end": False},
        {"topics": {"t": ["id"]}, "end": True},
        {"topics": {"t": ["", -1]}, "end": True},
    ],
)
def test_an_enumerators_state_that_is_none_is_refused(kafka_server, state):
    with pytest.raises(SnapshotCorrupt, match="topics"):
        mo.read_kafka(kafka_server.brokers, "t").open_enumerator(mo.EnumeratorContext("job", "in", 1, restored=state))


def test_a_source_with_an_end_does_not_go_on_from_one_without(kafka_server, topic):
    with Readings(mo.read_kafka(kafka_server.brokers, topic)) as source:
        snapshot = source.snapshot()
    with pytest.raises(RestoreError, match="was reading without an end"):
        Readings(mo.read_kafka(kafka_server.brokers, topic, end="latest"), snapshot)


def test_offsets_must_be_those_of_the_partitions(kafka_server, topic):
    for offsets, cause in [
        ({(topic, 0): 1}, "no offset for"),
        ({(topic, n): 1 for n in range(3)}, "no such partition"),
    ]:
        for option in ({"start": offsets}, {"end": offsets}):
            with pytest.raises(InvalidArgument, match=cause):
                mo.read_kafka(kafka_server.brokers, topic, **option).check()
            with pytest.raises(InvalidArgument, match=cause):
                Readings(mo.read_kafka(kafka_server.brokers, topic, **option))


def test_a_reader_knows_how_far_it_is_behind(kafka_server):
    topic = kafka_server.new_topic(2)
    kafka_server.produce(topic, [f"0-{n}" for n in range(20)], 0)
    kafka_server.produce(topic, [f"1-{n}" for n in range(5)], 1)
    with Readings(mo.read_kafka(kafka_server.brokers, topic, format="text")) as source:
        (reader,) = source.readers
        source.read(25)
        eventually(lambda: reader.records_behind() == {f"{topic}/0": 0, f"{topic}/1": 0}, "all is read")
        kafka_server.produce(topic, [f"0-{n}" for n in range(20, 50)], 0)
        some: list[str] = []
        eventually(lambda: some.extend(reader.read(5) or []) or some, "the first of them are read")
        assert some == [f"0-{n}" for n in range(20, 20 + len(some))] and len(some) <= 5
        assert reader.records_behind() == {f"{topic}/0": 30 - len(some), f"{topic}/1": 0}
