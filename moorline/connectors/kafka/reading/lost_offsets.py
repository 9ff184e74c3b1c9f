"""The offset that a partition is to be read from is not there: is it an error, or where does the reading go on?"""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from moorline.api.sources import SourceContext
from moorline.connectors.kafka.client import KafkaCluster
from moorline.connectors.kafka.places import Partition
from moorline.connectors.kafka.topics import LEVELS, known_offset
from moorline.errors import OffsetsLost

#: What messages are counted as that were gone before they were read.
LOST = "lost_records"
#: How long the question for the offsets of a partition may take.
_ANSWER_SECONDS = 5.0


class LostOffsets:
    """The treatment of a partition whose offset is gone, as the user wants it: ``fail``, ``earliest`` or ``latest``."""

    def __init__(self, cluster: KafkaCluster, ctx: SourceContext, isolation: str, wish: str) -> None:
        self._cluster, self._ctx, self._isolation, self._wish = cluster, ctx, isolation, wish

    def go_on(self, place: Partition, split: str, wanted: int) -> int:
        """The offset to go on with. Raises OffsetsLost, or KafkaException if the cluster does not answer."""
        first, end = self._bounds(TopicPartition(*place))
        if first <= wanted <= end:
            return wanted
        lost = OffsetsLost(f"{self._cluster.address}: {split}", wanted, first, end)
        if self._wish == "fail":
            raise lost
        found = first if self._wish == "earliest" else end
        self._ctx.counters[LOST] = self._ctx.counters.get(LOST, 0) + max(0, found - wanted)
        self._ctx.notice(LOST, f"{lost} It goes on with offset {found}.")
        return found

    def _bounds(self, place: TopicPartition) -> tuple[int, int]:
        """The first offset of a partition, and the one behind the last that may be read."""
        # A client of its own: an older one may ask with an epoch from before the broker was started again.
        admin, level = AdminClient(self._cluster.settings({})), LEVELS[self._isolation]
        both = [
            admin.list_offsets({place: spec}, isolation_level=level, request_timeout=_ANSWER_SECONDS)[place]
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        ]
        first, end = (known_offset(answer.result().offset) for answer in both)
        return first, end
