"""Keyed state as a user declares and uses it: one value, a list, a map. ``combining.py`` has the kinds that add up.

Declared on the class, or asked for in ``open`` by a descriptor; both give the same object::

    class Average(mo.KeyedProcessFunction):
        sum = mo.ValueState(tuple[int, int], default=(0, 0))

        def open(self, runtime_context):
            self.seen = runtime_context.get_list_state(mo.ListStateDescriptor("seen", int))

What stands here is the declaration and the interface. The live states, which know the current key,
are made from it by ``state/heap/states.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, Unpack, cast, overload

from moorline.api import foreign_names
from moorline.api.foreign_names import AnswersForeignNames
from moorline.api.options import StateOptions
from moorline.api.state.descriptors import (
    STATE_OPTIONS,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.api.type_parameters import A, B, K, T, V
from moorline.errors import StateMisused, StateNotBound
from moorline.model.durations import Duration
from moorline.model.options import checks_options


class State(AnswersForeignNames):
    """Base of the declarations: knows its name, and that it is not bound yet."""

    #: How its content is asked for.
    _content: ClassVar[str] = "get()"

    def __init__(self, name: str | None, options: StateOptions | None = None) -> None:
        self._name, self._options = name, options or StateOptions()
        self.descriptor  # noqa: B018  what is wrong with it is said where it stands

    def __set_name__(self, owner: type, name: str) -> None:
        if self._name is None:
            self._name = name

    @property
    def descriptor(self) -> StateDescriptor:
        """The descriptor that a running operator makes the live state from."""
        return replace(self._plain_descriptor(), **cast(dict[str, Any], self._options))

    def _plain_descriptor(self) -> StateDescriptor:
        raise NotImplementedError

    def _taken_for_its_content(self, *arguments: Any) -> Any:
        advice = f"Ask for what is in it: {self._content}."
        raise StateMisused(type(self).__name__, self._name or "?", "was used as if it were its content", advice)

    # An expression with a state in it would be true, or unequal, whatever is in the state.
    __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _taken_for_its_content
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __or__ = _taken_for_its_content
    __int__ = __float__ = __index__ = __str__ = _taken_for_its_content
    __hash__ = object.__hash__

    def __format__(self, spec: str) -> str:
        return self._taken_for_its_content()  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: object) -> Any:
        return self._taken_for_its_content()  # of a record that holds it: its content is meant

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def _unbound(self) -> StateNotBound:
        return StateNotBound(self._name or "?")

    def clear(self) -> None:
        """Forget what is kept for the current key."""
        raise self._unbound()


@checks_options(also=STATE_OPTIONS)
class ValueState(State, Generic[T]):
    """One value per key.

    >>> import moorline as mo
    >>> class Last(mo.KeyedProcessFunction):
    ...     last = mo.ValueState(float, default=0.0)
    >>> Last.last.descriptor.name
    'last'

    Options of all states: ``ttl`` (how long untouched state is kept), ``migrate`` (a function from values of an
    earlier type to today's), ``store`` (keep it in an outside database).
    """

    _foreign_names = foreign_names.VALUE
    _content = "value()"

    @overload
    def __init__(
        self: ValueState[A], type: type[A], *, default: A, name: str | None = None, **options: Unpack[StateOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[A | None], type: type[A], *, name: str | None = None, **options: Unpack[StateOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[Any],
        type: object = object,
        *,
        default: object = None,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None: ...
    def __init__(
        self, type: object = object, *, default: object = None, name: str | None = None, **options: Unpack[StateOptions]
    ) -> None:
        self._type, self._default = type, default
        super().__init__(name, options)

    def _plain_descriptor(self) -> StateDescriptor:
        return ValueStateDescriptor(self._name or "?", self._type, self._default)

    def value(self) -> T:
        """The current key's value, or the default."""
        raise self._unbound()

    def update(self, value: T | None, *, ttl: Duration | None = None) -> None:
        """Replace the current key's value. ``None`` clears it. ``ttl``: this one lives so long, not as the others."""
        raise self._unbound()


@checks_options(also=STATE_OPTIONS)
class ListState(State, Generic[T]):
    """A list per key.

    >>> import moorline as mo
    >>> class Recent(mo.KeyedProcessFunction):
    ...     events = mo.ListState(str)
    >>> Recent.events.descriptor.kind
    'list'
    """

    _foreign_names = foreign_names.LIST

    @overload
    def __init__(
        self: ListState[A], type: type[A], *, name: str | None = None, **options: Unpack[StateOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: ListState[Any], type: object = object, *, name: str | None = None, **options: Unpack[StateOptions]
    ) -> None: ...
    def __init__(self, type: object = object, *, name: str | None = None, **options: Unpack[StateOptions]) -> None:
        self._type = type
        super().__init__(name, options)

    def _plain_descriptor(self) -> StateDescriptor:
        return ListStateDescriptor(self._name or "?", self._type)

    def get(self) -> Iterable[T]:
        """The current key's elements, oldest first; empty if there are none."""
        raise self._unbound()

    def add(self, value: T, *, ttl: Duration | None = None) -> None:
        """Append one element."""
        raise self._unbound()

    def add_all(self, values: Iterable[T]) -> None:
        """Append several elements."""
        raise self._unbound()

    def update(self, values: Iterable[T]) -> None:
        """Replace all elements."""
        raise self._unbound()

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


@checks_options(also=STATE_OPTIONS)
class MapState(State, Generic[K, V]):
    """A map per key, with a dict's manners as well.

    >>> import moorline as mo
    >>> class Counts(mo.KeyedProcessFunction):
    ...     per_page = mo.MapState(str, int)
    >>> Counts.per_page.descriptor.key_type
    <class 'str'>
    """

    _foreign_names = foreign_names.MAP

    @overload
    def __init__(
        self: MapState[A, B],
        key_type: type[A],
        value_type: type[B],
        *,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: MapState[A, Any],
        key_type: type[A],
        value_type: object = object,
        *,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: MapState[Any, Any],
        key_type: object = object,
        value_type: object = object,
        *,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None: ...
    def __init__(
        self,
        key_type: object = object,
        value_type: object = object,
        *,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None:
        self._key_type, self._type = key_type, value_type
        super().__init__(name, options)

    def _plain_descriptor(self) -> StateDescriptor:
        return MapStateDescriptor(self._name or "?", self._key_type, self._type)

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    @overload
    def get(self, key: K, default: A) -> V | A: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The value under ``key``, or ``default``."""
        raise self._unbound()

    def put(self, key: K, value: V, *, ttl: Duration | None = None) -> None:
        """Set the value under ``key``."""
        raise self._unbound()

    def put_all(self, entries: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:
        """Set several values."""
        raise self._unbound()

    def contains(self, key: K) -> bool:
        """Is there a value under ``key``?"""
        raise self._unbound()

    def remove(self, key: K) -> None:
        """Forget ``key``; nothing happens if it is not there."""
        raise self._unbound()

    def keys(self) -> Iterable[K]:
        """The map's keys."""
        raise self._unbound()

    def values(self) -> Iterable[V]:
        """The map's values."""
        raise self._unbound()

    def items(self) -> Iterable[tuple[K, V]]:
        """The map's entries."""
        raise self._unbound()

    def is_empty(self) -> bool:
        """Has the map no entry?"""
        raise self._unbound()

    def __len__(self) -> int:
        raise self._unbound()

    def __bool__(self) -> bool:
        return not self.is_empty()

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __getitem__(self, key: K) -> V:
        if not self.contains(key):
            raise KeyError(key)
        return self.get(key)  # type: ignore[return-value]

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        if not self.contains(key):
            raise KeyError(key)
        self.remove(key)

    def __contains__(self, key: object) -> bool:
        return self.contains(key)  # type: ignore[arg-type]


def declared_states(function: object) -> dict[str, State]:
    """The states declared on a function's class, by attribute."""
    states: dict[str, State] = {}
    for cls in reversed(type(function).__mro__):
        for attribute, value in vars(cls).items():
            if isinstance(value, State):
                states[attribute] = value
            else:
                states.pop(attribute, None)
    return states
