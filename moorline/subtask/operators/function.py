"""Operators around a user's function: opened, restored, snapshotted; and the simple ones, map, filter and flat_map.

Nothing here costs anything per record but the user's function and the loop around it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import compress, islice, repeat
from typing import Any

from moorline.api.functions.base import FilterFunction, FlatMapFunction, Function, MapFunction, OutputTag
from moorline.errors import InvalidOutput, MoorlineError
from moorline.model.copying.closed_functions import keeps_nothing
from moorline.model.copying.immutable import IMMUTABLE
from moorline.model.graph import OperatorKind
from moorline.state.backend import NO_KEY
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, take, user_code_failed
from moorline.subtask.operators.runtime_context import RuntimeContext
from moorline.subtask.operators.yields import checked, has_tags, is_tagged, many


class FunctionOperator(ChainedOperator):
    """An operator around a user's function, which may be a plain callable."""

    def __init__(self, place: OperatorContext, runtime_context: RuntimeContext) -> None:
        super().__init__(place)
        self.function = self.operator.function
        self._runtime_context = runtime_context

    def open(self) -> None:
        try:
            if isinstance(self.function, Function):
                self._runtime_context.bind_declared(self.function)
            self.state.initialize(self.function)
            if isinstance(self.function, Function):
                self.function.open(self._runtime_context)
        except MoorlineError:
            raise
        except Exception as error:  # the user's code
            raise user_code_failed(self.operator, self.subtask, error) from error

    def before_barrier(self) -> None:
        self._runtime_context.check_declared(self.function)

    def finish(self) -> None:
        self._runtime_context.check_declared(self.function)
        if isinstance(self.function, Function):
            try:
                out: list[Any] = []
                take(checked(self.function.finish(), self.operator.uid, "finish"), out, self.own)
            except MoorlineError as error:
                raise self.noted(error) from error.__cause__
            except Exception as error:  # the user's code
                raise user_code_failed(self.operator, self.subtask, error) from error
            kept = [value for value in out if not is_tagged(value, self.operator.uid)]
            for tag, value in [value for value in out if is_tagged(value, self.operator.uid)]:
                self._give(self.side_targets.get(tag.name, []), [value], None)
            self.emit(kept)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()

    def _begin(self, key_of: Callable[[Any], Any], records: list[Any]) -> list[Any]:
        """A batch of keyed records is about to be processed: what stands for the key of each of them."""
        assert self.backend is not None
        self.moment.processing_ms = max(self.moment.processing_ms, self.wall_ms())
        iterator: Any = iter(records)
        try:
            keys = self.backend.identities.of_batch(list(map(key_of, iterator)))
        except Exception as error:  # the user's code
            raise self.failure(error, records, iterator) from error
        self.backend.identities.sample.see(keys)
        self.backend.prefetch(keys)
        return keys


class MapOperator(FunctionOperator):
    """map, filter and flat_map, on keyed streams too."""

    def open(self) -> None:
        super().open()
        f = self.function
        self._call: Callable[[Any], Any] = f
        for cls, method in ((MapFunction, "map"), (FilterFunction, "filter"), (FlatMapFunction, "flat_map")):
            if isinstance(f, cls):
                self._call = getattr(f, method)
        if self.operator.kind == OperatorKind.FLAT_MAP:
            self._call = many(self._call, self.operator.uid, "flat_map", may_be_tuple=True)
        # Several results of one call may share what is in them.
        self._keeps_nothing = self.operator.kind != OperatorKind.FLAT_MAP and keeps_nothing(f)

    def _keyed(self, records: list[Any], timestamps: list[int] | None) -> Callable[[Any], Any]:
        """The function, called for these records in turn: each has its key and its timestamp."""
        assert self.backend is not None
        call, current, moment = self._call, self.backend.current, self.moment
        following = iter(self._begin(self.operator.inputs[0].key, records)).__next__
        stamps = iter(timestamps or ()).__next__

        def keyed(record: Any) -> Any:
            current.key = following()
            return call(record)

        def stamped(record: Any) -> Any:
            current.key, moment.timestamp = following(), stamps()
            return call(record)

        return stamped if timestamps else keyed

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        iterator: Any = iter(records)
        own = None if self._keeps_nothing else self.own
        call = self._call if self.backend is None else self._keyed(records, timestamps)
        counts: list[int] = []
        # A function that keeps nothing has no tag to return. Any other is not looked at while it runs, without copies.
        may_be_tagged = self.own is None and not self._keeps_nothing
        try:
            match self.operator.kind:
                case OperatorKind.FILTER:
                    if own is None:
                        kept = [bool(call(r)) for r in iterator]
                        out = list(compress(records, kept))
                    else:
                        out, kept = self._filtered(call, iterator, own)
                    timestamps = timestamps and list(compress(timestamps, kept))
                case OperatorKind.MAP:
                    if own is None:
                        out = [call(r) for r in iterator]
                    else:
                        out, may_be_tagged = self._mapped(call, iterator, own)
                case _:
                    out = []
                    for record in iterator:
                        before = len(out)
                        may_be_tagged |= take(call(record), out, own)
                        counts.append(len(out) - before)
                    if timestamps:
                        timestamps = [t for count, at in zip(counts, timestamps) for t in repeat(at, count)]
        except Exception as error:  # the user's code
            raise self.failure(error, records, iterator) from error
        finally:
            if self.backend is not None:
                self.backend.current.key, self.moment.timestamp = NO_KEY, None
        if self.backend is not None:
            self.backend.flush()
        if may_be_tagged and self.operator.kind != OperatorKind.FILTER and has_tags(out):
            self._refuse_tags(out, records, counts)
        self.records_in += len(records)
        self.emit(out, timestamps)

    def _refuse_tags(self, out: list[Any], records: list[Any], counts: list[int]) -> None:
        """Raise for ``tag, value``: here it would go on as a pair."""
        made_by = [n for n, count in enumerate(counts) for _ in range(count)] or range(len(out))
        pairs = ((n, v) for n, v in zip(made_by, out) if type(v) is tuple and v)
        number, value = next((n, v) for n, v in pairs if isinstance(v[0], OutputTag))
        kind = self.operator.kind
        advice = f"A {kind} has no side outputs: use process(), whose function yields tag, value."
        error = InvalidOutput(self.operator.uid, kind, f"an OutputTag and a value: {value!r:.200}", advice)
        passed: Any = iter(records)
        deque(islice(passed, number + 1), maxlen=0)
        raise self.failure(error, records, passed)

    @staticmethod
    def _mapped(
        call: Callable[[Any], Any], records: Iterator[Any], own: Callable[[Any, Any], Any]
    ) -> tuple[list[Any], bool]:
        """The results, and whether one of them can be ``tag, value``."""
        immutable, may_be_tagged = IMMUTABLE, False
        out: list[Any] = []
        append = out.append
        for record in records:
            value = call(record)
            cls = type(value)
            if cls is tuple:
                for part in value:
                    if type(part) not in immutable:
                        may_be_tagged, part = True, None
                        value = own(None, value)
                        break
            elif cls not in immutable:
                value = own(None, value)
            append(value)
        return out, may_be_tagged

    @staticmethod
    def _filtered(
        call: Callable[[Any], Any], records: Iterator[Any], own: Callable[[Any, Any], Any]
    ) -> tuple[list[Any], list[bool]]:
        out: list[Any] = []
        kept: list[bool] = []
        for record in records:
            is_kept = bool(call(record))
            kept.append(is_kept)
            if is_kept:
                take((record,), out, own)
        return out, kept
