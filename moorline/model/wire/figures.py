"""The figures that a subtask reports with each sign of life, per operator of its chain and of its process.

All counts are sums since the attempt began, so a report that is lost or late does no harm: a rate is what two reports
differ by (``driver/observation/rates.py``). They are parts of :class:`moorline.model.wire.messages.Progress`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

#: Kinds of metrics that users define (``api/metrics.py``).
MetricKind = Literal["counter", "gauge", "meter", "distribution", "histogram"]


class UserMetric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metric that a user's function defines, as it stands in one subtask."""

    kind: MetricKind
    #: Without the labels that are part of its key.
    name: str = ""
    #: Of a counter and a gauge; of a meter its rate per second.
    value: float = 0.0
    #: Of a meter, a distribution and a histogram: how many; of the latter two also their sum, least and greatest.
    count: int = 0
    sum: float = 0.0
    min: float = 0.0
    max: float = 0.0
    #: Of a histogram: pairs of an upper bound and how many values are not above it.
    buckets: list[tuple[float, int]] = []
    #: Groups that it is in, as pairs of name and value.
    labels: list[tuple[str, str]] = []

    def plus(self, other: UserMetric) -> UserMetric:
        """The same metric over two subtasks: counts and values are added up, the least and greatest are kept."""
        counted = [m for m in (self, other) if m.count] or [self]
        return msgspec.structs.replace(
            self,
            value=self.value + other.value,
            count=self.count + other.count,
            sum=self.sum + other.sum,
            min=min(m.min for m in counted),
            max=max(m.max for m in counted),
            buckets=[(bound, n + k) for (bound, n), (_, k) in zip(self.buckets, other.buckets)],
        )


class HotKey(msgspec.Struct, frozen=True, kw_only=True):
    """One of the keys that get the most records in one subtask, as a sample shows."""

    #: Encoded.
    key: bytes
    #: The share of the records of this operator in this subtask.
    share: float


class OperatorFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operator in one subtask."""

    uid: str
    records_in: int = 0
    #: What it has passed on, side outputs among it. Of a sink: what it has taken.
    records_out: int = 0
    #: The last watermark that it has passed on, in milliseconds since 1970; None: there was none, or the stream ended.
    watermark: int | None = None
    #: Has it passed on the end of time?
    has_ended: bool = False
    #: The event time of the last record that a source, or the operator that assigns timestamps, has passed on.
    event_time: int | None = None
    #: Keys with state, over all states, and by the name of the state. On RocksDB and in outside stores an estimate.
    keys: int = 0
    states: dict[str, int] = {}
    #: Timers that wait, as far as they can be counted.
    timers: int = 0
    #: Figures of the backend that differ from one to the other: ``rocksdb_memory_bytes``.
    backend: dict[str, int] = {}
    #: Figures of a source by partition: ``records_behind`` by ``payments-0``.
    splits: dict[str, dict[str, int]] = {}
    #: Users' own, by name.
    metrics: dict[str, UserMetric] = {}
    #: Of the last half minute to minute: records with a key per second, and the keys that get most of them.
    keyed_per_second: float = 0.0
    hot_keys: list[HotKey] = []


class ProcessFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The process of one subtask."""

    rss_bytes: int = 0
    #: Time on a processor, of all its threads.
    cpu_ms: int = 0
    gc_collections: int = 0
    gc_ms: int = 0
