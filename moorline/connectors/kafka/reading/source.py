"""Topics of Kafka as a source: what is declared, what is checked before the start, and who finds and who reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from moorline.api.sources import ColumnSource, EnumeratorContext, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.connectors.broken import BrokenRecords, OnError
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.plain import BytesFormat, TextFormat
from moorline.connectors.kafka.client import KafkaCluster
from moorline.connectors.kafka.places import Place
from moorline.connectors.kafka.reading.assigned import make_consumer
from moorline.connectors.kafka.reading.columns import PARTS, ColumnDecoder, whole_schema
from moorline.connectors.kafka.reading.decoding import MessageDecoder
from moorline.connectors.kafka.reading.enumerator import PartitionEnumerator
from moorline.connectors.kafka.reading.reader import KafkaReader
from moorline.connectors.kafka.topics import TopicQueries, Topics
from moorline.errors import InvalidArgument
from moorline.model.spelling import did_you_mean

__all__ = ["ColumnKafkaSource", "KafkaCluster", "KafkaSource", "Topics"]


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
            self._decoder(broken),
            broken,
            isolation=self.isolation,
            group=self.group,
            on_lost_offsets=self.on_lost_offsets,
            patience=self.patience,
        )

    def _decoder(self, broken: BrokenRecords) -> MessageDecoder:
        return MessageDecoder(self.format, self.key_format, self.as_records, broken)

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


class ColumnKafkaSource(KafkaSource, ColumnSource):
    """Topics whose records are columns of a schema."""

    def __init__(self, *arguments: Any, schema: pa.Schema, metadata: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.as_records:
            advice = "Columns have key, timestamp and place by metadata=; leave out as_records."
            raise InvalidArgument("as_records", self.as_records, advice)
        if isinstance(self.format, (TextFormat, BytesFormat)):
            raise InvalidArgument("format", self.format, "It has no columns: leave out schema=, or choose another one.")
        self._check_metadata(schema, metadata)
        self.metadata = dict(metadata)
        self.schema = whole_schema(schema, self.metadata, self.key_format)

    def _check_metadata(self, schema: pa.Schema, metadata: Any) -> None:
        if not isinstance(metadata, Mapping):
            advice = 'Give the names of columns and what they hold, such as {"sent": "timestamp"}.'
            raise InvalidArgument("metadata", metadata, advice)
        for name, part in metadata.items():
            if not isinstance(name, str) or not name or name in schema.names:
                raise InvalidArgument("metadata", name, "Give the name of a column that the schema does not have.")
            if part not in PARTS:
                raise InvalidArgument("metadata", part, f"It is one of {', '.join(PARTS)}.{did_you_mean(part, PARTS)}")
        if "key" in metadata.values() and not isinstance(self.key_format, (TextFormat, BytesFormat)):
            raise InvalidArgument("key_format", self.key_format, 'A key is a column as "bytes" or "text".')

    def _decoder(self, broken: BrokenRecords) -> MessageDecoder:
        return ColumnDecoder(self.format, self.key_format, broken, self.schema, self.metadata)
