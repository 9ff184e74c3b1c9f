"""Are the brokers of one's partitions away, or have they only nothing new? Asked without ever waiting.

A consumer says that a line broke and not that it is mended: on a quiet topic nothing would tell. So after an error the
brokers are asked for the last offsets of the own partitions, which only their leaders can answer:

    well       an error is reported beside                 -> asking, if it is time
    asking     every leader has answered                   -> well, the outage is over
               one has not                                 -> asking again after a pause, or the end of patience
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from moorline.connectors.kafka.client import BrokerErrors, KafkaCluster, is_lasting, kafka_error
from moorline.connectors.kafka.places import Partition
from moorline.connectors.retry import Outage

_ANSWER_SECONDS = 3.0
#: Errors of the group of a consumer, in which nothing depends on it.
_OF_GROUPS = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
    }
)


class BrokerWatch:
    """The watch of one reader: give :meth:`report` to its consumer as ``error_cb``."""

    def __init__(self, cluster: KafkaCluster, outage: Outage) -> None:
        self._cluster, self._outage = cluster, outage
        self._errors = BrokerErrors()
        self._admin: AdminClient | None = None
        self._asked: list[Future[Any]] = []
        #: The reason for the question under way.
        self._reason: KafkaError | None = None

    def report(self, error: KafkaError) -> None:
        """The client has met an error."""
        if error.code() not in _OF_GROUPS:
            self._errors.add(error)

    def look(self, partitions: Collection[Partition]) -> None:
        """Ask, or hear what was asked before. Raises what will not pass, and what has not passed for too long."""
        if self._errors.lasting is not None:
            raise self._cluster.failure("read from", self._errors.lasting)
        if self._asked:
            if all(answer.done() for answer in self._asked):
                self._heard()
        elif self._errors.latest is not None and partitions and self._outage.is_due():
            self._ask(partitions)

    def _ask(self, partitions: Collection[Partition]) -> None:
        if self._admin is None:
            self._admin = AdminClient(self._cluster.settings({}))
        self._reason = self._errors.latest
        self._errors.clear()
        places = {TopicPartition(*partition): OffsetSpec.latest() for partition in partitions}
        self._asked = list(self._admin.list_offsets(places, request_timeout=_ANSWER_SECONDS).values())

    def _heard(self) -> None:
        failures = [error for answer in self._asked if (error := answer.exception()) is not None]
        self._asked = []
        if not failures:
            self._outage.over()
            return
        answers = [found for error in failures if isinstance(error, KafkaException) and (found := kafka_error(error))]
        # A topic may be unknown for a moment, while a broker comes up.
        for answer in answers:
            if is_lasting(answer) and answer.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._cluster.failure("read from", answer)
        reason = self._errors.latest or self._reason or answers[0]
        self._errors.add(reason)  # it is asked again
        self._outage.failed(self._cluster.failure("read from", reason))
