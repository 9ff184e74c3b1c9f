"""A source that computes its records: record number ``i`` is ``function(i)``.

The numbers are dealt out to a fixed number of splits, whatever the parallelism, so that a restored job finds
every number exactly once at any parallelism:

    split s of n yields    s, s + n, s + 2n, …        its position is the next number of it

A reader takes a run of numbers from one of its splits, then a run from the next, so that none falls behind.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Never, overload

from moorline.api.sources import Source, SourceContext, SourceReader, SplitId
from moorline.api.type_parameters import A, T_co
from moorline.errors import InvalidArgument, RestoreError
from moorline.model.copying.closed_functions import keeps_nothing
from moorline.model.copying.copies import copies_of
from moorline.model.options import checks_options

#: Enough for small clusters; a job with more source subtasks than splits leaves some of them without work.
DEFAULT_SPLITS = 8


# For type checkers: a function of which nothing is known; one of dicts, whose values are of several types; any other.
@overload
def generate(
    function: Callable[[int], Never],
    *,
    count: int | None = None,
    splits: int | None = None,
    rate: float | None = None,
) -> Source[Any]: ...
@overload
def generate(
    function: Callable[[int], dict[str, Any]],
    *,
    count: int | None = None,
    splits: int | None = None,
    rate: float | None = None,
) -> Source[dict[str, Any]]: ...
@overload
def generate(
    function: Callable[[int], A],
    *,
    count: int | None = None,
    splits: int | None = None,
    rate: float | None = None,
) -> Source[A]: ...
@checks_options()
def generate(
    function: Callable[[int], Any],
    *,
    count: int | None = None,
    splits: int | None = None,
    rate: float | None = None,
) -> Source[Any]:
    """Generate ``function(0)``, ``function(1)``, … up to ``count`` records, or without end.

    ``splits`` (8 unless given) is how many subtasks can share the work; it must stay the same for the life of
    the job, because positions are kept per split. Within a split the order is kept. ``rate`` is the number of
    records per second of the whole source, shared evenly among the splits; a source that was held up catches up
    on one second at most. The function must give the same record for the same number each time: after a failure
    it is asked again.

    >>> reader = generate(lambda i: i * i, count=5, splits=2).open(
    ...     SourceContext(uid="squares", subtask=0, parallelism=1, attempt=1))
    >>> reader.read(10), reader.read(10), reader.read(10)
    ([0, 4, 16], [1, 9], None)
    """
    return Generator(function, count=count, splits=splits, rate=rate)


class Generator(Source[T_co]):
    """See :func:`generate`."""

    def __init__(
        self,
        function: Callable[[int], T_co],
        *,
        count: int | None = None,
        splits: int | None = None,
        rate: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not callable(function):
            raise InvalidArgument("function", function, "Give a function from the record's number to the record.")
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            raise InvalidArgument("count", count, "Give a number of records, or None for no end.")
        if splits is not None and (not isinstance(splits, int) or isinstance(splits, bool) or splits < 1):
            raise InvalidArgument("splits", splits, "Give a whole number from 1.")
        if rate is not None and not 0 < rate < float("inf"):
            raise InvalidArgument("rate", rate, "Give a number of records per second above 0, or None for no limit.")
        self.function = function
        self.count = count
        self.is_bounded = count is not None
        self.splits = DEFAULT_SPLITS if splits is None else splits
        self.rate = rate
        self.clock = clock

    def open(self, ctx: SourceContext) -> SourceReader[T_co]:
        """A reader of those splits that are this subtask's."""
        self._check(ctx)
        return GeneratorReader(self, ctx)

    def _check(self, ctx: SourceContext) -> None:
        restored = ctx.positions
        if not restored:
            return
        fits = set(restored) == set(range(self.splits))
        if not fits or any(position % self.splits != split for split, position in restored.items()):
            raise RestoreError(
                f"source {ctx.uid!r} has {self.splits} splits, but the snapshot holds the positions of "
                f"{len(restored)} splits, which does not fit. Give it the splits= it had when the snapshot was taken."
            )


class GeneratorReader(SourceReader[Any]):
    """The reader of a subtask's splits."""

    def __init__(self, source: Generator[Any], ctx: SourceContext) -> None:
        self._uid = ctx.uid
        self._function, self._keeps_nothing = source.function, keeps_nothing(source.function)
        self._step = source.splits
        self._end = source.count
        self._next: dict[SplitId, int] = {s: ctx.positions.get(s, s) for s in range(source.splits) if ctx.owns(s)}
        #: Splits with numbers left; the first one is next.
        self._turns = deque(s for s, number in self._next.items() if self._end is None or number < self._end)
        self._clock = source.clock
        self._rate = None if source.rate is None else source.rate * len(self._next) / source.splits
        self._checked = self._clock()
        self._due = 0.0

    def read(self, limit: int) -> list[Any] | None:
        if not self._turns:
            return None
        if self._rate is not None:
            limit = min(limit, self._allowance(self._rate))
            if limit <= 0:
                return []
        split = self.split = self._turns[0]
        start = self._next[split]
        stop = start + limit * self._step
        if self._end is not None and stop >= self._end:
            stop = self._end
        records = self._made(range(start, stop, self._step))
        # Only now: if the function raised, nothing was read.
        self._next[split] = start + len(records) * self._step
        self._due -= len(records)
        self._turns.rotate(-1)
        if self._end is not None and self._next[split] >= self._end:
            self._turns.remove(split)
        return records

    def _made(self, numbers: range) -> list[Any]:
        """The records of these numbers."""
        function = self._function
        records = [function(i) for i in numbers]
        # They may be of a list that is used again.
        return records if self._keeps_nothing else copies_of(records)

    def _allowance(self, rate: float) -> int:
        now = self._clock()
        # A reader that was held up for long must not make up for all of it in one rush.
        self._due = min(self._due + (now - self._checked) * rate, max(rate, 1.0))
        self._checked = now
        return int(self._due)

    def splits(self) -> Collection[SplitId]:
        return set(self._turns)

    def positions(self) -> dict[SplitId, Any]:
        return dict(self._next)
