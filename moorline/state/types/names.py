"""Type names: how a stored type is spelled in a manifest, and read from one.

    int  float  plain  np.int32 ...     a word
    T | None                            optional
    list[T]  set[T]  frozenset[T]  tuple[T, ...]
    tuple[A, B]
    dict[K, V]
    Basket(owner: str, items: list[T])  anything with named fields
    enum Colour   flag Right            by the class's qualified name
    Literal["a", 1]                     JSON values
    np.ndarray[np.float32]              an array of one type; np.ndarray alone is one of any
    arrow[decimal128(10, 2)]            an Arrow type (``state/types/arrow_names.py``)
    pickle[module.Class, ...]           what may be unpickled

Names of classes, fields and modules that would confuse the grammar are spelled as JSON text. A name read here comes
from a file: it is data, it never leads to a class, and its length and depth are limited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

import pyarrow as pa

from moorline.model.value_kinds import KINDS, NUMPY_NUMBERS
from moorline.state.types.arrow_names import parse_arrow, spell_arrow
from moorline.state.types.scanner import Scanner

#: Longest name that is read, in characters, and deepest nesting of types in it.
MAX_LENGTH, MAX_DEPTH = 100_000, 60

#: Types that are one word.
WORDS = frozenset(
    [*(kind.name for kind in KINDS), *NUMPY_NUMBERS, "plain", "np.ndarray", "np.datetime64", "np.timedelta64"]
)
_SAFE_CLASS = re.compile(r"[\w.<>]+")
_SAFE_FIELD = re.compile(r"\w+")
#: Wider than what is spelled today: the first snapshots have the odd keys of a TypedDict as they are.
_FIELD = re.compile(r"[^\"()\[\]|,:]+")


@dataclass(frozen=True)
class Word:
    """A type that is one word."""

    word: str


@dataclass(frozen=True)
class OptionalName:
    """``T | None``."""

    inner: TypeName


@dataclass(frozen=True)
class ListName:
    """Any number of items; ``build`` is list, set, frozenset or tuple."""

    build: str
    item: TypeName


@dataclass(frozen=True)
class TupleName:
    """``tuple[A, B]``."""

    items: tuple[TypeName, ...]


@dataclass(frozen=True)
class DictName:
    """``dict[K, V]``."""

    key: TypeName
    value: TypeName


@dataclass(frozen=True)
class FieldsName:
    """A class with named fields, of whatever sort."""

    cls: str
    fields: dict[str, TypeName]


@dataclass(frozen=True)
class EnumName:
    """``enum Colour`` or ``flag Right``."""

    cls: str
    is_flag: bool


@dataclass(frozen=True)
class LiteralName:
    """One of some values."""

    members: tuple[Any, ...]


@dataclass(frozen=True)
class ArrayName:
    """``np.ndarray[np.float32]``; the item is a word."""

    item: str


@dataclass(frozen=True)
class ArrowName:
    """An Arrow type."""

    type: pa.DataType


@dataclass(frozen=True)
class PickleName:
    """A pickle, and what it may refer to."""

    allowed: tuple[str, ...]


TypeName = (
    Word
    | OptionalName
    | ListName
    | TupleName
    | DictName
    | FieldsName
    | EnumName
    | LiteralName
    | ArrayName
    | ArrowName
    | PickleName
)


# --- spelling ---------------------------------------------------------------------------------


def spell(name: TypeName) -> str:
    """The name behind a tree: what :func:`parse` reads.

    >>> spell(OptionalName(TupleName((Word("int"), Word("float")))))
    'tuple[int, float] | None'
    """
    match name:
        case Word(word):
            return word
        case OptionalName(inner):
            return f"{spell(inner)} | None"
        case ListName(build, item):
            return f"{build}[{spell(item)}{', ...' if build == 'tuple' else ''}]"
        case TupleName(items):
            return f"tuple[{', '.join(map(spell, items))}]"
        case DictName(key, value):
            return f"dict[{spell(key)}, {spell(value)}]"
        case FieldsName(cls, fields):
            return spell_fields(cls, {n: spell(t) for n, t in fields.items()})
        case EnumName(cls, is_flag):
            return f"{'flag' if is_flag else 'enum'} {spell_class(cls)}"
        case LiteralName(members):
            return spell_literal(members)
        case ArrayName(item):
            return f"np.ndarray[{item}]"
        case ArrowName(arrow):
            return f"arrow[{spell_arrow(arrow)}]"
        case PickleName(allowed):
            return spell_pickle(allowed)
        case _:
            assert_never(name)


def spell_class(qualname: str) -> str:
    """A class, by its qualified name."""
    return _quoted(qualname, _SAFE_CLASS)


def spell_fields(qualname: str, fields: dict[str, str]) -> str:
    """A class and the spelled types of its fields."""
    return f"{spell_class(qualname)}({', '.join(f'{_quoted(n, _SAFE_FIELD)}: {t}' for n, t in fields.items())})"


def spell_literal(members: tuple[Any, ...]) -> str:
    """Some texts and numbers."""
    return f"Literal[{', '.join(map(json.dumps, members))}]"


def spell_pickle(allowed: tuple[str, ...]) -> str:
    """A pickle by what it may refer to."""
    return f"pickle[{', '.join(_quoted(n, _SAFE_CLASS) for n in sorted(allowed))}]"


def _quoted(name: str, safe: re.Pattern[str]) -> str:
    return name if safe.fullmatch(name) else json.dumps(name)


# --- reading ----------------------------------------------------------------------------------


def parse(name: str) -> TypeName:
    """The tree of a type name. Raises ``ValueError`` for what is none.

    >>> parse("dict[str, int | None]")
    DictName(key=Word(word='str'), value=OptionalName(inner=Word(word='int')))
    """
    scan = _scanner(name)
    return scan.complete(_type(scan, 0))


def parse_map(name: str) -> tuple[str, str]:
    """The names of a map state's key and value, which it joins by "to".

    >>> parse_map("str to list[int]")
    ('str', 'list[int]')
    """
    scan = _scanner(name)
    _type(scan, 0)
    key = name[: scan.at]
    scan.expect(" to ")
    start = scan.at
    scan.complete(_type(scan, 0))
    return key, name[start:]


def _scanner(name: str) -> Scanner:
    if len(name) > MAX_LENGTH:
        raise ValueError(f"a type name of {len(name)} characters is too long")
    return Scanner(name, "a type name")


def _type(scan: Scanner, depth: int) -> TypeName:
    if depth > MAX_DEPTH:
        scan.fail("it is nested too deeply")
    found = _primary(scan, depth)
    if scan.accept(" | None"):
        return OptionalName(found)
    return found


def _primary(scan: Scanner, depth: int) -> TypeName:
    for start, rest in _BRACKETED.items():
        if scan.accept(start):
            return rest(scan, depth)
    name = _class_name(scan)
    if scan.accept("("):
        return FieldsName(name, _fields(scan, depth))
    if name not in WORDS:
        scan.fail(f"there is no type {name!r:.100}")
    return Word(name)


def _fields(scan: Scanner, depth: int) -> dict[str, TypeName]:
    fields: dict[str, TypeName] = {}
    while True:
        field = scan.text() if scan.peek() == '"' else scan.match(_FIELD, "a field")
        scan.expect(": ")
        if field in fields:
            scan.fail(f"the field {field!r:.100} is there twice")
        fields[field] = _type(scan, depth + 1)
        if scan.accept(")"):
            return fields
        scan.expect(", ")


def _list(build: str) -> Callable[[Scanner, int], TypeName]:
    def rest(scan: Scanner, depth: int) -> TypeName:
        item = _type(scan, depth + 1)
        scan.expect("]")
        return ListName(build, item)

    return rest


def _tuple(scan: Scanner, depth: int) -> TypeName:
    items = [_type(scan, depth + 1)]
    if scan.accept(", ...]"):
        return ListName("tuple", items[0])
    while scan.accept(", "):
        items.append(_type(scan, depth + 1))
    scan.expect("]")
    return TupleName(tuple(items))


def _dict(scan: Scanner, depth: int) -> TypeName:
    key = _type(scan, depth + 1)
    scan.expect(", ")
    value = _type(scan, depth + 1)
    scan.expect("]")
    return DictName(key, value)


def _enum(is_flag: bool) -> Callable[[Scanner, int], TypeName]:
    def rest(scan: Scanner, depth: int) -> TypeName:
        return EnumName(_class_name(scan), is_flag)

    return rest


def _class_name(scan: Scanner) -> str:
    return scan.text() if scan.peek() == '"' else scan.match(_SAFE_CLASS, "a class")


def _literal(scan: Scanner, depth: int) -> TypeName:
    members = [scan.json()]
    while scan.accept(", "):
        members.append(scan.json())
    scan.expect("]")
    if any(type(m) not in (str, int, bool) for m in members):
        scan.fail("a literal is a text or a whole number")
    return LiteralName(tuple(members))


def _array(scan: Scanner, depth: int) -> TypeName:
    item = scan.match(_SAFE_CLASS, "a type")
    if item not in NUMPY_NUMBERS:
        scan.fail(f"there is no array of {item!r:.100}")
    scan.expect("]")
    return ArrayName(item)


def _arrow(scan: Scanner, depth: int) -> TypeName:
    found = parse_arrow(scan, MAX_DEPTH - depth)
    scan.expect("]")
    return ArrowName(found)


def _pickle(scan: Scanner, depth: int) -> TypeName:
    allowed: list[str] = []
    while not scan.accept("]"):
        if allowed:
            scan.expect(", ")
        allowed.append(_class_name(scan))
    return PickleName(tuple(allowed))


#: How a type that is more than a word begins, and what reads the rest of it.
_BRACKETED: dict[str, Callable[[Scanner, int], TypeName]] = {
    "list[": _list("list"),
    "set[": _list("set"),
    "frozenset[": _list("frozenset"),
    "tuple[": _tuple,
    "dict[": _dict,
    "enum ": _enum(False),
    "flag ": _enum(True),
    "Literal[": _literal,
    "np.ndarray[": _array,
    "arrow[": _arrow,
    "pickle[": _pickle,
}
