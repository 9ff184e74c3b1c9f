"""A sink that brings its records back to the driver's memory, for tests and small results.

The records are kept in the worker until the job ends and are part of every snapshot, whole, so they survive a
failure, and each checkpoint costs as much as there are records so far. For real output see ``write_files``.
"""

from __future__ import annotations

from types import UnionType
from typing import Any, overload

import msgspec

from moorline.api.sinks import Sink, SinkContext, SinkWriter
from moorline.api.type_parameters import A
from moorline.errors import InvalidArgument, StateTypeMismatch
from moorline.model.options import checks_options
from moorline.model.value_kinds import LOWERED_TYPES

#: What snapshots can hold as it is, so that it need not become text on the way.
_PLAIN = (bytes, *LOWERED_TYPES)


@overload
def collect(name: str, *, type: type[A]) -> Sink[A]: ...
@overload
def collect(name: str, *, type: UnionType | None = None) -> Sink[object]: ...
@checks_options()
def collect(name: str, *, type: Any = None) -> Sink[Any]:
    """Keep the records for ``result.collected(name)``. For tests and small results.

    Snapshots hold plain data. Records of a class of your own (dataclasses, ``msgspec.Struct``) are snapshotted
    when their class is given as ``type``.

    >>> writer = collect("out").open(SinkContext("job", "out", subtask=0, parallelism=1, attempt=1))
    >>> writer.write([(1, "a"), (2, "b")])
    >>> writer.results()
    ('out', [(1, 'a'), (2, 'b')])
    """
    return Collect(name, type=type)


class Collect(Sink):
    """See :func:`collect`."""

    has_effects = False

    def __init__(self, name: str, *, type: Any = None) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidArgument("name of collect()", name, "Give the text by which result.collected() finds it.")
        self.name = self.collects = name
        self.type = type

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that begins with the records of the snapshot."""
        return _CollectWriter(self.name, self.type, ctx)


class _CollectWriter(SinkWriter):
    def __init__(self, name: str, type: Any, ctx: SinkContext) -> None:
        self._name = name
        self._type = type
        self._records: list[Any] = list(ctx.restored)
        if type is not None:
            try:
                self._records = msgspec.convert(self._records, list[type], builtin_types=_PLAIN)
            except msgspec.ValidationError as error:
                raise self._mismatch(error) from error

    def write(self, records: list[Any]) -> None:
        self._records += records

    def snapshot(self) -> list[Any]:
        if self._type is None:
            return list(self._records)
        try:
            plain: list[Any] = msgspec.to_builtins(self._records, builtin_types=_PLAIN)
        except (TypeError, ValueError) as error:
            raise self._mismatch(error) from error
        return plain

    def _mismatch(self, error: Exception) -> StateTypeMismatch:
        declared = getattr(self._type, "__qualname__", str(self._type))
        return StateTypeMismatch(f"collect({self._name!r})", declared, str(error))

    def results(self) -> tuple[str, list[Any]]:
        return self._name, list(self._records)
