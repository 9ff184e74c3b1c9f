"""Arrow's types as a tree of data: the part of a state's type that is below ``tree.Arrow``.

The words are the same in every version of PyArrow, which is not needed here; ``state/types/arrow_trees.py`` makes
Arrow's own types of these, and back. Types that a Parquet file does not give back as they were are left out: date64,
whole seconds, decimals with a scale below zero.
"""

from __future__ import annotations

import re
import typing

import msgspec

from moorline.model.type_tree.printing import field_text

#: Types that are one word.
WORDS = frozenset(
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "string", "binary", "large_string", "large_binary", "date32"),
        *("time32[ms]", "time64[us]", "time64[ns]", "timestamp[ms]", "timestamp[us]", "timestamp[ns]"),
        *("duration[s]", "duration[ms]", "duration[us]", "duration[ns]"),
    ]
)
#: A time zone's name, and the most digits that each sort of decimal has.
ZONE = re.compile(r"[\w+\-/:]{1,100}")
_DIGITS = {128: 38, 256: 76}
_MAX_SIZE = 10**9


class _Node(msgspec.Struct, frozen=True, tag_field="is", forbid_unknown_fields=True):
    """A node knows its own text, and refuses to be what state cannot have."""


class Word(_Node, frozen=True, tag="word"):
    """A type that is one word."""

    word: str

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise ValueError(f"there is no Arrow type {self.word!r:.100}")

    def __str__(self) -> str:
        return self.word


class Timestamp(_Node, frozen=True, tag="timestamp"):
    """A moment with a time zone; one without is a word."""

    unit: typing.Literal["ms", "us", "ns"]
    zone: str

    def __post_init__(self) -> None:
        if not ZONE.fullmatch(self.zone):
            raise ValueError(f"there is no time zone {self.zone!r:.100}")

    def __str__(self) -> str:
        return f"timestamp[{self.unit}, tz={self.zone}]"


class Decimal(_Node, frozen=True, tag="decimal"):
    """A number with a fixed number of digits, ``scale`` of them behind the point."""

    bits: typing.Literal[128, 256]
    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= _DIGITS[self.bits] and 0 <= self.scale <= self.precision):
            raise ValueError(f"there is no {self}")

    def __str__(self) -> str:
        return f"decimal{self.bits}({self.precision}, {self.scale})"


class FixedBytes(_Node, frozen=True, tag="fixed_size_binary"):
    """So many bytes."""

    width: int

    def __post_init__(self) -> None:
        _check_size(self.width)

    def __str__(self) -> str:
        return f"fixed_size_binary[{self.width}]"


class List(_Node, frozen=True, tag="list"):
    """Any number of items."""

    item: ArrowType
    is_large: bool

    def __str__(self) -> str:
        return f"{'large_' if self.is_large else ''}list<{self.item}>"


class FixedList(_Node, frozen=True, tag="fixed_size_list"):
    """So many items."""

    item: ArrowType
    size: int

    def __post_init__(self) -> None:
        _check_size(self.size)

    def __str__(self) -> str:
        return f"fixed_size_list<{self.item}>[{self.size}]"


class Map(_Node, frozen=True, tag="map"):
    """Pairs of a key and a value."""

    key: ArrowType
    value: ArrowType

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field of a struct."""

    name: str
    type: ArrowType
    nullable: bool

    def __str__(self) -> str:
        return f"{field_text(self.name)}: {self.type}{'' if self.nullable else ' not null'}"


class Struct(_Node, frozen=True, tag="struct"):
    """Named fields, each name once."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if not self.fields or len({f.name for f in self.fields}) < len(self.fields):
            raise ValueError("a struct has fields, each name once")

    def __str__(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>"


ArrowType = Word | Timestamp | Decimal | FixedBytes | List | FixedList | Map | Struct


def parts(arrow: ArrowType) -> tuple[ArrowType, ...]:
    """The types inside of a type.

    >>> [str(part) for part in parts(Map(Word("string"), List(Word("int8"), is_large=False)))]
    ['string', 'list<int8>']
    """
    match arrow:
        case List(item) | FixedList(item):
            return (item,)
        case Map(key, value):
            return key, value
        case Struct(fields):
            return tuple(field.type for field in fields)
        case _:
            return ()


def _check_size(size: int) -> None:
    if not 0 <= size < _MAX_SIZE:
        raise ValueError(f"there is no type of size {size}")
