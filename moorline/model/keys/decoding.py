"""Decoding: from an encoding back to the key, or to the object that stands for it in memory."""

from __future__ import annotations

import dataclasses
import struct
import typing
from enum import Enum
from typing import Any

from moorline.model.keys.encoding import LENGTH, Encoded
from moorline.model.keys.leaves import LEAF_DECODERS

Classes = dict[str, type]


class UnknownClass(ValueError):
    """The key is an Enum member or dataclass, and a snapshot cannot name the class it came from."""


class ClassKey(Encoded):
    """Stands for an Enum member or dataclass of which only the encoding is known."""

    __slots__ = ()

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoded) and other.encoded == self.encoded

    def __repr__(self) -> str:
        return f"<a key of class {class_of(self.encoded)}>"


def key_classes(key_type: Any) -> Classes:
    """The Enum and dataclass types in the declared type of a key, by the name that stands in an encoding.

    >>> key_classes(tuple[int, str])
    {}
    """
    classes: Classes = {}
    todo = [key_type]
    while todo:
        part = todo.pop()
        todo += [a for a in typing.get_args(part) if a is not Ellipsis]
        if isinstance(part, type) and part.__qualname__ not in classes:
            if issubclass(part, Enum):
                classes[part.__qualname__] = part
            elif dataclasses.is_dataclass(part):
                classes[part.__qualname__] = part
                todo += typing.get_type_hints(part).values()
    return classes


def decode(encoded: bytes, classes: Classes | None = None) -> Any:
    """The key behind an encoding. Raises :class:`UnknownClass` where it needs a class that is not in ``classes``.

    Any other ``ValueError`` means that this is no encoding.
    """
    return _decoded(encoded, classes or {})


def decode_identity(encoded: bytes) -> Any:
    """The object that stands for a key in memory, from its encoding alone. Raises ``ValueError`` for what is none.

    >>> from moorline.model.keys import encode
    >>> decode_identity(encode(("a", 1))), decode_identity(b"eColour\\0RED")
    (('a', 1), <a key of class Colour>)
    """
    return _decoded(encoded, None)


def class_of(encoded: bytes) -> str:
    """The class that is missing to make a key from its encoding."""
    try:
        return type(decode(encoded)).__qualname__
    except UnknownClass as unknown:
        return str(unknown)


def _decoded(encoded: bytes, classes: Classes | None) -> Any:
    try:
        return _decode(encoded, classes)
    except (struct.error, ArithmeticError, RecursionError) as error:
        raise ValueError(f"no key has the encoding {encoded!r:.100}: {error}") from None


def _decode(encoded: bytes, classes: Classes | None) -> Any:
    """``classes`` None: what needs a class is left as it is."""
    tag, payload = encoded[:1], encoded[1:]
    if tag in LEAF_DECODERS:
        return LEAF_DECODERS[tag](payload)
    match tag:
        case b"(":
            return tuple([_decode(item, classes) for item in _split(payload)])
        case b"{":
            return frozenset([_decode(item, classes) for item in _split(payload)])
        case b"n":
            return None
        case b"e" | b"D" if classes is None:
            return ClassKey(encoded)
        case b"e":
            assert classes is not None
            name, _, member = payload.decode().partition("\0")
            if name not in classes:
                raise UnknownClass(name)
            if member not in classes[name].__members__:  # type: ignore[attr-defined]
                raise UnknownClass(f"{name}.{member}")
            return classes[name][member]  # type: ignore[index]
        case b"D":
            assert classes is not None
            name, *values = [_decode(item, classes) for item in _split(payload)]
            if name not in classes:
                raise UnknownClass(name)
            fields = [f.name for f in dataclasses.fields(classes[name]) if f.compare]
            try:
                return classes[name](**dict(zip(fields, values, strict=True)))
            except (TypeError, ValueError) as error:  # the class has changed since
                raise UnknownClass(f"{name}, which does not take {values!r:.100}: {error}") from None
    raise ValueError(f"no key begins with {tag!r}")


def _split(payload: bytes) -> list[bytes]:
    items, at = [], 0
    while at < len(payload):
        (length,) = LENGTH.unpack_from(payload, at)
        items.append(payload[at + 4 : at + 4 + length])
        if len(items[-1]) != length:
            raise ValueError("a key is cut short")
        at += 4 + length
    return items


def items_of(encoded: bytes) -> list[bytes]:
    """The encodings inside of that of a tuple, frozenset or dataclass. Of a dataclass the first is its name."""
    try:
        return _split(encoded[1:])
    except struct.error as error:
        raise ValueError(f"no key has the encoding {encoded!r:.100}: {error}") from None
