"""Windows: records are gathered per key and window, and passed on when the window's trigger says so.

For each record and each of its windows, in this order, as in Flink's WindowOperator:

    the window is late (its clean-up time has passed)     leave it out
    it merges with others (sessions)                      on_merge, clear the triggers of those, move their contents
    add the record to the contents
    ask the trigger                                       fire, purge
    register the clean-up timer

and for each timer of a window: ask the trigger, fire, purge, and if it is clean-up time, clear everything. A record
that was in no window, and is later than the allowed lateness itself, goes to the side output for late data, or is
counted.

    batches.py    ways to go through the records of a batch
    firing.py     one window: its trigger, firing, merging, clean-up
    at_end.py     windows that fire at their end, those that end together at once
    lifetimes.py  when a window is late, and when it is cleaned up
    merging.py    the windows of a key, where windows merge
    contents.py   the records of a window until it fires
    results.py    calling the user's function, and its results until they are passed on
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

from moorline.api.functions.base import Function
from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.states import State
from moorline.api.windows.assigners import AlignedWindows, Span
from moorline.api.windows.joins import IntervalSpec
from moorline.api.windows.streams import WindowSpec
from moorline.api.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger
from moorline.errors import MoorlineError, TimestampMissing
from moorline.state.backend import NO_KEY, CurrentKey, Namespace
from moorline.state.guards import bound
from moorline.state.heap.timers import HeapTimers
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, user_code_failed
from moorline.subtask.operators.function import FunctionOperator
from moorline.subtask.operators.interval_join import IntervalJoinOperator
from moorline.subtask.operators.process import FIRED_RECORDS
from moorline.subtask.operators.runtime_context import RuntimeContext
from moorline.subtask.operators.timers import Timers
from moorline.subtask.windows.at_end import EndingWindows
from moorline.subtask.windows.batches import WindowParts, gathered, merging, one_by_one
from moorline.subtask.windows.contents import Contents, Evicted, contents_of
from moorline.subtask.windows.contexts import FunctionScope, StateStore, TriggerScope
from moorline.subtask.windows.firing import Firing
from moorline.subtask.windows.lifetimes import Lifetimes
from moorline.subtask.windows.merging import WindowSets
from moorline.subtask.windows.results import WindowFunctionCall, WindowResults


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
        self._timers = Timers(self.operator.uid, self.moment, self.wall_ms, self.backend, self._fire)
        self._lifetimes = Lifetimes(self._spec, self.moment, self._timers)
        self._results = WindowResults(self)

    def open(self) -> None:
        super().open()
        backend, spec = self.backend, self._spec
        assert backend is not None
        if isinstance(spec.combine, Function):
            spec.combine.open(self._runtime_context)
        is_merging = spec.assigner.is_merging
        scope = CurrentKey()
        contents_scope = CurrentKey() if is_merging else scope
        contents = contents_of(spec, self.function, self._binding(contents_scope), self.operator.uid)
        self._sets = WindowSets(backend) if is_merging else None
        trigger_scope = self._trigger_scope(scope)
        at_end = EventTimeTrigger if self._lifetimes.is_event_time else ProcessingTimeTrigger
        fires_at_end = type(spec.trigger) is at_end
        self._firing = Firing(
            self,
            self._lifetimes,
            contents,
            self._sets,
            (scope, contents_scope),
            spec.trigger,
            trigger_scope,
            self._function_call(scope, contents, fires_at_end),
        )
        parts = WindowParts(
            self,
            spec.assigner,
            self._lifetimes,
            self._firing,
            contents,
            backend.current,
            self._late,
            fires_at_end,
            self._sets,
        )
        self._run = partial(self._way(fires_at_end), parts)
        self._ending: EndingWindows | None = None
        if fires_at_end and self._sets is None and isinstance(self._lifetimes.timers, HeapTimers):
            is_result = spec.combine is None and spec.evictor is None
            self._ending = EndingWindows(
                self._firing, self._lifetimes, contents, self._results, backend.current, is_result
            )

    def _binding(self, scope: CurrentKey, prefix: str = "") -> Callable[[StateDescriptor], State]:
        """Binds a state to the window that ``scope`` points at, and checks what is put there."""
        backend, uid = self.backend, self.operator.uid
        assert backend is not None

        def bind(descriptor: StateDescriptor) -> State:
            return backend.bind(replace(descriptor, name=prefix + descriptor.name) if prefix else descriptor, scope)

        return lambda descriptor: bound(descriptor, uid, scope, bind)

    def _trigger_scope(self, scope: CurrentKey) -> TriggerScope:
        backend = self.backend
        assert backend is not None
        # States of triggers and of functions must not meet each other, nor those per key.
        states = {
            name: backend.bind(replace(descriptor, name="trigger." + descriptor.name), scope)
            for name, descriptor in self._spec.trigger.states().items()
        }
        return TriggerScope(self.operator.uid, self._timers, scope, states)

    def _function_call(self, scope: CurrentKey, contents: Contents, fires_at_end: bool) -> WindowFunctionCall:
        assert self.backend is not None
        spec, uid, bind = self._spec, self.operator.uid, self._binding(scope, "window.")
        per_window = {d.name: bind(d) for d in getattr(self.function, "window_states", ())}
        per_key = {d.name: self._runtime_context.bind(d) for d in getattr(self.function, "global_states", ())}
        function_scope = FunctionScope(
            self._timers, StateStore(uid, per_window), StateStore(uid, per_key), self._results.divert
        )
        # A window that fires once is gone with what its function has made of the elements. (A reduction and an
        # aggregation are no window functions: their results are copied as all results are.)
        fires_once = fires_at_end and not self._lifetimes.lateness_ms
        is_combined = spec.combine is None and spec.contents in ("reduce", "aggregate")
        is_copied = isinstance(contents, Evicted)
        copies = self.own is not None and not (fires_once or is_combined or is_copied)
        shown = self.backend.identities.shown
        return WindowFunctionCall(self.function, function_scope, uid, shown, self._results, copies)

    def _way(self, fires_at_end: bool) -> Callable[..., None]:
        """The way to go through the records of a batch."""
        if self._sets is not None:
            return merging
        is_aligned = isinstance(self._spec.assigner, AlignedWindows)
        return gathered if is_aligned and fires_at_end and self._spec.evictor is None else one_by_one

    def close(self) -> None:
        super().close()
        if isinstance(self._spec.combine, Function):
            self._spec.combine.close()

    # --- records ---------------------------------------------------------------------------------

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        if timestamps is None and self._lifetimes.is_event_time and records:
            raise TimestampMissing(self.operator.uid, f"{records[0]!r:.500}")
        keys, iterator = self._begin(self.operator.key_selector(side), records), iter(records)
        try:
            self._run(iterator, timestamps or repeat(None), keys, side)
        except Exception as error:  # the user's code
            raise self.failure(error, records, iterator) from error
        finally:
            self._leave()
        self.records_in += len(records)
        self._pass_on()

    def _late(self, record: Any, timestamp: int | None) -> None:
        """See to a record that is in no window: late, unless there are gaps between windows."""
        late_ms = self._lifetimes.late_by(timestamp)
        if late_ms is None or timestamp is None:
            return
        if self._spec.late_tag is None:
            self.drop_late(late_ms, "Give allowed_lateness(...), or side_output_late_data(...) to keep them.")
        else:
            self._results.divert(self._spec.late_tag.name, record, timestamp)

    # --- time ------------------------------------------------------------------------------------

    def watermark(self, time: int) -> None:
        self.moment.watermark = time  # before the timers, which may ask for it
        self.moment.processing_ms = max(self.moment.processing_ms, self.wall_ms())
        if self._ending is not None and self._lifetimes.is_event_time:
            self._end_windows(self._ending, time)
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
        if self._ending is not None and not self._lifetimes.is_event_time:
            self._end_windows(self._ending, now_ms)
        self._timers.advance_clock(now_ms)
        self._pass_on()

    def _end_windows(self, ending: EndingWindows, up_to: int) -> None:
        """Fire the timers of windows up to a time, those of each time together."""
        is_event, timers = self._lifetimes.is_event_time, self._lifetimes.timers
        assert isinstance(timers, HeapTimers)
        while (due := timers.pop_due_all(up_to, FIRED_RECORDS)) is not None:
            time, items = due
            # As for any timer: what a clock of processing time makes has no place in event time.
            self.moment.timestamp = time if is_event else None
            try:
                ending.on_timers(time, items)
            except MoorlineError:
                raise
            except Exception as error:  # the user's code
                where = _place(self._firing.scope.key)
                raise user_code_failed(self.operator, self.subtask, error, -1, where) from error
            finally:
                self._leave()
            if len(self._results) >= FIRED_RECORDS:
                self._pass_on()

    def _fire(self, domain: str, time: int, key: Any, namespace: Namespace) -> None:
        assert namespace is not None
        is_event = domain == "event"
        # As for any timer: what a clock of processing time makes has no place in event time.
        self.moment.timestamp = time if is_event else None
        try:
            self._firing.on_timer(is_event, time, key, namespace)
        except MoorlineError:
            raise
        except Exception as error:  # the user's code
            where = _place((key, namespace))
            raise user_code_failed(self.operator, self.subtask, error, -1, where) from error
        finally:
            self._leave()
        if len(self._results) >= FIRED_RECORDS:
            self._pass_on()

    # --- passing on ------------------------------------------------------------------------------

    def _leave(self) -> None:
        """No record is being processed any more."""
        assert self.backend is not None
        self.backend.current.key = NO_KEY
        self._firing.leave()
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


def _place(ident: tuple[Any, Span]) -> str:
    key, (start, end) = ident
    return f"window [{start},{end}) of key {key!r:.200}"
