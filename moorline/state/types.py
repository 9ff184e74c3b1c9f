"""How a declared type is stored: as typed Arrow columns.

    annotation                          column
    int, float, bool, str, bytes        int64, double, bool, string, binary
    date, timedelta                     date32, duration[us]
    datetime, time, UUID, Decimal       string (ISO 8601, canonical text): lossless and readable
    Enum; Flag                          string: the member's name; int64
    T | None                            T, nullable
    list, set, frozenset, tuple[T, ...] list
    tuple[A, B], NamedTuple, dataclass, struct
      TypedDict, msgspec.Struct
    dict[K, V]                          list of struct<key, value>
    anything else, or nothing           binary: plain data as msgpack (``state/plain.py``)

A type knows its name, which goes into the manifest and is compared on restore; it converts whole columns at a
time; and it says whether its values could be changed in place, which the heap backend must know while a snapshot
is being written. Classes are taken from the job's own annotations, never from a name in a snapshot.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, Union
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa

from moorline.errors import StateTypeMismatch, UnsupportedType
from moorline.state import plain


class StoredType:
    """One type: its name, its Arrow form, and the way there and back for whole columns."""

    name: str
    arrow: pa.DataType
    #: Can its values not be changed in place?
    is_immutable: bool = True

    def to_array(self, values: list[Any]) -> pa.Array:
        raise NotImplementedError

    def from_array(self, array: pa.Array) -> list[Any]:
        raise NotImplementedError


def _check(values: Iterable[Any], kinds: tuple[type, ...], refused: tuple[type, ...] = ()) -> None:
    """Raises unless every value is of one of the kinds, or None. Arrow would turn many into something else."""
    for found in set(map(type, values)):
        if found is not type(None) and (not issubclass(found, kinds) or issubclass(found, refused)):
            raise TypeError(f"a {found.__qualname__} is not a {kinds[0].__qualname__}")


class _Leaf(StoredType):
    def __init__(self, name: str, arrow: pa.DataType, kinds: tuple[type, ...], refused: tuple[type, ...] = ()) -> None:
        self.name, self.arrow = name, arrow
        self._kinds, self._refused = kinds, refused

    def to_array(self, values: list[Any]) -> pa.Array:
        _check(values, self._kinds, self._refused)
        return pa.array(values, self.arrow)

    def from_array(self, array: pa.Array) -> list[Any]:
        return array.to_pylist()  # type: ignore[no-any-return]


class _Converted(StoredType):
    """Stored as text (or msgpack) by one function and read back by another. None stays None."""

    def __init__(
        self,
        name: str,
        arrow: pa.DataType,
        kind: type,
        lower: Callable[[Any], Any],
        lift: Callable[[Any], Any],
        is_immutable: bool = True,
    ) -> None:
        self.name, self.arrow, self.is_immutable = name, arrow, is_immutable
        self._kind, self._lower, self._lift = kind, lower, lift

    def to_array(self, values: list[Any]) -> pa.Array:
        _check(values, (self._kind,))
        return pa.array([None if v is None else self._lower(v) for v in values], self.arrow)

    def from_array(self, array: pa.Array) -> list[Any]:
        return [None if v is None else self._lift(v) for v in array.to_pylist()]


class _List(StoredType):
    """Any number of parts of one type."""

    def __init__(self, name: str, item: StoredType, build: type, is_immutable: bool) -> None:
        self.name, self._item, self._build = name, item, build
        self.arrow = pa.list_(item.arrow)
        self.is_immutable = is_immutable and item.is_immutable

    def to_array(self, values: list[Any]) -> pa.Array:
        _check(values, (self._build,))
        return self._to_array(values)

    def _to_array(self, values: list[Any]) -> pa.Array:
        offsets, flat = [0], []
        for value in values:
            if value is not None:
                flat.extend(value)
            offsets.append(len(flat))
        nulls = pa.array([v is None for v in values], pa.bool_()) if None in values else None
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), self._item.to_array(flat), mask=nulls)

    def from_array(self, array: pa.Array) -> list[Any]:
        flat, build = self._item.from_array(array.flatten()), self._build
        lengths, at = array.value_lengths().to_pylist(), 0
        values: list[Any] = []
        for length in lengths:
            if length is None:
                values.append(None)
                continue
            values.append(build(flat[at : at + length]))
            at += length
        return values


class _Struct(StoredType):
    """Anything with a fixed number of parts: taken apart into columns, put together by ``build``."""

    def __init__(
        self,
        name: str,
        parts: dict[str, StoredType],
        kind: type,
        take: Callable[[Any], Any],
        build: Callable[[Any], Any],
        is_immutable: bool,
    ) -> None:
        self.name, self._parts, self._kind, self._take, self._build = name, parts, kind, take, build
        self.arrow = pa.struct([pa.field(n, t.arrow) for n, t in parts.items()])
        self.is_immutable = is_immutable and all(t.is_immutable for t in parts.values())

    def to_array(self, values: list[Any]) -> pa.Array:
        _check(values, (self._kind,))
        width = len(self._parts)
        absent = (None,) * width
        rows = [absent if v is None else self._take(v) for v in values]
        if not rows:
            return pa.array([], self.arrow)
        if any(len(row) != width for row in rows):
            raise ValueError(f"a value does not have {width} parts")
        columns = [t.to_array(list(c)) for t, c in zip(self._parts.values(), zip(*rows), strict=True)]
        nulls = pa.array([v is None for v in values], pa.bool_()) if None in values else None
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow), mask=nulls)

    def from_array(self, array: pa.Array) -> list[Any]:
        columns = [t.from_array(c) for t, c in zip(self._parts.values(), array.flatten(), strict=True)]
        build = self._build
        if not array.null_count:
            return [build(row) for row in zip(*columns, strict=True)]
        return [build(row) if valid.as_py() else None for row, valid in zip(zip(*columns), array.is_valid())]


_PLAIN = _Converted("plain", pa.binary(), object, plain.encode, plain.decode, is_immutable=False)

_LEAVES: dict[Any, StoredType] = {
    int: _Leaf("int", pa.int64(), (int, np.integer), (bool,)),
    float: _Leaf("float", pa.float64(), (float, int, np.floating, np.integer), (bool,)),
    bool: _Leaf("bool", pa.bool_(), (bool, np.bool_)),
    str: _Leaf("str", pa.string(), (str,)),
    bytes: _Leaf("bytes", pa.binary(), (bytes,)),
    date: _Leaf("date", pa.date32(), (date,), (datetime,)),
    timedelta: _Leaf("timedelta", pa.duration("us"), (timedelta,)),
    datetime: _Converted("datetime", pa.string(), datetime, datetime.isoformat, datetime.fromisoformat),
    time: _Converted("time", pa.string(), time, time.isoformat, time.fromisoformat),
    UUID: _Converted("UUID", pa.string(), UUID, str, UUID),
    Decimal: _Converted("Decimal", pa.string(), Decimal, str, Decimal),
}


def stored(annotation: Any, where: str) -> StoredType:
    """The stored form of an annotation. Raises :class:`UnsupportedType`.

    >>> stored(tuple[int, float], "here").name
    'tuple[int, float]'
    """
    try:
        return _stored(annotation, where)
    except RecursionError:
        raise UnsupportedType(f"{annotation}, which contains itself,", where) from None


def _stored(annotation: Any, where: str) -> StoredType:
    if annotation in (object, Any, None):
        return _PLAIN
    if annotation in _LEAVES:
        return _LEAVES[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return _union(annotation, arguments, where)
    if (origin or annotation) in (list, dict, set, frozenset, tuple) and not arguments:
        return _PLAIN
    if origin is not None:
        return _generic(annotation, origin, arguments, where)
    if isinstance(annotation, type):
        return _class(annotation, where)
    raise UnsupportedType(str(annotation), where)


def _union(annotation: Any, arguments: tuple[Any, ...], where: str) -> StoredType:
    others = [a for a in arguments if a is not type(None)]
    if len(others) == 1:
        inner = _stored(others[0], where)
        if inner is not _PLAIN:
            return _Optional(inner)
    return _PLAIN


class _Optional(StoredType):
    def __init__(self, inner: StoredType) -> None:
        self.name, self.arrow, self.is_immutable = f"{inner.name} | None", inner.arrow, inner.is_immutable
        self.to_array, self.from_array = inner.to_array, inner.from_array  # type: ignore[method-assign]


def _generic(annotation: Any, origin: Any, arguments: tuple[Any, ...], where: str) -> StoredType:
    if origin is list:
        item = _stored(arguments[0], where)
        return _List(f"list[{item.name}]", item, list, False)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _stored(arguments[0], where)
        return _List(f"tuple[{item.name}, ...]", item, tuple, True)
    if origin in (set, frozenset):
        item = _stored(arguments[0], where)
        return _List(f"{origin.__name__}[{item.name}]", item, origin, origin is frozenset)
    if origin is tuple and arguments:
        parts = {f"f{n}": _stored(a, where) for n, a in enumerate(arguments)}
        name = f"tuple[{', '.join(t.name for t in parts.values())}]"
        return _Struct(name, parts, tuple, tuple, tuple, True)
    if origin is dict:
        key, value = _stored(arguments[0], where), _stored(arguments[1], where)
        entry = _Struct("entry", {"key": key, "value": value}, tuple, tuple, tuple, True)
        return _Dict(f"dict[{key.name}, {value.name}]", entry)
    raise UnsupportedType(str(annotation), where)


class _Dict(_List):
    def __init__(self, name: str, entry: StoredType) -> None:
        super().__init__(name, entry, dict, False)

    def _to_array(self, values: list[Any]) -> pa.Array:
        return super()._to_array([None if v is None else v.items() for v in values])


def _class(cls: type, where: str) -> StoredType:
    if issubclass(cls, Flag):  # a combination has no name to find it by
        return _Converted(f"flag {cls.__qualname__}", pa.int64(), cls, lambda v: v.value, cls)
    if issubclass(cls, Enum):
        return _Converted(f"enum {cls.__qualname__}", pa.string(), cls, lambda v: v.name, lambda n: cls[n])
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        # What __init__ does not take is made anew by it, and could be anything.
        is_immutable = cls.__dataclass_params__.frozen and all(f.init for f in fields)  # type: ignore[attr-defined]
        return _fields(cls, [f.name for f in fields if f.init], is_immutable, where)
    if issubclass(cls, msgspec.Struct):
        return _fields(cls, list(cls.__struct_fields__), cls.__struct_config__.frozen, where)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _fields(cls, list(cls._fields), True, where)
    if typing.is_typeddict(cls):
        return _typed_dict(cls, where)
    raise UnsupportedType(cls.__qualname__, where)


def _typed_dict(cls: Any, where: str) -> StoredType:
    parts = {n: _stored(h, where) for n, h in _hints(cls, where).items()}
    names, required = list(parts), cls.__required_keys__

    def take(value: dict[str, Any]) -> list[Any]:
        if not required <= value.keys() <= parts.keys():
            raise ValueError(f"a {cls.__qualname__} has the keys {', '.join(names)}, not {', '.join(map(str, value))}")
        return [value.get(n) for n in names]

    def build(row: tuple[Any, ...]) -> dict[str, Any]:
        return {n: v for n, v in zip(names, row) if v is not None or n in required}

    return _Struct(_spell(cls, parts, where), parts, dict, take, build, False)


def _hints(cls: Any, where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError as error:
        raise UnsupportedType(f"{cls.__qualname__} (an annotation of it cannot be resolved: {error})", where) from None


def _fields(cls: Any, names: list[str], is_immutable: bool, where: str) -> StoredType:
    hints = _hints(cls, where)
    parts = {n: _stored(hints.get(n, object), where) for n in names}

    def take(value: Any) -> list[Any]:
        if type(value) is not cls:  # a subclass would come back as less than it was
            raise TypeError(f"a {type(value).__qualname__} is not a {cls.__qualname__}")
        return [getattr(value, n) for n in names]

    return _Struct(
        _spell(cls, parts, where),
        parts,
        cls,
        take,
        lambda row: cls(**dict(zip(names, row))),
        is_immutable,
    )


def _spell(cls: Any, parts: dict[str, StoredType], where: str) -> str:
    if not parts:
        raise UnsupportedType(f"{cls.__qualname__}, which has no fields,", where)
    return f"{cls.__qualname__}({', '.join(f'{n}: {t.name}' for n, t in parts.items())})"


def to_column(stored_type: StoredType, values: list[Any], state: str) -> pa.Array:
    """The values as one column. Raises :class:`StateTypeMismatch` where one does not fit."""
    try:
        return stored_type.to_array(values)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StateTypeMismatch(state, stored_type.name, f"{error}") from error
