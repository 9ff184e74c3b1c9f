"""The columns of a declared schema, as sources make them of what they read.

Values that are texts where they come from (moments, dates, decimals of CSV) are cast by Arrow in every way of reading,
so that a value means the same in a block of thousands and alone. What cannot be cast raises :class:`UnfitColumns`,
and who reads finds out which row it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from moorline.model.arrow_values import column_of

#: Raised by Arrow for values that do not fit a type.
ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


class UnfitColumns(ValueError):
    """Values do not fit the schema; the text says which column it is, and why."""


def from_texts(texts: pa.Array, field: pa.Field, *, empty_is_null: bool) -> pa.Array:
    """A column of texts as what the schema declares. Blanks around what is no text do not count.

    >>> from_texts(pa.array([" 7", ""]), pa.field("n", pa.int64()), empty_is_null=True).to_pylist()
    [7, None]
    """
    if pa.types.is_string(field.type):
        return texts
    try:
        if pa.types.is_large_string(field.type) or pa.types.is_binary(field.type):
            return texts.cast(field.type)
        if empty_is_null:
            texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
        made = pc.utf8_trim(texts, " \t").cast(field.type)
        if has_infinities(made):
            _refuse_overflow(texts, made)
        return made
    except ARROW_ERRORS as error:
        raise UnfitColumns(f"column {field.name!r}: {error}") from None


def has_infinities(column: pa.Array) -> bool:
    """Is there a float that is infinite? It may be one that was too large."""
    return bool(pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py())


def _refuse_overflow(texts: pa.Array, made: pa.Array) -> None:
    lost = pc.and_(pc.is_inf(made), pc.invert(pc.match_substring(texts, "inf", ignore_case=True)))
    if pc.any(lost).as_py():
        raise ValueError(f"{texts.filter(lost)[0].as_py()} does not fit into {made.type}")


def from_values(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Values of Python as a column. Texts are moments and dates where the schema has some."""
    try:
        if is_moment(field.type) and any(isinstance(value, str) for value in values):
            return from_texts(pa.array(values, pa.string()), field, empty_is_null=False)
        return column_of(values, field.type, takes_more=True)
    except UnfitColumns:
        raise
    except ARROW_ERRORS as error:
        raise UnfitColumns(f"column {field.name!r}: {error}") from None


def is_moment(type: pa.DataType) -> bool:
    """Is it a date or a timestamp?"""
    return bool(pa.types.is_timestamp(type) or pa.types.is_date32(type))


def whole_batch(columns: Iterable[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """The columns as a batch, if there is a value wherever the schema wants one."""
    arrays = list(columns)
    for array, field in zip(arrays, schema, strict=True):
        if array.null_count and not field.nullable:
            raise UnfitColumns(f"column {field.name!r} has no value, and the schema wants one")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batch_of_fitting(
    rows: Sequence[Any],
    columns_of: Callable[[Sequence[Any]], pa.RecordBatch],
    unfit: Callable[[int, UnfitColumns], None],
) -> pa.RecordBatch:
    """The rows that fit, as a batch; ``unfit`` is told the places of the others, in their order.

    >>> def numbers(texts):
    ...     field = pa.field("n", pa.int64())
    ...     return whole_batch([from_texts(pa.array(texts), field, empty_is_null=True)], pa.schema([field]))
    >>> batch_of_fitting(["1", "x", "3"], numbers, lambda place, why: print(place))["n"].to_pylist()
    1
    [1, 3]
    """
    try:
        return columns_of(rows)
    except UnfitColumns:
        pass
    fitting = []
    for place, row in enumerate(rows):
        try:
            columns_of([row])
            fitting.append(row)
        except UnfitColumns as error:
            unfit(place, error)
    return columns_of(fitting)
