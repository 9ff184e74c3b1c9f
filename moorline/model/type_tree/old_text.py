"""The text of a type as storage formats 1 to 3 have it, read as a tree.

    int  float  plain  np.int32 ...     a word
    T | None                            optional
    list[T]  set[T]  frozenset[T]  tuple[T, ...]
    tuple[A, B]
    dict[K, V]
    Basket(owner: str, items: list[T])  anything with named fields
    enum Colour   flag Right            by the class's qualified name
    Literal["a", 1]                     JSON values
    np.ndarray[np.float32]              an array of one type; np.ndarray alone is one of any
    arrow[decimal128(10, 2)]            an Arrow type (``old_arrow_text.py``)
    pickle[module.Class, ...]           what may be unpickled
    str to list[int]                    a map state

Names of classes, fields and modules that would confuse the grammar are JSON text. A text comes from a file: it is data,
it never leads to a class, and its length and depth are limited. Called by ``stored.py``, and by
nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from moorline.model.type_tree import tree
from moorline.model.type_tree.old_arrow_text import read_arrow
from moorline.model.type_tree.printing import SAFE_CLASS
from moorline.model.type_tree.scanner import Scanner

#: Longest text that is read, in characters.
MAX_LENGTH = 100_000

#: Wider than what was written last: the first snapshots have the odd keys of a TypedDict as they are.
_FIELD = re.compile(r"[^\"()\[\]|,:]+")


def read_type(text: str) -> tree.Type:
    """The type of a value. Raises ``ValueError`` for what is none.

    >>> read_type("dict[str, int | None]")
    Dict(key=Word(word='str'), value=Optional(inner=Word(word='int')))
    """
    scan = _scanner(text)
    read = _type(scan, 0)
    scan.finish()
    return read


def read_map(text: str) -> tree.Map:
    """The type of a map state. Raises ``ValueError`` for what is none.

    >>> read_map("str to list[int]")
    Map(key=Word(word='str'), value=List(build='list', item=Word(word='int')))
    """
    scan = _scanner(text)
    key = _type(scan, 0)
    scan.expect(" to ")
    value = _type(scan, 0)
    scan.finish()
    return tree.Map(key, value)


def _scanner(text: str) -> Scanner:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a type name of {len(text)} characters is too long")
    return Scanner(text, "a type name")


def _type(scan: Scanner, depth: int) -> tree.Type:
    if depth > tree.MAX_DEPTH:
        scan.fail("it is nested too deeply")
    primary = _primary(scan, depth)
    return tree.Optional(primary) if scan.accept(" | None") else primary


def _primary(scan: Scanner, depth: int) -> tree.Type:
    for start, rest in _BRACKETED.items():
        if scan.accept(start):
            return rest(scan, depth)
    name = _class_name(scan)
    if scan.accept("("):
        return scan.made(tree.Fields.of, name, scan.fields(_FIELD, lambda: _type(scan, depth + 1), ")"))
    return scan.made(tree.Word, name)


def _list(build: type) -> Callable[[Scanner, int], tree.Type]:
    def rest(scan: Scanner, depth: int) -> tree.Type:
        item = _type(scan, depth + 1)
        scan.expect("]")
        return tree.List.of(build, item)

    return rest


def _tuple(scan: Scanner, depth: int) -> tree.Type:
    items = [_type(scan, depth + 1)]
    if scan.accept(", ...]"):
        return tree.List.of(tuple, items[0])
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
    return scan.name(SAFE_CLASS, "a class")


def _literal(scan: Scanner, depth: int) -> tree.Type:
    members = [scan.json()]
    while scan.accept(", "):
        members.append(scan.json())
    scan.expect("]")
    return scan.made(tree.Literal.of, tuple(members))


def _array(scan: Scanner, depth: int) -> tree.Type:
    item = scan.match(SAFE_CLASS, "a type")
    scan.expect("]")
    return scan.made(tree.Array, item)


def _arrow(scan: Scanner, depth: int) -> tree.Type:
    arrow = read_arrow(scan, tree.MAX_DEPTH - depth)
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
