"""Values that Arrow, NumPy or pandas would make others of without a word: refused, wherever records become columns."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from column_steps import aggregating

import moorline as mo
from moorline.api.columns.schemas import type_of
from moorline.api.columns.streams import ColumnStream, KeyedColumnStream
from moorline.connectors.columns.csv import CsvColumns
from moorline.connectors.columns.fields import UnfitColumns
from moorline.connectors.columns.json import JsonColumns
from moorline.connectors.columns.records import record_columns
from moorline.errors import (
    AggregateTooLarge,
    InvalidArgument,
    InvalidOutput,
    MoorlineError,
    RecordNotOfSchema,
    StateMisused,
)
from moorline.model.columns import ColumnBatch
from moorline.subtask.columns.times import column_times
from moorline.testing.harness import OperatorHarness

NOON = datetime(2024, 2, 29, 12)
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def of_records(declared: Any, *values: Any) -> list[Any]:
    """What ``with_schema`` makes of records with these values."""
    schema = pa.schema([("v", declared)]) if isinstance(declared, pa.DataType) else f"v {declared}"
    with OperatorHarness.of(lambda s: s.with_schema(schema, uid="columns")) as made:
        return [row["v"] for row in made.process_batch([{"v": value} for value in values])]


def of_columns(step: Any, **columns: Any) -> list[dict[str, Any]]:
    """What a step makes of a batch."""

    def build(stream: Any) -> Any:
        return step(ColumnStream(stream._job, stream._origins, SCHEMA, stream._partitioning))

    with OperatorHarness.of(build) as made:
        return made.process_batch(ColumnBatch(pa.RecordBatch.from_pydict(columns, schema=SCHEMA)))


@pytest.mark.parametrize(
    ("declared", "value", "why"),
    [
        ("bigint", 1.5, "1.5 is not a whole number"),
        ("bigint", Decimal("1.5"), "1.5 is not a whole number"),
        ("bigint", np.bool_(True), "True is not a number"),
        ("double", True, "True is not a number"),
        ("float", 1e300, "does not fit into 32 bits"),
        ("timestamp", 1000, "nobody knows the unit"),
        ("timestamp", NOON, "has no time zone"),
        ("timestamp_ntz", NOON.replace(tzinfo=timezone(timedelta(hours=2))), "has a time zone"),
        ("date", 1000, "nobody knows the unit"),
        ("date", NOON, "time of day"),
        (pa.timestamp("ms"), NOON + timedelta(microseconds=5), "cut off"),
        (pa.time32("ms"), time(12, 0, 0, 5), "cut off"),
        (pa.time64("us"), 5, "nobody knows the unit"),
        (pa.duration("us"), 5, "nobody knows the unit"),
        (pa.list_(pa.int64()), [1, 1.5], "1.5 is not a whole number"),
        (pa.struct([("x", pa.int64())]), {"x": 1.5}, "1.5 is not a whole number"),
    ],
)
def test_records_are_refused_that_columns_would_change(declared: Any, value: Any, why: str) -> None:
    with pytest.raises(RecordNotOfSchema, match=why):
        of_records(declared, None, value)
    schema = pa.schema([("v", declared if isinstance(declared, pa.DataType) else type_of(declared))])
    with pytest.raises(UnfitColumns, match=why):
        record_columns(schema)([{"v": value}])


def test_fields_that_a_struct_does_not_have_are_refused_as_columns_are() -> None:
    with pytest.raises(RecordNotOfSchema, match="no field 'y'"):
        of_records(pa.struct([("x", pa.int64())]), {"x": 1, "y": 2})


def test_what_stays_the_same_value_is_taken() -> None:
    assert of_records("bigint", 1.0, np.int32(2), None) == [1, 2, None]
    assert of_records("double", 1, np.float32(0.5)) == [1.0, 0.5]
    assert of_records("float", float("inf"), 0.5) == [float("inf"), 0.5]
    assert of_records("date", date(2024, 2, 29)) == [date(2024, 2, 29)]
    assert of_records("timestamp_ntz", NOON) == [NOON]
    assert of_records("timestamp", NOON.replace(tzinfo=UTC)) == [NOON.replace(tzinfo=UTC)]


@pytest.mark.parametrize(
    ("made", "declared", "why"),
    [
        (pa.array(["007"]), "bigint", "string is not int64"),
        (pa.array([7]), "string", "int64 is not string"),
        (pa.array([1000]), "timestamp", "int64 is not timestamp"),
        (pa.array([NOON]), "bigint", "timestamp.* is not int64"),
        (pa.array([NOON]), "date", "timestamp.* is not date32"),
        (pa.array([NOON]), "timestamp", r"timestamp\[us\] is not timestamp\[us, tz=UTC\]"),
        (pa.array([True]), "bigint", "bool is not int64"),
        (pa.array([1e300]), "float", "does not fit into 32 bits"),
    ],
)
def test_columns_become_others_of_their_kind_alone(made: Any, declared: str, why: str) -> None:
    def step(rows: Any) -> Any:
        return rows.map_batches(lambda batch: pa.record_batch({"v": made}), schema=f"v {declared}", uid="m")

    with pytest.raises(RecordNotOfSchema, match=why):
        of_columns(step, n=[1], s=["x"])


def test_a_name_that_two_columns_have_is_refused() -> None:
    def twice(batch: Any) -> Any:
        return pa.RecordBatch.from_arrays([batch["n"], batch["s"]], names=["x", "x"])

    for schema in (None, "x bigint"):
        with pytest.raises(InvalidOutput, match="two columns 'x'"):
            of_columns(lambda rows, s=schema: rows.map_batches(twice, schema=s, uid="m"), n=[1], s=["x"])


def test_pandas_does_not_round_ints_in_silence() -> None:
    def same(rows: Any) -> Any:
        return rows.map_batches(lambda frame: frame, frames="pandas", schema=SCHEMA, uid="m")

    assert of_columns(same, n=[2**53, None], s=["a", "b"]) == [{"n": 2**53, "s": "a"}, {"n": None, "s": "b"}]
    assert of_columns(same, n=[2**53 + 1], s=["a"]) == [{"n": 2**53 + 1, "s": "a"}]
    with pytest.raises(MoorlineError, match="column 'n': it has ints beyond 2"):
        of_columns(same, n=[2**53 + 1, None], s=["a", "b"])


@pytest.mark.parametrize(
    "choose",
    [
        lambda frame: frame.sort_values("n", ascending=False)["n"] > 2,
        lambda frame: frame[frame.n > 1],
        lambda frame: pd.Series([True, False], index=[1, 0]),
    ],
)
def test_a_filter_answers_for_each_row_in_its_place(choose: Any) -> None:
    with pytest.raises(InvalidOutput, match="filter_batches"):
        of_columns(lambda rows: rows.filter_batches(choose, frames="pandas", uid="f"), n=[1, 3], s=["a", "b"])


def keys() -> mo.BatchKeys:
    return mo.BatchKeys(pa.array(["a", "b"]), np.array([0, 1, 0]))


def test_sums_of_keys_do_not_wrap_around() -> None:
    assert keys().sums(pa.array([2**62, -1, -(2**62)])).tolist() == [0, -1]
    assert keys().sums(pa.array([2**62, 1, 2**62 - 1])).tolist() == [2**63 - 1, 1]
    assert keys().sums(pa.chunked_array([[1, 2], [None]])).tolist() == [1, 2]
    for column in ([2**62, 1, 2**62], pa.array([2**63, 1, 5], pa.uint64())):
        with pytest.raises(OverflowError, match="64 bits"):
            keys().sums(column if isinstance(column, pa.Array) else pa.array(column))


@pytest.mark.parametrize(
    "column", [pa.array(["a", "b", "c"]), pa.array([NOON] * 3), pa.array([Decimal("1.5")] * 3), pa.array([1, 2])]
)
def test_only_numbers_are_added_one_for_each_row(column: Any) -> None:
    with pytest.raises(InvalidArgument, match="sums"):
        keys().sums(column)


@pytest.mark.parametrize("arrow", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.null()])
def test_columns_whose_values_are_no_keys_are_refused_when_the_job_is_built(arrow: Any) -> None:
    schema = pa.schema([("k", arrow), ("v", pa.int64())])
    rows = mo.Job("j").source(mo.from_items([{}]), uid="in").with_schema(schema, uid="columns")
    with pytest.raises(InvalidArgument, match="key_by: got 'k"):
        rows.key_by("v", "k")


@pytest.mark.parametrize("column", [pa.array([2**60], pa.timestamp("s")), pa.array([2**63], pa.uint64())])
def test_times_beyond_all_milliseconds_are_refused(column: Any) -> None:
    with pytest.raises(InvalidArgument, match="beyond all"):
        column_times(pa.record_batch({"at": column}), "at")


@pytest.mark.parametrize(("arrow", "text"), [(pa.float64(), "1e400"), (pa.float32(), "1e300")])
def test_numbers_in_texts_do_not_become_infinities(arrow: Any, text: str) -> None:
    columns = CsvColumns(pa.schema([("v", arrow)]), ["v"])
    assert columns.block(f"1\n{text}\n".encode()) is None
    with pytest.raises(UnfitColumns, match=f"{text} does not fit"):
        columns.rows([["1"], [text]])
    assert columns.rows([["-Infinity"], ["inf"]]).to_pydict() == {"v": [-float("inf"), float("inf")]}


def test_what_json_has_beside_the_columns_is_left_aside_in_structs_too() -> None:
    columns = JsonColumns(pa.schema([("v", pa.struct([("x", pa.int64())]))]))
    assert columns.batch([b'{"v":{"x":1,"y":2},"w":3}'], print).to_pylist() == [{"v": {"x": 1}}]


def rows() -> Any:
    source = mo.Job("j").source(mo.from_items([{}]), uid="in")
    return source.with_schema("k bigint, v bigint, µs bigint", uid="columns")


async def awaited(batch: Any) -> Any:
    return batch


def yielded(batch: Any) -> Any:
    yield batch


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: rows().key_by("k").aggregate(drop_states=mo.count(), uid="a"), "option of the step"),
        (lambda: rows().key_by("k").aggregate(**{"__class__": mo.count()}, uid="a"), "plain letters"),
        (lambda: rows().key_by("k").aggregate(**{"__dict__": mo.count()}, uid="a"), "plain letters"),
        (lambda: rows().key_by("k").aggregate(**{"µs": mo.count()}, uid="a"), "plain letters"),
        (lambda: rows().key_by("k").top(1, by="µs", uid="t"), "plain letters"),
        (lambda: rows().map_batches(awaited, uid="m"), "asynchronous"),
        (lambda: rows().filter_batches(yielded, uid="m"), "yields"),
        (lambda: rows().map_batches(lambda: None, uid="m"), "called with 1 argument"),
    ],
)
def test_steps_that_cannot_work_are_refused_when_the_job_is_built(build: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        build()


def stored(kind: Any, values: Any, **options: Any) -> list[Any]:
    """What a state has after an update for two keys."""

    class Kept(mo.KeyedBatchFunction):
        kept = mo.ValueState(kind)

        def process_batch(self, keys: Any, batch: Any, states: Any) -> Any:
            states.kept.update(values, **options)
            return pa.record_batch({"v": states.kept.array()})

    def build(stream: Any) -> Any:
        return KeyedColumnStream(stream._job, stream._origins, SCHEMA, ("n",)).process_batches(Kept(), uid="p")

    with OperatorHarness.of(build) as made:
        batch = pa.RecordBatch.from_pydict({"n": [1, 2], "s": ["a", "b"]}, schema=SCHEMA)
        return [row["v"] for row in made.process_batch(ColumnBatch(batch))]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (int, pa.array(["1", "2"])),
        (int, pa.array([True, False])),
        (int, np.array([True, False])),
        (int, pa.array([NOON, NOON])),
        (str, pa.array([1, 2])),
        (bool, np.array([1, 0])),
    ],
)
def test_states_are_given_values_of_their_own_kind(kind: Any, values: Any) -> None:
    with pytest.raises(StateMisused, match="was given values of"):
        stored(kind, values)


def test_states_take_what_is_of_their_kind() -> None:
    assert stored(float, pa.array([1, None])) == [1.0, None]
    assert stored(datetime, pa.array([NOON, None])) == [NOON.isoformat(), None]
    assert stored(int, [1, 2], where=[None, True]) == [None, 2]


@pytest.mark.parametrize("where", [[1, 0], ["a", ""], np.array([2, 0]), pa.array([1, 0])])
def test_choices_are_true_or_false(where: Any) -> None:
    with pytest.raises(StateMisused, match="for a choice"):
        stored(int, [1, 2], where=where)


@pytest.mark.parametrize(
    ("kept", "value", "narrow", "later"),
    [
        (pa.float64(), 1e300, pa.float32(), 0.5),
        (pa.timestamp("us"), NOON + timedelta(microseconds=5), pa.timestamp("s"), NOON),
    ],
)
def test_what_is_kept_does_not_change_when_its_column_becomes_narrower(
    kept: Any, value: Any, narrow: Any, later: Any
) -> None:
    snapshot = None
    for arrow, given in ((kept, value), (narrow, later)):
        schema = pa.schema([("user", pa.string()), ("v", arrow)])
        with aggregating(("user",), {"first": mo.first("v")}, schema, snapshot=snapshot) as made:
            batch = ColumnBatch(pa.RecordBatch.from_pylist([{"user": "ada", "v": given}], schema=schema))
            if arrow == narrow:
                with pytest.raises(AggregateTooLarge):
                    made.process_batch(batch)
                return
            assert made.process_batch(batch) == [{"user": "ada", "first": value}]
            snapshot = made.snapshot()
