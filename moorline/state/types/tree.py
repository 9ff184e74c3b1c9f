"""The type of a state as a tree of data, without any class of a job.

``state/types/names.py`` spells it, for manifests and for people, and reads it. ``state/evolution/`` reads values by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Word:
    """A type that is one word."""

    word: str


@dataclass(frozen=True)
class Optional:
    """``T | None``."""

    inner: Type


@dataclass(frozen=True)
class List:
    """Any number of items; ``build`` is list, set, frozenset or tuple."""

    build: type
    item: Type


@dataclass(frozen=True)
class Tuple:
    """``tuple[A, B]``."""

    items: tuple[Type, ...]


@dataclass(frozen=True)
class Dict:
    """``dict[K, V]``."""

    key: Type
    value: Type


@dataclass(frozen=True)
class Fields:
    """A class with named fields, of whatever sort."""

    cls: str
    fields: dict[str, Type]


@dataclass(frozen=True)
class Enum:
    """``enum Colour`` or ``flag Right``."""

    cls: str
    is_flag: bool


@dataclass(frozen=True)
class Literal:
    """One of some values."""

    members: tuple[Any, ...]


@dataclass(frozen=True)
class Array:
    """``np.ndarray[np.float32]``; the item is a word."""

    item: str


@dataclass(frozen=True)
class Arrow:
    """An Arrow type."""

    type: pa.DataType


@dataclass(frozen=True)
class Pickle:
    """A pickle, and what it may refer to."""

    allowed: tuple[str, ...]


Type = Word | Optional | List | Tuple | Dict | Fields | Enum | Literal | Array | Arrow | Pickle

#: A value of no declared type, and an array of any dtype.
PLAIN, ANY_ARRAY = Word("plain"), Word("np.ndarray")


def parts(tree: Type) -> tuple[Type, ...]:
    """The types inside of a type.

    >>> parts(Dict(Word("str"), Word("int"))), parts(Word("int"))
    ((Word(word='str'), Word(word='int')), ())
    """
    match tree:
        case Optional(inner) | List(_, inner):
            return (inner,)
        case Tuple(items):
            return items
        case Dict(key, value):
            return key, value
        case Fields(_, fields):
            return tuple(fields.values())
        case _:
            return ()
