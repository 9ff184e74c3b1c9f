"""Columns of every type that a stream can have: their values, batches of them as they may lie, and how they compare."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from moorline.model.columns import ColumnBatch

TEXTS = st.sampled_from(["", "a", "b", "ü", "日本", "a\0b", "x" * 40, "'; --"])
MOMENTS = st.sampled_from(
    [datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 2, 29, 12), datetime(2024, 2, 29, 12, 0, 1)]
)
DECIMALS = st.sampled_from(
    [Decimal("0.00"), Decimal("-0.01"), Decimal("2.50"), Decimal("2.00"), Decimal("9" * 30 + ".99")]
)
INT64 = st.sampled_from([0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)])

#: By the type of a column, what may stand in it. Sums of a few of the numbers fit.
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**57), 2**57),
    pa.uint64(): st.integers(0, 2**57),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]),
    pa.decimal128(38, 2): DECIMALS,
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): st.binary(max_size=3),
    pa.date32(): st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    pa.timestamp("us"): st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    pa.timestamp("us", "UTC"): MOMENTS.map(lambda at: at.replace(tzinfo=UTC)),
    pa.timestamp("s"): MOMENTS,
}
NUMBERS = [pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(38, 2)]
#: A few values of each type, so that they meet again.
KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.sampled_from([-128, 0, 127]),
    pa.int64(): INT64,
    pa.uint64(): st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    pa.float32(): st.sampled_from([0.0, -0.0, 0.5, math.inf, 2.0**24]),
    pa.float64(): st.sampled_from([0.0, -0.0, 0.5, 1e300, 2.0**60, -math.inf]),
    pa.decimal128(38, 2): DECIMALS,
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): st.sampled_from([b"", b"a", b"a\0"]),
    pa.binary(2): st.sampled_from([b"aa", b"\0\0"]),
    pa.date32(): st.sampled_from([date(1, 1, 1), date(2024, 2, 29)]),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "UTC"): MOMENTS.map(lambda at: at.replace(tzinfo=UTC)),
    pa.timestamp("us", "Europe/Vienna"): MOMENTS.map(lambda at: at.replace(tzinfo=UTC)),
    pa.timestamp("s"): MOMENTS,
    pa.time64("us"): st.sampled_from([time(0), time(23, 59, 59, 999999)]),
    pa.duration("us"): st.sampled_from([timedelta(0), timedelta(days=-1)]),
    pa.dictionary(pa.int32(), pa.string()): TEXTS,
}


def by_name(types: Iterable[pa.DataType]) -> Any:
    """One of the types."""
    return st.sampled_from(sorted(types, key=str))


def laid_out(rows: list[dict[str, Any]], schema: pa.Schema) -> ColumnBatch:
    """Rows as a batch that is cut out of a longer one, and whose dictionaries have values that no row has."""
    padded = [rows[-1], *rows, rows[0]]
    arrays = [_array([row[field.name] for row in padded], field.type) for field in schema]
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=schema).slice(1, len(rows)))


def _array(values: list[Any], arrow: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(arrow):
        return pa.array(values, arrow)
    known = ["not there", *dict.fromkeys(v for v in values if v is not None), "nor this"]
    places = [None if v is None else known.index(v) for v in values]
    return pa.DictionaryArray.from_arrays(pa.array(places, arrow.index_type), pa.array(known, arrow.value_type))


def plain(value: Any) -> Any:
    """A value that can be compared, NaN with itself, and moments in whatever zone they are shown."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Decimal):
        return str(value.normalize())
    return repr(value) if isinstance(value, float) else value


def identity(value: Any) -> Any:
    """The same for keys that are one."""
    return plain(value + 0.0) if isinstance(value, float) else plain(value)
