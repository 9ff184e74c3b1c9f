"""The operators of a chain: each takes a batch, calls user code for its records, and passes the results on.

Nothing here costs anything per record but the user's function and the loop around it. When user code raises,
the position of the record is read off the loop's own iterator, so good records pay nothing for it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from moorline.api.functions import FilterFunction, FlatMapFunction, Function, MapFunction, OutputTag
from moorline.errors import MoorlineError, UserCodeFailed
from moorline.model.graph import Operator
from moorline.state.backend import NO_KEY, CurrentKey, KeyedBackend


class Target(Protocol):
    """What a batch can be passed on to: an operator or a link."""

    def process(self, records: list[Any]) -> None: ...


class ChainedOperator:
    """One operator in one subtask."""

    def __init__(self, operator: Operator, subtask: int) -> None:
        self.operator, self.subtask = operator, subtask
        self.targets: list[Target] = []
        self.side_targets: dict[str, list[Target]] = {}
        #: The keyed states, if the operator has a key.
        self.backend: KeyedBackend | None = None
        self.records_in = 0

    def open(self) -> None:
        """Get ready for records."""

    def process(self, records: list[Any]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called once, at the end or after a failure."""

    def emit(self, records: list[Any]) -> None:
        if records:
            for target in self.targets:
                target.process(records)

    def failure(self, error: Exception, records: list[Any], iterator: Any) -> Exception:
        """What to raise for ``error``: ours as it is, anything else with the place it happened at."""
        if isinstance(error, MoorlineError) and not isinstance(error, UserCodeFailed):
            return error
        at = len(records) - iterator.__length_hint__() - 1
        record = f"{records[at]!r:.500}" if 0 <= at < len(records) else ""
        return user_code_failed(self.operator, self.subtask, error, self.records_in + at, record)


def user_code_failed(
    operator: Operator, subtask: int, error: Exception, position: int = -1, record: str = ""
) -> UserCodeFailed:
    """``error`` with the user's own part of its traceback, and where it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if "/moorline/subtask/" not in f.filename.replace("\\", "/")]
    told = "".join(traceback.format_list(theirs)) + "".join(traceback.format_exception_only(error))
    name = f"{type(error).__name__}: {error}"
    return UserCodeFailed(operator.uid, operator.name, subtask, position, record, name, told)


class FunctionOperator(ChainedOperator):
    """An operator around a user's function, which may be a plain callable."""

    def __init__(self, operator: Operator, subtask: int, runtime_context: Any) -> None:
        super().__init__(operator, subtask)
        self.function = operator.function
        self._runtime_context = runtime_context

    def open(self) -> None:
        if isinstance(self.function, Function):
            try:
                self._runtime_context.bind_declared(self.function)
                self.function.open(self._runtime_context)
            except MoorlineError:
                raise
            except Exception as error:
                raise user_code_failed(self.operator, self.subtask, error) from error

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()


class MapOperator(FunctionOperator):
    """map, filter and flat_map, on keyed streams too."""

    def open(self) -> None:
        super().open()
        f = self.function
        self._call: Callable[[Any], Any] = f
        for cls, method in ((MapFunction, "map"), (FilterFunction, "filter"), (FlatMapFunction, "flat_map")):
            if isinstance(f, cls):
                self._call = getattr(f, method)
        if self.backend is not None:
            current, key_of, call = self.backend.current, self.operator.inputs[0].key, self._call

            def keyed(record: Any) -> Any:
                current.key = key_of(record)
                return call(record)

            self._call = keyed

    def process(self, records: list[Any]) -> None:
        call, iterator = self._call, iter(records)
        if self.backend is not None:
            self.backend.claim(map(self.operator.inputs[0].key, records))
        try:
            match self.operator.kind:
                case "map":
                    out = [call(r) for r in iterator]
                case "filter":
                    out = [r for r in iterator if call(r)]
                case _:
                    out = []
                    for r in iterator:
                        found = call(r)
                        if found is not None:
                            out.extend(found)
        except Exception as error:
            raise self.failure(error, records, iterator) from error
        finally:
            if self.backend is not None:
                self.backend.current.key = NO_KEY
        self.records_in += len(records)
        self.emit(out)


class ElementContext:
    """What ``process_element`` gets beside its value."""

    def __init__(self, current: CurrentKey | None) -> None:
        self._current = current
        self.side: dict[str, list[Any]] = {}

    def output(self, tag: OutputTag, value: Any) -> None:
        self.side.setdefault(tag.name, []).append(value)

    @property
    def current_key(self) -> Any:
        return None if self._current is None else self._current.key

    def get_current_key(self) -> Any:
        return self.current_key


class ProcessOperator(FunctionOperator):
    """process, with or without a key."""

    def open(self) -> None:
        super().open()
        self._element: Callable[[Any, Any], Iterable[Any] | None]
        self._element = getattr(self.function, "process_element", self.function)
        self._context = ElementContext(self.backend.current if self.backend else None)
        self._key_of = self.operator.inputs[0].key

    def process(self, records: list[Any]) -> None:
        element, context, iterator = self._element, self._context, iter(records)
        out: list[Any] = []
        extend = out.extend
        try:
            if self.backend is None:
                for record in iterator:
                    found = element(record, context)
                    if found is not None:
                        extend(found)
            else:
                key_of, current = self._key_of, self.backend.current
                self.backend.claim(map(key_of, records))
                for record in iterator:
                    current.key = key_of(record)
                    found = element(record, context)
                    if found is not None:
                        extend(found)
                current.key = NO_KEY
        except Exception as error:
            raise self.failure(error, records, iterator) from error
        self.records_in += len(records)
        if OutputTag.exists and OutputTag in {type(v[0]) for v in out if type(v) is tuple and v}:
            out = self._divert(out)
        self.emit(out)
        if context.side:
            side, context.side = context.side, {}
            for tag, values in side.items():
                for target in self.side_targets.get(tag, ()):
                    target.process(values)

    def _divert(self, out: list[Any]) -> list[Any]:
        """``yield tag, value`` means a side output, as in PyFlink."""
        kept = []
        for value in out:
            if type(value) is tuple and len(value) == 2 and type(value[0]) is OutputTag:
                self._context.output(*value)
            else:
                kept.append(value)
        return kept
