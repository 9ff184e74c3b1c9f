"""The keys of an operator that get the most records: a sample of its records says so.

To count every record by its key would cost for each of them. So one of so many is looked at, some fifty per second, and
which one is a matter of chance: every record is as likely to be looked at as any other, in whatever order the keys
come. A batch in which nothing is looked at costs one comparison. Counts are of the last half minute to minute.

Operators call :meth:`KeySample.see` for every batch, ``subtask/progress.py`` asks now and then. Both do so on the
subtask's thread.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

#: So many records are looked at in a second.
PER_SECOND = 50
#: Counts are kept for so long, and those of the span before as long again.
SPAN_MS = 30_000
#: The rate, and with it the step from one record to the next, is found anew after so long; the answer too.
STEP_MS = 2_000
#: So many looks in that time, and the step is doubled: there are more records than before.
MOST_LOOKS = 4 * PER_SECOND * STEP_MS // 1_000
#: A key that was seen less often may owe that to chance.
LEAST_SEEN = 20
#: So many keys are counted in a span: a burst may bring more of them than the step was made for.
MOST_KEYS = 4_000


@dataclass(frozen=True)
class KeyShare:
    """One key, as its identity, and about how many of the records it gets."""

    key: Any
    share: float


@dataclass
class _Span:
    """The keys that were seen in one stretch of time."""

    began_ms: float
    #: How many records there had been before.
    records: int = 0
    #: By key, how many records those that were looked at stand for.
    counts: dict[Any, int] = field(default_factory=dict)


class KeySample:
    """A sample of the keys of one operator in one subtask.

    >>> sample = KeySample()
    >>> sample.look(0.0)
    >>> for _ in range(60):
    ...     sample.see(["ada", "bob", "ada", "cy", "ada"])
    >>> sample.look(2_000.0)
    >>> [(hot.key, hot.share) for hot in sample.hottest], sample.per_second
    ([('ada', 0.6), ('bob', 0.2), ('cy', 0.2)], 150.0)
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        #: One of so many is looked at, and so many are passed over before the next.
        self._every, self._wait = 1, 0
        #: How often a record was looked at with this step.
        self._looks = 0
        self._records = 0
        self._span = _Span(-math.inf)
        self._before: _Span | None = None
        self._looked_ms, self._looked_records = 0.0, 0
        #: The most frequent keys, and how many records with a key there are per second.
        self.hottest: list[KeyShare] = []
        self.per_second = 0.0

    def see(self, keys: Sequence[Any] | Numbers, places: Numbers | None = None) -> None:
        """Take note of the keys of a batch. With ``places`` a record has that one of the keys."""
        count, at = len(keys) if places is None else len(places), self._wait
        self._records += count
        if at < count:
            at = self._look_at(keys, places, at, count)
        self._wait = at - count

    def _look_at(self, keys: Any, places: Any, at: int, count: int) -> int:
        counts, random = self._span.counts, self._random
        while at < count:
            every = self._every
            key = keys[at if places is None else places[at]]
            if isinstance(key, np.generic):
                key = key.item()
            if key in counts:
                counts[key] += every
            elif len(counts) < MOST_KEYS:
                counts[key] = every
            self._looks += 1
            if self._looks == MOST_LOOKS:
                self._every, self._looks = 2 * every, 0
            at += random.randrange(1, 2 * self._every)  # the step, on average
        return at

    def look(self, now_ms: float, top: int = 10) -> None:
        """Find the most frequent keys, if it is time to."""
        if self._span.began_ms == -math.inf:  # what came before the clock was known counts for nothing
            self._span, self._looked_ms = _Span(now_ms, self._records), now_ms
        if (since_ms := now_ms - self._looked_ms) < STEP_MS:
            return
        rate = 1_000 * (self._records - self._looked_records) / since_ms
        self._looked_ms, self._looked_records = now_ms, self._records
        self._find(now_ms, top)
        self._every, self._looks = max(1, round(rate / PER_SECOND)), 0
        if now_ms - self._span.began_ms >= SPAN_MS:
            self._before, self._span = self._span, _Span(now_ms, self._records)

    def _find(self, now_ms: float, top: int) -> None:
        spans = [span for span in (self._before, self._span) if span is not None]
        counts: dict[Any, int] = dict(spans[0].counts)
        for span in spans[1:]:
            for key, count in span.counts.items():
                counts[key] = counts.get(key, 0) + count
        total, least = sum(counts.values()), LEAST_SEEN * self._every
        best = heapq.nlargest(top, counts.items(), key=lambda item: item[1])
        self.hottest = [KeyShare(key, round(count / total, 4)) for key, count in best if count >= least]
        seconds = (now_ms - spans[0].began_ms) / 1_000
        self.per_second = round((self._records - spans[0].records) / seconds, 1) if seconds > 0 else 0.0
