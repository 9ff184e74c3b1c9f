"""Keyed state that is made up of all that was added: reduced, aggregated or folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Unpack, overload

from moorline.api import foreign_names
from moorline.api.functions.base import AggregateFunction, ReduceFunction
from moorline.api.functions.calls import check_call
from moorline.api.options import StateOptions
from moorline.api.state.descriptors import (
    STATE_OPTIONS,
    AggregatingStateDescriptor,
    Folding,
    ReducingStateDescriptor,
    StateDescriptor,
)
from moorline.api.state.states import State
from moorline.api.type_parameters import A, T, V
from moorline.model.durations import Duration
from moorline.model.options import checks_options


@checks_options(also=STATE_OPTIONS)
class ReducingState(State, Generic[T]):
    """One value per key: all that were added, reduced by a function of two.

    >>> import moorline as mo
    >>> class Best(mo.KeyedProcessFunction):
    ...     best = mo.ReducingState(int, max)
    >>> Best.best.descriptor.kind
    'reducing'
    """

    _foreign_names = foreign_names.REDUCED

    @overload
    def __init__(
        self: ReducingState[A],
        type: type[A],
        reduce: ReduceFunction[A] | Callable[[A, A], A],
        *,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ReducingState[Any],
        type: object,
        reduce: ReduceFunction[Any] | Callable[[Any, Any], Any],
        *,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None: ...
    def __init__(
        self,
        type: object,
        reduce: ReduceFunction[Any] | Callable[[Any, Any], Any],
        *,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None:
        self._type, self._reduce = type, reduce
        super().__init__(name, options)

    def _plain_descriptor(self) -> StateDescriptor:
        return ReducingStateDescriptor(self._name or "?", self._reduce, self._type)

    def get(self) -> T | None:
        """The reduced value, or ``None`` if nothing was added."""
        raise self._unbound()

    def add(self, value: T, *, ttl: Duration | None = None) -> None:
        """Reduce one more value into it."""
        raise self._unbound()


@checks_options(also=STATE_OPTIONS)
class AggregatingState(State, Generic[T, V]):
    """One result per key: all that were added, through an :class:`AggregateFunction`.

    ``type`` is the type of the accumulator, which is what is stored.

    >>> import moorline as mo
    >>> class Mean(mo.AggregateFunction):
    ...     def create_accumulator(self): return (0, 0.0)
    ...     def add(self, value, acc): return acc[0] + 1, acc[1] + value
    ...     def get_result(self, acc): return acc[1] / acc[0]
    >>> class Means(mo.KeyedProcessFunction):
    ...     mean = mo.AggregatingState(tuple[int, float], Mean())
    >>> Means.mean.descriptor.kind
    'aggregating'
    """

    _foreign_names = foreign_names.REDUCED

    def __init__(
        self,
        type: object,
        aggregate: AggregateFunction[T, Any, V],
        *,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None:
        self._type, self._aggregate = type, aggregate
        super().__init__(name, options)

    def _plain_descriptor(self) -> StateDescriptor:
        return AggregatingStateDescriptor(self._name or "?", self._aggregate, self._type)

    def get(self) -> V | None:
        """The result, or ``None`` if nothing was added."""
        raise self._unbound()

    def add(self, value: T, *, ttl: Duration | None = None) -> None:
        """Aggregate one more value into it."""
        raise self._unbound()


@checks_options(also=STATE_OPTIONS)
class FoldingState(AggregatingState[T, V]):
    """One value per key: all that were added, folded into ``initial``; for code that still uses it.

    It is an :class:`AggregatingState` whose accumulator is its result, stored as one and interchangeable with one.

    >>> import moorline as mo
    >>> class Longest(mo.KeyedProcessFunction):
    ...     text = mo.FoldingState("", lambda text, word: text + word, str)
    >>> Longest.text.descriptor.kind
    'aggregating'
    """

    def __init__(
        self,
        initial: V,
        fold: Callable[[V, T], V],
        type: object = object,
        *,
        name: str | None = None,
        **options: Unpack[StateOptions],
    ) -> None:
        check_call("fold", fold, 2)
        super().__init__(type, Folding(initial, fold), name=name, **options)
