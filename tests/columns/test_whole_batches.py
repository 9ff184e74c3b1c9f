"""What users' functions of whole batches are given, and what they may return."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import moorline as mo
from moorline.api.columns.streams import ColumnStream, KeyedColumnStream
from moorline.errors import InvalidOutput, RecordNotOfSchema
from moorline.model.columns import ColumnBatch
from moorline.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("small", pa.int16())])


def harness(step: Any) -> OperatorHarness:
    return OperatorHarness.of(lambda s: step(ColumnStream(s._job, s._origins, SCHEMA, s._partitioning)))


def batch_of(*users: str | None) -> ColumnBatch:
    rows = [{"user": user, "small": n} for n, user in enumerate(users)]
    return ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


@pytest.mark.parametrize("is_filter", [False, True])
def test_rows_that_were_in_flight_are_columns_of_the_same_types_again(is_filter: bool) -> None:
    given: list[pa.Schema] = []

    def seen(batch: pa.RecordBatch) -> Any:
        given.append(batch.schema)
        return pa.array([True] * batch.num_rows) if is_filter else batch

    with harness(lambda s: (s.filter_batches if is_filter else s.map_batches)(seen, uid="m")) as made:
        made.process_batch([{"user": None, "small": 5}])  # a snapshot holds rows: of a null nobody knows the type
    assert given == [SCHEMA]


def test_a_column_that_the_schema_does_not_name_is_refused() -> None:
    def more(batch: pa.RecordBatch) -> Any:
        return batch.append_column("extra", batch["small"])

    with (
        harness(lambda s: s.map_batches(more, schema=SCHEMA, uid="m")) as made,
        pytest.raises(InvalidOutput, match="does not name 'extra'"),
    ):
        made.process_batch(batch_of("ada"))


class More(mo.KeyedBatchFunction):
    def process_batch(self, keys: Any, batch: Any, states: Any) -> Any:
        return batch.append_column("extra", batch["small"])


def test_nor_may_a_function_with_state_return_one() -> None:
    def build(stream: Any) -> Any:
        keyed = KeyedColumnStream(stream._job, stream._origins, SCHEMA, ("user",))
        return keyed.process_batches(More(), schema=SCHEMA, uid="s")

    with OperatorHarness.of(build) as made, pytest.raises(InvalidOutput, match="does not name 'extra'"):
        made.process_batch(batch_of("ada"))


def test_a_null_where_the_schema_allows_none_is_refused_with_its_row() -> None:
    with (
        harness(lambda s: s.map_batches(lambda b: b, schema="user string not null, small int", uid="m")) as made,
        pytest.raises(RecordNotOfSchema, match=r"'small': 1\}: 'user' is None"),
    ):
        made.process_batch(batch_of("ada", None))


def test_chunks_are_one_batch() -> None:
    def twice(batch: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches([batch.slice(1), batch.slice(0, 1)])

    with harness(lambda s: s.map_batches(twice, schema=SCHEMA, uid="m")) as made:
        assert [row["user"] for row in made.process_batch(batch_of("a", "b", "c"))] == ["b", "c", "a"]
