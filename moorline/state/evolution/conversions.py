"""Conversions from the type that a state was stored as to the one that is declared: those that lose nothing.

    T                   T | None                       and back, if no value is None
    bool                int
    int                 float                          if each value survives (beyond 2**53 it might not)
    np.int32, int ...   a number that holds all of it  np.int64, int, np.float64, pa.int64() ...
    list, tuple[T, ...] each other
    set, frozenset      each other, list, tuple[T, ...]
    tuple[A, B]         tuple[T, ...], list[T], if T holds A and B
    Enum                Enum                           by the members' names, each value's must still exist
    Literal             Literal, and its own base      each value must be a member
    typed               plain                          classes become dicts, members their names
    plain               typed, Pickled                 if each value fits
    np.ndarray          of a dtype that holds all      an untyped one if each array is of that dtype
    Pickled             Pickled                        if each pickle refers to allowed classes only
    str, bytes ...      the same Arrow type            pa.string(), pa.binary() ...
    fields              fields                         added with a default, dropped, renamed, reordered, converted

Parts are converted by the same rules wherever they are. Narrowing, text from numbers, dates from times and other
other choices that only the author can make are for ``migrate`` (``state/evolution/plan.py``, which calls this).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa

from moorline.model.type_tree import tree
from moorline.model.value_kinds import python_number
from moorline.state.evolution.untyped import literal_base, raw_type, to_python
from moorline.state.types.arrow import ArrowType
from moorline.state.types.composite import DictType, Field, ListType, OptionalType, StructType
from moorline.state.types.leaf import EnumType, FlagType, LeafType, LiteralType, PlainType, StoredType
from moorline.state.types.numpy import ArrayType, NumpyType, TypedArrayType
from moorline.state.types.pickle import PickledType

Convert = Callable[[Any], Any]
_MANTISSA = {32: 24, 64: 53}
#: The types that members of literals have.
_OF_LITERALS = tuple(map(tree.Word, ("str", "int", "bool")))


class Mismatch(Exception):
    """The types do not go together; the text says where and why."""


class Conversion:
    """A function from raw old values to new ones, and in words what it changes."""

    def __init__(self, old: tree.Type, new: StoredType) -> None:
        self.notes: list[str] = []
        self.convert = self._any(old, new, "")

    def _any(self, old: tree.Type, new: StoredType, path: str) -> Convert:
        may_be_none = isinstance(new, (OptionalType, PlainType))
        if isinstance(old, tree.Optional) and not may_be_none:
            self._note(path, "no longer None (each value is checked)")
            inner = self._present(old.inner, new, path)

            def refuse_none(raw: Any) -> Any:
                if raw is None:
                    raise ValueError(f"{_place(path)} is None")
                return inner(raw)

            return refuse_none
        if isinstance(new, OptionalType) and not isinstance(old, tree.Optional) and old != tree.PLAIN:
            self._note(path, "may be None now")
        wanted = new.inner if isinstance(new, OptionalType) else new
        convert = self._present(old.inner if isinstance(old, tree.Optional) else old, wanted, path)
        return lambda raw: None if raw is None else convert(raw)

    def _present(self, old: tree.Type, new: StoredType, path: str) -> Convert:
        if isinstance(new, PlainType):
            return self._to_plain(old, new, path)
        if isinstance(new, LiteralType):
            return self._to_literal(old, new, path)
        if isinstance(old, tree.Literal):
            self._note(path, f"any {new.name} now")
            return self._present(literal_base(old), new, path)
        if old == tree.PLAIN:
            self._note(path, f"{new.name} now (each value is checked)")
            return _at(path, new, _fitted(new))
        if isinstance(new, DictType):
            return self._dict(old, new, path)
        if isinstance(new, ListType):
            return self._list(old, new, path)
        if isinstance(new, StructType):
            return self._tuple(old, new, path) if new.build_named is None else self._fields(old, new, path)
        if isinstance(new, (EnumType, FlagType)):
            return self._enum(old, new, path)
        if isinstance(new, (ArrayType, TypedArrayType)):
            return self._array(old, new, path)
        if isinstance(new, PickledType):
            if not isinstance(old, tree.Pickle):
                _differ(old, new, path)
            if old != new.tree:
                self._note(path, "other classes allowed in pickles (each value is checked)")
            return new.annotation.load
        return self._leaf(old, new, path)

    # --- without parts ------------------------------------------------------------------------

    def _leaf(self, old: tree.Type, new: StoredType, path: str) -> Convert:
        if old == new.tree:
            return _same
        if isinstance(old, (tree.Word, tree.Arrow)):
            was = raw_type(old)
            if _holds(_number(was), _number(new)):
                self._note(path, f"widened from {old} to {new.name}")
                is_truth = was.arrow == pa.bool_() and new.arrow != pa.bool_()
                fitted = _fitted(new)
                return _at(path, new, (lambda v: fitted(int(v))) if is_truth else lambda v: fitted(python_number(v)))
            has_column_of = isinstance(was, (LeafType, ArrowType)) and isinstance(new, (LeafType, ArrowType))
            if has_column_of and was.arrow == new.arrow:
                self._note(path, f"{new.name} now, which is stored alike")
                return _same
        _differ(old, new, path)

    def _enum(self, old: tree.Type, new: EnumType | FlagType, path: str) -> Convert:
        if not isinstance(old, tree.Enum) or old.is_flag is not isinstance(new, FlagType):
            _differ(old, new, path)
        self._class(old.cls, new.cls.__qualname__, path)
        return _at(path, new, new.cls if isinstance(new, FlagType) else new.member)

    def _to_literal(self, old: tree.Type, new: LiteralType, path: str) -> Convert:
        if old != new.tree:
            self._note(path, f"{new.name} now (each value is checked)")
        base = literal_base(old) if isinstance(old, tree.Literal) else old
        fitting = _OF_LITERALS if isinstance(new.base, PlainType) else (new.base.tree,)
        if base not in (*fitting, tree.PLAIN):
            _differ(old, new, path)
        return _at(path, new, new.check)

    def _to_plain(self, old: tree.Type, new: StoredType, path: str) -> Convert:
        if old == tree.PLAIN:
            return _same
        _check_plain(old, new, path)
        self._note(path, f"plain data now, as it was in {old}")
        check = _fitted(new)
        return _at(path, new, lambda raw: check(to_python(old, raw)))

    def _array(self, old: tree.Type, new: ArrayType | TypedArrayType, path: str) -> Convert:
        if old == new.tree:
            return _at(path, new, _fitted(new))
        if old == tree.ANY_ARRAY:
            self._note(path, f"{new.name} now (each array is checked)")
            return _at(path, new, _fitted(new))
        if isinstance(old, tree.Array) and isinstance(new, ArrayType):
            self._note(path, "an array of any dtype now")
            return _at(path, new, _fitted(new))
        if isinstance(old, tree.Array) and isinstance(new, TypedArrayType):
            was, now, dtype = _number(raw_type(tree.Word(old.item))), _number(new.item), new.dtype
            must_be_checked = was in _LONG and now is not None and now.sort is _Sort.FLOAT  # not worth it for arrays
            if not must_be_checked and _holds(was, now):
                self._note(path, f"widened from {old} to {new.name}")
                return lambda array: array.astype(dtype)
        _differ(old, new, path)

    # --- with parts ---------------------------------------------------------------------------

    def _list(self, old: tree.Type, new: ListType, path: str) -> Convert:
        build = new.build
        if isinstance(old, tree.Tuple) and build in (list, tuple):
            self._note(path, f"of any length now, as {new.name}")
            parts = [self._any(t, new.item, f"{path}[{n}]") for n, t in enumerate(old.items)]
            return lambda raw: build([convert(r) for convert, r in zip(parts, raw)])
        if not isinstance(old, tree.List) or (old.is_ordered and build not in (list, tuple)):
            _differ(old, new, path)
        if old.collection is not build:
            self._note(path, f"a {build.__name__} instead of a {old.build}")
        item = self._any(old.item, new.item, f"{path}[]")
        return lambda raw: build([item(r) for r in raw])

    def _dict(self, old: tree.Type, new: DictType, path: str) -> Convert:
        if not isinstance(old, tree.Dict):
            _differ(old, new, path)
        key = self._any(old.key, new.key, f"{path}{{key}}")
        value = self._any(old.value, new.value, f"{path}{{value}}")
        return lambda raw: {key(k): value(v) for k, v in raw}

    def _tuple(self, old: tree.Type, new: StructType, path: str) -> Convert:
        if not isinstance(old, tree.Tuple):
            _differ(old, new, path)
        if len(old.items) != len(new.fields):
            raise Mismatch(f"{_place(path)} had {len(old.items)} parts and has {len(new.fields)}")
        parts = [self._any(t, f.type, f"{path}[{n}]") for n, (t, f) in enumerate(zip(old.items, new.fields))]
        return lambda raw: tuple([convert(r) for convert, r in zip(parts, raw)])

    def _fields(self, old: tree.Type, new: StructType, path: str) -> Convert:
        build = new.build_named
        if not isinstance(old, tree.Fields) or build is None:
            _differ(old, new, path)
        self._class(old.cls, new.qualname, path)
        types = old.types
        sources = _sources(types, new.fields)
        places = {n: i for i, n in enumerate(types)}
        used: list[tuple[str, int, Convert, bool]] = []
        absent: dict[str, None] = {}
        for field in new.fields:
            inner, source = _join(path, field.name), sources.get(field.name)
            if source is not None:
                if source != field.name:
                    self._note(inner, f"renamed from {source!r}")
                convert = self._any(types[source], field.type, inner)
                used.append((field.name, places[source], convert, field.may_be_absent))
            elif field.may_be_absent:
                self._note(inner, "added (absent)")
            elif field.default is not None:
                self._note(inner, f"added (default {field.default})")
            elif isinstance(field.type, OptionalType):
                self._note(inner, "added (default None)")
                absent[field.name] = None
            else:
                raise Mismatch(f"{_place(inner)} is new and has no default")
        for name in types:
            if name not in sources.values():
                self._note(_join(path, name), "dropped")
        if (order := [place for _, place, _, _ in used]) != sorted(order):
            self._note(path, "fields in another order")

        def convert_fields(raw: Any) -> Any:
            known: dict[str, Any] = dict(absent)
            for name, place, convert, may_be_absent in used:
                value = convert(raw[place])
                if value is not None or not may_be_absent:
                    known[name] = value
            return build(known)

        return convert_fields

    # --- words --------------------------------------------------------------------------------

    def _class(self, old: str, new: str, path: str) -> None:
        if old != new:
            self._note(path, f"class {old} renamed to {new}")

    def _note(self, path: str, change: str) -> None:
        self.notes.append(f"{_place(path)} {change}" if path else change)


def _sources(old: Collection[str], fields: list[Field]) -> dict[str, str]:
    """From which old field each new one is read. A field that says what it was called goes first.

    It says so only while its own name is not there: a snapshot that was written since has both under their new names.
    """
    renamed: dict[str, str] = {}
    for field in fields:
        if field.name not in old:
            known = [n for n in field.renamed_from if n in old and n not in renamed.values()]
            if known:
                renamed[field.name] = known[0]
    claimed = set(renamed.values())
    return renamed | {f.name: f.name for f in fields if f.name in old and f.name not in claimed}


class _Sort(Enum):
    TRUTH = auto()
    UNSIGNED = auto()
    SIGNED = auto()
    FLOAT = auto()


class _Number(NamedTuple):
    """The sort and width of a number type."""

    sort: _Sort
    bits: int


#: Whole numbers that not every float holds.
_LONG = (_Number(_Sort.SIGNED, 64), _Number(_Sort.UNSIGNED, 64))


def _number(stored_type: StoredType) -> _Number | None:
    """The sort of number that a type is; None for what is none."""
    if not isinstance(stored_type, (LeafType, NumpyType, ArrowType)):
        return None
    arrow, kind = stored_type.arrow, pa.types
    if kind.is_boolean(arrow):
        return _Number(_Sort.TRUTH, 1)
    if kind.is_signed_integer(arrow):
        return _Number(_Sort.SIGNED, arrow.bit_width)
    if kind.is_unsigned_integer(arrow):
        return _Number(_Sort.UNSIGNED, arrow.bit_width)
    return _Number(_Sort.FLOAT, arrow.bit_width) if kind.is_float32(arrow) or kind.is_float64(arrow) else None


def _holds(old: _Number | None, new: _Number | None) -> bool:
    """Can every number of the old sort be one of the new? Those of 64 bits in a float are checked one by one."""
    if old is None or new is None:
        return False
    match old.sort, new.sort:
        case (was, now) if was is now:
            return old.bits <= new.bits
        case _Sort.TRUTH, now:
            return now is not _Sort.FLOAT
        case _, _Sort.FLOAT:
            return old.bits <= _MANTISSA[new.bits] or new.bits == 64
        case _Sort.UNSIGNED, _Sort.SIGNED:
            return old.bits < new.bits
        case _:
            return False


def _check_plain(old: tree.Type, new: StoredType, path: str) -> None:
    """Raises if the values cannot be plain data, wherever they are."""
    match old:
        case tree.Fields(_, fields):
            for field in fields:
                _check_plain(field.type, new, _join(path, field.name))
        case tree.Array() | tree.Pickle() | tree.Word("np.ndarray" | "np.datetime64" | "np.timedelta64"):
            raise Mismatch(f"{_place(path)} was {old}, which is not plain data")
        case _:
            for part in tree.parts(old):
                _check_plain(part, new, path)


def _same(value: Any) -> Any:
    return value


def _fitted(new: StoredType) -> Convert:
    """The way of a value through its stored form: it must fit, and comes out as it would from there."""
    pack, unpack = new.pack, new.unpack
    return lambda value: unpack(pack(value))


def _at(path: str, new: StoredType, convert: Convert) -> Convert:
    """The same conversion, with the place in its error."""

    def convert_there(raw: Any) -> Any:
        try:
            return convert(raw)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{_place(path)} is {raw!r:.100}, which is no {new.name}: {error}") from error

    return convert_there


def _differ(old: tree.Type, new: StoredType, path: str) -> NoReturn:
    raise Mismatch(f"{_place(path)} was {old} and is {new.name}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _place(path: str) -> str:
    if not path:
        return "it"
    return f"part {path!r}" if path[-1] in "]}" else f"field {path!r}"
