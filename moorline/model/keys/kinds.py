"""The kinds of keys: those that a snapshot says an operator has, and whether a job still has such keys.

State is found again by the encoding of its key (``model/keys/encoding.py``). If the keys of a job are of another kind
than those in a snapshot, no state is ever found again. So a snapshot names the kinds of keys that it has, and a job
with others is refused: before it starts if the type of its keys is known, else at its first record.

    number  str  bytes  date  datetime  aware datetime  time  timedelta  UUID  frozenset
    enum Colour  dataclass Account                  with the name of the class
    (str, number)                                   a tuple, with the kinds of its items; of classes without the name
    None                                            only inside of tuples: fits any kind there
    * or (...)                                      in a declared type: any key, or a tuple of any length
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from itertools import product
from typing import Any

import numpy as np

from moorline.model import keys
from moorline.model.value_kinds import KINDS

ANY, ANY_TUPLE = "*", "(...)"
#: A declared type that could be more kinds than this is any.
MOST_KINDS = 64

_OF_TAG = {
    **{tag.encode(): kind for value_kind in KINDS for tag, kind in value_kind.key_tags.items()},
    **{b"(": "tuple", b"{": "frozenset", b"n": "None", b"e": "enum", b"D": "dataclass"},
}
#: The kinds of keys of a type and its subclasses.
_OF_TYPE: dict[type, list[str]] = {
    **{value_kind.type: list(dict.fromkeys(value_kind.key_tags.values())) for value_kind in KINDS},
    **{np.number: ["number"], np.bool_: ["number"], frozenset: ["frozenset"]},
}


def kind_of(encoded: bytes) -> str:
    """The kind of an encoded key.

    >>> kind_of(keys.encode(1.5)), kind_of(keys.encode(("a", 1, None))), kind_of(b"eColour\\0RED")
    ('number', '(str, number, None)', 'enum Colour')
    """
    match encoded[:1]:
        case b"(":
            return f"({', '.join(_OF_TAG.get(item[:1], ANY) for item in keys.items_of(encoded))})"
        case b"e":
            return "enum " + encoded[1:].partition(b"\0")[0].decode()
        case b"D":
            return f"dataclass {keys.items_of(encoded)[0][1:].decode()}"
        case tag:
            return _OF_TAG.get(tag, ANY)


def fits(kind: str, known: Collection[str]) -> bool:
    """Is a key of this kind one of those?

    >>> fits("str", ["number"]), fits("(str, None)", ["(str, number)"]), fits("(str, str)", ["(str, number)"])
    (False, True, False)
    >>> fits("(str, str, str)", ["(str)", "(str, str)"])  # tuples of any length
    True
    """
    if kind in known or ANY in known:
        return True
    if not kind.startswith("("):
        return False
    tuples = [_items(other) for other in known if other.startswith("(")]
    if ANY_TUPLE in known or len(set(map(len, tuples))) > 1:
        return True
    loose = ("None", ANY)
    items = _items(kind)
    return any(
        len(others) == len(items) and all(a == b or a in loose or b in loose for a, b in zip(items, others))
        for others in tuples
    )


def _items(kind: str) -> list[str]:
    return [item for item in kind[1:-1].split(", ") if item]


def kinds_of_type(declared: Any) -> list[str]:
    """The kinds that keys of a declared type can be of; ``["*"]`` if that is not known.

    >>> kinds_of_type(int | str), kinds_of_type(tuple[str, int | None]), kinds_of_type(None)
    (['number', 'str'], ['(str, number)', '(str, None)'], ['*'])
    """
    kinds = list(dict.fromkeys(_kinds(declared)))
    return [ANY] if ANY in kinds or not kinds or len(kinds) > MOST_KINDS else kinds


def _kinds(declared: Any) -> list[str]:
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if isinstance(declared, typing.NewType):
        return _kinds(declared.__supertype__)
    if origin is typing.Annotated:
        return _kinds(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return [kind for member in arguments for kind in _part_kinds(member)]
    if origin is typing.Literal:
        return [kind for value in arguments for kind in _kinds(type(value))]
    if origin is tuple:
        if Ellipsis in arguments:
            return [ANY_TUPLE]
        items = [[_without_name(kind) for kind in _part_kinds(item)] for item in arguments]
        return [f"({', '.join(kinds)})" for kinds in product(*items)]
    kind = origin if isinstance(origin, type) else declared
    if not isinstance(kind, type) or kind is object:
        return [ANY]
    for base, kinds in _OF_TYPE.items():
        if issubclass(kind, base):
            return kinds
    if issubclass(kind, tuple):
        hints = getattr(kind, "__annotations__", {})
        return _kinds(tuple[tuple(hints.values())]) if hints else [ANY_TUPLE]  # type: ignore[misc]
    if issubclass(kind, Enum):
        return [f"enum {kind.__qualname__}"]
    return [f"dataclass {kind.__qualname__}"] if dataclasses.is_dataclass(kind) else [ANY]


def _part_kinds(declared: Any) -> list[str]:
    return ["None"] if declared in (None, types.NoneType) else _kinds(declared)


def _without_name(kind: str) -> str:
    return "tuple" if kind.startswith("(") else kind.split(" ")[0] if kind.startswith(("enum ", "dataclass ")) else kind


def kinds_of_selector(selector: Callable[[Any], Any] | None, declared: Any) -> list[str]:
    """The kinds of keys that a selector makes, by the declared type of keys, or by what it says itself.

    >>> kinds_of_selector(str, None), kinds_of_selector(lambda r: r[0], None), kinds_of_selector(lambda r: r[0], int)
    (['str'], ['*'], ['number'])
    """
    return kinds_of_type(type_of_keys(selector, declared))


def type_of_keys(selector: Callable[[Any], Any] | None, declared: Any) -> Any:
    """The declared type of keys, or what the selector is annotated with; None if neither says anything.

    >>> type_of_keys(str, None), type_of_keys(lambda r: r[0], None), type_of_keys(lambda r: r[0], int)
    (<class 'str'>, None, <class 'int'>)
    """
    if declared is not None or isinstance(selector, type):
        return selector if declared is None else declared
    try:
        said = typing.get_type_hints(selector).get("return")
    except Exception:  # annotations that cannot be looked up: whatever they say
        return None
    return None if said in (Any, object) else said


def clash(stored: Iterable[str], declared: Collection[str]) -> bool:
    """Would none of the stored keys ever come again? Both must be known.

    >>> clash(["number"], ["str"]), clash(["number"], ["*"]), clash([], ["str"])
    (True, False, False)
    """
    known = list(stored)
    return bool(known) and not any(
        fits(kind, declared) or any(fits(other, [kind]) for other in declared) for kind in known
    )
