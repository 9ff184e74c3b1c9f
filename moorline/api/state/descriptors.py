"""Descriptors of states: name, types and time to live of a state before it exists.

A state that is declared on a class (``api/state/states.py``) has one; a state of ``open`` is asked for by it.
"""

from __future__ import annotations

import builtins
import copy
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Unpack, overload

from moorline.api.functions.base import AggregateFunction, Function, ReduceFunction
from moorline.api.functions.calls import check_call
from moorline.api.functions.overrides import check_methods
from moorline.api.options import StateOptions
from moorline.api.state.external import ExternalStore
from moorline.api.state.ttl import StateTtlConfig, as_ttl
from moorline.api.type_parameters import A, B, K, T, V
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration
from moorline.model.options import checks_options


@dataclass(frozen=True)
class StateDescriptor:
    """The description of a state before it exists: its name and options."""

    kind: ClassVar[str]
    name: str
    #: How long an entry is kept that is not touched; a length will do.
    ttl: StateTtlConfig | Duration | None = field(default=None, kw_only=True)
    #: Makes a value of today's type from one that was stored with another type.
    migrate: Callable[[Any], object] | None = field(default=None, kw_only=True)
    #: Where it is kept instead of in the worker, such as ``mo.postgres_state(...)``.
    store: ExternalStore | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidArgument("name of a state", self.name, "Give its name as a text, then its type.")
        object.__setattr__(self, "ttl", as_ttl(self.ttl))
        for annotation in (getattr(self, "key_type", object), getattr(self, "type", object)):
            _check_type(self, annotation)

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        assert self.ttl is None or isinstance(self.ttl, StateTtlConfig)
        return self.ttl

    def enable_time_to_live(self, ttl: StateTtlConfig | Duration) -> None:
        """Give the state a time to live, by PyFlink's name."""
        object.__setattr__(self, "ttl", as_ttl(ttl))


#: What every state may be given beside its name and its types.
STATE_OPTIONS = tuple(f.name for f in fields(StateDescriptor) if f.kw_only)


def _check_type(descriptor: StateDescriptor, annotation: object) -> None:
    """A name or a value in the place of a type is refused where it is written."""
    what = f"type of state {descriptor.name!r}"
    if isinstance(annotation, str):
        raise InvalidArgument(what, annotation, f"Give the type itself and not its name: {annotation}.")
    if isinstance(annotation, (int, float, bytes, list, tuple, dict, set)):
        raise InvalidArgument(what, annotation, f"That is a value. Give its type: {type(annotation).__name__}.")
    if isinstance(annotation, (FunctionType, BuiltinFunctionType, Function)):
        raise InvalidArgument(what, annotation, "That is a function. Are type and function exchanged?")


def _refuse_function(descriptor: StateDescriptor, given: object, wanted: str) -> None:
    what = f"function of state {descriptor.name!r}"
    advice = "Are type and function exchanged? " if isinstance(given, type) and not issubclass(given, Function) else ""
    raise InvalidArgument(what, given, f"{advice}Give {wanted}.")


@checks_options()
@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor, Generic[T]):
    """One value per key.

    >>> ValueStateDescriptor("last", float).kind
    'value'
    """

    kind: ClassVar[str] = "value"
    type: object = object
    default: Any = None

    if TYPE_CHECKING:  # as the dataclass makes it, with the types that follow from the arguments

        @overload
        def __init__(
            self: ValueStateDescriptor[A],
            name: str,
            type: builtins.type[A],
            default: A,
            **options: Unpack[StateOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: ValueStateDescriptor[A | None], name: str, type: builtins.type[A], **options: Unpack[StateOptions]
        ) -> None: ...
        @overload
        def __init__(
            self: ValueStateDescriptor[Any],
            name: str,
            type: object = object,
            default: object = None,
            **options: Unpack[StateOptions],
        ) -> None: ...
        def __init__(
            self, name: str, type: object = object, default: object = None, **options: Unpack[StateOptions]
        ) -> None: ...


@checks_options()
@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor, Generic[T]):
    """A list per key.

    >>> ListStateDescriptor("events", str).kind
    'list'
    """

    kind: ClassVar[str] = "list"
    type: object = object

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: ListStateDescriptor[A], name: str, type: builtins.type[A], **options: Unpack[StateOptions]
        ) -> None: ...
        @overload
        def __init__(
            self: ListStateDescriptor[Any], name: str, type: object = object, **options: Unpack[StateOptions]
        ) -> None: ...
        def __init__(self, name: str, type: object = object, **options: Unpack[StateOptions]) -> None: ...


@checks_options()
@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor, Generic[K, V]):
    """A map per key.

    >>> MapStateDescriptor("counts", str, int).kind
    'map'
    """

    kind: ClassVar[str] = "map"
    key_type: object = object
    type: object = object

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: MapStateDescriptor[A, B],
            name: str,
            key_type: builtins.type[A],
            type: builtins.type[B],
            **options: Unpack[StateOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: MapStateDescriptor[A, Any],
            name: str,
            key_type: builtins.type[A],
            type: object = object,
            **options: Unpack[StateOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: MapStateDescriptor[Any, Any],
            name: str,
            key_type: object = object,
            type: object = object,
            **options: Unpack[StateOptions],
        ) -> None: ...
        def __init__(
            self, name: str, key_type: object = object, type: object = object, **options: Unpack[StateOptions]
        ) -> None: ...


@checks_options()
@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor, Generic[T]):
    """One value per key, made from all that were added by a function of two.

    >>> ReducingStateDescriptor("max", max, int).kind
    'reducing'
    """

    kind: ClassVar[str] = "reducing"
    reduce: ReduceFunction[Any] | Callable[[Any, Any], Any] = max
    type: object = object

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: ReducingStateDescriptor[A],
            name: str,
            reduce: ReduceFunction[A] | Callable[[A, A], A],
            type: builtins.type[A],
            **options: Unpack[StateOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: ReducingStateDescriptor[Any],
            name: str,
            reduce: ReduceFunction[Any] | Callable[[Any, Any], Any] = max,
            type: object = object,
            **options: Unpack[StateOptions],
        ) -> None: ...
        def __init__(
            self,
            name: str,
            reduce: ReduceFunction[Any] | Callable[[Any, Any], Any] = max,
            type: object = object,
            **options: Unpack[StateOptions],
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.reduce, builtins.type) or not callable(getattr(self.reduce, "reduce", self.reduce)):
            _refuse_function(self, self.reduce, "a function of two values, such as max, or a ReduceFunction()")
        check_methods(self.reduce, f"state {self.name!r}")
        if not isinstance(self.reduce, ReduceFunction):
            check_call(f"function of state {self.name!r}", self.reduce, 2)
        super().__post_init__()


@checks_options()
@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor, Generic[T, V]):
    """One accumulator per key, made from all that were added by an :class:`AggregateFunction`."""

    kind: ClassVar[str] = "aggregating"
    aggregate: AggregateFunction[T, Any, V] | None = None
    #: The type of the accumulator.
    type: object = object

    def __post_init__(self) -> None:
        if not isinstance(self.aggregate, AggregateFunction):
            _refuse_function(self, self.aggregate, "an AggregateFunction()")
        check_methods(self.aggregate, f"state {self.name!r}")
        super().__post_init__()


class Folding(AggregateFunction[Any, Any, Any]):
    """A fold as an aggregation whose accumulator is its result."""

    def __init__(self, initial: Any, fold: Callable[[Any, Any], Any]) -> None:
        self.initial, self.fold = initial, fold

    def create_accumulator(self) -> Any:
        return copy.deepcopy(self.initial)

    def add(self, value: Any, accumulator: Any) -> Any:
        return self.fold(accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator


@checks_options(also=STATE_OPTIONS)
def FoldingStateDescriptor(
    name: str, initial: V, fold: Callable[[V, T], V], type: object = object, **options: Unpack[StateOptions]
) -> AggregatingStateDescriptor[T, V]:
    """All that was added to ``initial`` by ``fold(accumulator, value)``: an aggregating state in short.

    >>> FoldingStateDescriptor("words", "", lambda text, word: text + word, str).kind
    'aggregating'
    """
    check_call("fold", fold, 2)
    return AggregatingStateDescriptor(name, Folding(initial, fold), type, **options)
