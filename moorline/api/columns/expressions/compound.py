"""Functions of whole columns that are made of several of pyarrow's, where Python or SQL means something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moorline.model.arrow_values import refuse_infinities


def _is_text(value: Any) -> bool:
    return bool(pa.types.is_string(value.type) or pa.types.is_large_string(value.type))


def _add(a: Any, b: Any) -> Any:
    """Numbers are added, texts are joined, as in Python."""
    if _is_text(a) and _is_text(b):
        return pc.binary_join_element_wise(a, b, "")
    return pc.add_checked(a, b)


def _true_divide(a: Any, b: Any) -> Any:
    """A float, as in Python; division by 0 is an infinity or nan, as for all floats of IEEE."""
    return pc.divide(_floats(a), _floats(b))


def _floats(value: Any) -> Any:
    if _is_text(value) or pa.types.is_temporal(value.type) or pa.types.is_boolean(value.type):
        raise TypeError("only numbers are divided")
    return pc.cast(value, pa.float64(), safe=False)


def _floor_divide(a: Any, b: Any) -> Any:
    """Rounded down, as in Python: -7 // 2 is -4."""
    quotient = pc.divide_checked(a, b)
    if pa.types.is_floating(quotient.type):
        return _of_floats(np.floor_divide, quotient, a, b)
    if not pa.types.is_integer(quotient.type):
        return pc.floor(quotient)
    rest = pc.subtract(a, pc.multiply(quotient, b))
    # pyarrow rounds towards 0: one less, where there is a rest with another sign than the divisor.
    return pc.subtract(quotient, pc.cast(_has_other_sign(rest, b), quotient.type))


def _modulo(a: Any, b: Any) -> Any:
    """With the sign of the divisor, as in Python: -7 % 2 is 1."""
    quotient = pc.divide_checked(a, b)
    if pa.types.is_floating(quotient.type):
        return _of_floats(np.mod, quotient, a, b)
    if not pa.types.is_integer(quotient.type):
        return pc.subtract(a, pc.multiply(pc.floor(quotient), b))
    rest = pc.subtract(a, pc.multiply(quotient, b))
    return pc.if_else(_has_other_sign(rest, b), pc.add(rest, b), rest)


def _of_floats(function: Callable[..., Any], quotient: Any, a: Any, b: Any) -> Any:
    """NumPy's ``//`` or ``%``, which are Python's: 1.0 // 0.1 is 9, though 1.0 / 0.1 is 10."""
    kind = quotient.type
    if isinstance(quotient, pa.Scalar):
        made = function(_as_numpy(a, kind), _as_numpy(b, kind)) if quotient.is_valid else None
        return pa.scalar(made, kind)
    with np.errstate(all="ignore"):
        made = function(_as_numpy(a, kind), _as_numpy(b, kind))
    return pa.array(made, kind, mask=np.asarray(quotient.is_null()))


def _as_numpy(value: Any, kind: pa.DataType) -> Any:
    value = pc.fill_null(pc.cast(value, kind, safe=False), 1.0)
    return value.as_py() if isinstance(value, pa.Scalar) else value.to_numpy(zero_copy_only=False)


def _has_other_sign(rest: Any, divisor: Any) -> Any:
    return pc.and_(pc.not_equal(rest, 0), pc.not_equal(pc.less(rest, 0), pc.less(divisor, 0)))


def _is_in(values: Any, among: pa.Array) -> Any:
    """False for null, which is in nothing. Constants that could not be compared with the values are refused."""
    pc.equal(pa.nulls(1, values.type), pa.nulls(1, among.type))
    among = among.cast(values.type)
    if pa.types.is_floating(values.type):
        # To Arrow's tables -0.0 is another value than 0.0.
        zero = pa.scalar(0.0, values.type)
        values, among = pc.add(values, zero), pc.add(among, zero)
    return pc.is_in(values, value_set=among)


def _cast(values: Any, target_type: pa.DataType) -> Any:
    """Another type. Between numbers and moments there is no way that does not guess a unit."""
    has, wants = values.type, target_type
    if _is_number(has) and pa.types.is_temporal(wants):
        raise TypeError("of a number nobody knows the unit: there is as_timestamp_ms()")
    if pa.types.is_temporal(has) and _is_number(wants):
        raise TypeError("which unit is meant? There is .dt.epoch_ms()")
    made = pc.cast(values, wants)
    if pa.types.is_float32(wants) and _is_number(has):
        refuse_infinities(*(pa.repeat(v, 1) if isinstance(v, pa.Scalar) else v for v in (values, made)))
    return made


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def _day_of(times: Any) -> Any:
    """The day of moments, in their time zone."""
    if not (pa.types.is_timestamp(times.type) or pa.types.is_date(times.type)):
        raise TypeError("only moments have a day")
    return pc.cast(times, pa.date32(), safe=False)


def _truncate(times: Any, multiple: int, unit: str, is_in_hours: bool) -> Any:
    """The beginning of the length of time that each of them lies in, on the clocks of its time zone."""
    if not pa.types.is_timestamp(times.type) or times.type.tz is None:
        return pc.floor_temporal(times, multiple=multiple, unit=unit)
    local = pc.local_timestamp(times)
    begin = pc.floor_temporal(local, multiple=multiple, unit=unit)
    if is_in_hours:
        # So much of it has gone by, also in the second of two hours that clocks show alike.
        return pc.subtract(times, pc.subtract(local, begin))
    return pc.assume_timezone(begin, times.type.tz, ambiguous="earliest", nonexistent="latest")


def _format_time(times: Any, pattern: str) -> Any:
    """As texts. pyarrow's ``%S`` would have as many digits after the point as the unit of the column."""
    if pa.types.is_timestamp(times.type):
        if times.type.tz is None and ("%Z" in pattern or "%z" in pattern):
            raise TypeError("it has no time zone to be shown")
        times = pc.cast(_numbers_of(times, 1), pa.timestamp("s", times.type.tz))
    return pc.strftime(times, format=pattern)


def _numbers_of(times: Any, per_second: int) -> Any:
    """Moments as whole numbers since 1970 of a unit, rounded down."""
    has = _PER_SECOND[times.type.unit]
    numbers = pc.cast(times, pa.int64())
    if has <= per_second:
        return pc.multiply_checked(numbers, pa.scalar(per_second // has))
    return _floor_divide(numbers, pa.scalar(has // per_second))


#: By the unit of a column, how many of them are a second.
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _if_else(condition: Any, then: Any, otherwise: Any) -> Any:
    """A choice by a condition; null does not hold, as in SQL."""
    return pc.if_else(pc.fill_null(condition, False), then, otherwise)


def _part(texts: Any, separator: str, number: int) -> Any:
    """The part with this number between separators; null if there are not so many."""
    lists = pc.split_pattern(texts, separator)
    if isinstance(lists, pa.Scalar):
        parts = lists.as_py()
        return pa.scalar(parts[number] if parts is not None and number < len(parts) else None, texts.type)
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    places = np.asarray(lists.offsets)[: len(lists)].astype(np.int64) + number
    return lists.values.take(pa.array(places, mask=np.asarray(lengths) <= number))


def _extract(texts: Any, pattern: str) -> Any:
    """The match of the first named group of a regular expression; null without a match."""
    return pc.struct_field(pc.extract_regex(texts, pattern), [0])


def _epoch_ms(times: Any) -> Any:
    """Milliseconds since 1970, rounded down."""
    if not pa.types.is_timestamp(times.type):
        raise TypeError("only timestamps have milliseconds since 1970")
    return _numbers_of(times, 1_000)


def _timestamp_of_ms(numbers: Any) -> Any:
    """The moments of milliseconds since 1970, in UTC."""
    if not pa.types.is_integer(numbers.type):
        raise TypeError("milliseconds since 1970 are whole numbers")
    return numbers.cast(pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


#: By the names that trees have them under.
COMPOUND: dict[str, Callable[..., Any]] = {
    "add": _add,
    "true_divide": _true_divide,
    "floor_divide": _floor_divide,
    "python_modulo": _modulo,
    "is_in": _is_in,
    "cast": _cast,
    "day_of": _day_of,
    "truncate": _truncate,
    "format_time": _format_time,
    "if_else": _if_else,
    "part": _part,
    "extract": _extract,
    "epoch_ms": _epoch_ms,
    "timestamp_of_ms": _timestamp_of_ms,
}
