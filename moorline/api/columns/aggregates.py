"""Aggregates of a column: what is kept for a key, how a value is added to it, and what comes out.

An :class:`Aggregate` is data. How it is computed for whole columns stands in ``subtask/columns/kernels.py``; how it is
computed record by record, which is what all other ways are held to, stands here.

    aggregate          kept for each key        result
    count()            count                    rows
    count("x")         count                    values that are not null
    sum("x")           sum                      None without a value
    min("x") max("x")  the value                None without a value; NaN only if there is nothing else
    avg("x")           sum and count            a float; None without a value
    first("x") last    the value                nulls are passed over
    approx_count_      a sketch of 2 KiB        about how many different values, nulls passed over
    distinct("x")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from moorline.api.columns.distinct_count import estimates, merged, sketch_of
from moorline.api.columns.schemas import python_type
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

#: Ints are stored in 64 bits.
_LIMIT = 1 << 63
#: Decimals have this many digits in 128 bits. They are added without rounding.
_MOST_DIGITS = 38
_EXACT, _NO_DECIMAL = Context(prec=2 * _MOST_DIGITS), Decimal(0)
APPROX_DISTINCT = "approx_count_distinct"


@dataclass(frozen=True)
class Aggregate:
    """One aggregate, such as ``mo.sum("cents")``. Give several to :meth:`aggregate` by the names of their results."""

    kind: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}({self.column or ''})"

    def kept(self, name: str, schema: pa.Schema) -> dict[str, type]:
        """The fields of state that the result ``name`` is made of, and their types."""
        if self.kind == "count":
            return {name: int}
        column = schema.field(self.column).type
        kept = python_type(column, f"{name}={self}")
        if self.kind in ("sum", "avg") and kept not in (int, float, Decimal):
            raise InvalidArgument(f"{name}={self}", str(column), "Only numbers have a sum.")
        if kept is datetime and column.tz is not None and column.tz != "UTC":
            raise InvalidArgument(f"{name}={self}", str(column), "Keep moments in UTC.")
        if kept is datetime and column.unit == "ns":
            advice = 'Python has no nanoseconds: cast("timestamp") it before, cut by .dt.truncate("1ms") if need be.'
            raise InvalidArgument(f"{name}={self}", str(column), advice)
        if self.kind == APPROX_DISTINCT:
            return {name: bytes}
        return {f"{name}_sum": kept, f"{name}_count": int} if self.kind == "avg" else {name: kept}

    def arrow(self, schema: pa.Schema) -> pa.DataType:
        """The type of the result."""
        if self.kind in ("count", APPROX_DISTINCT):
            return pa.int64()
        column = schema.field(self.column).type
        if self.kind == "avg":
            return pa.float64()
        if self.kind == "sum" and pa.types.is_integer(column):
            return pa.int64()
        if self.kind == "sum" and pa.types.is_floating(column):
            return pa.float64()
        if self.kind == "sum":
            scale: int = column.scale
            return pa.decimal128(38, scale)
        return column

    def add(self, name: str, kept: dict[str, Any], row: Mapping[str, Any]) -> None:
        """Take one record into account."""
        value = None if self.column is None else row[self.column]
        if self.kind == "count":
            kept[name] = (kept.get(name) or 0) + (self.column is None or value is not None)
            return
        if value is None:
            return
        if self.kind == APPROX_DISTINCT:
            value = sketch_of([value])
        if self.kind == "avg":
            kept[f"{name}_sum"] = _sum(kept.get(f"{name}_sum"), value)
            kept[f"{name}_count"] = (kept.get(f"{name}_count") or 0) + 1
            return
        if self.kind in ("min", "max"):
            value = _with_one_zero(value)
        before = kept.get(name)
        # Also of the first one: it may be too large.
        is_first = before is None and self.kind != "sum"
        kept[name] = value if is_first else _COMBINE[self.kind](before, value)

    def merge(self, name: str, kept: dict[str, Any], others: Mapping[str, Any]) -> None:
        """Take what was kept of other records into account, which count as later ones."""
        if self.kind == "count":
            kept[name] = (kept.get(name) or 0) + (others.get(name) or 0)
            return
        if self.kind == "avg":
            if others.get(f"{name}_count"):
                kept[f"{name}_sum"] = _sum(kept.get(f"{name}_sum"), others[f"{name}_sum"])
                kept[f"{name}_count"] = (kept.get(f"{name}_count") or 0) + others[f"{name}_count"]
            return
        before, value = kept.get(name), others.get(name)
        if value is not None:
            kept[name] = value if before is None else _COMBINE[self.kind](before, value)

    def result(self, name: str, kept: Mapping[str, Any]) -> Any:
        """The result of what is kept."""
        if self.kind == "avg":
            total, count = kept.get(f"{name}_sum"), kept.get(f"{name}_count")
            return float(total) / count if count and total is not None else None
        if self.kind == APPROX_DISTINCT:
            sketch = kept.get(name)
            return 0 if sketch is None else int(estimates([sketch])[0])
        return (kept.get(name) or 0) if self.kind == "count" else kept.get(name)


def _sum(a: Any, b: Any) -> Any:
    if isinstance(b, Decimal):
        return _sum_of_decimals(_NO_DECIMAL if a is None else a, b)
    total = b if a is None else a + b
    if isinstance(total, int) and not -_LIMIT <= total < _LIMIT:
        raise OverflowError(f"the sum {total} does not fit into 64 bits")
    return total


def _sum_of_decimals(a: Decimal, b: Decimal) -> Decimal:
    # Python's own + would round it to 28 digits.
    total = _EXACT.add(a, b)
    if len(total.as_tuple().digits) > _MOST_DIGITS:
        raise OverflowError(f"the sum {total} does not fit into {_MOST_DIGITS} digits")
    return total


def _least(a: Any, b: Any) -> Any:
    return b if a != a or b < a else a


def _greatest(a: Any, b: Any) -> Any:
    return b if a != a or b > a else a


def _with_one_zero(value: Any) -> Any:
    """The same, where -0.0 is 0.0: which of them is less would depend on which came first."""
    return value + 0.0 if isinstance(value, float) else value


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": _sum,
    "min": _least,
    "max": _greatest,
    "first": lambda before, value: before,
    "last": lambda before, value: value,
    APPROX_DISTINCT: merged,
}


@checks_options()
def count(column: str | None = None) -> Aggregate:
    """The number of rows, or of values of a column that are not null.

    >>> import moorline as mo
    >>> print(mo.count(), mo.count("email"))
    count() count(email)
    """
    return Aggregate("count", _checked("count", column, optional=True))


@checks_options()
def sum(column: str) -> Aggregate:
    """The sum of a column of numbers. A sum of ints that leaves 64 bits fails the job.

    >>> import moorline as mo
    >>> print(mo.sum("cents"))
    sum(cents)
    """
    return Aggregate("sum", _checked("sum", column))


@checks_options()
def min(column: str) -> Aggregate:
    """The least value of a column.

    >>> import moorline as mo
    >>> print(mo.min("cents"))
    min(cents)
    """
    return Aggregate("min", _checked("min", column))


@checks_options()
def max(column: str) -> Aggregate:
    """The greatest value of a column.

    >>> import moorline as mo
    >>> print(mo.max("cents"))
    max(cents)
    """
    return Aggregate("max", _checked("max", column))


@checks_options()
def avg(column: str) -> Aggregate:
    """The mean of a column of numbers.

    >>> import moorline as mo
    >>> print(mo.avg("cents"))
    avg(cents)
    """
    return Aggregate("avg", _checked("avg", column))


@checks_options()
def first(column: str) -> Aggregate:
    """The first value of a column that is not null, as records arrive.

    >>> import moorline as mo
    >>> print(mo.first("page"))
    first(page)
    """
    return Aggregate("first", _checked("first", column))


@checks_options()
def last(column: str) -> Aggregate:
    """The last value of a column that is not null, as records arrive.

    >>> import moorline as mo
    >>> print(mo.last("page"))
    last(page)
    """
    return Aggregate("last", _checked("last", column))


@checks_options()
def approx_count_distinct(column: str) -> Aggregate:
    """About how many different values a column has, nulls aside, in 2 KiB for each key.

    A HyperLogLog sketch: of three estimates two are within 2.3 % of the truth, and nearly all within 7 %. It is the
    same whatever the order of the rows, and however often a value comes.

    >>> import moorline as mo
    >>> print(mo.approx_count_distinct("user"))
    approx_count_distinct(user)
    """
    return Aggregate(APPROX_DISTINCT, _checked(APPROX_DISTINCT, column))


def _checked(kind: str, column: Any, *, optional: bool = False) -> Any:
    if not (isinstance(column, str) and column) and not (optional and column is None):
        raise InvalidArgument(kind, column, f'Give the name of a column: mo.{kind}("cents").')
    return column
