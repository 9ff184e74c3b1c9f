"""Ways to go through the records of a batch, each for some kinds of windows and triggers.

    one_by_one   any trigger, and windows that do not merge
    gathered     nothing can fire before the end of a window: state and timers are touched once per key and window
    merging      sessions

Each leaves out windows that are late, and has a record that is in no window at all seen to by ``late``. The iterator of
the records stands at the one that is being processed, which is how an error finds its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from moorline.api.windows.assigners import AlignedWindows, Span, WindowAssigner
from moorline.model.copying.copies import copy_of
from moorline.protocol.merging import merge
from moorline.state.backend import CurrentKey
from moorline.state.heap.states import HeapValueState
from moorline.state.heap.timers import HeapTimers
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.windows.contents import Aggregated, Collected, Contents, Reduced, Sides
from moorline.subtask.windows.firing import Firing
from moorline.subtask.windows.lifetimes import Lifetimes
from moorline.subtask.windows.merging import WindowSets


@dataclass(frozen=True)
class WindowParts:
    """The parts of a window operator that all ways through a batch need."""

    operator: ChainedOperator
    assigner: WindowAssigner[Any]
    lifetimes: Lifetimes
    firing: Firing
    contents: Contents
    #: The key that states belong to.
    current: CurrentKey
    #: Sees to a record that is in no window.
    late: Callable[[Any, int | None], None]
    #: Does a window fire at its end, and before that never? Then its trigger need not be asked.
    fires_at_end: bool
    #: Where windows merge.
    sets: WindowSets | None


def one_by_one(
    parts: WindowParts, records: Iterator[Any], timestamps: Iterable[Any], keys: list[Any], side: int
) -> None:
    """Process records one by one."""
    current, add, live_of = parts.current, parts.firing.add, parts.lifetimes.live
    now = None if parts.lifetimes.is_event_time else parts.operator.moment.processing_ms
    spans_of = parts.assigner.spans
    pane_of = parts.assigner.pane if isinstance(parts.assigner, AlignedWindows) else None
    first = end = 0
    live: Sequence[Span] = ()
    for key, record, timestamp in zip(keys, records, timestamps):
        time = timestamp if now is None else now
        if pane_of is None:
            live = live_of(spans_of(record, time))
        elif not first <= time < end:
            first, end, spans = pane_of(time)
            live = live_of(spans)
        current.key = key
        if live:
            add(key, record, timestamp, live, side)
        else:
            parts.late(record, timestamp)


class _Panes:
    """The windows that the times of a batch fall into, each found once."""

    def __init__(self, parts: WindowParts, now: int | None) -> None:
        assert isinstance(parts.assigner, AlignedWindows)
        self._pane_of, self._live_of, self._now = parts.assigner.pane, parts.lifetimes.live, now
        self._watermark = parts.operator.moment.watermark
        #: In the order of time, and where each begins. Records out of order go back and forth between a few.
        self._known: list[tuple[int, Sequence[Span], bool]] = []
        self._firsts: list[int] = []

    def of(self, time: int) -> tuple[int, int, Sequence[Span], bool]:
        """From when to when there are the same windows, which of them are live, and whether one has ended."""
        at = bisect_right(self._firsts, time) - 1
        if at >= 0 and time < self._known[at][0]:
            return self._firsts[at], *self._known[at]
        first, end, spans = self._pane_of(time)
        live = self._live_of(spans)
        is_over = self._now is None and any(span[1] <= self._watermark + 1 for span in live)
        self._firsts.insert(at + 1, first)
        self._known.insert(at + 1, (end, live, is_over))
        return first, end, live, is_over


def gathered(parts: WindowParts, records: Iterator[Any], timestamps: Iterable[Any], keys: list[Any], side: int) -> None:
    """Gather records by window and key, for windows that follow from the time alone and fire at their end."""
    current, scope = parts.current, parts.firing.scope
    now = None if parts.lifetimes.is_event_time else parts.operator.moment.processing_ms
    panes_of = _Panes(parts, now).of
    contents = parts.contents
    folds, is_aggregate = isinstance(contents, (Reduced, Aggregated)), isinstance(contents, Aggregated)
    combine, create = getattr(contents, "combine", None), getattr(contents, "create", None)
    value = _reading(contents, scope) if isinstance(contents, (Reduced, Aggregated)) else None
    #: Per window and key: what its contents will be, or the records that will be added to them.
    pending: dict[Span, dict[Any, Any]] = {}
    first = end = 0
    live: Sequence[Span] = ()
    is_over = False
    #: What is pending of the only live window there is.
    only: dict[Any, Any] | None = None
    span: Span = (0, 0)
    #: Is each of several windows to have a copy of a record that can change?
    copies = parts.operator.own is not None
    for key, record, timestamp in zip(keys, records, timestamps):
        time = timestamp if now is None else now
        if not first <= time < end:
            first, end, live, is_over = panes_of(time)
            only = None
            if len(live) == 1 and folds and not is_over:
                (span,) = live
                only = pending.get(span)
                if only is None:
                    only = pending[span] = {}
        if only is not None:
            # What follows below, written out for the most frequent case.
            before = only.get(key)
            if before is None:
                before = value((key, span))  # type: ignore[misc]
            if is_aggregate:
                made = combine(record, create() if before is None else before)  # type: ignore[misc]
            else:
                made = record if before is None else combine(before, record)  # type: ignore[misc]
            if made is None:
                raise contents.nothing()  # type: ignore[attr-defined]
            only[key] = made
            continue
        if not live:
            parts.late(record, timestamp)
            continue
        if is_over:
            # A late record for a window that has fired: it fires again, at once.
            _write(parts, pending, side)
            current.key = key
            parts.firing.add(key, record, timestamp, live, side)
            continue
        whole, is_shared = record, len(live) > 1 and copies and copy_of(record) is not record
        for span in live:
            if is_shared:
                record = copy_of(whole)
            of_window = pending.get(span)
            if of_window is None:
                of_window = pending[span] = {}
            before = of_window.get(key)
            if not folds:
                if before is None:
                    of_window[key] = [record]
                else:
                    before.append(record)
                continue
            if before is None:
                before = value((key, span))  # type: ignore[misc]
            if is_aggregate:
                made = combine(record, create() if before is None else before)  # type: ignore[misc]
            else:
                made = record if before is None else combine(before, record)  # type: ignore[misc]
            if made is None:
                raise contents.nothing()  # type: ignore[attr-defined]
            of_window[key] = made
    _write(parts, pending, side)


def _reading(contents: Reduced | Aggregated, scope: CurrentKey) -> Callable[[tuple[Any, Span]], Any]:
    """The function that reads the contents of a window, before more is folded into them."""
    state = contents.state
    if isinstance(state, HeapValueState):
        return state.table.entries.get  # what cannot change in place needs nothing more

    def read(ident: tuple[Any, Span]) -> Any:
        scope.key = ident
        return state.value()

    return read


def _write(parts: WindowParts, pending: dict[Span, dict[Any, Any]], side: int) -> None:
    """Put what was gathered into state, and set the timers."""
    contents, scope = parts.contents, parts.firing.scope
    put: Any
    put_all: Any = None
    if isinstance(contents, (Reduced, Aggregated)):
        put, put_all = contents.state.update, getattr(contents.state, "put_all", None)
    else:
        assert isinstance(contents, (Collected, Sides))
        put = (contents.sides[side] if isinstance(contents, Sides) else contents).state.add_all
    timers = parts.lifetimes.timers
    for span, of_window in pending.items():
        if not of_window:
            continue
        whole = {(key, span): gathered for key, gathered in of_window.items()}
        if put_all is not None and NoneType not in set(map(type, of_window.values())):
            put_all(whole)
        else:
            for scope.key, gathered in whole.items():
                put(gathered)
        # The timers for clean-up time, if that is later, follow from these.
        if isinstance(timers, HeapTimers):
            timers.register_all(span[1] - 1, whole)
        else:
            for key in of_window:
                timers.register(span[1] - 1, key, span)
        of_window.clear()  # not forgotten: the loop holds on to it


def merging(parts: WindowParts, records: Iterator[Any], timestamps: Iterable[Any], keys: list[Any], side: int) -> None:
    """Process records one by one, and merge their windows with those of their keys."""
    assert parts.sets is not None
    current, sets, add, firing = parts.current, parts.sets, parts.contents.add, parts.firing
    moment, spans_of, fires_at_end = parts.operator.moment, parts.assigner.spans, parts.fires_at_end
    now = None if parts.lifetimes.is_event_time else moment.processing_ms
    register = parts.lifetimes.timers.register
    # A window that ends later than this is neither late nor over.
    over = moment.watermark + 1 if now is None else now + 1
    for key, record, timestamp in zip(keys, records, timestamps):
        current.key = key
        is_late = True
        for span in spans_of(record, timestamp if now is None else now):
            windows = sets.of(key)
            merger = merge(windows, span)
            window = merger.window
            if window[1] <= over and not parts.lifetimes.live((window,)):
                continue
            is_late = False
            if merger.ended:
                firing.merge(key, merger)
            if window not in windows:
                sets.merge(key, merger)
            firing.contents_scope.key = (key, merger.contents)
            if fires_at_end and window[1] > over:
                add(record, timestamp, side)
                register(window[1] - 1, key, window)
            else:
                firing.add(key, record, timestamp, (window,), side)
        if is_late:
            parts.late(record, timestamp)
