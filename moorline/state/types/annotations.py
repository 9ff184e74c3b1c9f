"""The stored form of a declared type: typed Arrow columns, and msgpack for one value at a time.

    annotation                          column
    int, float, bool, str, bytes        int64, double, bool, string, binary
    date, timedelta                     date32, duration[us]
    datetime, time, UUID, Decimal       string (ISO 8601, canonical text): lossless and readable
    Enum; Flag                          string: the member's name; int64
    Literal["a", "b"]                   as str, int or bool; plain if mixed
    T | None                            T, nullable
    Annotated[T, ...], NewType, alias   T
    list, set, frozenset, tuple[T, ...] list
    tuple[A, B], NamedTuple, dataclass, struct
      TypedDict, msgspec.Struct
    dict[K, V]                          list of struct<key, value>
    np.int32 and the like               the Arrow type of that width (``state/types/numpy.py``)
    np.ndarray; NDArray[np.float32]     struct<dtype, shape, data: binary>; struct<shape, data: list<float>>
    pa.decimal128(10, 2) and the like   exactly that (``state/types/arrow.py``)
    Pickled(allow=[...])                binary: a pickle of named classes only (``state/types/pickle.py``)
    anything else, or nothing           binary: plain data as msgpack (``state/types/plain.py``)

A type knows its tree, which goes into the manifest and is compared on restore (``model/type_tree/tree.py``,
``state/evolution/plan.py``); it converts whole columns at a time and single values; and it says whether its values
could be changed in place, which the heap backend must know while a snapshot is being written. Classes are taken from
the job's own annotations, never from a name in a snapshot.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Annotated, Any, Literal, NotRequired, Required, Union

import msgspec
import numpy as np
import pyarrow as pa

from moorline.errors import StateTypeMismatch, UnsupportedType
from moorline.model.type_tree import tree
from moorline.state.types.arrow import ArrowType
from moorline.state.types.composite import DictType, Field, ListType, OptionalType, StructType, tuple_type
from moorline.state.types.leaf import LEAVES, PLAIN, EnumType, FlagType, LiteralType, StoredType
from moorline.state.types.numpy import array_type, scalar_type
from moorline.state.types.pickle import Pickled, PickledType

__all__ = ["Pickled", "RenamedFrom", "StoredType", "stored", "to_bytes", "to_column"]

#: Raised by the ways of storing for a value that does not fit.
UNFIT = (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError)
#: ``type Name = ...`` of Python 3.12. NumPy's NDArray is one since 2.5.
_ALIAS: Any = getattr(typing, "TypeAliasType", ())


@dataclass(frozen=True)
class RenamedFrom:
    """The name of a field in older snapshots: ``total: Annotated[int, RenamedFrom("sum")]``.

    >>> @dataclass
    ... class Basket:
    ...     total: Annotated[int, RenamedFrom("sum")]
    >>> stored(Basket, "here").name
    'Basket(total: int)'
    """

    name: str


def stored(annotation: Any, where: str) -> StoredType:
    """The stored form of an annotation. Raises :class:`UnsupportedType`.

    >>> pair = stored(tuple[int, float], "here")
    >>> pair.name
    'tuple[int, float]'
    >>> pair.unpack(pair.pack((1, 2.5)))
    (1, 2.5)
    """
    try:
        stored_type = _stored(annotation, where)
        tree.check_bounds(stored_type.tree)  # what could not be read from a manifest must not get into one
    except RecursionError:
        raise UnsupportedType(f"{annotation}, which contains itself,", where) from None
    except ValueError as error:
        raise UnsupportedType(f"{annotation!r:.200} ({error})", where) from None
    return stored_type


def _stored(annotation: Any, where: str) -> StoredType:
    if isinstance(annotation, pa.DataType):
        try:
            return ArrowType(annotation)
        except ValueError as error:
            raise UnsupportedType(str(error), where) from None
    if isinstance(annotation, Pickled):
        return PickledType(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Annotated, NotRequired, Required):
        return _stored(arguments[0], where)
    if isinstance(annotation, typing.NewType):
        return _stored(annotation.__supertype__, where)
    if isinstance(annotation, _ALIAS):
        return _stored(annotation.__value__, where)
    if isinstance(origin, _ALIAS):
        return _stored(origin.__value__[arguments], where)
    if annotation in (object, Any, None):
        return PLAIN
    if isinstance(annotation, type) and annotation in LEAVES:
        return LEAVES[annotation]
    if origin in (Union, types.UnionType):
        return _union(arguments, where)
    if origin is Literal:
        return _literal(annotation, arguments, where)
    if (origin or annotation) is np.ndarray:
        return array_type(arguments)
    if (origin or annotation) in (list, dict, set, frozenset, tuple) and not arguments:
        return PLAIN
    if origin is not None:
        return _generic(annotation, origin, arguments, where)
    if isinstance(annotation, type):
        return scalar_type(annotation) or _class(annotation, where)
    raise UnsupportedType(str(annotation), where)


def _union(arguments: tuple[Any, ...], where: str) -> StoredType:
    others = [a for a in arguments if a is not type(None)]
    return _optional(_stored(others[0], where)) if len(others) == 1 else PLAIN


def _optional(inner: StoredType) -> StoredType:
    return inner if inner is PLAIN or isinstance(inner, OptionalType) else OptionalType(inner)


def _literal(annotation: Any, arguments: tuple[Any, ...], where: str) -> StoredType:
    members = sorted((a for a in arguments if a is not None), key=lambda m: (type(m).__name__, m))
    kinds = set(map(type, members))
    if not kinds or not kinds <= {str, int, bool}:
        raise UnsupportedType(str(annotation), where)
    literal = LiteralType(LEAVES[kinds.pop()] if len(kinds) == 1 else PLAIN, tuple(members))
    return _optional(literal) if None in arguments else literal


def _generic(annotation: Any, origin: Any, arguments: tuple[Any, ...], where: str) -> StoredType:
    if origin is list:
        item = _stored(arguments[0], where)
        return ListType(tree.List.of(list, item.tree), item, list, False)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _stored(arguments[0], where)
        return ListType(tree.List.of(tuple, item.tree), item, tuple, True)
    if origin in (set, frozenset):
        item = _stored(arguments[0], where)
        return ListType(tree.List.of(origin, item.tree), item, origin, origin is frozenset)
    if origin is tuple and arguments:
        return tuple_type([Field(f"f{n}", _stored(a, where)) for n, a in enumerate(arguments)])
    if origin is dict:
        return DictType(_stored(arguments[0], where), _stored(arguments[1], where))
    raise UnsupportedType(str(annotation), where)


def _class(cls: type, where: str) -> StoredType:
    if issubclass(cls, Flag):
        return FlagType(cls)
    if issubclass(cls, Enum):
        return EnumType(cls)
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        # What __init__ does not take is made anew by it, and could be anything.
        is_immutable = cls.__dataclass_params__.frozen and all(f.init for f in fields)  # type: ignore[attr-defined]
        defaults = {f.name: _default(f.default, f.default_factory, dataclasses.MISSING) for f in fields if f.init}
        return _fields(cls, defaults, is_immutable, where)
    if issubclass(cls, msgspec.Struct):
        defaults = {
            f.name: _default(f.default, f.default_factory, msgspec.NODEFAULT) for f in msgspec.structs.fields(cls)
        }
        return _fields(cls, defaults, cls.__struct_config__.frozen, where)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        known = getattr(cls, "_field_defaults", {})
        return _fields(cls, {n: repr(known[n]) if n in known else None for n in cls._fields}, True, where)
    if typing.is_typeddict(cls):
        return _typed_dict(cls, where)
    raise UnsupportedType(cls.__qualname__, where)


def _default(value: Any, factory: Any, missing: Any) -> str | None:
    """A field's default in words. The class itself fills it in."""
    if value is not missing:
        return f"{value!r:.100}"
    return f"{getattr(factory, '__qualname__', factory)}()" if factory is not missing else None


def _field(name: str, hint: Any, default: str | None, where: str, may_be_absent: bool = False) -> Field:
    renamed: list[str] = []
    inner = hint
    while typing.get_origin(inner) in (Annotated, NotRequired, Required):
        renamed += [m.name for m in getattr(inner, "__metadata__", ()) if isinstance(m, RenamedFrom)]
        inner = typing.get_args(inner)[0]
    return Field(name, _stored(inner, where), tuple(renamed), default, may_be_absent)


def _typed_dict(cls: Any, where: str) -> StoredType:
    hints = _hints(cls, where)
    # __required_keys__ is wrong about annotations that are text (from __future__ import annotations).
    required = {n for n in cls.__required_keys__ if typing.get_origin(hints[n]) is not NotRequired}
    fields = [_field(n, h, None, where, may_be_absent=n not in required) for n, h in hints.items()]
    names = list(hints)

    def take(value: Any) -> list[Any]:
        if not isinstance(value, dict):
            raise TypeError(f"a {type(value).__qualname__} is not a dict")
        if not required <= value.keys() <= hints.keys():
            raise ValueError(f"a {cls.__qualname__} has the keys {', '.join(names)}, not {', '.join(map(str, value))}")
        return [value.get(n) for n in names]

    def build(row: Any) -> dict[str, Any]:
        return {n: v for n, v in zip(names, row) if v is not None or n in required}

    return StructType(_tree(cls, fields, where), fields, dict, take, build, False, dict, cls.__qualname__)


def _fields(cls: Any, defaults: dict[str, str | None], is_immutable: bool, where: str) -> StoredType:
    hints, names = _hints(cls, where), list(defaults)
    fields = [_field(n, hints.get(n, object), default, where) for n, default in defaults.items()]

    def take(value: Any) -> list[Any]:
        if type(value) is not cls:  # a subclass would come back as less than it was
            raise TypeError(f"a {type(value).__qualname__} is not a {cls.__qualname__}")
        return [getattr(value, n) for n in names]

    def build(row: Any) -> Any:
        return cls(**dict(zip(names, row)))

    def build_named(known: dict[str, Any]) -> Any:
        return cls(**known)

    return StructType(
        *(_tree(cls, fields, where), fields, cls, take, build, is_immutable, build_named, cls.__qualname__),
        # Whoever makes a class by hand can give it names that attrgetter would read as a path.
        attributes=names if all(map(str.isidentifier, names)) else None,
        make=cls if _takes_in_order(cls, names) else None,
    )


def _takes_in_order(cls: Any, names: list[str]) -> bool:
    """Can all parts be given without their names, in their order? Keyword-only ones cannot, nor a changed order."""
    try:
        parameters = list(inspect.signature(cls, follow_wrapped=False).parameters.values())
    except (TypeError, ValueError):
        return False
    kinds = {p.kind for p in parameters[: len(names)]}
    return [p.name for p in parameters[: len(names)]] == names and kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def _hints(cls: Any, where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise UnsupportedType(f"{cls.__qualname__} (an annotation of it cannot be resolved: {error})", where) from None


def _tree(cls: Any, fields: list[Field], where: str) -> tree.Type:
    if not fields:
        raise UnsupportedType(f"{cls.__qualname__}, which has no fields,", where)
    return tree.Fields.of(cls.__qualname__, {f.name: f.type.tree for f in fields})


def to_column(stored_type: StoredType, values: list[Any], state: str) -> pa.Array:
    """The values as one column. Raises :class:`StateTypeMismatch` where one does not fit."""
    try:
        return stored_type.to_array(values)
    except UNFIT as error:
        raise StateTypeMismatch(state, stored_type.name, f"{error}") from error


def to_bytes(stored_type: StoredType, value: Any, state: str) -> bytes:
    """One value as bytes. Raises :class:`StateTypeMismatch` if it does not fit."""
    try:
        return stored_type.pack(value)
    except UNFIT as error:
        raise StateTypeMismatch(state, stored_type.name, f"{error}") from error
