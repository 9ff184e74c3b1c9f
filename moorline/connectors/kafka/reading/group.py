"""The offsets of complete checkpoints, shown in a consumer group: for tools that watch how far a job is behind.

Nothing depends on them. They are written beside the consumer, whose own commits would hold up its end while no broker
answers. What passes is tried again; what does not is a warning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from moorline.connectors.kafka.client import is_lasting, kafka_error
from moorline.connectors.kafka.places import Partition

_ANSWER_SECONDS = 10.0
_PAUSE_SECONDS = 0.5
#: At the end of a reader, for offsets that are on their way.
_LAST_SECONDS = 2.0


class GroupOffsets:
    """The offsets that one reader shows."""

    def __init__(self, group: str, admin: Callable[[], AdminClient], warn: Callable[[str], None]) -> None:
        self._group, self._admin, self._warn = group, admin, warn
        #: What is to be shown, and what is on its way.
        self._wanted: list[TopicPartition] = []
        self._under_way: tuple[Future[Any], list[TopicPartition]] | None = None
        self._next = 0.0

    def show(self, offsets: Mapping[Partition, int]) -> None:
        """Show these, in place of earlier ones that are not shown yet."""
        self._wanted = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        self.look()

    def look(self) -> None:
        """Go on, without waiting."""
        if self._under_way is not None:
            self._take_answer()
        if self._under_way is None and self._wanted and time.monotonic() >= self._next:
            asked = ConsumerGroupTopicPartitions(self._group, self._wanted)
            (answer,) = self._admin().alter_consumer_group_offsets([asked], request_timeout=_ANSWER_SECONDS).values()
            self._under_way, self._wanted = (answer, self._wanted), []

    def close(self) -> None:
        """Give offsets that are on their way a moment to arrive."""
        give_up = time.monotonic() + _LAST_SECONDS
        while (self._under_way is not None or self._wanted) and (left := give_up - time.monotonic()) > 0:
            if self._under_way is not None:
                wait([self._under_way[0]], left)
            else:
                time.sleep(min(left, _PAUSE_SECONDS))
            self.look()

    def _take_answer(self) -> None:
        assert self._under_way is not None
        answer, offsets = self._under_way
        if not answer.done():
            return
        self._under_way = None
        error = _error_of(answer)
        if error is None:
            return
        if is_lasting(error) or error.code() == KafkaError.UNKNOWN_MEMBER_ID:
            used = " Its members would have to go first." if error.code() == KafkaError.UNKNOWN_MEMBER_ID else ""
            self._warn(f"offsets cannot be shown in the group {self._group!r}: {error.name()}: {error.str()}.{used}")
            return
        self._wanted = self._wanted or offsets
        self._next = time.monotonic() + _PAUSE_SECONDS


def _error_of(answer: Future[Any]) -> KafkaError | None:
    """The error of the whole answer, or of the first partition that has one."""
    failed = answer.exception()
    if isinstance(failed, KafkaException):
        return kafka_error(failed)
    if failed is not None:
        raise failed
    return next((at.error for at in answer.result().topic_partitions if at.error is not None), None)
