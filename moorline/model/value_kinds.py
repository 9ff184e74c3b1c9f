"""The kinds of values without parts, as one table: their names, and the text, number or bytes that stand for each.

Numbers, texts and bytes are the same everywhere (:data:`NATIVE`). Dates, times, decimals and UUIDs are not: JSON and
msgpack lack them (:data:`LOWERED`). Whatever stores, sends, encodes or only passes on plain values looks its kinds up
here:

    state/types/plain.py, leaf.py               state without a declared type; columns and bytes
    model/type_tree/tree.py                     types of state
    model/keys/, model/copying/immutable.py     keys; what cannot change
    http/wire.py, snapshots/tables/writing/     JSON; columns of DataFrames
    connectors/files/formats, collect.py         records of sinks

The forms and numbers are part of the storage format: a row may be added, none may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

MICROSECOND = timedelta(microseconds=1)


class Form(NamedTuple):
    """A text, number or bytes that stand for a value, and the way there and back."""

    #: The type of what stands for it.
    wire: type
    lower: Callable[[Any], Any]
    lift: Callable[[Any], Any]


@dataclass(frozen=True)
class ValueKind:
    """A kind of value, exactly of one type."""

    #: The word of its stored type (``model/type_tree/tree.py``).
    name: str
    type: type
    #: The tags of its encoding as a key (``model/keys/leaves.py``), and the kind of key that each stands for.
    key_tags: Mapping[str, str]


@dataclass(frozen=True)
class LoweredKind(ValueKind):
    """A kind of value that JSON and msgpack lack."""

    #: The number of its extension type in msgpack (``state/types/plain.py``).
    extension: int
    #: Lossless and readable.
    json: Form
    #: The content of the extension, if that is not what stands in JSON.
    packed: Form | None = None


NATIVE = (
    ValueKind("bool", bool, {"i": "number"}),
    ValueKind("int", int, {"i": "number", "I": "number"}),
    ValueKind("float", float, {"i": "number", "I": "number", "f": "number"}),
    ValueKind("str", str, {"s": "str"}),
    ValueKind("bytes", bytes, {"b": "bytes"}),
)
LOWERED = (
    # A subclass before its base: a datetime is a date.
    LoweredKind(
        *("datetime", datetime, {"t": "datetime", "T": "aware datetime"}, 5),
        Form(str, datetime.isoformat, datetime.fromisoformat),
    ),
    LoweredKind("date", date, {"d": "date"}, 4, Form(str, date.isoformat, date.fromisoformat)),
    LoweredKind("time", time, {"c": "time"}, 6, Form(str, time.isoformat, time.fromisoformat)),
    LoweredKind(
        *("timedelta", timedelta, {"l": "timedelta"}, 7),
        Form(int, lambda value: value // MICROSECOND, lambda count: count * MICROSECOND),
    ),
    LoweredKind("Decimal", Decimal, dict.fromkeys("iIfm", "number"), 8, Form(str, str, Decimal)),
    LoweredKind(
        *("UUID", UUID, {"u": "UUID"}, 9),
        Form(str, str, UUID),
        Form(bytes, attrgetter("bytes"), lambda data: UUID(bytes=data)),
    ),
)
KINDS: tuple[ValueKind, ...] = (*NATIVE, *LOWERED)

NATIVE_TYPES = frozenset(kind.type for kind in NATIVE)
LOWERED_TYPES = frozenset(kind.type for kind in LOWERED)
TYPES = NATIVE_TYPES | LOWERED_TYPES

#: NumPy's numbers and truth values that have a column of their width, by the word of the stored type.
NUMPY_NUMBERS: dict[str, type[np.generic]] = {
    f"np.{np.dtype(scalar).name}": scalar
    for scalar in (
        *(np.int8, np.int16, np.int32, np.int64),
        *(np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float32, np.float64, np.bool_),
    )
}


def python_number(value: Any) -> Any:
    """A number or truth value of NumPy as Python's; anything else as it is.

    >>> python_number(np.int8(5)), python_number(np.timedelta64(5, "s")), python_number("five")
    (5, np.timedelta64(5,'s'), 'five')
    """
    # To NumPy a duration is a number, too.
    is_number = isinstance(value, (np.number, np.bool_)) and not isinstance(value, np.timedelta64)
    return value.item() if is_number else value
