"""Joins of two streams of columns: equal to the joins of records, and exact about columns and keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorline as mo
from moorline.api.columns.joins import side_by_side
from moorline.api.columns.streams import ColumnStream
from moorline.errors import InvalidArgument
from moorline.model.columns import ColumnBatch
from moorline.testing.harness import OperatorHarness

LEFT = pa.schema([("ad", pa.int64()), ("shown", pa.string())])
RIGHT = pa.schema([("id", pa.int32()), ("clicked", pa.float64())])
SIDES = st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 9)), max_size=25)


def harness(build: Any, right: pa.Schema = RIGHT) -> OperatorHarness:
    def built(a: Any, b: Any) -> Any:
        return build(ColumnStream(a._job, a._origins, LEFT), ColumnStream(b._job, b._origins, right))

    return OperatorHarness.of(built, inputs=2)


def feed(made: OperatorHarness, sides: list[tuple[bool, int, int]]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for is_left, key, second in sides:
        row = {"ad": key, "shown": str(second)} if is_left else {"id": key, "clicked": second / 2}
        batch = ColumnBatch(pa.RecordBatch.from_pylist([row], schema=LEFT if is_left else RIGHT))
        out += made.process_batch(batch, [second * 1000], side=0 if is_left else 1)
    return out + made.watermark(100_000)


def expected(sides: list[tuple[bool, int, int]], meets: Any) -> list[dict[str, Any]]:
    return [
        {"ad": a, "shown": str(left), "id": b, "clicked": right / 2}
        for is_left, a, left in sides
        if is_left
        for other, b, right in sides
        if not other and a == b and meets(left, right)
    ]


def interval(a: ColumnStream, b: ColumnStream) -> ColumnStream:
    return a.key_by("ad").interval_join(b.key_by("id")).between("-1s", "3s").columns(uid="join")


@settings(deadline=None)
@given(sides=SIDES)
def test_rows_that_are_near_in_time_meet(sides: Any) -> None:
    def join(a: ColumnStream, b: ColumnStream) -> Any:
        near = a.key_by("ad").interval_join(b.key_by("id")).between("-1s", "3s")
        return near.process(side_by_side(a, b, "", "")[0].of_interval, uid="join")

    with harness(join) as made:
        found = feed(made, sides)
    assert sorted(map(str, found)) == sorted(map(str, expected(sides, lambda a, b: -1 <= b - a <= 3)))


@settings(deadline=None)
@given(sides=SIDES)
def test_rows_of_one_window_meet(sides: Any) -> None:
    def join(a: ColumnStream, b: ColumnStream) -> Any:
        windows = a.join(b).where("ad").equal_to("id").window(mo.TumblingEventTimeWindows("4s"))
        return windows.apply(side_by_side(a, b, "", "")[0], uid="join")

    with harness(join) as made:
        found = feed(made, sides)
    assert sorted(map(str, found)) == sorted(map(str, expected(sides, lambda a, b: a // 4 == b // 4)))


def streams(right: pa.Schema = RIGHT) -> tuple[ColumnStream, ColumnStream]:
    job = mo.Job("join")
    a, b = (
        job.source(mo.from_items([{}]), uid=uid).with_schema(schema, uid=f"{uid}-columns")
        for uid, schema in (("a", LEFT), ("b", right))
    )
    return a, b


def test_the_columns_of_both_are_known_and_may_have_prefixes() -> None:
    a, b = streams()
    made = interval(a, b)
    assert made.schema == pa.schema([*LEFT, *RIGHT])
    assert made.select("ad", late=mo.col("clicked") > 1).schema.names == ["ad", "late"]
    a, b = streams(LEFT)
    joined = a.key_by("ad").interval_join(b.key_by("ad")).between("0s", "1s").columns(right_prefix="r_")
    assert joined.schema.names == ["ad", "shown", "r_ad", "r_shown"]


@pytest.mark.parametrize(
    ("build", "right", "message"),
    [
        (lambda a, b: a.key_by("ad").interval_join(b.key_by("ad")).between("0s", "1s").columns(), LEFT, "right_prefix"),
        (
            lambda a, b: a.key_by("shown").interval_join(b.key_by("id")).between("0s", "1s").columns(),
            RIGHT,
            "never equal",
        ),
        (lambda a, b: a.key_by("ad").interval_join(b.key_by("id")).columns(), RIGHT, "between"),
        (lambda a, b: a.key_by("add").interval_join(b.key_by("id")), RIGHT, "Did you mean 'ad'"),
        (
            lambda a, b: a.map_batches(lambda x: x).key_by("ad").interval_join(b.key_by("id")).between(0, 1).columns(),
            RIGHT,
            "not known",
        ),
    ],
)
def test_a_mistake_is_found_when_the_job_is_built(build: Any, right: pa.Schema, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        build(*streams(right))


def test_moments_with_and_without_a_time_zone_are_never_equal() -> None:
    job = mo.Job("j")
    a, b = (
        job.source(mo.from_items([{}]), uid=kind).with_schema(f"k {kind}", uid=f"{kind}-columns").key_by("k")
        for kind in ("timestamp", "timestamp_ntz")
    )
    with pytest.raises(InvalidArgument, match="datetime with a time zone"):
        a.interval_join(b).between("0s", "1s").columns(right_prefix="r_")
