"""Process functions: one input or two, with or without a key, with timers, side outputs and broadcast state.

Each input is a *side* with its own method, context and key selector:

    process              0  process_element
    co_process           0  process_element1          1  process_element2
    broadcast_process    0  process_element           1  process_broadcast_element

What is made from a record carries the record's timestamp; what a timer makes carries the timer's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from moorline.api.functions.base import KeyedProcessFunction, OutputTag
from moorline.api.functions.connected import (
    CoFlatMapFunction,
    CoMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from moorline.api.functions.overrides import similar_method
from moorline.api.state.descriptors import MapStateDescriptor, StateDescriptor
from moorline.api.state.states import MapState, State
from moorline.api.streams import describe
from moorline.errors import MoorlineError, TimerWithoutHandler, UnknownState
from moorline.model.copying.immutable import IMMUTABLE
from moorline.model.graph import OperatorKind
from moorline.state.backend import NO_KEY, CurrentKey, KeyedBackend, Namespace
from moorline.subtask.operators.base import OperatorContext, take, user_code_failed
from moorline.subtask.operators.function import FunctionOperator
from moorline.subtask.operators.runtime_context import RuntimeContext
from moorline.subtask.operators.timers import Clock, Timers
from moorline.subtask.operators.yields import has_tags, is_tagged, many, many_of_element, no_tag

#: What timers make is passed on when there is so much of it.
FIRED_RECORDS = 2048
#: What a function has that has not written its own.
_NO_ON_TIMER = {KeyedProcessFunction.on_timer, KeyedCoProcessFunction.on_timer, KeyedBroadcastProcessFunction.on_timer}


class ElementContext:
    """The context of ``process_element``."""

    def __init__(self, operator: ProcessOperator) -> None:
        self._operator, self._moment, self._clock = operator, operator.moment, operator.clock
        self._backend = operator.backend
        self.side: dict[str, list[Any]] = {}
        self.side_stamps: dict[str, list[int]] = {}
        #: In ``on_timer``: whose timer it is.
        self.time_domain = ""

    def output(self, tag: OutputTag, value: Any) -> None:
        own = self._operator.own
        if own is not None and type(value) not in IMMUTABLE:
            value = own(None, value)
        self.keep(tag, value)

    def keep(self, tag: OutputTag, value: Any) -> None:
        """Keep a value that nothing else holds for a side output."""
        try:
            name = tag.name
        except AttributeError:
            raise no_tag(self._operator.operator.uid, tag) from None
        self.side.setdefault(name, []).append(value)
        if self._moment.timestamp is not None:
            self.side_stamps.setdefault(name, []).append(self._moment.timestamp)

    def timestamp(self) -> int | None:
        return self._moment.timestamp

    def timer_service(self) -> Clock:
        return self._clock

    @property
    def current_key(self) -> Any:
        return None if self._backend is None else self._backend.identities.shown(self._backend.current.key)

    def get_current_key(self) -> Any:
        return self.current_key


class BroadcastSideContext(ElementContext):
    """The context of one of the two sides of a broadcast function: the broadcast side may write."""

    _operator: BroadcastOperator

    def __init__(self, operator: BroadcastOperator, may_write: bool) -> None:
        super().__init__(operator)
        self._may_write = may_write

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return self._operator.state.broadcast_view(descriptor.name, self._may_write)

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, State], None]) -> None:
        self._operator.apply_to_keyed_state(descriptor.name, function)


@dataclass
class Side:
    """One input of a process function."""

    element: Callable[[Any, Any], Iterable[Any] | None]
    context: ElementContext
    key_of: Callable[[Any], Any] | None


class ProcessOperator(FunctionOperator):
    """process, with or without a key, with one input or two."""

    def __init__(self, place: OperatorContext, runtime_context: RuntimeContext) -> None:
        super().__init__(place, runtime_context)
        self.clock = Clock(self.operator.uid, self.moment, self.wall_ms)
        self._timers: Timers | None = None
        if self.backend is not None:
            self._timers = Timers(self.operator.uid, self.moment, self.wall_ms, self.backend, self._fire)
            self.clock = self._timers
        self._fired: list[Any] = []
        self._fired_stamps: list[int] = []
        #: Can there be ``tag, value`` among what is not passed on yet?
        self._may_be_tagged = False

    def open(self) -> None:
        super().open()
        self._sides = self._make_sides()
        self._context = self._sides[0].context
        on_timer = getattr(self.function, "on_timer", None)
        if on_timer is None or getattr(on_timer, "__func__", on_timer) in _NO_ON_TIMER:
            self._on_timer = None
            if self._timers is not None:
                self._timers.refuse_new_ones(self._no_on_timer)
        else:
            self._on_timer = many(on_timer, self.operator.uid, "on_timer")

    def _no_on_timer(self) -> TimerWithoutHandler:
        similar = similar_method(self.function, "on_timer")
        return TimerWithoutHandler(self.operator.uid, describe(self.function), similar)

    def _make_sides(self) -> list[Side]:
        context = ElementContext(self)
        f, uid = self.function, self.operator.uid
        methods: list[Callable[[Any, Any], Any]]
        if isinstance(f, CoMapFunction):
            methods = [lambda value, ctx: (f.map1(value),), lambda value, ctx: (f.map2(value),)]
        elif isinstance(f, CoFlatMapFunction):
            first, second = (many(m, uid, m.__name__, may_be_tuple=True) for m in (f.flat_map1, f.flat_map2))
            methods = [lambda value, ctx: first(value), lambda value, ctx: second(value)]
        else:
            names = (
                ["process_element"]
                if self.operator.kind in (OperatorKind.PROCESS, OperatorKind.AGGREGATE)
                else ["process_element1", "process_element2"]
            )
            methods = [many_of_element(getattr(f, name, f), uid, name) for name in names]
        return [Side(m, context, self.operator.key_selector(n)) for n, m in enumerate(methods)]

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        this = self._sides[side]
        out: list[Any] = []
        stamps: list[int] | None = None
        iterator: Any = iter(records)
        keys = None if this.key_of is None else self._begin(this.key_of, records)
        try:
            if timestamps is not None:
                stamps = self._stamped(this, iterator, timestamps, keys, out)
            else:
                self._unstamped(this, iterator, keys, out)
        except Exception as error:  # the user's code
            raise self.failure(error, records, iterator) from error
        finally:
            if self.backend is not None:
                self.backend.current.key = NO_KEY
        if self.backend is not None:
            self.backend.flush()
        self.records_in += len(records)
        self._pass_on(out, stamps)

    def _unstamped(self, this: Side, records: Iterable[Any], keys: list[Any] | None, out: list[Any]) -> None:
        element, context, append = this.element, this.context, out.append
        own, immutable = self.own, IMMUTABLE
        # Without a key there is nothing that could be asked for the current one.
        current = self.backend.current if self.backend is not None and keys is not None else CurrentKey()
        for current.key, record in zip(keys or repeat(NO_KEY), records):
            results = element(record, context)
            if results is None:
                continue
            if own is None:
                out.extend(results)
                continue
            # As in take(), spelled out: a call for each record would cost more than all that it does.
            for value in results:
                cls = type(value)
                if cls is tuple:
                    for part in value:
                        if type(part) not in immutable:
                            self._may_be_tagged = True
                            if type(part) is OutputTag:
                                continue
                            part = None
                            value = own(results, value)
                            break
                elif cls not in immutable:
                    value = own(results, value)
                append(value)

    def _stamped(
        self, this: Side, records: Iterable[Any], timestamps: list[int], keys: list[Any] | None, out: list[Any]
    ) -> list[int]:
        element, context, moment = this.element, this.context, self.moment
        own, immutable, append = self.own, IMMUTABLE, out.append
        current = self.backend.current if self.backend is not None and keys is not None else CurrentKey()
        stamps: list[int] = []
        try:
            for current.key, record, timestamp in zip(keys or repeat(NO_KEY), records, timestamps):
                moment.timestamp = timestamp
                results = element(record, context)
                if results is None:
                    continue
                if own is None:
                    out.extend(results)
                    stamps += (len(out) - len(stamps)) * (timestamp,)
                    continue
                for value in results:
                    cls = type(value)
                    if cls is tuple:
                        for part in value:
                            if type(part) not in immutable:
                                self._may_be_tagged = True
                                if type(part) is OutputTag:
                                    continue
                                part = None
                                value = own(results, value)
                                break
                    elif cls not in immutable:
                        value = own(results, value)
                    append(value)
                    stamps.append(timestamp)
        finally:
            moment.timestamp = None
        return stamps

    def _pass_on(self, out: list[Any], stamps: list[int] | None) -> None:
        if (self._may_be_tagged or self.own is None) and has_tags(out):
            out, stamps = self._divert(out, stamps)
        self._may_be_tagged = False
        self.emit(out, stamps or None)
        for context in {id(s.context): s.context for s in self._sides}.values():
            if context.side:
                side, context.side = context.side, {}
                side_stamps, context.side_stamps = context.side_stamps, {}
                for tag, values in side.items():
                    self._give(self.side_targets.get(tag, []), values, side_stamps.get(tag))

    def _divert(self, out: list[Any], stamps: list[int] | None) -> tuple[list[Any], list[int] | None]:
        """``yield tag, value`` means a side output, as in PyFlink."""
        kept: list[Any] = []
        kept_stamps: list[int] = []
        for number, value in enumerate(out):
            if is_tagged(value, self.operator.uid):
                self.moment.timestamp = stamps[number] if stamps else None
                self._context.keep(*value)
                self.moment.timestamp = None
            else:
                kept.append(value)
                if stamps:
                    kept_stamps.append(stamps[number])
        return kept, kept_stamps if stamps else None

    # --- time ------------------------------------------------------------------------------------

    def watermark(self, time: int) -> None:
        self.moment.watermark = time  # before the timers, which may ask for it
        if self._timers is not None:
            self.moment.processing_ms = max(self.moment.processing_ms, self.wall_ms())
            self._timers.advance(time)
            self._pass_on_fired()
        self.moment.passed = time
        self._pass_watermark(time)

    def end_key(self) -> None:
        if self._timers is not None:
            self._timers.end_key()
            self._pass_on_fired()

    def next_tick_ms(self) -> int | None:
        return None if self._timers is None else self._timers.processing.next_time()

    def tick(self, now_ms: int) -> None:
        if self._timers is not None:
            self.moment.processing_ms = max(self.moment.processing_ms, now_ms)
            self._timers.advance_clock(now_ms)
            self._pass_on_fired()

    def _fire(self, domain: str, time: int, key: Any, namespace: Namespace) -> None:
        if self._on_timer is None:
            return
        context = self._context
        context.time_domain = domain
        # What a processing-time timer makes has no place in event time.
        self.moment.timestamp = time if domain == "event" else None
        try:
            results = self._on_timer(time, context)
            if results is not None:
                self._may_be_tagged |= take(results, self._fired, self.own)
        except MoorlineError as error:
            raise self.noted(error, f"a timer of key {key!r:.200}") from error.__cause__
        except Exception as error:  # the user's code
            raise user_code_failed(self.operator, self.subtask, error, -1, f"a timer of key {key!r:.200}") from error
        finally:
            self.moment.timestamp = None
        if domain == "event":
            self._fired_stamps += (len(self._fired) - len(self._fired_stamps)) * (time,)
        if len(self._fired) >= FIRED_RECORDS:
            self._pass_on_fired()

    def _pass_on_fired(self) -> None:
        assert self.backend is not None
        self.backend.flush()
        out, self._fired = self._fired, []
        stamps, self._fired_stamps = self._fired_stamps, []
        self._pass_on(out, stamps or None)


class BroadcastOperator(ProcessOperator):
    """A stream, keyed or not, beside a broadcast one."""

    def open(self) -> None:
        for descriptor in self.operator.options["broadcast"]:
            self.state.broadcast_state(descriptor)
        super().open()

    def _make_sides(self) -> list[Side]:
        read, write = BroadcastSideContext(self, False), BroadcastSideContext(self, True)
        f, uid = self.function, self.operator.uid
        element = many_of_element(f.process_element, uid, "process_element")
        broadcast = many_of_element(f.process_broadcast_element, uid, "process_broadcast_element")
        return [Side(element, read, self.operator.key_selector(0)), Side(broadcast, write, None)]

    def apply_to_keyed_state(self, name: str, function: Callable[[Any, State], None]) -> None:
        """Call ``function(key, state)`` for every key of this subtask that has something in a state."""
        backend: KeyedBackend | None = self.backend
        known = self._runtime_context.live
        if backend is None or name not in known:
            raise UnknownState(self.operator.uid, name, tuple(known))
        self.moment.processing_ms = max(self.moment.processing_ms, self.wall_ms())
        try:
            for key in backend.keys(name):
                identity = backend.identities.of(key)
                backend.prefetch((identity,))
                backend.current.key = identity
                function(key, known[name])
        finally:
            backend.current.key = NO_KEY
