"""Values of a type of which only the tree is left: how they are read, and how they look in Python.

Old state is read by the tree of its type alone, for its classes may have changed or gone. Two forms:

    raw      what a reader of old state works with: a tuple for each struct, lists for all collections, pairs for a
             dict, text for an enum member, bytes for a pickle (which is not opened here)
    Python   what a user's ``migrate`` is given: a dict for each struct, collections as they were (a set of structs is
             a list, for a dict cannot be in a set, and a dict with such keys a list of pairs), numbers of NumPy as
             Python's, and otherwise the same
"""

from __future__ import annotations

from typing import Any, assert_never

import pyarrow as pa

from moorline.model.type_tree import tree
from moorline.model.type_tree.arrow import parts
from moorline.model.value_kinds import python_number
from moorline.state.types.arrow import ArrowType
from moorline.state.types.arrow_trees import data_type
from moorline.state.types.composite import DictType, Field, ListType, OptionalType, tuple_type
from moorline.state.types.generated import GeneratedSource
from moorline.state.types.leaf import LEAVES, PLAIN, ConvertedType, LiteralType, StoredType
from moorline.state.types.numpy import ArrayType, NumpyType, TypedArrayType, named_scalar

_BY_TREE = {t.tree: t for t in LEAVES.values()}


class _PairsType(DictType):
    """A dict as a list of pairs, for its keys may not be hashable any more."""

    def __init__(self, key: StoredType, value: StoredType) -> None:
        super().__init__(key, value)
        self.build = list
        self.lift = self._map_pairs if self._is_map else self._pairs

    _to_array = ListType._to_array

    def lift_lines(self, source: GeneratedSource) -> list[str] | None:
        return None

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


def raw_type(stored: tree.Type) -> StoredType:
    """The stored type that reads the raw values of a type."""
    match stored:
        case tree.PLAIN:
            return PLAIN
        case tree.ANY_ARRAY:
            return ArrayType()
        case tree.Word(word):
            return named_scalar(word) or _BY_TREE[stored]
        case tree.Optional(inner):
            return OptionalType(raw_type(inner))
        case tree.List(_, item):
            return ListType(stored, raw_type(item), list, False)
        case tree.Tuple(items):
            return tuple_type([Field(f"f{n}", raw_type(t)) for n, t in enumerate(items)])
        case tree.Dict(key, value):
            return _PairsType(raw_type(key), raw_type(value))
        case tree.Fields(_, fields):
            return tuple_type([Field(f.name, raw_type(f.type)) for f in fields], stored)
        case tree.Enum(_, is_flag):
            return _kept(stored, pa.int64(), int) if is_flag else _kept(stored, pa.string(), str)
        case tree.Literal():
            return LiteralType(raw_type(literal_base(stored)), stored.values)
        case tree.Array(item):
            scalar = named_scalar(item)
            assert isinstance(scalar, NumpyType)
            return TypedArrayType(scalar)
        case tree.Arrow(arrow):
            return ArrowType(data_type(arrow))
        case tree.Pickle():
            return _kept(stored, pa.binary(), bytes)
        case _:
            assert_never(stored)


def _kept(stored: tree.Type, arrow: pa.DataType, kind: type) -> StoredType:
    return ConvertedType(stored, arrow, kind, kind, kind, kind)


def literal_base(stored: tree.Literal) -> tree.Word:
    """The type by which the members of a literal are stored."""
    kinds = {type(m).__name__ for m in stored.values}
    return tree.Word(kinds.pop() if len(kinds) == 1 else "plain")


def to_python(stored: tree.Type, raw: Any) -> Any:
    """A raw value as people would write it in Python."""
    if raw is None:
        return None
    match stored:
        case tree.Word():  # first: most parts are words
            return python_number(raw)
        case tree.Optional(inner):
            return to_python(inner, raw)
        case tree.List(_, item):
            items = [to_python(item, r) for r in raw]
            return stored.collection(items) if stored.is_ordered or _is_hashable(item) else items
        case tree.Tuple(parts):
            return tuple(to_python(t, r) for t, r in zip(parts, raw))
        case tree.Dict(key, value):
            pairs = [(to_python(key, k), to_python(value, v)) for k, v in raw]
            return dict(pairs) if _is_hashable(key) else pairs
        case tree.Fields(_, fields):
            return {f.name: to_python(f.type, r) for f, r in zip(fields, raw)}
        case _:
            return python_number(raw)


def _is_hashable(stored: tree.Type) -> bool:
    """Are such values hashable, as Python's?"""
    match stored:
        case tree.Word(word):
            return word != "np.ndarray"
        case tree.Dict() | tree.Fields() | tree.Array():
            return False
        case tree.List("list" | "set"):
            return False
        case tree.Arrow(arrow):
            return not parts(arrow)
        case _:
            return all(map(_is_hashable, tree.parts(stored)))
