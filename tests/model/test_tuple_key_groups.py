"""Key groups of tuples by column are those of each tuple alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.model.keys import key_group
from moorline.model.keys.tuples import tuple_key_groups

COLUMNS = {
    "bigint": (st.integers(-(1 << 63), (1 << 63) - 1), pa.int64()),
    "int": (st.integers(-(1 << 31), (1 << 31) - 1), pa.int32()),
    "string": (st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.just("a\0b"), pa.string()),
    "large": (st.sampled_from(["", "ü", "x" * 300]), pa.large_string()),
}


@given(
    st.data(), st.lists(st.sampled_from(sorted(COLUMNS)), min_size=2, max_size=4), st.sampled_from([1, 7, 128, 32768])
)
def test_they_are_those_of_each_tuple(data: Any, names: list[str], max_parallelism: int) -> None:
    rows = data.draw(st.lists(st.tuples(*(COLUMNS[name][0] for name in names)), min_size=1, max_size=8))
    columns = [pa.array(values, COLUMNS[name][1]) for name, values in zip(names, zip(*rows))]
    found = tuple_key_groups(columns, max_parallelism)
    assert found is not None
    assert found.tolist() == [key_group(row, max_parallelism) for row in rows]
    part = [column.slice(len(rows) // 2) for column in columns]
    assert tuple_key_groups(part, max_parallelism).tolist() == found.tolist()[len(rows) // 2 :]  # type: ignore[union-attr]


@pytest.mark.parametrize("other", [pa.array([1, None]), pa.array([1.5, 2.0]), pa.array([True, False])])
def test_other_columns_are_left_to_who_encodes_each_tuple(other: Any) -> None:
    assert tuple_key_groups([pa.array(["a", "b"]), other], 128) is None
