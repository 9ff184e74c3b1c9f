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
from typing import Any, assert_never

from moorline.model.value_kinds import KINDS, NUMPY_NUMBERS
from moorline.state.types import tree
from moorline.state.types.arrow_names import parse_arrow, spell_arrow
from moorline.state.types.scanner import Scanner, quoted

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


# --- spelling ---------------------------------------------------------------------------------


def spell(name: tree.Type) -> str:
    """The name behind a tree: what :func:`parse` reads.

    >>> spell(tree.Optional(tree.Tuple((tree.Word("int"), tree.Word("float")))))
    'tuple[int, float] | None'
    """
    match name:
        case tree.Word(word):
            return word
        case tree.Optional(inner):
            return f"{spell(inner)} | None"
        case tree.List(build, item):
            return f"{build.__name__}[{spell(item)}{', ...' if build is tuple else ''}]"
        case tree.Tuple(items):
            return f"tuple[{', '.join(map(spell, items))}]"
        case tree.Dict(key, value):
            return f"dict[{spell(key)}, {spell(value)}]"
        case tree.Fields(cls, fields):
            return spell_fields(cls, {n: spell(t) for n, t in fields.items()})
        case tree.Enum(cls, is_flag):
            return f"{'flag' if is_flag else 'enum'} {spell_class(cls)}"
        case tree.Literal(members):
            return spell_literal(members)
        case tree.Array(item):
            return f"np.ndarray[{item}]"
        case tree.Arrow(arrow):
            return f"arrow[{spell_arrow(arrow)}]"
        case tree.Pickle(allowed):
            return spell_pickle(allowed)
        case _:
            assert_never(name)


def spell_class(qualname: str) -> str:
    """A class, by its qualified name."""
    return quoted(qualname, _SAFE_CLASS)


def spell_fields(qualname: str, fields: dict[str, str]) -> str:
    """A class and the spelled types of its fields."""
    return f"{spell_class(qualname)}({', '.join(f'{quoted(n, _SAFE_FIELD)}: {t}' for n, t in fields.items())})"


def spell_literal(members: tuple[Any, ...]) -> str:
    """Some texts and numbers."""
    return f"Literal[{', '.join(map(json.dumps, members))}]"


def spell_pickle(allowed: tuple[str, ...]) -> str:
    """A pickle by what it may refer to."""
    return f"pickle[{', '.join(quoted(n, _SAFE_CLASS) for n in sorted(allowed))}]"


# --- reading ----------------------------------------------------------------------------------


def parse(name: str) -> tree.Type:
    """The tree of a type name. Raises ``ValueError`` for what is none.

    >>> parse("dict[str, int | None]")
    Dict(key=Word(word='str'), value=Optional(inner=Word(word='int')))
    """
    scan = _scanner(name)
    parsed = _type(scan, 0)
    scan.finish()
    return parsed


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
    _type(scan, 0)
    scan.finish()
    return key, name[start:]


def _scanner(name: str) -> Scanner:
    if len(name) > MAX_LENGTH:
        raise ValueError(f"a type name of {len(name)} characters is too long")
    return Scanner(name, "a type name")


def _type(scan: Scanner, depth: int) -> tree.Type:
    if depth > MAX_DEPTH:
        scan.fail("it is nested too deeply")
    primary = _primary(scan, depth)
    return tree.Optional(primary) if scan.accept(" | None") else primary


def _primary(scan: Scanner, depth: int) -> tree.Type:
    for start, rest in _BRACKETED.items():
        if scan.accept(start):
            return rest(scan, depth)
    name = _class_name(scan)
    if scan.accept("("):
        return tree.Fields(name, scan.fields(_FIELD, lambda: _type(scan, depth + 1), ")"))
    if name not in WORDS:
        scan.fail(f"there is no type {name!r:.100}")
    return tree.Word(name)


def _list(build: type) -> Callable[[Scanner, int], tree.Type]:
    def rest(scan: Scanner, depth: int) -> tree.Type:
        item = _type(scan, depth + 1)
        scan.expect("]")
        return tree.List(build, item)

    return rest


def _tuple(scan: Scanner, depth: int) -> tree.Type:
    items = [_type(scan, depth + 1)]
    if scan.accept(", ...]"):
        return tree.List(tuple, items[0])
    while scan.accept(", "):
        items.append(_type(scan, depth + 1))
    scan.expect("]")
    return tree.Tuple(tuple(items))


def _dict(scan: Scanner, depth: int) -> tree.Type:
    key = _type(scan, depth + 1)
    scan.expect(", ")
    value = _type(scan, depth + 1)
    scan.expect("]")
    return tree.Dict(key, value)


def _enum(is_flag: bool) -> Callable[[Scanner, int], tree.Type]:
    def rest(scan: Scanner, depth: int) -> tree.Type:
        return tree.Enum(_class_name(scan), is_flag)

    return rest


def _class_name(scan: Scanner) -> str:
    return scan.name(_SAFE_CLASS, "a class")


def _literal(scan: Scanner, depth: int) -> tree.Type:
    members = [scan.json()]
    while scan.accept(", "):
        members.append(scan.json())
    scan.expect("]")
    if any(type(m) not in (str, int, bool) for m in members):
        scan.fail("a literal is a text or a whole number")
    return tree.Literal(tuple(members))


def _array(scan: Scanner, depth: int) -> tree.Type:
    item = scan.match(_SAFE_CLASS, "a type")
    if item not in NUMPY_NUMBERS:
        scan.fail(f"there is no array of {item!r:.100}")
    scan.expect("]")
    return tree.Array(item)


def _arrow(scan: Scanner, depth: int) -> tree.Type:
    arrow = parse_arrow(scan, MAX_DEPTH - depth)
    scan.expect("]")
    return tree.Arrow(arrow)


def _pickle(scan: Scanner, depth: int) -> tree.Type:
    allowed: list[str] = []
    while not scan.accept("]"):
        if allowed:
            scan.expect(", ")
        allowed.append(_class_name(scan))
    return tree.Pickle(tuple(allowed))


#: How a type that is more than a word begins, and what reads the rest of it.
_BRACKETED: dict[str, Callable[[Scanner, int], tree.Type]] = {
    "list[": _list(list),
    "set[": _list(set),
    "frozenset[": _list(frozenset),
    "tuple[": _tuple,
    "dict[": _dict,
    "enum ": _enum(False),
    "flag ": _enum(True),
    "Literal[": _literal,
    "np.ndarray[": _array,
    "arrow[": _arrow,
    "pickle[": _pickle,
}
