"""The type of a state as a tree of data, without any class of a job.

It stands in manifests and in the meta rows of RocksDB as a tagged union: the field ``is`` of every node says which of
the classes here it is. ``state/types/annotations.py`` makes one of each declaration, ``state/evolution/`` compares the
stored one with the declared one and reads values by it. The text of a node is for people; nothing reads it, but that
of storage formats 1 to 3 (``old_text.py``).

A tree may come from a file. No node can be what a declaration could not have made of it, and whoever has decoded one
asks :func:`check_bounds` before going through it.
"""

from __future__ import annotations

import json
import re
import typing
from typing import Any

import msgspec

from moorline.model.type_tree import arrow as arrow_tree
from moorline.model.type_tree.printing import class_text, field_text
from moorline.model.value_kinds import KINDS, NUMPY_NUMBERS

#: Types that are one word.
WORDS = frozenset(
    [*(kind.name for kind in KINDS), *NUMPY_NUMBERS, "plain", "np.ndarray", "np.datetime64", "np.timedelta64"]
)
#: The deepest nesting, and the most nodes and characters of names together.
MAX_DEPTH, MAX_SIZE = 60, 100_000
_DIGITS = re.compile(r"-?[1-9][0-9]*")
_COLLECTIONS: dict[str, type] = {c.__name__: c for c in (list, set, frozenset, tuple)}


class _Node(msgspec.Struct, frozen=True, tag_field="is", forbid_unknown_fields=True):
    """A node knows its own text, and refuses to be what no state can have."""


class Word(_Node, frozen=True, tag="word"):
    """A type that is one word."""

    word: str

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise ValueError(f"there is no type {self.word!r:.100}")

    def __str__(self) -> str:
        return self.word


class Optional(_Node, frozen=True, tag="optional"):
    """``T | None``."""

    inner: Type

    def __post_init__(self) -> None:
        if isinstance(self.inner, Optional):
            raise ValueError("what is optional is so once")

    def __str__(self) -> str:
        return f"{self.inner} | None"


class List(_Node, frozen=True, tag="list"):
    """Any number of items, in a collection of some sort.

    >>> print(List.of(tuple, Word("int")))
    tuple[int, ...]
    """

    build: typing.Literal["list", "set", "frozenset", "tuple"]
    item: Type

    @classmethod
    def of(cls, collection: type, item: Type) -> List:
        return cls(collection.__name__, item)  # type: ignore[arg-type]

    @property
    def collection(self) -> type:
        return _COLLECTIONS[self.build]

    @property
    def is_ordered(self) -> bool:
        return self.build in ("list", "tuple")

    def __str__(self) -> str:
        return f"{self.build}[{self.item}{', ...' if self.build == 'tuple' else ''}]"


class Tuple(_Node, frozen=True, tag="tuple"):
    """``tuple[A, B]``."""

    items: tuple[Type, ...]

    def __post_init__(self) -> None:
        if not self.items:
            raise ValueError("a tuple has parts")

    def __str__(self) -> str:
        return f"tuple[{', '.join(map(str, self.items))}]"


class Dict(_Node, frozen=True, tag="dict"):
    """``dict[K, V]``."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"dict[{self.key}, {self.value}]"


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field of a class."""

    name: str
    type: Type

    def __str__(self) -> str:
        return f"{field_text(self.name)}: {self.type}"


class Fields(_Node, frozen=True, tag="fields", rename={"cls": "class"}):
    """A class with named fields, of whatever sort. They are stored in this order.

    >>> print(Fields.of("Basket", {"owner": Word("str"), "unit price": Word("int")}))
    Basket(owner: str, "unit price": int)
    """

    cls: str
    fields: tuple[Field, ...]

    @classmethod
    def of(cls, qualname: str, fields: dict[str, Type]) -> Fields:
        return cls(qualname, tuple(Field(name, inner) for name, inner in fields.items()))

    def __post_init__(self) -> None:
        if not self.fields or len(self.types) < len(self.fields):
            raise ValueError("a class has fields, each name once")

    @property
    def types(self) -> dict[str, Type]:
        """The fields by name, in their order."""
        return {field.name: field.type for field in self.fields}

    def __str__(self) -> str:
        return f"{class_text(self.cls)}({', '.join(map(str, self.fields))})"


class Enum(_Node, frozen=True, tag="enum", rename={"cls": "class", "is_flag": "flag"}):
    """``enum Colour`` or ``flag Right``, by the class's qualified name."""

    cls: str
    is_flag: bool

    def __str__(self) -> str:
        return f"{'flag' if self.is_flag else 'enum'} {class_text(self.cls)}"


class Digits(_Node, frozen=True, tag="digits"):
    """A whole number beyond 64 bits, which msgpack lacks."""

    digits: str

    def __post_init__(self) -> None:
        if not _DIGITS.fullmatch(self.digits) or _is_short(int(self.digits)):
            raise ValueError(f"{self.digits!r:.100} is no number beyond 64 bits")


class Literal(_Node, frozen=True, tag="literal"):
    """One of some texts, whole numbers and truth values.

    >>> Literal.of((1,)) == Literal.of((True,))
    False
    """

    members: tuple[str | int | bool | Digits, ...]

    @classmethod
    def of(cls, values: tuple[Any, ...]) -> Literal:
        return cls(tuple(Digits(str(v)) if type(v) is int and not _is_short(v) else v for v in values))

    def __post_init__(self) -> None:
        if not self.members or any(type(m) not in (str, int, bool, Digits) for m in self.members):
            raise ValueError("a literal is a text or a whole number")
        if any(type(m) is int and not _is_short(m) for m in self.members):
            raise ValueError("a number beyond 64 bits is written as digits")

    @property
    def values(self) -> tuple[str | int | bool, ...]:
        """The members as Python has them."""
        return tuple(int(m.digits) if isinstance(m, Digits) else m for m in self.members)

    def __eq__(self, other: object) -> bool:
        # To Python 1 is True, and each is a member that the other is not.
        return isinstance(other, Literal) and self._exact() == other._exact()

    def __hash__(self) -> int:
        return hash(self._exact())

    def _exact(self) -> tuple[Any, ...]:
        return tuple((type(m), m) for m in self.members)

    def __str__(self) -> str:
        return f"Literal[{', '.join(map(json.dumps, self.values))}]"


class Array(_Node, frozen=True, tag="array"):
    """``np.ndarray[np.float32]``; the item is a word."""

    item: str

    def __post_init__(self) -> None:
        if self.item not in NUMPY_NUMBERS:
            raise ValueError(f"there is no array of {self.item!r:.100}")

    def __str__(self) -> str:
        return f"np.ndarray[{self.item}]"


class Arrow(_Node, frozen=True, tag="arrow"):
    """An Arrow type."""

    type: arrow_tree.ArrowType

    def __str__(self) -> str:
        return f"arrow[{self.type}]"


class Pickle(_Node, frozen=True, tag="pickle"):
    """A pickle, and what it may refer to, sorted."""

    allowed: tuple[str, ...]

    def __str__(self) -> str:
        return f"pickle[{', '.join(map(class_text, self.allowed))}]"


class Map(_Node, frozen=True, tag="map"):
    """The keys and values of a map state, which are columns of their own. It is never a part of another type."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"{self.key} to {self.value}"


#: The type of a value.
Type = Word | Optional | List | Tuple | Dict | Fields | Enum | Literal | Array | Arrow | Pickle
#: The type of a state.
StateType = Type | Map

#: A value of no declared type, and an array of any dtype.
PLAIN, ANY_ARRAY = Word("plain"), Word("np.ndarray")
#: The type of timers and of raw state.
INT, BYTES = Word("int"), Word("bytes")


def _is_short(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 64


def parts(tree: StateType) -> tuple[Type, ...]:
    """The types inside of a type.

    >>> parts(Dict(Word("str"), Word("int"))), parts(Word("int"))
    ((Word(word='str'), Word(word='int')), ())
    """
    match tree:
        case Optional(inner) | List(_, inner):
            return (inner,)
        case Tuple(items):
            return items
        case Dict(key, value) | Map(key, value):
            return key, value
        case Fields(_, fields):
            return tuple(field.type for field in fields)
        case _:
            return ()


def check_bounds(tree: StateType) -> None:
    """Raises ``ValueError`` for a type that is too deep or too large to be one that a state was declared with."""
    size = _size(tree, 0)
    if size > MAX_SIZE:
        raise ValueError(f"a type of size {size:,} is too large")


def _size(tree: StateType, depth: int) -> int:
    _check_depth(depth)
    if isinstance(tree, Arrow):
        return 1 + _arrow_size(tree.type, depth)
    # What is around another type in its own place nests nothing.
    inner = depth if isinstance(tree, (Optional, Map)) else depth + 1
    return 1 + _characters(tree) + sum(_size(part, inner) for part in parts(tree))


def _arrow_size(arrow: arrow_tree.ArrowType, depth: int) -> int:
    _check_depth(depth)
    names = [field.name for field in arrow.fields] if isinstance(arrow, arrow_tree.Struct) else []
    return 1 + _length(*names) + sum(_arrow_size(part, depth + 1) for part in arrow_tree.parts(arrow))


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("a type is nested too deeply")


def _characters(tree: StateType) -> int:
    match tree:
        case Fields(cls, fields):
            return _length(cls, *(field.name for field in fields))
        case Enum(cls):
            return _length(cls)
        case Literal(members):
            return len(members) + _length(*(m.digits if isinstance(m, Digits) else str(m) for m in members))
        case Pickle(allowed):
            return len(allowed) + _length(*allowed)
        case _:
            return 0


def _length(*texts: str) -> int:
    for text in texts:
        text.encode()  # a lone surrogate could not be written
    return sum(map(len, texts))
