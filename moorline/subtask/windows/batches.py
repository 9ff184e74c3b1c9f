"""Ways to go through the records of a batch, each for some kinds of windows and triggers.

    one_by_one   any trigger, and windows that do not merge
    gathered     nothing can fire before the end of a window: state and timers are touched once per key and window
    merging      sessions

Each leaves out windows that are late, and has a record that is in no window at all seen to by ``late``. The iterator of
the records stands at the one that is being processed, which is how an error finds its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from moorline.api.windows.assigners import AlignedWindows, Span, WindowAssigner
from moorline.model.copying.copies import copy_of
from moorline.protocol.merging import merge
from moorline.state.backend import CurrentKey
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


def gathered(parts: WindowParts, records: Iterator[Any], timestamps: Iterable[Any], keys: list[Any], side: int) -> None:
    """Gather records by key and window, for windows that follow from the time alone and fire at their end."""
    assert isinstance(parts.assigner, AlignedWindows)
    current, scope, pane_of = parts.current, parts.firing.scope, parts.assigner.pane
    moment = parts.operator.moment
    now = None if parts.lifetimes.is_event_time else moment.processing_ms
    watermark = moment.watermark
    contents = parts.contents
    folds, is_aggregate = isinstance(contents, (Reduced, Aggregated)), isinstance(contents, Aggregated)
    combine, create, value = (
        getattr(contents, "combine", None),
        getattr(contents, "create", None),
        contents.state.value if isinstance(contents, (Reduced, Aggregated)) else None,
    )
    #: Per key and window: what its contents will be, or the records that will be added to them.
    pending: dict[tuple[Any, Span], Any] = {}
    pending_of = pending.get
    first = end = 0
    live: Sequence[Span] = ()
    is_over = False
    #: Is each of several windows to have a copy of a record that can change?
    copies = parts.operator.own is not None
    for key, record, timestamp in zip(keys, records, timestamps):
        time = timestamp if now is None else now
        if not first <= time < end:
            first, end, spans = pane_of(time)
            live = parts.lifetimes.live(spans)
            is_over = now is None and any(span[1] <= watermark + 1 for span in live)
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
            ident = (key, span)
            gathered = pending_of(ident)
            if not folds:
                if gathered is None:
                    pending[ident] = [record]
                else:
                    gathered.append(record)
                continue
            if gathered is None:
                scope.key = ident
                gathered = value()  # type: ignore[misc]
            if is_aggregate:
                made = combine(record, create() if gathered is None else gathered)  # type: ignore[misc]
            else:
                made = record if gathered is None else combine(gathered, record)  # type: ignore[misc]
            if made is None:
                raise contents.nothing()  # type: ignore[attr-defined]
            pending[ident] = made
    _write(parts, pending, side)


def _write(parts: WindowParts, pending: dict[tuple[Any, Span], Any], side: int) -> None:
    """Put what was gathered into state, and set the timers."""
    contents, scope = parts.contents, parts.firing.scope
    put: Any
    if isinstance(contents, (Reduced, Aggregated)):
        put = contents.state.update
    else:
        assert isinstance(contents, (Collected, Sides))
        put = (contents.sides[side] if isinstance(contents, Sides) else contents).state.add_all
    register = parts.lifetimes.timers.register
    for ident, gathered in pending.items():
        scope.key = ident
        put(gathered)
        key, span = ident
        # The timer for clean-up time, if that is later, follows from this one.
        register(span[1] - 1, key, span)
    pending.clear()


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
