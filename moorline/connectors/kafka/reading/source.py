"""Topics of Kafka as a source: what is declared, what is checked before the start, and who finds and who reads."""

from __future__ import annotations

from typing import Any

from moorline.api.sources import EnumeratorContext, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.connectors.broken import BrokenRecords, OnError
from moorline.connectors.formats.base import Format
from moorline.connectors.kafka.client import KafkaCluster
from moorline.connectors.kafka.places import Place
from moorline.connectors.kafka.reading.assigned import make_consumer
from moorline.connectors.kafka.reading.decoding import MessageDecoder
from moorline.connectors.kafka.reading.enumerator import PartitionEnumerator
from moorline.connectors.kafka.reading.reader import KafkaReader
from moorline.connectors.kafka.topics import TopicQueries, Topics
from moorline.errors import InvalidArgument

__all__ = ["KafkaCluster", "KafkaSource", "Topics"]


class KafkaSource(Source[Any]):
    """See :func:`moorline.read_kafka`."""

    enumerates = True

    def __init__(
        self,
        cluster: KafkaCluster,
        topics: Topics,
        *,
        start: Place,
        end: Place | None,
        format: Format[Any],
        key_format: Format[Any],
        as_records: bool,
        isolation: str,
        group: str | None,
        on_error: OnError,
        on_lost_offsets: str,
        interval_ms: int,
        patience: float,
    ) -> None:
        self.cluster, self.topics, self.start, self.end = cluster, topics, start, end
        self.format, self.key_format, self.as_records = format, key_format, as_records
        self.isolation, self.group, self.on_error = isolation, group, on_error
        self.on_lost_offsets, self.interval_ms, self.patience = on_lost_offsets, interval_ms, patience
        self.is_bounded = end is not None

    def __repr__(self) -> str:
        return f"read_kafka({self.cluster.brokers!r}, {self.topics})"

    def check(self) -> None:
        """Are the options those of a client, can the cluster be reached, and has it the topics?"""
        self.format.check()
        self.key_format.check()
        make_consumer(self.cluster, self.isolation, self.group).close()
        found = self._queries().check()
        if not found and self.is_bounded:
            raise InvalidArgument("pattern", self.topics.pattern, f"{self.cluster.address} has no topic that matches.")
        partitions = [(name, number) for name, topic in found.items() for number in range(topic.partitions)]
        self.start.check("start", partitions)
        if self.end is not None:
            self.end.check("end", partitions)

    def open(self, ctx: SourceContext) -> SourceReader[Any]:
        """A reader of partitions."""
        broken = BrokenRecords(self.on_error, ctx)
        return KafkaReader(
            self.cluster,
            ctx,
            MessageDecoder(self.format, self.key_format, self.as_records, broken),
            broken,
            isolation=self.isolation,
            group=self.group,
            on_lost_offsets=self.on_lost_offsets,
            patience=self.patience,
        )

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        """The finder of partitions."""
        return PartitionEnumerator(
            self._queries(),
            self.cluster.address,
            ctx,
            start=self.start,
            end=self.end,
            on_lost_offsets=self.on_lost_offsets,
            interval_ms=self.interval_ms,
        )

    def _queries(self) -> TopicQueries:
        return TopicQueries(self.cluster, self.topics, self.isolation, self.patience)
