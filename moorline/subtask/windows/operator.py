"""Windows: records are gathered per key and window, and passed on when the window's trigger says so.

For each record and each of its windows, in this order, as in Flink's WindowOperator:

    the window is late (its clean-up time has passed)     leave it out
    it merges with others (sessions)                      on_merge, clear the triggers of those, move their contents
    add the record to the contents
    ask the trigger                                       fire, purge
    register the clean-up timer

and for each timer of a window: ask the trigger, fire, purge, and if it is clean-up time, clear everything. Clean-up
time is the window's last moment, plus the allowed lateness in event time. A record that was in no window, and is later
than the allowed lateness itself, goes to the side output for late data, or is counted.

A timer at or after clean-up time cleans up, and any other timer sees to it that there is one for clean-up time. So a
job may be restored with another allowed lateness, and no window is kept for ever.

Where nothing can fire before the end of a window, the records of a batch are gathered by key and window first
(:meth:`WindowOperator._gathered`), and state and timers are touched once for each of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

from moorline.api.functions.base import Function
from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.states import State
from moorline.api.windows.assigners import AlignedWindows, Span, Window, window_of
from moorline.api.windows.functions import ProcessWindowFunction
from moorline.api.windows.joins import IntervalSpec
from moorline.api.windows.streams import WindowSpec
from moorline.api.windows.triggers import CONTINUE, EventTimeTrigger, ProcessingTimeTrigger, TriggerResult
from moorline.errors import MoorlineError, TimestampMissing
from moorline.model.copies import copy_of
from moorline.model.times import MAX_TIME
from moorline.protocol.merging import Merge, merge
from moorline.state.backend import NO_KEY, CurrentKey, Namespace
from moorline.state.guards import bound
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, user_code_failed
from moorline.subtask.operators.function import FunctionOperator
from moorline.subtask.operators.interval_join import IntervalJoinOperator
from moorline.subtask.operators.process import FIRED_RECORDS
from moorline.subtask.operators.runtime_context import RuntimeContext
from moorline.subtask.operators.timers import Timers
from moorline.subtask.windows.contents import Aggregated, Collected, Evicted, Reduced, Sides, contents_of
from moorline.subtask.windows.contexts import FunctionScope, StateStore, TriggerScope
from moorline.subtask.windows.merging import WindowSets
from moorline.subtask.windows.results import WindowResults, calling


def window_operator(place: OperatorContext, runtime_context: RuntimeContext) -> ChainedOperator:
    """The operator of kind ``window``: windows, or a join by distance in time."""
    if isinstance(place.operator.options["window"], IntervalSpec):
        return IntervalJoinOperator(place, runtime_context)
    return WindowOperator(place, runtime_context)


class WindowOperator(FunctionOperator):
    """Windows over one keyed input, or over two that are joined."""

    def __init__(self, place: OperatorContext, runtime_context: RuntimeContext) -> None:
        super().__init__(place, runtime_context)
        assert self.backend is not None
        self._spec: WindowSpec = self.operator.options["window"]
        self._assigner, self._trigger = self._spec.assigner, self._spec.trigger
        self._is_event_time = self._assigner.is_event_time
        self._lateness_ms = self._spec.lateness_ms if self._is_event_time else 0
        #: Does a window fire at its end, and before that never? Then its trigger need not be asked.
        self._is_plain = type(self._trigger) is (EventTimeTrigger if self._is_event_time else ProcessingTimeTrigger)
        self._timers = Timers(self.operator.uid, self.moment, self.wall_ms, self.backend, self._fire)
        #: Which window the states of triggers and functions belong to, and which one the contents.
        self._scope = CurrentKey()
        self._contents_scope = CurrentKey() if self._assigner.is_merging else self._scope
        self._results = WindowResults(self)
        self._window: tuple[Span, Window] = ((0, 0), window_of((0, 0)))

    def open(self) -> None:
        super().open()
        backend, spec, uid = self.backend, self._spec, self.operator.uid
        assert backend is not None
        if isinstance(spec.combine, Function):
            spec.combine.open(self._runtime_context)

        def in_window(descriptor: StateDescriptor, prefix: str) -> State:
            # States of triggers and of functions must not meet each other, nor those per key.
            return backend.bind(replace(descriptor, name=prefix + descriptor.name), self._scope)

        def guarded_in_window(descriptor: StateDescriptor) -> State:
            return bound(descriptor, uid, self._scope, partial(in_window, prefix="window."))  # type: ignore[no-any-return]

        def bind_contents(descriptor: StateDescriptor) -> State:
            scope = self._contents_scope
            return bound(descriptor, uid, scope, partial(backend.bind, scope=scope))  # type: ignore[no-any-return]

        self._contents = contents_of(spec, self.function, bind_contents)
        self._sets = WindowSets(backend) if self._assigner.is_merging else None
        trigger_states = {n: in_window(d, "trigger.") for n, d in self._trigger.states().items()}
        self._trigger_scope = TriggerScope(uid, self._timers, self._scope, trigger_states)
        per_window = {d.name: guarded_in_window(d) for d in getattr(self.function, "window_states", ())}
        per_key = {d.name: self._runtime_context.bind(d) for d in getattr(self.function, "global_states", ())}
        self._function_scope = FunctionScope(
            self._timers, StateStore(uid, per_window), StateStore(uid, per_key), self._results.divert
        )
        self._call = calling(self.function, self._function_scope, uid)
        self._clear_function = self.function.clear if isinstance(self.function, ProcessWindowFunction) else None
        self._run = self._chosen()
        # A window that fires once is gone with what its function has made of the elements. (A reduction and an
        # aggregation are no window functions: their results are copied as all results are.)
        fires_once = self._is_plain and not self._lateness_ms
        is_combined = spec.combine is None and spec.contents in ("reduce", "aggregate")
        is_copied = isinstance(self._contents, Evicted)
        self._hands_out_copies = self.own is not None and not (fires_once or is_combined or is_copied)

    def close(self) -> None:
        super().close()
        if isinstance(self._spec.combine, Function):
            self._spec.combine.close()

    def _chosen(self) -> Any:
        """How the records of a batch are gone through."""
        if self._sets is not None:
            return self._merging
        if isinstance(self._assigner, AlignedWindows) and self._is_plain and self._spec.evictor is None:
            return self._gathered
        return self._one_by_one

    # --- records ---------------------------------------------------------------------------------

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        assert self.backend is not None
        if timestamps is None and self._is_event_time and records:
            raise TimestampMissing(self.operator.uid, f"{records[0]!r:.500}")
        keys, iterator = self._begin(self.operator.key_selector(side), records), iter(records)
        try:
            self._run(iterator, timestamps or repeat(None), keys, side)
        except Exception as error:
            raise self.failure(error, records, iterator) from error
        finally:
            self._leave()
        self.records_in += len(records)
        self._pass_on()

    def _one_by_one(self, records: Iterator[Any], timestamps: Iterable[Any], keys: list[Any], side: int) -> None:
        """Any trigger, and windows that do not merge."""
        assert self.backend is not None
        current, now = self.backend.current, None if self._is_event_time else self.moment.processing_ms
        pane_of = self._assigner.pane if isinstance(self._assigner, AlignedWindows) else None
        first = end = 0
        live: Sequence[Span] = ()
        for key, record, timestamp in zip(keys, records, timestamps):
            time = timestamp if now is None else now
            if pane_of is None:
                live = self._live(self._assigner.spans(record, time))
            elif not first <= time < end:
                first, end, spans = pane_of(time)
                live = self._live(spans)
            current.key = key
            if live:
                self._element(key, record, timestamp, live, side)
            else:
                self._late(record, timestamp)

    def _gathered(self, records: Iterator[Any], timestamps: Iterable[Any], keys: list[Any], side: int) -> None:
        """Windows that follow from the time alone, and fire at their end: nothing can happen to them before."""
        assert self.backend is not None
        assert isinstance(self._assigner, AlignedWindows)
        current, scope, pane_of = self.backend.current, self._scope, self._assigner.pane
        now = None if self._is_event_time else self.moment.processing_ms
        watermark = self.moment.watermark
        contents = self._contents
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
        copies = self.own is not None
        for key, record, timestamp in zip(keys, records, timestamps):
            time = timestamp if now is None else now
            if not first <= time < end:
                first, end, spans = pane_of(time)
                live = self._live(spans)
                is_over = now is None and any(span[1] <= watermark + 1 for span in live)
            if not live:
                self._late(record, timestamp)
                continue
            if is_over:
                # A late record for a window that has fired: it fires again, at once.
                self._write(pending, side)
                current.key = key
                self._element(key, record, timestamp, live, side)
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
                    pending[ident] = combine(record, create() if gathered is None else gathered)  # type: ignore[misc]
                else:
                    pending[ident] = record if gathered is None else combine(gathered, record)  # type: ignore[misc]
        self._write(pending, side)

    def _write(self, pending: dict[tuple[Any, Span], Any], side: int) -> None:
        """Put what was gathered into state, and set the timers."""
        contents, scope = self._contents, self._scope
        put: Any
        if isinstance(contents, (Reduced, Aggregated)):
            put = contents.state.update
        else:
            assert isinstance(contents, (Collected, Sides))
            put = (contents.sides[side] if isinstance(contents, Sides) else contents).state.add_all
        register = self._timers.event.register if self._is_event_time else self._timers.processing.register
        for ident, gathered in pending.items():
            scope.key = ident
            put(gathered)
            key, span = ident
            # The timer for clean-up time, if that is later, follows from this one.
            register(span[1] - 1, key, span)
        pending.clear()

    def _merging(self, records: Iterator[Any], timestamps: Iterable[Any], keys: list[Any], side: int) -> None:
        """Sessions."""
        assert self.backend is not None and self._sets is not None
        current, sets, add = self.backend.current, self._sets, self._contents.add
        now = None if self._is_event_time else self.moment.processing_ms
        register = (self._timers.event if now is None else self._timers.processing).register
        # A window that ends later than this is neither late nor over.
        over = self.moment.watermark + 1 if now is None else now + 1
        for key, record, timestamp in zip(keys, records, timestamps):
            current.key = key
            is_late = True
            for span in self._assigner.spans(record, timestamp if now is None else now):
                windows = sets.of(key)
                found = merge(windows, span)
                window = found.window
                if window[1] <= over and not self._live((window,)):
                    continue
                is_late = False
                if found.ended:
                    self._end_merged(key, found)
                if window not in windows:
                    sets.merge(key, found)
                self._contents_scope.key = (key, found.contents)
                if self._is_plain and window[1] > over:
                    add(record, timestamp, side)
                    register(window[1] - 1, key, window)
                else:
                    self._element(key, record, timestamp, (window,), side)
            if is_late:
                self._late(record, timestamp)

    def _end_merged(self, key: Any, found: Merge) -> None:
        """Several windows have become one, or one has grown."""
        scope, trigger = self._trigger_scope, self._trigger
        scope.key, scope.span, scope.ended = key, found.window, found.ended
        self._scope.key = (key, found.window)
        trigger.on_merge(window_of(found.window), scope)
        scope.ended = ()
        timers = self._timers.event if self._is_event_time else self._timers.processing
        for span in found.ended:
            scope.span = span
            self._scope.key = (key, span)
            trigger.clear(window_of(span), scope)
            timers.delete(self._clean_up_time(span), key, span)
        contents = self._contents
        for span in found.moved:
            self._contents_scope.key = (key, span)
            taken = contents.take()
            self._contents_scope.key = (key, found.contents)
            contents.absorb(taken)

    def _element(self, key: Any, record: Any, timestamp: int | None, spans: Sequence[Span], side: int) -> None:
        """Add a record to some windows and ask the trigger of each. The scope of merged contents is set."""
        scope, contents, asked = self._scope, self._contents, self._trigger_scope
        self.moment.timestamp = timestamp
        is_shared = len(spans) > 1 and self.own is not None
        for span in spans:
            scope.key = (key, span)
            contents.add(copy_of(record) if is_shared else record, timestamp, side)
            asked.key, asked.span = key, span
            window = self._window_of(span)
            result = self._trigger.on_element(record, timestamp, window, asked)
            if result is not CONTINUE:
                self._obey(result, key, window)
            self._clean_up_later(key, span)

    def _window_of(self, span: Span) -> Window:
        known, window = self._window
        if known != span:
            window = window_of(span)
            self._window = span, window
        return window

    def _live(self, spans: Sequence[Span]) -> Sequence[Span]:
        """Those that still take records."""
        if not self._is_event_time:
            return spans
        watermark = self.moment.watermark
        return [span for span in spans if self._clean_up_time(span) > watermark]

    def _late(self, record: Any, timestamp: int | None) -> None:
        """A record that is in no window: late, unless there are gaps between windows."""
        if timestamp is None or timestamp + self._spec.lateness_ms > self.moment.watermark or not self._is_event_time:
            return
        if self._spec.late_tag is None:
            late_ms = self.moment.watermark - timestamp - self._spec.lateness_ms
            self.drop_late(late_ms, "Give allowed_lateness(...), or side_output_late_data(...) to keep them.")
        else:
            self._results.divert(self._spec.late_tag.name, record, timestamp)

    # --- time ------------------------------------------------------------------------------------

    def watermark(self, time: int) -> None:
        self.moment.watermark = time  # before the timers, which may ask for it
        self.moment.processing_ms = max(self.moment.processing_ms, self.wall_ms())
        self._timers.advance(time)
        self._pass_on()
        self.moment.passed = time
        self._pass_watermark(time)

    def end_key(self) -> None:
        self._timers.end_key()
        self._pass_on()

    def next_tick_ms(self) -> int | None:
        return self._timers.processing.next_time()

    def tick(self, now_ms: int) -> None:
        self.moment.processing_ms = max(self.moment.processing_ms, now_ms)
        self._timers.advance_clock(now_ms)
        self._pass_on()

    def _fire(self, domain: str, time: int, key: Any, namespace: Namespace) -> None:
        assert namespace is not None
        # As for any timer: what a clock of processing time makes has no place in event time.
        self.moment.timestamp = time if domain == "event" else None
        try:
            self._timer(domain, time, key, namespace)
        except MoorlineError:
            raise
        except Exception as error:
            what = f"window [{namespace[0]},{namespace[1]}) of key {key!r:.200}"
            raise user_code_failed(self.operator, self.subtask, error, -1, what) from error
        finally:
            self._leave()
        if len(self._results) >= FIRED_RECORDS:
            self._pass_on()

    def _timer(self, domain: str, time: int, key: Any, span: Span) -> None:
        contents_span = span
        if self._sets is not None:
            known = self._sets.of(key).get(span)
            if known is None:
                return  # of a window that has become another: its trigger has left a timer behind
            contents_span = known
        self._scope.key = (key, span)
        self._contents_scope.key = (key, contents_span)
        asked, is_event = self._trigger_scope, domain == "event"
        asked.key, asked.span = key, span
        window = self._window_of(span)
        ask = self._trigger.on_event_time if is_event else self._trigger.on_processing_time
        result = ask(time, window, asked)
        if result is not CONTINUE:
            self._obey(result, key, window)
        if is_event is self._is_event_time:
            if time >= self._clean_up_time(span):
                self._clear(key, span, window)
            else:
                self._clean_up_later(key, span)

    def _clean_up_time(self, span: Span) -> int:
        time = span[1] - 1 + self._lateness_ms
        # A window that ends with time itself, as the global one does, is never cleaned up.
        return time if time < MAX_TIME - 1 else MAX_TIME

    def _clean_up_later(self, key: Any, span: Span) -> None:
        time = self._clean_up_time(span)
        if time < MAX_TIME:
            (self._timers.event if self._is_event_time else self._timers.processing).register(time, key, span)

    # --- what a trigger decides ------------------------------------------------------------------

    def _obey(self, result: TriggerResult, key: Any, window: Window) -> None:
        if result.fires:
            assert self.backend is not None
            elements, shown = self._contents.elements(window), self.backend.identities.shown
            if elements is not None:
                if self._hands_out_copies and not result.purges:
                    elements = copy_of(elements)
                self._results.extend(self._call(shown(key), window, elements), window.max_timestamp())
        if result.purges:
            self._contents.clear()

    def _clear(self, key: Any, span: Span, window: Window) -> None:
        """A window is gone for good."""
        self._contents.clear()
        self._trigger.clear(window, self._trigger_scope)
        if self._clear_function is not None:
            self._function_scope.at(window)
            self._clear_function(self._function_scope)
        if self._sets is not None:
            self._sets.retire(key, span)

    # --- passing on ------------------------------------------------------------------------------

    def _leave(self) -> None:
        """No record is being processed any more."""
        assert self.backend is not None
        self.backend.current.key = self._scope.key = self._contents_scope.key = NO_KEY
        self.moment.timestamp = None

    def _pass_on(self) -> None:
        assert self.backend is not None
        if self._sets is not None:
            self._sets.store()
        self.backend.flush()
        out, stamps, side = self._results.taken(self.operator.uid)
        self.emit(out, stamps or None)
        for tag, (values, times) in side.items():
            self._give(self.side_targets.get(tag, []), values, times)
