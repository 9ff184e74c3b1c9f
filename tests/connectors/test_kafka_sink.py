"""Kafka as a sink, against a real broker: the contract, messages as declared, markers, zombies, a broker that dies."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import Any

import cloudpickle
import pytest
from confluent_kafka import KafkaException
from kafka_server import PASSWORD, KafkaServer
from thoroughness import examples
from waiting import PATIENCE

import moorline as mo
from moorline.api.sinks import SinkContext
from moorline.connectors.kafka.writing import transactions
from moorline.connectors.kafka.writing.markers import Marker, Markers
from moorline.connectors.kafka.writing.staging import StagedMessages
from moorline.errors import InvalidArgument, MoorlineError, SnapshotCorrupt, StorageError
from moorline.testing.contracts.sink import SinkContract

LINEAGE = "5f1e"


def sink_for(server: KafkaServer, topic: Any, **options: Any) -> Any:
    # A marker topic of each test's own is small, and says what this test has written.
    options.setdefault("marker_topic", f"markers-{topic}")
    return mo.write_kafka(server.brokers, topic, **{"patience": 20.0, **options})


def context(subtask: int = 0, attempt: int = 1, lineage: str = LINEAGE, **more: Any) -> SinkContext:
    return SinkContext("job", "out", subtask, 2, attempt, lineage=lineage, **more)


def staged(sink: Any, checkpoint: int, records: list[Any], **place: Any) -> list[Any]:
    writer = sink.open(context(**place))
    writer.write(records)
    return writer.prepare(checkpoint)


def commit(sink: Any, committables: list[Any], **more: Any) -> None:
    committer = cloudpickle.loads(cloudpickle.dumps(sink)).open_subtask_committer(context(**more))
    try:
        committer.commit(committables)
    finally:
        committer.close()


def numbers(server: KafkaServer, topic: str) -> list[int]:
    return sorted(json.loads(value) for value in server.values(topic) if value is not None)


class TestKafka(SinkContract):
    can_roll_back = False
    crash_seeds = examples(2)

    @pytest.fixture
    def topic(self, kafka_server):
        return kafka_server.new_topic(2)

    @pytest.fixture
    def sink(self, kafka_server, topic):
        sink = sink_for(kafka_server, topic, key=lambda r: str(r["number"]))
        sink.check()
        return sink

    @pytest.fixture
    def visible(self, kafka_server, topic):
        return lambda: [json.loads(value) for value in kafka_server.values(topic)]


# --- messages as declared -----------------------------------------------------------------------


def test_a_message_has_what_the_user_has_declared(kafka_server):
    topic = kafka_server.new_topic(3)
    sink = sink_for(
        kafka_server,
        topic,
        value=lambda r: r.get("total"),
        key=lambda r: r["customer"],
        partition=lambda r: r["customer"] % 3,
        key_format=lambda n: b"customer %d" % n,
        headers=lambda r: {"kind": "total", "raw": b"\x00", "none": None},
        timestamp=lambda r: datetime(2026, 1, 2, tzinfo=UTC),
    )
    sink.check()
    commit(sink, staged(sink, 1, [{"customer": 4, "total": 7}, {"customer": 5}]))
    first, second = kafka_server.read_all(topic)
    assert (first.key(), first.value(), first.partition()) == (b"customer 4", b"7", 1)
    assert first.headers() == [("kind", b"total"), ("raw", b"\x00"), ("none", None)]
    assert first.timestamp()[1] == 1767312000000
    assert (second.key(), second.value(), second.partition()) == (b"customer 5", None, 2), "a tombstone"


def test_the_topic_can_be_chosen_for_each_record(kafka_server):
    even, odd = kafka_server.new_topic(), kafka_server.new_topic()
    sink = sink_for(kafka_server, lambda n: odd if n % 2 else even, marker_topic=f"markers-{even}")
    sink.check()
    commit(sink, staged(sink, 1, list(range(10))))
    assert (numbers(kafka_server, even), numbers(kafka_server, odd)) == ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])


def test_messages_of_a_subtask_keep_their_order_also_those_that_need_several_chunks(kafka_server, monkeypatch):
    monkeypatch.setattr(transactions, "IN_FLIGHT_BYTES", 1 << 20)
    topic = kafka_server.new_topic()
    sink = sink_for(kafka_server, topic, format="text")
    sink.check()
    records = [f"{n:06d}" + "x" * 500 for n in range(8_000)]
    writer = sink.open(context())
    for start in range(0, len(records), 500):
        writer.write(records[start : start + 500])
    (committable,) = writer.prepare(1)
    assert len(committable["chunks"]) > 1
    commit(sink, [committable])
    assert [value.decode() for value in kafka_server.values(topic)] == records


@pytest.mark.parametrize(
    ("options", "record", "message"),
    [
        ({"key": lambda r: 7}, 1, "give key_format="),
        ({"partition": lambda r: -1}, 1, "Give its number"),
        ({"timestamp": lambda r: "now"}, 1, "milliseconds since 1970"),
        ({"headers": lambda r: {"n": 7}}, 1, "values that are bytes or texts"),
        ({"topic": lambda r: ""}, 1, "Give the name of a topic"),
    ],
)
def test_a_record_that_makes_no_message_is_refused_by_name(options, record, message):
    sink = mo.write_kafka("127.0.0.1:1", **{"topic": "t", **options})
    with pytest.raises(MoorlineError, match=message) as refused:
        sink.open(context()).write([record])
    assert refused.value.can_pass is False


@pytest.mark.parametrize(
    "options",
    [
        {"topic": ""},
        {"topic": "t", "guarantee": "exactly_once"},
        {"topic": "t", "on_roll_back": "undo"},
        {"topic": "t", "key": 7},
        {"topic": "t", "key_format": "json"},
        {"topic": "t", "marker_topic": "t"},
        {"topic": "t", "patience": -1},
        {"topic": "t", "format": "jsonn"},
        {"topic": "t", "options": {"transactional.id": "mine"}},
        {"topic": "t", "options": {"acks": 1}},
    ],
)
def test_a_mistake_is_refused_when_the_sink_is_declared(options):
    with pytest.raises(InvalidArgument):
        mo.write_kafka("127.0.0.1:1", **options)


# --- before the start ---------------------------------------------------------------------------


def test_a_topic_that_is_not_there_refuses_the_start(kafka_server):
    with pytest.raises(InvalidArgument, match="has no such topic"):
        sink_for(kafka_server, "nowhere").check()


def test_a_wrong_password_refuses_the_start_and_a_right_one_is_shown_nowhere(kafka_server):
    topic = kafka_server.new_topic()
    options = kafka_server.secure_options
    right = mo.write_kafka(kafka_server.secure_brokers, topic, options=options, marker_topic=f"markers-{topic}")
    right.check()
    commit(right, staged(right, 1, [1]))
    assert numbers(kafka_server, topic) == [1]
    assert PASSWORD not in repr(right) + str(staged(right, 1, [1]))
    wrong = mo.write_kafka(kafka_server.secure_brokers, topic, options={**options, "sasl.password": "guessed-word"})
    with pytest.raises(StorageError, match="uthentication") as refused:
        wrong.check()
    assert "guessed-word" not in str(refused.value)
    assert refused.value.can_pass is False


# --- commits ------------------------------------------------------------------------------------


def test_two_who_commit_the_same_at_the_same_moment_write_it_once(kafka_server):
    topic = kafka_server.new_topic(2)
    sink = sink_for(kafka_server, topic)
    sink.check()
    promised = staged(sink, 1, list(range(1_000)))
    start = threading.Barrier(3)
    errors: list[Exception] = []

    def committing() -> None:
        start.wait()
        try:
            commit(sink, promised)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=committing) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert numbers(kafka_server, topic) == list(range(1_000))


def test_a_zombie_in_the_middle_of_its_transaction_cannot_end_it(kafka_server):
    topic = kafka_server.new_topic()
    sink = sink_for(kafka_server, topic)
    sink.check()
    promised = staged(sink, 1, [1, 2, 3])
    name = transactions.Slot.name(context(), StagedMessages.of(promised[0]))
    zombie = kafka_server.producer(transactional_id=name)
    zombie.init_transactions(PATIENCE)
    zombie.begin_transaction()
    for n in (1, 2, 3):
        zombie.produce(topic, str(n))
    zombie.flush(PATIENCE)
    commit(sink, promised, attempt=2)
    with pytest.raises(KafkaException, match=r"[Ff]enced|epoch"):
        zombie.commit_transaction(PATIENCE)
    assert numbers(kafka_server, topic) == [1, 2, 3]


def test_a_marker_behind_the_open_transaction_of_another_slot_is_waited_for(kafka_server):
    """A reader of committed messages is not shown what lies behind it, and would take the commit for not made."""
    topic = kafka_server.new_topic()
    markers = kafka_server.new_topic(1, exact=f"markers-{topic}", cleanup_policy="compact")
    sink = sink_for(kafka_server, topic)
    sink.check()
    commit(sink, staged(sink, 1, [1]))
    other = kafka_server.producer(transactional_id=f"other-{topic}")
    other.init_transactions(PATIENCE)
    other.begin_transaction()
    other.produce(markers, "7", b"the marker of another slot", partition=0)
    other.flush(PATIENCE)
    promised = staged(sink, 2, [2])
    committer = sink.open_subtask_committer(context())
    taking_over = threading.Thread(target=committer.commit, args=(promised,))
    taking_over.start()
    taking_over.join(1)
    assert taking_over.is_alive(), "whether checkpoint 1 was committed cannot be told yet"
    other.commit_transaction(PATIENCE)
    taking_over.join(PATIENCE)
    other.begin_transaction()
    other.produce(markers, "8", b"the marker of another slot", partition=0)
    other.flush(PATIENCE)
    committer.commit(staged(sink, 3, [3]))  # its owner need not look
    again = threading.Thread(target=commit, args=(sink, staged(sink, 3, [3])), kwargs={"attempt": 2})
    again.start()
    again.join(1)
    other.abort_transaction(PATIENCE)
    again.join(PATIENCE)
    committer.close()
    assert numbers(kafka_server, topic) == [1, 2, 3]


def test_commits_of_an_old_attempt_are_taken_over_by_another_slot_after_a_rescale(kafka_server):
    topic = kafka_server.new_topic()
    sink = sink_for(kafka_server, topic)
    sink.check()
    old = [c for slot in range(4) for c in staged(sink, 3, [slot], subtask=slot)]
    commit(sink, old[:2])  # before the crash
    commit(sink, old, subtask=0, attempt=2)  # all of them were dealt to one
    commit(sink, staged(sink, 4, [10], subtask=0, attempt=2), subtask=0, attempt=2)
    assert numbers(kafka_server, topic) == [0, 1, 2, 3, 10]


def test_a_job_that_begins_anew_is_not_taken_for_the_old_one(kafka_server):
    topic = kafka_server.new_topic()
    sink = sink_for(kafka_server, topic)
    sink.check()
    for lineage in ("a1", "b2"):
        commit(sink, staged(sink, 1, [1], lineage=lineage), lineage=lineage)
    assert numbers(kafka_server, topic) == [1, 1]


def test_a_marker_outlives_everything_but_its_topic(kafka_server):
    topic = kafka_server.new_topic()
    sink = sink_for(kafka_server, topic)
    sink.check()
    for checkpoint in range(1, 6):
        commit(sink, staged(sink, checkpoint, [checkpoint]))
    markers = Markers(sink.cluster, f"markers-{topic}")
    assert markers.read(Marker("job", "out", LINEAGE, 0)) == 5
    assert markers.read(Marker("job", "out", LINEAGE, 1)) == 0
    (config,) = kafka_server.admin.describe_configs([_topic_resource(f"markers-{topic}")]).values()
    assert config.result(PATIENCE)["cleanup.policy"].value == "compact"


def test_markers_that_are_gone_end_the_job_instead_of_a_second_write(kafka_server):
    topic = kafka_server.new_topic()
    sink = sink_for(kafka_server, topic)
    sink.check()
    writer = sink.open(context())
    committed = []
    for checkpoint in (1, 2):
        writer.write([checkpoint])
        committed.append(writer.prepare(checkpoint))
    commit(sink, committed[0])
    kafka_server.delete_topic(f"markers-{topic}")
    cloudpickle.loads(cloudpickle.dumps(sink)).check()  # a new driver makes the topic anew
    with pytest.raises(StorageError, match="the topic was deleted") as failed:
        commit(sink, committed[1])
    assert failed.value.can_pass is False
    assert numbers(kafka_server, topic) == [1]


def test_markers_that_are_gone_are_noticed_also_by_the_next_attempt(kafka_server):
    """What was committed before a crash is committed again: a topic that was made anew has no marker of it."""
    topic = kafka_server.new_topic()
    sink = sink_for(kafka_server, topic)
    sink.check()
    again = staged(sink, 1, [1])
    commit(sink, again)
    kafka_server.delete_topic(f"markers-{topic}")
    successor = cloudpickle.loads(cloudpickle.dumps(sink))
    successor.check()
    with pytest.raises(StorageError, match="the topic was deleted or emptied") as failed:
        commit(successor, again, attempt=2)
    assert failed.value.can_pass is False
    assert numbers(kafka_server, topic) == [1]
    commit(sink_for(kafka_server, topic, on_missing_markers="ignore"), again, attempt=2)
    assert numbers(kafka_server, topic) == [1, 1], "as was asked for"


def test_markers_that_are_behind_what_an_earlier_attempt_knew_end_the_job(kafka_server):
    """A cluster that was restored from a backup has the topic, and old markers."""
    topic = kafka_server.new_topic()
    sink = sink_for(kafka_server, topic)
    sink.check()
    writer = sink.open(context())
    writer.write([1])
    commit(sink, writer.prepare(1))
    restored = tuple(writer.snapshot())
    kafka_server.delete_topic(f"markers-{topic}")
    sink = sink_for(kafka_server, topic)
    sink.check()
    with pytest.raises(StorageError, match=r"checkpoint 1 was committed, and its marker .* says nothing"):
        commit(sink, staged(sink, 2, [2], attempt=2, restored=restored), attempt=2)
    # Also if another slot goes on from it.
    with pytest.raises(StorageError, match="checkpoint 1 was committed"):
        commit(sink, staged(sink, 2, [2], attempt=2, subtask=1, restored=restored), attempt=2, subtask=1)
    assert numbers(kafka_server, topic) == [1]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_for_markers_that_forgets_is_refused(kafka_server, policy):
    topic = kafka_server.new_topic()
    markers = kafka_server.new_topic(cleanup_policy=policy)
    with pytest.raises(InvalidArgument, match=f"Its cleanup.policy is {policy}"):
        sink_for(kafka_server, topic, marker_topic=markers).check()


def test_a_message_that_is_too_large_for_the_broker_ends_the_job_in_its_words(kafka_server):
    topic = kafka_server.new_topic(max_message_bytes=2000)
    sink = sink_for(kafka_server, topic)
    sink.check()
    with pytest.raises(StorageError, match="MSG_SIZE_TOO_LARGE") as failed:
        commit(sink, staged(sink, 1, ["x" * 100_000]))
    assert failed.value.can_pass is False


@pytest.mark.parametrize(
    "strange",
    [
        7,
        {"lineage": "a", "attempt": 1, "slot": 0, "checkpoint": 1, "previous": 0, "chunks": [[1 << 40, b"x"]]},
        {"lineage": "a", "attempt": 1, "slot": 0, "checkpoint": 1, "previous": 0, "chunks": [[100, b"xxxxx"]]},
        {"lineage": "a", "attempt": 1, "slot": "0", "checkpoint": 1, "previous": 0, "chunks": []},
        {"lineage": "a", "attempt": 1, "slot": 0, "checkpoint": 1, "previous": 0, "chunks": [], "run": "me"},
    ],
)
def test_what_no_sink_has_staged_is_refused(strange):
    with pytest.raises(SnapshotCorrupt):
        list(StagedMessages.of(strange).messages())


# --- a broker that is away ----------------------------------------------------------------------


def test_a_broker_that_is_killed_between_two_commits_is_waited_for(kafka_server):
    topic = kafka_server.new_topic(2)
    sink = sink_for(kafka_server, topic, patience=600.0)
    sink.check()
    outages: list[str | None] = []
    committer = sink.open_subtask_committer(context(outage=outages.append))
    writer = sink.open(context())
    writer.write(list(range(100)))
    committer.commit(writer.prepare(1))
    writer.write(list(range(100, 200)))
    promised = writer.prepare(2)
    kafka_server.kill()
    committing = threading.Thread(target=committer.commit, args=(promised,))
    committing.start()
    time.sleep(1)
    kafka_server.start()
    committing.join(PATIENCE)
    assert not committing.is_alive()
    committer.commit(promised)  # again, as after a restart
    committer.close()
    assert numbers(kafka_server, topic) == list(range(200))


def test_a_broker_that_stays_away_fails_the_attempt_in_its_own_words():
    sink = mo.write_kafka("127.0.0.1:1", "t", patience=0.5)
    outages: list[str | None] = []
    transactions_before = transactions.CALL_SECONDS
    try:
        transactions.CALL_SECONDS = 0.3
        committer = sink.open_subtask_committer(context(outage=outages.append))
        with pytest.raises(StorageError, match=r"Kafka at 127\.0\.0\.1:1") as failed:
            committer.commit(staged(sink, 1, [1]))
    finally:
        transactions.CALL_SECONDS = transactions_before
    assert failed.value.can_pass is True
    assert outages and outages[0] is not None


# --- at least once ------------------------------------------------------------------------------


def test_at_least_once_writes_as_records_come_and_a_barrier_waits_for_the_brokers(kafka_server):
    topic = kafka_server.new_topic(2)
    sink = sink_for(kafka_server, topic, guarantee="at-least-once", key=lambda n: str(n))
    sink.check()
    assert sink.guarantee is mo.DeliveryGuarantee.AT_LEAST_ONCE
    writer = sink.open(context())
    writer.write(list(range(500)))
    assert writer.prepare(1) == []
    assert numbers(kafka_server, topic) == list(range(500))
    writer.close()


def test_at_least_once_a_broker_that_stays_away_fails_the_attempt(kafka_server):
    sink = mo.write_kafka("127.0.0.1:1", "t", guarantee="at-least-once", patience=1.0)
    writer = sink.open(context())
    writer.write([1])
    with pytest.raises(StorageError, match="write to") as failed:
        writer.prepare(1)
    assert failed.value.can_pass is True


def test_at_least_once_a_message_that_the_broker_refuses_ends_the_job(kafka_server):
    topic = kafka_server.new_topic(max_message_bytes=2000)
    sink = sink_for(kafka_server, topic, guarantee="at-least-once")
    writer = sink.open(context())
    writer.write(["x" * 100_000])
    with pytest.raises(StorageError, match="MSG_SIZE_TOO_LARGE") as failed:
        writer.prepare(1)
    assert failed.value.can_pass is False


def _topic_resource(topic: str) -> Any:
    from confluent_kafka.admin import RESOURCE_TOPIC, ConfigResource  # noqa: PLC0415

    return ConfigResource(RESOURCE_TOPIC, topic)
