"""Two streams side by side: both with keys or both without, or one beside a broadcast one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Unpack

from moorline.api import foreign_names
from moorline.api.foreign_names import AnswersForeignNames
from moorline.api.functions.connected import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from moorline.api.options import StepOptions
from moorline.api.state.descriptors import MapStateDescriptor
from moorline.api.type_parameters import A, K_co, T2_co, T_co, U
from moorline.errors import InvalidArgument, KeyedStateWithoutKey
from moorline.model.options import STEP_OPTIONS, checks_options

if TYPE_CHECKING:
    from moorline.api.streams import Stream


class ConnectedStreams(AnswersForeignNames, Generic[T_co, T2_co, K_co]):
    """Two streams side by side. With :meth:`key_by` (or both keyed before) they share keyed state."""

    _foreign_names = foreign_names.STREAM

    def __init__(self, first: Stream[T_co], second: Stream[T2_co]) -> None:
        self._first, self._second = first, second

    def __repr__(self) -> str:
        return f"<ConnectedStreams {self._first!r} and {self._second!r}>"

    @checks_options()
    def key_by(
        self, first: Callable[[T_co], A], second: Callable[[T2_co], A], *, key_type: object = None
    ) -> ConnectedStreams[T_co, T2_co, A]:
        """Key both: equal keys meet in the same subtask and share state."""
        return ConnectedStreams(
            self._first.key_by(first, key_type=key_type), self._second.key_by(second, key_type=key_type)
        )

    @checks_options(also=STEP_OPTIONS)
    def map(self, function: CoMapFunction[T_co, T2_co, U], **options: Unpack[StepOptions]) -> Stream[U]:
        """One record of either in, one out."""
        return self._step(function, CoMapFunction, **options)

    @checks_options(also=STEP_OPTIONS)
    def flat_map(self, function: CoFlatMapFunction[T_co, T2_co, U], **options: Unpack[StepOptions]) -> Stream[U]:
        """One record of either in, any number out."""
        return self._step(function, CoFlatMapFunction, **options)

    @checks_options(also=STEP_OPTIONS)
    def process(
        self,
        function: CoProcessFunction[T_co, T2_co, U] | KeyedCoProcessFunction[K_co, T_co, T2_co, U],
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """One record of either in, any number out, with a context, side outputs, and on keyed streams state."""
        if isinstance(function, KeyedCoProcessFunction) and None in (self._first._key, self._second._key):
            raise KeyedStateWithoutKey(options.get("uid") or type(function).__name__, ())
        return self._step(function, CoProcessFunction, KeyedCoProcessFunction, **options)

    def _step(self, function: Any, *wanted: type, **options: Unpack[StepOptions]) -> Stream[Any]:
        if not isinstance(function, wanted):
            names = " or ".join(w.__name__ for w in wanted)
            raise InvalidArgument("function", function, f"Give an instance of {names}.")
        if (self._first._key is None) != (self._second._key is None):
            raise InvalidArgument("connect", "one keyed stream and one without a key", "Key both, or neither.")
        return self._first._step("co_process", function, second=self._second, **options)


class BroadcastStream(Generic[T_co]):
    """A stream that reaches every subtask, with the states it is kept in. To be connected with another stream."""

    def __init__(self, stream: Stream[T_co], descriptors: tuple[MapStateDescriptor[Any, Any], ...]) -> None:
        self._stream, self._descriptors = stream, descriptors

    def __repr__(self) -> str:
        return f"<BroadcastStream {self._stream!r} with {', '.join(d.name for d in self._descriptors)}>"


class BroadcastConnectedStream(Generic[T_co, T2_co, K_co]):
    """A stream beside a broadcast one."""

    def __init__(self, stream: Stream[T_co], broadcast: BroadcastStream[T2_co]) -> None:
        if broadcast._stream._job is not stream._job:
            raise InvalidArgument("connect", broadcast, "Streams of different jobs cannot be connected.")
        self._first, self._broadcast = stream, broadcast

    def __repr__(self) -> str:
        return f"<BroadcastConnectedStream {self._first!r} and {self._broadcast!r}>"

    @checks_options(also=STEP_OPTIONS)
    def process(
        self,
        function: BroadcastProcessFunction[T_co, T2_co, U] | KeyedBroadcastProcessFunction[K_co, T_co, T2_co, U],
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """Records of the stream see the broadcast state; broadcast records change it."""
        keyed = self._first._key is not None
        wanted = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(function, wanted):
            which = "keyed" if keyed else "not keyed"
            advice = f"The stream is {which}: give a {wanted.__name__}."
            raise InvalidArgument("function", function, advice)
        rules, states = self._broadcast._stream, self._broadcast._descriptors
        return self._first._step("broadcast_process", function, second=rules, **options, broadcast=states)
