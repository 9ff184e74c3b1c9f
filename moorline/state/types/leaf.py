"""Types without parts: how one number, text, time, enum member or plain value is stored.

A value has two stored forms, which must agree: a place in an Arrow column (``to_array``, ``from_array``; snapshots)
and a few bytes of msgpack (``pack``, ``unpack``; the RocksDB backend, once per access). The second is built from

    lower   the value as something msgspec encodes, or TypeError / ValueError if it does not fit
    wire    the type that msgspec decodes
    lift    the decoded thing as a value again; None if it is one already, which is then one C call

A value of exactly the declared class takes the short way. Any other is asked through Arrow what it becomes, so the
two forms cannot disagree. ``None`` fits everywhere and stays ``None``. Where a value is part of another, the short way
is written out in the function that is generated for the other (``state/types/generated.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from enum import Enum, Flag
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from moorline.model.type_tree import tree
from moorline.model.type_tree.tree import Type
from moorline.model.value_kinds import LOWERED, MICROSECOND
from moorline.state.types import plain
from moorline.state.types.generated import GeneratedSource, is_of

encode = msgspec.msgpack.Encoder().encode
_INT64 = 1 << 63
#: Up to here every whole number is a float, and Arrow takes it.
_EXACT = 1 << 53


class StoredType:
    """One type: its tree, its Arrow form, and the way there and back for whole columns and for one value."""

    #: What a manifest says of it.
    tree: Type
    arrow: pa.DataType
    #: Can its values not be changed in place?
    is_immutable: bool = True
    #: The type that msgspec decodes; None is always possible besides.
    wire: Any
    lower: Callable[[Any], Any]
    lift: Callable[[Any], Any] | None = None

    def to_array(self, values: list[Any]) -> pa.Array:
        raise NotImplementedError

    def from_array(self, array: pa.Array) -> list[Any]:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The type in words, for people."""
        return str(self.tree)

    @cached_property
    def pack(self) -> Callable[[Any], bytes]:
        """One value as bytes. Raises TypeError or ValueError if it does not fit."""
        lower = self.generated_lower
        return lambda value: encode(lower(value))

    @cached_property
    def unpack(self) -> Callable[[bytes | memoryview], Any]:
        """The value that ``pack`` was given. Raises ValueError for other bytes."""
        decode, lift = self.decode, self.generated_lift
        return decode if lift is None else lambda data: lift(decode(data))

    # --- generated functions, for the type itself and where it is a part -------------------------

    @cached_property
    def decode(self) -> Callable[[bytes | memoryview], Any]:
        """The thing that ``lift`` makes a value of, out of bytes."""
        return msgspec.msgpack.Decoder(self.wire | None).decode

    @cached_property
    def generated_lower(self) -> Callable[[Any], Any]:
        """The same as ``lower``, by a generated function where there is something to gain."""
        return self.lower

    @cached_property
    def generated_lift(self) -> Callable[[Any], Any] | None:
        """The same as ``lift``, by a generated function where there is something to gain."""
        return self.lift

    def as_it_is(self, source: GeneratedSource, part: str) -> str | None:
        """The text of the question whether ``lower`` would leave a part as it is. None: it never would."""
        return None

    def lowered(self, source: GeneratedSource, part: str) -> str:
        """The text of what ``lower`` makes of a part."""
        return f"{source.constant(self.generated_lower)}({part})"

    def lifted(self, source: GeneratedSource, part: str) -> str:
        """The text of what ``lift`` makes of a part."""
        return part if self.lift is None else f"{source.constant(self.generated_lift)}({part})"


def check_kinds(values: Iterable[Any], kinds: tuple[type, ...], refused: tuple[type, ...] = ()) -> set[type]:
    """The classes of some values. Raises unless every one is of one of the kinds, or None.

    Arrow would turn many into something else.
    """
    found = set(map(type, values))
    for kind in found:
        if kind is not type(None) and (not issubclass(kind, kinds) or issubclass(kind, refused)):
            raise TypeError(f"a {kind.__qualname__} is not a {kinds[0].__qualname__}")
    return found


class LeafType(StoredType):
    """A type that Arrow and msgpack both have."""

    def __init__(self, word: str, arrow: pa.DataType, kinds: tuple[type, ...], refused: tuple[type, ...] = ()) -> None:
        self.tree, self.arrow = tree.Word(word), arrow
        self.kinds, self._refused = kinds, refused
        self.wire, self.lower = kinds[0], self._lower_for(kinds[0])

    def to_array(self, values: list[Any]) -> pa.Array:
        check_kinds(values, self.kinds, self._refused)
        return pa.array(values, self.arrow)

    def from_array(self, array: pa.Array) -> list[Any]:
        return array.to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def pack(self) -> Callable[[Any], bytes]:
        kind, lower, coerce = self.kinds[0], self.lower, self.coerce
        if kind is int:
            return lambda v: encode(v if type(v) is int and -_INT64 <= v < _INT64 else coerce(v))
        return lambda v: encode(v if type(v) is kind else lower(v))

    def as_it_is(self, source: GeneratedSource, part: str) -> str | None:
        if self.lift is not None:
            return None
        asked = is_of(source, part, self.kinds[0])
        if self.kinds[0] is int:
            asked += f" and {source.constant(-_INT64)} <= {part} <= {source.constant(_INT64 - 1)}"
        return asked

    def lowered(self, source: GeneratedSource, part: str) -> str:
        asked, lower = self.as_it_is(source, part), source.constant(self.lower)
        return f"{lower}({part})" if asked is None else f"({part} if {asked} else {lower}({part}))"

    def coerce(self, value: Any) -> Any:
        """The value that comes back from a column."""
        if value is None:
            return None
        try:
            return self.to_array([value])[0].as_py()
        except OverflowError as error:
            raise ValueError(f"{value!r:.50} is out of range: {error}") from error

    def _lower_for(self, kind: type) -> Callable[[Any], Any]:
        coerce = self.coerce
        if kind is int:
            return lambda v: v if type(v) is int and -_INT64 <= v < _INT64 else coerce(v)
        if kind is float:  # whole numbers are common where a float is declared
            return lambda v: v if type(v) is float else float(v) if type(v) is int and abs(v) <= _EXACT else coerce(v)
        return lambda v: v if type(v) is kind else coerce(v)


class _TimedeltaType(LeafType):
    """Microseconds in both forms; a timedelta can hold more of them than 64 bits can."""

    def __init__(self) -> None:
        super().__init__("timedelta", pa.duration("us"), (timedelta,))
        self.wire, self.lower, self.lift = int, self._lower, _from_microseconds

    @cached_property
    def pack(self) -> Callable[[Any], bytes]:
        lower = self.lower
        return lambda v: encode(lower(v))

    def _lower(self, value: Any) -> int | None:
        if type(value) is not timedelta:
            value = self.coerce(value)
            if value is None:
                return None
        count: int = value // MICROSECOND
        if not -_INT64 <= count < _INT64:
            raise ValueError(f"{value!r} is out of range")
        return count


def _from_microseconds(count: int | None) -> timedelta | None:
    return None if count is None else timedelta(microseconds=count)


class ConvertedType(StoredType):
    """Stored as text, a number or bytes by one function and read back by another."""

    def __init__(
        self,
        type_tree: tree.Type,
        arrow: pa.DataType,
        kind: type,
        to_stored: Callable[[Any], Any],
        from_stored: Callable[[Any], Any],
        wire: type = str,
        is_immutable: bool = True,
    ) -> None:
        self.tree, self.arrow, self.is_immutable, self.wire = type_tree, arrow, is_immutable, wire
        self.kind, self._to_stored, self._from_stored = kind, to_stored, from_stored
        self.lower, self.lift = self._lower, self._lift

    def to_array(self, values: list[Any]) -> pa.Array:
        check_kinds(values, (self.kind,))
        return pa.array([None if v is None else self._to_stored(v) for v in values], self.arrow)

    def from_array(self, array: pa.Array) -> list[Any]:
        return [None if v is None else self._from_stored(v) for v in array.to_pylist()]

    def lowered(self, source: GeneratedSource, part: str) -> str:
        lower, to_stored = source.constant(self.lower), source.constant(self._to_stored)
        return f"({to_stored}({part}) if {is_of(source, part, self.kind)} else {lower}({part}))"

    def lifted(self, source: GeneratedSource, part: str) -> str:
        return f"(None if {part} is None else {source.constant(self._from_stored)}({part}))"

    def _lower(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, self.kind):
            raise TypeError(f"a {type(value).__qualname__} is not a {self.kind.__qualname__}")
        return self._to_stored(value)

    def _lift(self, thing: Any) -> Any:
        return None if thing is None else self._from_stored(thing)


class PlainType(ConvertedType):
    """Anything that ``state/types/plain.py`` can encode. Alone its bytes are the msgpack; inside another type, a
    part."""

    def __init__(self) -> None:
        super().__init__(tree.PLAIN, pa.binary(), object, plain.encode, plain.decode, bytes, is_immutable=False)

    @cached_property
    def pack(self) -> Callable[[Any], bytes]:
        return plain.encode

    @cached_property
    def unpack(self) -> Callable[[bytes | memoryview], Any]:
        return plain.decode


class EnumType(ConvertedType):
    """A member by its name, so that its value may change."""

    def __init__(self, cls: type[Enum]) -> None:
        self.cls = cls
        type_tree = tree.Enum(cls.__qualname__, is_flag=False)
        super().__init__(type_tree, pa.string(), cls, lambda m: m.name, self.member)

    def member(self, name: str) -> Enum:
        try:
            return self.cls[name]
        except KeyError:
            known = ", ".join(self.cls.__members__)
            raise ValueError(f"{self.cls.__qualname__} has no member {name!r}; it has {known:.300}") from None


class FlagType(ConvertedType):
    """Members that can be combined, by their bits: a combination has no name to find it by."""

    def __init__(self, cls: type[Flag]) -> None:
        self.cls = cls
        super().__init__(tree.Enum(cls.__qualname__, is_flag=True), pa.int64(), cls, self._bits, cls, int)

    def _bits(self, member: Flag) -> int:
        bits: int = member.value
        if not -_INT64 <= bits < _INT64:
            raise ValueError(f"{member!r} has more than 63 bits")
        return bits


class LiteralType(StoredType):
    """One of a few texts or numbers, stored as such; checked when it is written and when it is read."""

    def __init__(self, base: StoredType, members: tuple[Any, ...]) -> None:
        self.base, self.members = base, members
        self.tree, self.arrow, self.wire = tree.Literal.of(members), base.arrow, base.wire
        self._known = {(type(m), m) for m in members}
        self.lower, self.lift = self._lower, self._lift

    def to_array(self, values: list[Any]) -> pa.Array:
        return self.base.to_array([self.check(v) for v in values])

    def from_array(self, array: pa.Array) -> list[Any]:
        return [self.check(v) for v in self.base.from_array(array)]

    def check(self, value: Any) -> Any:
        """The value, if it is one of the members."""
        if value is not None and (type(value), value) not in self._known:
            raise ValueError(f"{value!r:.100} is not one of {self.members}")
        return value

    def _lower(self, value: Any) -> Any:
        return self.base.lower(self.check(value))

    def _lift(self, thing: Any) -> Any:
        return self.check(thing if self.base.lift is None else self.base.lift(thing))


PLAIN = PlainType()

LEAVES: dict[Any, StoredType] = {
    int: LeafType("int", pa.int64(), (int, np.integer), (bool,)),
    float: LeafType("float", pa.float64(), (float, int, np.floating, np.integer), (bool,)),
    bool: LeafType("bool", pa.bool_(), (bool, np.bool_)),
    str: LeafType("str", pa.string(), (str,)),
    bytes: LeafType("bytes", pa.binary(), (bytes,)),
    # What JSON lacks is text, the same as there. But Arrow has two of these kinds.
    **{k.type: ConvertedType(tree.Word(k.name), pa.string(), k.type, k.json.lower, k.json.lift) for k in LOWERED},
    date: LeafType("date", pa.date32(), (date,), (datetime,)),
    timedelta: _TimedeltaType(),
}
