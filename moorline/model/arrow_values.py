"""Values of Python as a column of Arrow, and columns as other types, where nothing is changed in silence.

Arrow cuts 1.5 to 1 for an integer and a moment to its day, takes an int for microseconds since 1970, and a moment
without a time zone for one in UTC. Each of these is another value than the one that was given, and is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

_WHOLE = frozenset({NoneType, int})
_FLOATS = frozenset({NoneType, float})
_BOOLS = (bool, np.bool_)
#: Microseconds in a unit of time.
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
_type = type


class Loss(ValueError):
    """Arrow would make another value of it; the text says which."""


def column_of(values: Sequence[Any], type: pa.DataType, *, takes_more: bool = False) -> pa.Array:
    """A column of values. Raises :class:`Loss`, or what Arrow raises.

    With ``takes_more``, fields that a struct of the type does not have are left aside.

    >>> column_of([1, None, 2.0], pa.int64()).to_pylist()
    [1, None, 2]
    >>> column_of([1.5], pa.int64())
    Traceback (most recent call last):
    moorline.model.arrow_values.Loss: 1.5 is not a whole number
    """
    array = pa.array(values, type)
    refuse_loss(values, type, takes_more=takes_more)
    return array


def refuse_loss(values: Sequence[Any], type: pa.DataType, *, takes_more: bool = False) -> None:
    """Raise :class:`Loss` for the first value of which Arrow, which takes them all, makes another one."""
    if pa.types.is_struct(type):
        _refuse_in_structs([value for value in values if isinstance(value, Mapping)], type, takes_more)
    elif _is_list(type):
        inside = [inner for value in values if value is not None for inner in value]
        refuse_loss(inside, type.value_type, takes_more=takes_more)
    elif check := _check_of(type, set(map(_type, values))):
        for value in values:
            if value is not None:
                check(value)


def _refuse_in_structs(present: list[Mapping[str, Any]], type: pa.DataType, takes_more: bool) -> None:
    known = {field.name: field.type for field in type}
    for value in present:
        if not takes_more and not value.keys() <= known.keys():
            raise Loss(f"it has no field {', '.join(repr(k) for k in value if k not in known)}")
    for name, inner in known.items():
        refuse_loss([value.get(name) for value in present], inner, takes_more=takes_more)


def _check_of(type: pa.DataType, kinds: set[type]) -> Callable[[Any], None] | None:
    """The check of each value; None: values of these kinds are all right."""
    if pa.types.is_integer(type):
        return None if _WHOLE.issuperset(kinds) else _whole
    if pa.types.is_float32(type):
        return _small_float
    if pa.types.is_floating(type):
        return None if _FLOATS.issuperset(kinds) else _no_bool
    if pa.types.is_date(type):
        return None if kinds <= {NoneType, date} else _day
    if pa.types.is_timestamp(type):
        return lambda value: _moment(value, type)
    if pa.types.is_time(type):
        return lambda value: _time_of_day(value, type)
    return _no_int if pa.types.is_duration(type) else None


def _whole(value: Any) -> None:
    if isinstance(value, _BOOLS):
        raise Loss(f"{value} is not a number")
    if isinstance(value, (float, np.floating, Decimal)) and value != int(value):
        raise Loss(f"{value} is not a whole number")


def _no_bool(value: Any) -> None:
    if isinstance(value, _BOOLS):
        raise Loss(f"{value} is not a number")


def _small_float(value: Any) -> None:
    _no_bool(value)
    if _LARGEST_FLOAT32 < abs(value) < float("inf"):
        raise Loss(f"{value} does not fit into 32 bits")


def _no_int(value: Any) -> None:
    if isinstance(value, (int, float, np.integer)):
        raise Loss(f"of the number {value} nobody knows the unit")


def _day(value: Any) -> None:
    _no_int(value)
    if isinstance(value, datetime):
        raise Loss("a datetime has a time of day too")


def _moment(value: Any, type: pa.DataType) -> None:
    _no_int(value)
    if not isinstance(value, datetime):
        return
    if value.tzinfo is None and type.tz is not None:
        raise Loss(f"{value} has no time zone, and the column has one")
    if value.tzinfo is not None and type.tz is None:
        raise Loss(f"{value} has a time zone, and the column has none")
    if value.microsecond % _MICROSECONDS[type.unit]:
        raise Loss(f"{value} is cut off at the unit of {type}")


def _time_of_day(value: Any, type: pa.DataType) -> None:
    _no_int(value)
    if isinstance(value, time) and value.microsecond % _MICROSECONDS[type.unit]:
        raise Loss(f"{value} is cut off at the unit of {type}")


def cast_column(column: pa.Array, type: pa.DataType) -> pa.Array:
    """A column as another type of its kind. Raises :class:`Loss`, or what Arrow raises.

    >>> cast_column(pa.array([1, 2], pa.int32()), pa.int64()).type
    DataType(int64)
    >>> cast_column(pa.array(["007"]), pa.int64())
    Traceback (most recent call last):
    moorline.model.arrow_values.Loss: string is not int64
    """
    if column.type == type:
        return column
    if not is_kin(column.type, type):
        raise Loss(f"{column.type} is not {type}")
    made = column.cast(type)
    if pa.types.is_float32(type) and not pa.types.is_float16(column.type):
        refuse_infinities(column, made)
    return made


def refuse_infinities(before: pa.Array, after: pa.Array) -> None:
    """Raise :class:`Loss` for a number that was finite and is none any more."""
    if not np.isinf(_floats(after)).any():
        return
    lost = np.isinf(_floats(after)) & np.isfinite(_floats(before))
    if lost.any():
        raise Loss(f"{before[int(np.flatnonzero(lost)[0])]} does not fit into 32 bits")


def _floats(column: pa.Array) -> Any:
    numbers = column.cast(pa.float64(), safe=False) if pa.types.is_decimal(column.type) else column
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def is_kin(has: pa.DataType, wants: pa.DataType) -> bool:
    """Is a value of one type one of the other, if it fits? Arrow casts texts to numbers and moments to days as well.

    >>> is_kin(pa.int32(), pa.float64()), is_kin(pa.string(), pa.int64()), is_kin(pa.int64(), pa.timestamp("us"))
    (True, False, False)
    """
    if has == wants or pa.types.is_null(has):
        return True
    if pa.types.is_date(has) and pa.types.is_timestamp(wants):
        return True  # the day's beginning
    if pa.types.is_dictionary(has):
        return is_kin(has.value_type, wants)
    if pa.types.is_dictionary(wants):
        return is_kin(has, wants.value_type)
    for kind in _KINDS:
        if any(is_one(has) for is_one in kind):
            return any(is_one(wants) for is_one in kind) and _is_of_same_zone(has, wants)
    return not any(is_one(wants) for kind in _KINDS for is_one in kind)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
    ),
    (pa.types.is_boolean,),
    (pa.types.is_timestamp,),
    (pa.types.is_date,),
    (pa.types.is_time,),
    (pa.types.is_duration,),
)


def _is_of_same_zone(has: pa.DataType, wants: pa.DataType) -> bool:
    """Have both of them a time zone, or neither?"""
    return not pa.types.is_timestamp(has) or (has.tz is None) == (wants.tz is None)


def _is_list(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type))
