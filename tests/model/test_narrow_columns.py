"""Columns on their way: whole numbers in few bytes, and the same batch where they arrive."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.model.columns import TimeColumn
from moorline.model.wire.columns import FEW_ROWS, from_bytes, to_bytes

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def there_and_back(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns, stamps = from_bytes(to_bytes(batch))
    assert stamps is None
    assert columns.batch.schema.equals(batch.schema, check_metadata=True)
    return columns.batch


@given(st.data(), st.integers(0, 40))
def test_any_range_of_ints_arrives_as_it_was(data: st.DataObject, bits: int) -> None:
    least = data.draw(INT64)
    numbers = [min(least + n, (1 << 63) - 1) for n in data.draw(st.lists(st.integers(0, 1 << bits), min_size=2))]
    batch = pa.record_batch({"n": pa.array(np.resize(np.array(numbers, np.int64), FEW_ROWS + 1))})
    assert there_and_back(batch).equals(batch)


@pytest.mark.parametrize("numbers", [[-(1 << 63), (1 << 63) - 1], [0, 255], [0, 256], [-1, 65_534], [0, 1 << 32]])
def test_the_ends_of_each_width(numbers: list[int]) -> None:
    batch = pa.record_batch({"n": pa.array(numbers * FEW_ROWS)})
    assert there_and_back(batch).equals(batch)


@pytest.mark.parametrize("type", [pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.timestamp("s", "Europe/Vienna")])
def test_moments_keep_their_unit_and_zone(type: pa.DataType) -> None:
    moments = pa.array([n * 86_400_000 for n in range(FEW_ROWS)], pa.timestamp("ms")).cast(type)
    batch = pa.record_batch({"at": moments})
    assert there_and_back(batch).equals(batch)
    assert to_bytes(batch).size < 1_000


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None] * FEW_ROWS),
        pa.array([1.5] * FEW_ROWS),
        pa.array(["a"] * FEW_ROWS),
        pa.array([True, False] * FEW_ROWS),
        pa.array([7] * FEW_ROWS, pa.int32()),
        pa.array([datetime(2026, 1, 1, tzinfo=UTC), None] * FEW_ROWS),
    ],
)
def test_everything_else_goes_as_it_is(column: pa.Array) -> None:
    batch = pa.record_batch({"c": column})
    assert there_and_back(batch).equals(batch)


def test_fields_keep_what_is_said_of_them() -> None:
    field = pa.field("n", pa.int64(), False, {"unit": "cents"})
    schema = pa.schema([field], {"made": "by hand"})
    batch = pa.RecordBatch.from_arrays([pa.array([5] * FEW_ROWS)], schema=schema)
    assert there_and_back(batch).equals(batch)


def test_timestamps_come_back_beside_the_rows() -> None:
    stamps: Any = TimeColumn(np.arange(1_767_311_970_000, 1_767_311_970_000 + FEW_ROWS))
    batch = pa.record_batch({"n": pa.array([-3] * FEW_ROWS)})
    columns, found = from_bytes(to_bytes(batch, stamps))
    assert columns.batch.equals(batch)
    assert found == stamps


def test_a_part_of_a_batch_is_narrowed_by_itself() -> None:
    batch = pa.record_batch({"n": pa.array(range(10 * FEW_ROWS))}).slice(FEW_ROWS, 2 * FEW_ROWS)
    assert there_and_back(batch).equals(batch)
    assert to_bytes(batch).size < 1_000
