"""Which topics and partitions are there, and which offsets have they? Questions to the cluster, which may block.

A topic that was deleted and created anew is another one under the same name: the cluster gives each an id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from moorline.connectors import retry
from moorline.connectors.kafka.client import BrokerErrors, KafkaCluster, is_transient, kafka_error
from moorline.connectors.kafka.places import Partition, Place
from moorline.errors import InvalidArgument, StorageError
from moorline.model.spelling import did_you_mean

LEVELS = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}

T = TypeVar("T")

#: How long one question may take, unless patience is shorter.
ANSWER_SECONDS = 10.0
#: How long the first line to a cluster may take at a start, with its certificate and password.
REACH_SECONDS = 30.0
#: The id of a topic in a cluster that gives none.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True)
class Topics:
    """The topics that are read: by name, or by a pattern of their whole name."""

    names: tuple[str, ...]
    pattern: str | None = None

    def __str__(self) -> str:
        return f"pattern={self.pattern!r}" if self.pattern is not None else repr(list(self.names))

    def matching(self, known: Iterable[str]) -> list[str]:
        """Those of the cluster's topics that are read. A pattern leaves out Kafka's own."""
        if self.pattern is None:
            return list(self.names)
        wanted = re.compile(self.pattern)
        return sorted(name for name in known if wanted.fullmatch(name) and not name.startswith("__"))


@dataclass(frozen=True)
class Topic:
    """A topic as it is now."""

    id: str
    partitions: int


class _NotThere(Exception):
    """Topics are not there, or not yet."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"there is no topic {', '.join(names)}")
        self.names = names


class TopicQueries:
    """The questions, and repeated ones while the brokers are away."""

    def __init__(self, cluster: KafkaCluster, topics: Topics, isolation: str, patience: float) -> None:
        self._cluster, self._topics, self._patience = cluster, topics, patience
        self._isolation = LEVELS[isolation]
        self._errors = BrokerErrors()
        self._seconds = min(ANSWER_SECONDS, max(patience, 1.0))
        try:
            self._admin = AdminClient(cluster.settings({"error_cb": self._errors.add}))
        except (KafkaException, ValueError, TypeError) as error:
            raise cluster.wrong_options(error) from None

    def check(self) -> dict[str, Topic]:
        """The topics, at a start: a name that is not among those of the cluster is refused at once."""
        known = self._cluster.metadata(min(REACH_SECONDS, self._patience)).topics
        try:
            return self._answer("find the topics of", self._find, is_transient)
        except _NotThere as error:
            advice = f"{self._cluster.address} has no such topic.{did_you_mean(error.names[0], known)}"
            raise InvalidArgument("topics", error.names, advice) from None

    def find(self) -> dict[str, Topic]:
        """The topics as they are now, by name. One that is named and not there is waited for, in vain in the end."""
        operation = "find the topics of"
        try:
            return self._answer(operation, self._find, lambda e: isinstance(e, _NotThere) or is_transient(e))
        except _NotThere as error:
            raise StorageError(self._cluster.address, operation, str(error), can_pass=False) from None

    def offsets(self, partitions: list[Partition], place: Place) -> dict[Partition, int]:
        """The offsets of a place in partitions. A time after the last message is the end."""
        if place.offsets:
            return {partition: place.offsets[partition] for partition in partitions}
        if place.timestamp_ms is not None:
            found = self._offsets(partitions, OffsetSpec.for_timestamp(place.timestamp_ms))
            later = [partition for partition, offset in found.items() if offset < 0]
            return {**found, **self._offsets(later, OffsetSpec.latest())}
        return self._offsets(partitions, OffsetSpec.earliest() if place.word == "earliest" else OffsetSpec.latest())

    def _offsets(self, partitions: list[Partition], spec: Any) -> dict[Partition, int]:
        if not partitions:
            return {}
        places = {TopicPartition(*partition): spec for partition in partitions}

        def ask() -> dict[Partition, int]:
            answers = self._admin.list_offsets(places, isolation_level=self._isolation, request_timeout=self._seconds)
            return {(at.topic, at.partition): known_offset(_result(answer).offset) for at, answer in answers.items()}

        return self._answer("find offsets in", ask, is_transient)

    def _find(self) -> dict[str, Topic]:
        known = self._admin.list_topics(timeout=self._seconds).topics if self._topics.pattern is not None else ()
        names = self._topics.matching(known)
        if not names:
            return {}
        found: dict[str, Topic] = {}
        missing: list[str] = []
        answers = self._admin.describe_topics(TopicCollection(names), request_timeout=self._seconds)
        for name, answer in answers.items():
            try:
                topic = _result(answer)
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                if self._topics.pattern is None:
                    missing.append(name)
                continue
            found[name] = Topic(topic_id(topic), len(topic.partitions))
        if missing:
            raise _NotThere(missing)
        return found

    def _answer(self, operation: str, ask: Callable[[], T], is_transient: Callable[[Exception], bool]) -> T:
        """An answer, in the end, or the error in the words of the cluster."""

        def attempt() -> T:
            self._errors.clear()
            try:
                return ask()
            except KafkaException:
                # Why a question had no answer is reported beside it.
                self._admin.poll(0)
                if self._errors.lasting is not None:
                    raise KafkaException(self._errors.lasting) from None
                raise

        try:
            return retry.call(attempt, is_transient, self._patience)
        except KafkaException as error:
            raise self._cluster.failure(operation, self._errors.latest or error) from None


def topic_id(description: Any) -> str:
    """The id of a topic, as the client describes it; empty in a cluster that gives none."""
    identity = str(description.topic_id)
    return "" if identity == _NO_ID else identity


def known_offset(offset: int) -> int:
    """An offset as the client gives it; -1 is a time after the last message. Raises if it says that it has none.

    While a partition has no leader the client may answer without an error, and with a number that stands for none.

    >>> known_offset(7), known_offset(-1)
    (7, -1)
    """
    if offset < -1:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "no broker has told the offset"))
    return offset


def _result(answer: Future[Any]) -> Any:
    return answer.result(ANSWER_SECONDS + 5)


def _code(error: KafkaException) -> int | None:
    found = kafka_error(error)
    return None if found is None else found.code()
