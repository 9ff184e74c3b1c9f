"""Which partitions are read? The driver looks now and then, and hands out those that are new.

    split       topic/partition
    position    the next offset; if reading has an end, the next offset and the end
    state       the topics that were handed out: their ids, and how many partitions

At the first start partitions begin where the user says. Those that come later begin with their first message: it was
written after the job was started, so leaving it out would lose it.
"""

from __future__ import annotations

import logging
from typing import Any

from moorline.api.sources import EnumeratorContext, Positions, SplitEnumerator
from moorline.connectors.kafka.places import Partition, Place
from moorline.connectors.kafka.topics import Topic, TopicQueries
from moorline.errors import RestoreError, SnapshotCorrupt, StorageError

log = logging.getLogger("moorline")


class PartitionEnumerator(SplitEnumerator):
    """The finder of partitions."""

    def __init__(
        self,
        queries: TopicQueries,
        address: str,
        ctx: EnumeratorContext,
        *,
        start: Place,
        end: Place | None,
        on_lost_offsets: str,
        interval_ms: int,
    ) -> None:
        self._queries, self._address, self._start, self._end = queries, address, start, end
        self._on_lost_offsets, self.interval_ms = on_lost_offsets, interval_ms
        self._is_first = ctx.restored is None
        self._topics: dict[str, Topic] = {}
        #: Topics of a pattern that were there before, and those that have lost partitions.
        self._gone: set[str] = set()
        self._fewer: set[str] = set()
        if ctx.restored is not None:
            self._topics, had_end = _restored(ctx.restored)
            if had_end is not (end is not None):
                raise RestoreError(
                    f"the source {ctx.uid!r} was reading {'up to an end' if had_end else 'without an end'} when the "
                    f"snapshot was taken. Give it the end= it had; to read up to another end, begin anew with start=."
                )

    def discover(self) -> Positions | None:
        if self._end is not None and not self._is_first:
            return None
        found = self._queries.find()
        self._compare(found)
        fresh = [
            (name, number) for name, topic in found.items() for number in range(self._known(name), topic.partitions)
        ]
        positions = self._positions(fresh)
        # Whole or not at all: an error on the way leaves what is known as it was.
        for name, topic in found.items():
            self._topics[name] = Topic(topic.id, max(topic.partitions, self._known(name)))
        self._is_first = False
        return positions

    def snapshot(self) -> dict[str, Any]:
        topics = {name: [topic.id, topic.partitions] for name, topic in sorted(self._topics.items())}
        return {"topics": topics, "end": self._end is not None}

    def _positions(self, fresh: list[Partition]) -> Positions:
        start = self._start if self._is_first else Place(word="earliest")
        if self._is_first:
            self._start.check("start", fresh)
        offsets = self._queries.offsets(fresh, start)
        if self._end is None:
            return {split_of(at): offset for at, offset in offsets.items()}
        self._end.check("end", fresh)
        ends = self._queries.offsets(fresh, self._end)
        # A partition with nothing in it up to its end has been read.
        return {split_of(at): [offset, ends[at]] for at, offset in offsets.items() if offset < ends[at]}

    def _known(self, topic: str) -> int:
        """The number of partitions of a topic that were handed out."""
        return self._topics[topic].partitions if topic in self._topics else 0

    def _compare(self, found: dict[str, Topic]) -> None:
        """Notice topics that are gone, or are not the ones they were."""
        for name, before in self._topics.items():
            now = found.get(name)
            if now is None and name not in self._gone:
                self._gone.add(name)
                self._lost(f"the topic {name} is gone, of which {before.partitions} partitions are read")
            if now is not None:
                self._gone.discard(name)
                if before.id and now.id and now.id != before.id:
                    self._lost(
                        f"the topic {name} was deleted and created anew: offsets of the old one mean nothing in it"
                    )
                elif now.partitions < before.partitions and name not in self._fewer:
                    # A cluster without ids: no topic loses partitions.
                    self._fewer.add(name)
                    self._lost(
                        f"the topic {name} has {now.partitions} partitions and had {before.partitions}: it was deleted "
                        "and created anew"
                    )

    def _lost(self, cause: str) -> None:
        if self._on_lost_offsets == "fail":
            advice = 'Begin anew, or go on with what is there: on_lost_offsets="earliest"'
            raise StorageError(self._address, "go on reading", f"{cause}. {advice}", can_pass=False)
        log.warning("%s: %s. The job goes on with what is there", self._address, cause)


def split_of(partition: Partition) -> str:
    """The split of a partition.

    >>> split_of(("orders", 3)), partition_of("orders/3")
    ('orders/3', ('orders', 3))
    """
    return f"{partition[0]}/{partition[1]}"


def partition_of(split: Any) -> Partition:
    """The partition of a split."""
    topic, _, number = str(split).rpartition("/")
    if not topic or not (number.isascii() and number.isdigit()) or int(number) >= 2**31:
        raise SnapshotCorrupt("the manifest", f"{split!r:.80} is not a partition of a topic")
    return topic, int(number)


def _restored(state: Any) -> tuple[dict[str, Topic], bool]:
    match state:
        case {"topics": dict(topics), "end": bool(had_end)} if all(map(_is_topic, topics.items())):
            return {name: Topic(identity, partitions) for name, (identity, partitions) in topics.items()}, had_end
    raise SnapshotCorrupt("the manifest", f"{state!r:.80} is not what was known of topics")


def _is_topic(item: tuple[Any, Any]) -> bool:
    match item:
        case (str(), [str(), int(partitions)]):
            return partitions >= 0
    return False
