"""The check that a value fits the declared type of its state, made when it is put there, on every backend alike.

On the heap a value of another type would otherwise lie there until a snapshot stores it, or for ever if there are no
checkpoints. What is checked, and when:

    the class of the value itself            always
    its parts (a tuple's fields, a dict's    the first 100 values of a state in a subtask, then one of 100:
    entries), and all of undeclared types    one that is missed is refused by the next snapshot, as before

``None`` is no int: it is refused where it is not declared (``int | None``). In a value state it clears, as in Flink.
Called by ``subtask/operators/runtime_context.py``, which gives every state of a function its life, by
``subtask/operators/operator_state.py`` for states without a key, and by ``subtask/windows/operator.py`` for what
windows keep if its type is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

from moorline.api.functions.base import AggregateFunction, ReduceFunction
from moorline.api.functions.reduce import nothing_combined
from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.errors import InvalidArgument, StateTypeMismatch
from moorline.state.backend import NO_KEY, CurrentKey
from moorline.state.map_keys import is_plain, one_of_equals
from moorline.state.types.annotations import UNFIT, stored
from moorline.state.types.composite import ListType, OptionalType, StructType
from moorline.state.types.leaf import PLAIN, ConvertedType, LeafType, StoredType

#: So many values are looked at whole, and after that one of so many.
SAMPLED = 100


class Guard:
    """The check of the values of one state, or of the keys of a map. ``current``: None if it has no key."""

    def __init__(self, uid: str, state: str, annotation: Any, current: CurrentKey | None, what: str = "value") -> None:
        self.uid, self._state, self._current, self._what = uid, state, current, what
        self._type = stored(annotation, f"state {state!r} of operator {uid!r}")
        inner = self._type.inner if isinstance(self._type, OptionalType) else self._type
        self._takes_none = inner is not self._type or inner is PLAIN
        #: A value of exactly this class needs no further look, beside the sampled one.
        self.kind = _class_of(inner)
        self.is_simple = isinstance(inner, LeafType) and self.kind is not None
        self._seen = 0

    def check(self, value: Any) -> None:
        """Raise :class:`StateTypeMismatch` if the value does not fit."""
        kind: Any = self.kind
        if type(value) is kind or (kind is None and value is not None):
            if self.is_simple:
                if kind is not int or -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
                    return
            else:
                self._seen += 1
                if self._seen > SAMPLED and self._seen % SAMPLED:
                    return
        self.look(value)

    def look(self, value: Any) -> None:
        """The same, with all parts of the value."""
        if value is None:
            if not self._takes_none:
                raise self._mismatch("None is not declared; say so with '| None' if it may be there")
            return
        try:
            self._type.lower(value)
        except UNFIT as error:
            raise self._mismatch(f"{error}") from error

    def map_key(self) -> Callable[[Any], Any]:
        """A function that checks a key of a map, and gives the one that stands for all that are stored as it is."""
        if self.is_simple and is_plain(self.kind):

            def checked(key: Any) -> Any:
                self.check(key)
                return key

            return checked

        def one(key: Any) -> Any:
            self.check(key)
            return one_of_equals(key, self._mismatch)

        return one

    def _mismatch(self, cause: str) -> StateTypeMismatch:
        key = "" if self._current is None or self._current.key is NO_KEY else f"{self._current.key!r:.200}"
        return StateTypeMismatch(self._state, self._type.name, f"{cause}", self.uid, key, self._what)


def bound(descriptor: StateDescriptor, uid: str, current: CurrentKey, bind: Callable[[StateDescriptor], Any]) -> Any:
    """The live state that ``bind`` makes of a descriptor, its writes looked at. Undeclared types are left alone."""
    if descriptor.type is object:  # type: ignore[attr-defined]
        return bind(descriptor)
    descriptor, guard = guarded(descriptor, uid, current)
    live = bind(descriptor)
    guard_writes(live, descriptor, guard, uid, current)
    return live


def guarded(descriptor: StateDescriptor, uid: str, current: CurrentKey) -> tuple[StateDescriptor, Guard]:
    """The descriptor with the results of its function looked at, and what looks at the values that are put."""
    guard = Guard(uid, descriptor.name, descriptor.type, current)  # type: ignore[attr-defined]
    if isinstance(descriptor, ReducingStateDescriptor):
        reduce = descriptor.reduce
        combine = reduce.reduce if isinstance(reduce, ReduceFunction) else reduce
        return replace(descriptor, reduce=_checked_reduce(combine, guard)), guard
    if isinstance(descriptor, AggregatingStateDescriptor):
        assert descriptor.aggregate is not None
        return replace(descriptor, aggregate=_CheckedAggregate(descriptor.aggregate, guard)), guard
    return descriptor, guard


def guard_writes(live: Any, descriptor: StateDescriptor, guard: Guard, uid: str, current: CurrentKey) -> None:
    """Have every write of a live state looked at."""
    check = guard.check
    match descriptor:
        case ValueStateDescriptor():
            live.update = _before(live.update, guard, none_clears=True)
            if hasattr(live, "put_all"):
                live.put_all = _before_many(live.put_all, live.update, guard, current)
        case ListStateDescriptor():
            live.add = _before(live.add, guard)
            live.add_all, live.update = (_before_all(write, check) for write in (live.add_all, live.update))
        case MapStateDescriptor():
            _guard_map(live, Guard(uid, descriptor.name, descriptor.key_type, current, "key of the map"), guard)
        case ReducingStateDescriptor():
            live.add = _before(live.add, guard)


def _before(write: Callable[..., None], guard: Guard, none_clears: bool = False) -> Callable[..., None]:
    """``write`` after a look at the value. What is asked of every value is written out: it runs for every record."""
    check, look, kind = guard.check, guard.look, guard.kind

    def whole_number(value: Any, ttl: Any = None) -> None:
        if type(value) is not int or not -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:  # noqa: SIM102
            if value is not None or not none_clears:
                check(value)
        write(value) if ttl is None else write(value, ttl=ttl)

    def simple(value: Any, ttl: Any = None) -> None:
        if type(value) is not kind and not (none_clears and value is None):
            check(value)
        write(value) if ttl is None else write(value, ttl=ttl)

    seen = 0

    def with_parts(value: Any, ttl: Any = None) -> None:
        nonlocal seen
        seen += 1
        due = type(value) is not kind or seen <= SAMPLED or not seen % SAMPLED
        if due and not (none_clears and value is None):
            look(value)
        write(value) if ttl is None else write(value, ttl=ttl)

    return with_parts if not guard.is_simple else whole_number if kind is int else simple


def _before_many(
    put_all: Callable[[dict[Any, Any]], None],
    update: Callable[[Any], None],
    guard: Guard,
    current: CurrentKey | None,
) -> Callable[[dict[Any, Any]], None]:
    """``put_all`` after the same look at the values that ``update`` has at each of them."""
    seen = 0

    def checked(values: dict[Any, Any]) -> None:
        nonlocal seen
        fits = set(map(type, values.values())) == {guard.kind}
        if fits and guard.kind is int:
            fits = min(values.values()) >= -0x8000_0000_0000_0000 and max(values.values()) <= 0x7FFF_FFFF_FFFF_FFFF
        if not fits:
            for current.key, value in values.items():  # type: ignore[union-attr]
                update(value)
            return
        if not guard.is_simple:
            # The first ones of all, and from then on one of so many.
            first = 0 if seen < SAMPLED else SAMPLED - 1 - seen % SAMPLED
            step = 1 if seen < SAMPLED else SAMPLED
            for ident, value in islice(values.items(), first, None, step):
                if current is not None:
                    current.key = ident
                guard.look(value)
        seen += len(values)
        put_all(values)

    return checked


def _guard_map(live: Any, keys: Guard, values: Guard) -> None:
    put, put_all = live.put, live.put_all
    key_of, check = keys.map_key(), values.check
    #: What is right without a look; whole numbers and values with parts are always looked at.
    key_kind = keys.kind if keys.is_simple and keys.kind in (str, bytes) else None
    kind = values.kind if values.is_simple and values.kind is not int else None

    def checked_put(key: Any, value: Any, ttl: Any = None) -> None:
        if type(key) is not key_kind:
            key = key_of(key)
        if type(value) is not kind:
            check(value)
        put(key, value) if ttl is None else put(key, value, ttl=ttl)

    def checked_put_all(entries: dict[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        entries = {key_of(key): value for key, value in dict(entries).items()}
        for value in entries.values():
            check(value)
        put_all(entries)

    live.put, live.put_all = checked_put, checked_put_all
    _guard_lookups(live, key_of, keys.kind if keys.is_simple and is_plain(keys.kind) else None)


def _guard_lookups(live: Any, key_of: Callable[[Any], Any], kind: type | None) -> None:
    """A key that cannot be there is a mistake, not a miss: '1' in a map of whole numbers.

    What is asked of every key is written out, for whole numbers and for others: it runs for every record.
    """
    get, contains, remove = live.get, live.contains, live.remove

    def get_number(key: Any, default: Any = None) -> Any:
        if type(key) is not int or not -0x8000_0000_0000_0000 <= key <= 0x7FFF_FFFF_FFFF_FFFF:
            key = key_of(key)
        return get(key, default)

    def get_other(key: Any, default: Any = None) -> Any:
        return get(key if type(key) is kind else key_of(key), default)

    live.get = get_number if kind is int else get_other
    live.contains = lambda key: contains(key_of(key))
    live.remove = lambda key: remove(key_of(key))


def _before_all(write: Callable[[Any], None], check: Callable[[Any], None]) -> Callable[[Iterable[Any]], None]:
    def checked(values: Iterable[Any]) -> None:
        values = elements(values)
        for value in values:
            check(value)
        write(values)

    return checked


def elements(values: Iterable[Any]) -> list[Any]:
    """The values for a list state. One value that is given in their place is refused: a text is no list of letters."""
    if isinstance(values, (str, bytes, bytearray, dict)) or not isinstance(values, Iterable):
        advice = "Give the elements of the list: update([...]) or add_all([...]); add(value) adds one."
        raise InvalidArgument("elements of a list state", values, advice)
    return list(values)


def _checked_reduce(combine: Callable[[Any, Any], Any], guard: Guard) -> Callable[[Any, Any], Any]:
    check = guard.check

    def reduce(value1: Any, value2: Any) -> Any:
        result = combine(value1, value2)
        if result is None:
            raise nothing_combined(guard.uid, "reduce")
        check(result)
        return result

    return reduce


class _CheckedAggregate(AggregateFunction[Any, Any, Any]):
    """An aggregate function whose accumulators are looked at."""

    def __init__(self, inner: AggregateFunction[Any, Any, Any], guard: Guard) -> None:
        self._add, self._check, self._uid = inner.add, guard.check, guard.uid
        self.create_accumulator, self.get_result = inner.create_accumulator, inner.get_result  # type: ignore[method-assign]
        self.merge = inner.merge  # type: ignore[method-assign]

    def add(self, value: Any, accumulator: Any) -> Any:
        result = self._add(value, accumulator)
        if result is None:
            raise nothing_combined(self._uid, "add")
        self._check(result)
        return result


def _class_of(stored_type: StoredType) -> type | None:
    """The class that nearly all values of a type have; None: there is no one class."""
    if isinstance(stored_type, LeafType):
        return stored_type.kinds[0]
    if isinstance(stored_type, ConvertedType):
        return None if stored_type is PLAIN else stored_type.kind
    if isinstance(stored_type, ListType):
        return stored_type.build  # type: ignore[no-any-return]
    return stored_type.kind if isinstance(stored_type, StructType) else None
