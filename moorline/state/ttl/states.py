"""Live states whose content expires: the user's five interfaces over a backend's plain state.

The plain state holds :data:`Stamped` elements. Value, reducing and aggregating states lie over a plain value state; in
lists and maps every element has a stamp of its own (``state/ttl/collections.py``). What is expired, and which
stamp is written, is decided in ``protocol/expiry.py``; what is never asked for again is removed by
``state/ttl/sweep.py``. A backend calls :func:`expiring` when it binds a state with a time to live.

These methods run for every record. So they are closures, and a value's read and write by the clock spell the rules
out: calling them would cost half as much again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from moorline.api.functions.base import ReduceFunction
from moorline.api.state.combining import AggregatingState, ReducingState
from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.api.state.states import State, ValueState
from moorline.model.copying.copies import copy_of
from moorline.model.durations import Duration
from moorline.protocol.expiry import after_read, is_expired, later
from moorline.state.backend import CurrentKey, OperatorClock
from moorline.state.ttl.collections import ExpiringListState, ExpiringMapState
from moorline.state.ttl.rules import Rules, Stamped, judged_at, length_of

__all__ = ["Stamped", "expiring", "judged_at"]


def expiring(
    descriptor: StateDescriptor,
    inner: State,
    moment: OperatorClock,
    current: CurrentKey,
    sweep: Callable[[], Iterator[Any]] | None = None,
    peek: Callable[[Any], Any] | None = None,
) -> State:
    """The state of ``descriptor``, which has a time to live, over ``inner``, which holds :data:`Stamped` elements.

    ``inner`` is a plain list or map state for those kinds and a plain value state for the others; its default is None.
    ``current`` is the current key that ``inner`` looks at.

    ``sweep`` begins an iteration over all keys of the state, in the form they have in ``current``; it should survive
    changes of the state, and may give keys that are gone. ``peek`` gives what is stored under a key (an element, a
    list or a dict of them; None: nothing) to be looked at for a moment, without a copy and without counting as a
    change. Without the two the backend removes what is expired in its own way.
    """
    config = descriptor.ttl_config
    assert config is not None
    rules = Rules(config, moment, current, sweep, peek)
    match descriptor:
        case ValueStateDescriptor():
            return ExpiringValueState(descriptor, inner, rules)
        case ListStateDescriptor():
            return ExpiringListState(descriptor, inner, rules)
        case MapStateDescriptor():
            return ExpiringMapState(descriptor, inner, rules)
        case ReducingStateDescriptor():
            return ExpiringReducingState(descriptor, inner, rules)
        case AggregatingStateDescriptor():
            return ExpiringAggregatingState(descriptor, inner, rules)
    raise ValueError(f"no state of kind {descriptor.kind!r}")


class _Cell(NamedTuple):
    """One stamped value per key: what value, reducing and aggregating state have in common."""

    read: Callable[[], Any]
    #: What can be seen now, and the stamp of what replaces it.
    before_write: Callable[[], tuple[Any, int | None]]
    write: Callable[..., None]
    put: Callable[[Stamped], None]
    clear: Callable[[], None]


def _cell(inner: Any, rules: Rules) -> _Cell:
    """The functions of one state, by its clock."""
    get, put, clear, length = inner.value, inner.update, inner.clear, rules.length

    def tidy(now: int) -> None:
        stamped = get()
        if stamped is not None:
            value, last, own = stamped
            if last is None:
                put((value, now, own))
            elif is_expired(last, own or length, now):
                clear()

    turn, sweep_some = rules.sweep(tidy, of_collections=False)
    make = _cell_in_event_time if rules.is_event_time else _cell_by_the_clock
    return make(inner, rules, turn, sweep_some)


def _cell_in_event_time(inner: Any, rules: Rules, turn: Callable[[], bool], sweep_some: Callable[[], None]) -> _Cell:
    get, put, clear = inner.value, inner.update, inner.clear
    length, reads_count, shows_expired, times = rules.length, rules.reads_count, rules.shows_expired, rules.times
    removable_at = rules.removable_at

    def read() -> Any:
        if turn():
            sweep_some()
        stamped = get()
        if stamped is None:
            return None
        value, last, own = stamped
        now, touch = times()
        if is_expired(last, own or length, now):
            if is_expired(last, own or length, removable_at(now)):
                clear()
            return value if shows_expired else None
        stamp = after_read(last, touch, now, reads_count)
        if stamp != last:
            put((value, stamp, own))
        return value

    def before_write() -> tuple[Any, int | None]:
        if turn():
            sweep_some()
        now, touch = times()
        stamped = get()
        if stamped is None:
            return None, touch
        value, last, own = stamped
        if is_expired(last, own or length, now):
            return value if shows_expired else None, touch
        return value, later(last, touch, now)

    def write(value: Any, *, ttl: Duration | None = None) -> None:
        if value is None:
            clear()
        else:
            put((value, before_write()[1], None if ttl is None else length_of(ttl)))

    return _Cell(read, before_write, write, put, clear)


def _cell_by_the_clock(inner: Any, rules: Rules, turn: Callable[[], bool], sweep_some: Callable[[], None]) -> _Cell:
    get, put, clear = inner.value, inner.update, inner.clear
    length, reads_count, shows_expired, moment = rules.length, rules.reads_count, rules.shows_expired, rules.moment

    def read() -> Any:
        if turn():
            sweep_some()
        stamped = get()
        if stamped is None:
            return None
        value, last, own = stamped
        now = moment.processing_ms
        if last is None:
            put((value, now, own))
        elif last + (own or length) <= now:
            clear()
            return value if shows_expired else None
        elif reads_count and now > last:
            put((value, now, own))
        return value

    def before_write() -> tuple[Any, int | None]:
        if turn():
            sweep_some()
        now = moment.processing_ms
        stamped = get()
        if stamped is None:
            return None, now
        value, last, own = stamped
        if last is None or shows_expired or last + (own or length) > now:
            return value, now
        return None, now

    def write(value: Any, *, ttl: Duration | None = None) -> None:
        if turn():
            sweep_some()
        if value is None:
            clear()
        else:
            put((value, moment.processing_ms, None if ttl is None else length_of(ttl)))

    return _Cell(read, before_write, write, put, clear)


class ExpiringValueState(ValueState[Any]):
    """A value that expires, and is its default again."""

    def __init__(self, descriptor: ValueStateDescriptor, inner: Any, rules: Rules) -> None:
        super().__init__(descriptor.type, default=descriptor.default, name=descriptor.name, ttl=descriptor.ttl)
        cell = _cell(inner, rules)
        self.value, self.update, self.clear = cell.read, cell.write, cell.clear  # type: ignore[method-assign]
        if descriptor.default is not None:
            self.value = _or_default(cell.read, descriptor.default)  # type: ignore[method-assign]


def _or_default(read: Callable[[], Any], default: Any) -> Callable[[], Any]:
    """``read``, but the default for None: one of one's own if it could be changed in place."""
    is_shared = copy.deepcopy(default) is default

    def value() -> Any:
        value = read()
        if value is not None:
            return value
        return default if is_shared else copy.deepcopy(default)

    return value


class ExpiringReducingState(ReducingState[Any]):
    """A reduction that expires as a whole."""

    def __init__(self, descriptor: ReducingStateDescriptor, inner: Any, rules: Rules) -> None:
        super().__init__(descriptor.type, descriptor.reduce, name=descriptor.name, ttl=descriptor.ttl)
        cell = _cell(inner, rules)
        read, before_write, put = cell.read, cell.before_write, cell.put
        reduce = descriptor.reduce
        combine = reduce.reduce if isinstance(reduce, ReduceFunction) else reduce

        def add(value: Any, *, ttl: Duration | None = None) -> None:
            before, stamp = before_write()
            reduced = value if before is None else combine(before, value)
            put((reduced, stamp, None if ttl is None else length_of(ttl)))

        def get() -> Any:
            return copy_of(read())  # the next reduction may be made in place

        self.get, self.add, self.clear = get, add, cell.clear  # type: ignore[method-assign]


class ExpiringAggregatingState(AggregatingState[Any, Any]):
    """An accumulator that expires as a whole."""

    def __init__(self, descriptor: AggregatingStateDescriptor, inner: Any, rules: Rules) -> None:
        assert descriptor.aggregate is not None
        super().__init__(descriptor.type, descriptor.aggregate, name=descriptor.name, ttl=descriptor.ttl)
        cell = _cell(inner, rules)
        read, before_write, put = cell.read, cell.before_write, cell.put
        aggregate = descriptor.aggregate

        def get() -> Any:
            accumulator = read()
            return None if accumulator is None else copy_of(aggregate.get_result(accumulator))

        def add(value: Any, *, ttl: Duration | None = None) -> None:
            accumulator, stamp = before_write()
            if accumulator is None:
                accumulator = copy_of(aggregate.create_accumulator())
            put((aggregate.add(value, accumulator), stamp, None if ttl is None else length_of(ttl)))

        self.get, self.add, self.clear = get, add, cell.clear  # type: ignore[method-assign]
