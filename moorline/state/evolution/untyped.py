"""Values of a type of which only the name is left: how they are read, and how they look to people.

Old state is read by its name alone, for its classes may have changed or gone. Two forms:

    raw      what a reader of old state works with: a tuple for each struct, lists for all collections, pairs for a
             dict, text for an enum member, bytes for a pickle (which is not opened here)
    natural  what a user's ``migrate`` is given: a dict for each struct, collections as they were (a set of structs is
             a list, for a dict cannot be in a set, and a dict with such keys a list of pairs), numbers of NumPy as
             Python's, and otherwise the same
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import pyarrow as pa

from moorline.model.value_kinds import python_number
from moorline.state.types.arrow import ArrowType
from moorline.state.types.composite import DictType, Field, ListType, OptionalType, StructType, take_tuple
from moorline.state.types.leaf import LEAVES, PLAIN, ConvertedType, LiteralType, StoredType
from moorline.state.types.names import (
    ArrayName,
    ArrowName,
    DictName,
    EnumName,
    FieldsName,
    ListName,
    LiteralName,
    OptionalName,
    PickleName,
    TupleName,
    TypeName,
    Word,
)
from moorline.state.types.numpy import ArrayType, NumpyType, TypedArrayType, named_scalar

_BY_NAME = {t.name: t for t in LEAVES.values()}
_BUILDS: dict[str, Callable[[list[Any]], Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class _PairsType(DictType):
    """A dict as a list of pairs, for its keys may not be hashable any more."""

    def __init__(self, key: StoredType, value: StoredType) -> None:
        super().__init__(key, value)
        self.build = list
        self.lift = self._map_pairs if self._is_map else self._pairs

    _to_array = ListType._to_array

    def _map_pairs(self, things: dict[Any, Any] | None) -> Any:
        if things is None:
            return None
        lift = self.value.lift
        return [(k, v if lift is None else lift(v)) for k, v in things.items()]

    def _pairs(self, things: list[Any] | None) -> Any:
        if things is None:
            return None
        lift = self.item.lift
        return things if lift is None else [lift(t) for t in things]


def raw_type(name: TypeName) -> StoredType:
    """What reads the raw values of a type that is called so."""
    match name:
        case Word("plain"):
            return PLAIN
        case Word("np.ndarray"):
            return ArrayType()
        case Word(word):
            return named_scalar(word) or _BY_NAME[word]
        case OptionalName(inner):
            return OptionalType(raw_type(inner))
        case ListName(_, item):
            return ListType("", raw_type(item), list, False)
        case TupleName(items):
            return _struct({f"f{n}": t for n, t in enumerate(items)})
        case DictName(key, value):
            return _PairsType(raw_type(key), raw_type(value))
        case FieldsName(_, fields):
            return _struct(fields)
        case EnumName(_, is_flag):
            return _kept(pa.int64(), int) if is_flag else _kept(pa.string(), str)
        case LiteralName(members):
            return LiteralType(raw_type(literal_base(name)), members)
        case ArrayName(item):
            scalar = named_scalar(item)
            assert isinstance(scalar, NumpyType)
            return TypedArrayType(scalar)
        case ArrowName(arrow):
            return ArrowType(arrow)
        case PickleName():
            return _kept(pa.binary(), bytes)
        case _:
            assert_never(name)


def _struct(fields: dict[str, TypeName]) -> StoredType:
    return StructType("", [Field(n, raw_type(t)) for n, t in fields.items()], tuple, take_tuple, tuple, True)


def _kept(arrow: pa.DataType, kind: type) -> StoredType:
    return ConvertedType("", arrow, kind, kind, kind, kind)


def literal_base(name: LiteralName) -> Word:
    """How the members of a literal are stored."""
    kinds = {type(m).__name__ for m in name.members}
    return Word(kinds.pop() if len(kinds) == 1 else "plain")


def natural(name: TypeName, raw: Any) -> Any:
    """A raw value as people would write it."""
    if raw is None:
        return None
    match name:
        case OptionalName(inner):
            return natural(inner, raw)
        case ListName(build, item):
            items = [natural(item, r) for r in raw]
            return _BUILDS[build](items) if build in ("list", "tuple") or _is_hashable(item) else items
        case TupleName(parts):
            return tuple(natural(t, r) for t, r in zip(parts, raw))
        case DictName(key, value):
            pairs = [(natural(key, k), natural(value, v)) for k, v in raw]
            return dict(pairs) if _is_hashable(key) else pairs
        case FieldsName(_, fields):
            return {n: natural(t, r) for (n, t), r in zip(fields.items(), raw)}
        case _:
            return python_number(raw)


def _is_hashable(name: TypeName) -> bool:
    """Is the natural form of such values?"""
    match name:
        case OptionalName(inner):
            return _is_hashable(inner)
        case ListName(build, item):
            return build in ("tuple", "frozenset") and _is_hashable(item)
        case TupleName(items):
            return all(map(_is_hashable, items))
        case ArrowName(arrow):
            return not pa.types.is_nested(arrow)
        case DictName() | FieldsName() | ArrayName() | Word("np.ndarray"):
            return False
        case _:
            return True
