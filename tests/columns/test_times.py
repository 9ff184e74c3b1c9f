"""Times by a column: the same as by a function of each row, and refused by name where they cannot be."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorline as mo
from moorline.api.columns.streams import ColumnStream
from moorline.errors import InvalidArgument
from moorline.model.columns import ColumnBatch, TimeColumn
from moorline.testing.harness import OperatorHarness


def timing(arrow: pa.DataType, strategy: mo.WatermarkStrategy, **options: Any) -> OperatorHarness:
    schema = pa.schema([("at", arrow), ("n", pa.int64())])

    def build(stream: Any) -> Any:
        columns = ColumnStream(stream._job, stream._origins, schema, stream._partitioning)
        return columns.assign_timestamps_and_watermarks(strategy, uid="times")

    return OperatorHarness.of(build, **options)


def batch_of(arrow: pa.DataType, values: list[Any]) -> ColumnBatch:
    columns = {"at": pa.array(values, arrow), "n": pa.array(range(len(values)), pa.int64())}
    return ColumnBatch(pa.RecordBatch.from_pydict(columns))


MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))


@settings(max_examples=20)
@given(moments=st.lists(MOMENTS, min_size=1, max_size=5), unit=st.sampled_from(["s", "ms", "us"]), zone=st.booleans())
def test_a_column_gives_the_times_that_a_function_of_each_row_gives(
    moments: list[datetime], unit: str, zone: bool
) -> None:
    arrow = pa.timestamp(unit, "UTC" if zone else None)
    batch = batch_of(arrow, pa.array(moments, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False).to_pylist())
    stamps = []
    for assigner in ("at", lambda row: row["at"]):
        with timing(arrow, mo.WatermarkStrategy.bounded_out_of_orderness("1s", timestamp=assigner)) as harness:
            harness.process_batch(batch)
            stamps.append(list(harness.timestamps))
    assert stamps[0] == stamps[1]


@pytest.mark.parametrize(
    ("arrow", "value", "expected"),
    [
        (pa.int64(), 1234, 1234),
        (pa.int32(), -5, -5),
        (pa.date32(), date(1970, 1, 2), 86_400_000),
        (pa.timestamp("ns", "UTC"), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1000),
    ],
)
def test_times_are_ints_dates_and_moments(arrow: pa.DataType, value: Any, expected: int) -> None:
    with timing(arrow, mo.WatermarkStrategy.monotonous("at")) as harness:
        harness.process_batch(batch_of(arrow, [value]))
        assert list(harness.timestamps) == [expected]


def test_records_that_are_dicts_have_them_too() -> None:
    with timing(pa.int64(), mo.WatermarkStrategy.monotonous("at")) as harness:
        harness.process_batch([{"at": 7, "n": 1}])
        assert list(harness.timestamps) == [7]


def test_a_row_without_a_time_is_refused_and_shown() -> None:
    with (
        timing(pa.int64(), mo.WatermarkStrategy.monotonous("at")) as harness,
        pytest.raises(InvalidArgument, match=r"'n': 1"),
    ):
        harness.process_batch(batch_of(pa.int64(), [5, None]))


def test_a_column_that_is_none_or_has_no_times_is_refused_when_the_job_is_built() -> None:
    rows = mo.Job("j").source(mo.from_items([{}])).with_schema("customer string, at bigint", uid="columns")
    with pytest.raises(InvalidArgument, match="Did you mean 'at'"):
        rows.with_watermark("aat", "5s", uid="a")
    with pytest.raises(InvalidArgument, match="The column is string"):
        rows.with_watermark("customer", "5s", uid="b")


def test_times_in_columns_are_a_sequence_of_ints() -> None:
    import numpy as np  # noqa: PLC0415

    times = TimeColumn(np.array([3, 1, 2]))
    assert (times[0], times[1:], list(times), len(times)) == (3, [1, 2], [3, 1, 2], 3)
    assert times != [3, 1]
