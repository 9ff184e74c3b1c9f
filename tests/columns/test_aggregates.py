"""Aggregates over columns: equal to a plain loop, however rows fall into batches, over restores and other backends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from column_steps import RESULTS, SCHEMA, aggregating, feed, plain_loop
from hypothesis import given
from hypothesis import strategies as st

import moorline as mo
from moorline.api.columns.streams import KeyedColumnStream
from moorline.errors import AggregateTooLarge, InvalidKey, KeysChanged, RecordNotOfSchema
from moorline.model.columns import ColumnBatch
from moorline.model.config.state import ON_THE_HEAP, StateConfig
from moorline.state.columns.backend import ColumnBackend
from moorline.testing.harness import OperatorHarness

USERS = st.sampled_from(["ada", "bob", "eve", "", "ü", "x" * 40])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "user": USERS,
            "cents": st.none() | st.integers(-(10**12), 10**12),
            "weight": st.none() | st.floats(-1e6, 1e6) | st.just(float("nan")),
            "page": st.none() | st.sampled_from(["/", "/a", "/b"]),
        }
    ),
    max_size=40,
)


def last_of_each(rows: list[dict[str, Any]], keys: tuple[str, ...] = ("user",)) -> dict[Any, dict[str, Any]]:
    return {tuple(row[k] for k in keys): row for row in rows}


def same(a: Any, b: Any) -> bool:
    """Equal, where nan equals nan."""
    return repr(a) == repr(b)


@given(batches=st.lists(ROWS, max_size=5))
def test_they_are_those_of_a_plain_loop_however_rows_fall_into_batches(batches: list[list[dict[str, Any]]]) -> None:
    out: list[dict[str, Any]] = []
    with aggregating(parallelism=2) as harness:
        for batch in batches:
            if batch:
                out += feed(harness, batch)
    expected = plain_loop([row for batch in batches for row in batch])
    found = last_of_each(out)
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert same(found[key], row)


@given(before=ROWS, between=ROWS, after=ROWS, incremental=st.booleans(), parallelism=st.integers(1, 3))
def test_they_go_on_after_a_restore_at_another_parallelism(
    before: Any, between: Any, after: Any, incremental: bool, parallelism: int
) -> None:
    state = StateConfig(incremental=True) if incremental else ON_THE_HEAP
    with aggregating(parallelism=2, state=state) as first:
        for batch in (before, between):
            if batch:
                feed(first, batch)
            snapshot = first.snapshot()
            first.confirm()
    with aggregating(parallelism=parallelism, state=state, snapshot=snapshot) as second:
        out = feed(second, after) if after else []
    expected = plain_loop([*before, *between, *after])
    for key, row in last_of_each(out).items():
        assert same(row, expected[key])


@pytest.mark.parametrize(("earlier", "later"), [("changes", "updates"), ("updates", "changes")])
def test_an_operator_that_goes_record_by_record_takes_over_and_back(earlier: Any, later: Any) -> None:
    rows = [{"user": u, "cents": n, "weight": n / 2, "page": None} for n, u in enumerate(["ada", "bob", "ada"])]
    with aggregating(emit=earlier) as first:
        first.process_batch(rows)
        snapshot = first.snapshot()
    with aggregating(emit=later, snapshot=snapshot) as second:
        out = second.process_batch(rows)
    assert last_of_each(out) == plain_loop(rows + rows)


@dataclass
class Totals:
    """What a function of the user's own keeps, under the names of the results."""

    orders: int | None = None
    cents: int | None = None


class OwnTotals(mo.KeyedProcessFunction):
    aggregates = mo.ValueState(Totals)

    def process_element(self, row: Any, ctx: Any) -> Any:
        before = self.aggregates.value() or Totals()
        kept = Totals((before.orders or 0) + 1, (before.cents or 0) + row["cents"])
        self.aggregates.update(kept)
        yield {"user": row["user"], "orders": kept.orders, "cents": kept.cents}


def test_a_function_of_the_users_own_takes_over_and_back() -> None:
    rows = [{"user": u, "cents": n, "weight": None, "page": None} for n, u in enumerate(["ada", "bob", "ada"])]
    results = {"orders": mo.count(), "cents": mo.sum("cents")}

    def own(stream: Any) -> Any:
        return KeyedColumnStream(stream._job, stream._origins, SCHEMA, ("user",)).process(OwnTotals(), uid="totals")

    with aggregating(results=results) as first:
        feed(first, rows)
        snapshot = first.snapshot()
    with OperatorHarness.of(own, snapshot=snapshot) as second:
        second.process_batch(ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))
        snapshot = second.snapshot()
    with aggregating(results=results, snapshot=snapshot, parallelism=2) as third:
        assert last_of_each(feed(third, rows)) == plain_loop(rows * 3, results=results)


def test_it_is_state_in_columns_that_was_tested() -> None:
    with aggregating() as harness:
        assert isinstance(harness._subtasks[0].operator.backend, ColumnBackend)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.int64(), [2**63 - 1, -(2**63), 0, -1]),
        (pa.int16(), [-5, 7]),
        (pa.bool_(), [True, False]),
        (pa.float64(), [0.5, -2.0]),
        (pa.date32(), [date(1970, 1, 1), date(2024, 2, 29)]),
        (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)]),
    ],
)
def test_keys_are_of_every_kind(column: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("user", column), ("cents", pa.int64())])
    rows = [{"user": user, "cents": 1} for user in pa.array(values, column).to_pylist()]
    results = {"n": mo.count()}
    with aggregating(results=results, schema=schema, parallelism=3) as harness:
        feed(harness, rows, schema)
        out = feed(harness, rows, schema)
        snapshot = harness.snapshot()
    assert sorted(row["n"] for row in out) == [2] * len(values)
    with aggregating(results=results, schema=schema, parallelism=2, snapshot=snapshot) as second:
        assert {row["n"] for row in feed(second, rows, schema)} == {3}


def test_a_key_may_be_of_several_columns() -> None:
    rows = [{"user": u, "cents": n % 2, "weight": None, "page": "/"} for n, u in enumerate("abcab")]
    with aggregating(("user", "cents"), {"n": mo.count()}, parallelism=2) as harness:
        out = feed(harness, rows)
    assert {(r["user"], r["cents"]): r["n"] for r in out} == {
        k: r["n"] for k, r in plain_loop(rows, ("user", "cents"), {"n": mo.count()}).items()
    }


def test_rows_that_come_as_dicts_are_as_good() -> None:
    rows = [{"user": "ada", "cents": 5, "weight": 1.0, "page": "/"}]
    with aggregating() as harness:
        assert last_of_each(harness.process_batch(rows)) == plain_loop(rows)


def test_a_null_is_no_key() -> None:
    with aggregating() as harness, pytest.raises(InvalidKey, match="None"):
        feed(harness, [{"user": None, "cents": 1, "weight": None, "page": None}])


def test_a_sum_that_leaves_64_bits_is_refused_by_name() -> None:
    rows = [{"user": "ada", "cents": 2**62, "weight": None, "page": None}]
    with aggregating(results={"total": mo.sum("cents")}) as harness:
        feed(harness, rows)
        with pytest.raises(AggregateTooLarge, match="'total'"):
            feed(harness, rows)


def test_sums_near_the_limit_are_exact() -> None:
    rows = [{"user": "ada", "cents": 2**62, "weight": None, "page": None}]
    back = [{"user": "ada", "cents": -(2**62), "weight": None, "page": None}]
    with aggregating(results={"total": mo.sum("cents")}) as harness:
        for _ in range(20):
            assert feed(harness, rows)[-1]["total"] == 2**62
            assert feed(harness, back)[-1]["total"] == 0


def test_a_record_that_does_not_fit_is_refused_with_its_content() -> None:
    with aggregating() as harness, pytest.raises(RecordNotOfSchema, match=r"'cents'|five"):
        harness.process({"user": "ada", "cents": "five", "weight": None, "page": None})


def test_keys_of_another_kind_are_refused_after_a_restore() -> None:
    numbers = pa.schema([("user", pa.int64()), ("cents", pa.int64())])
    results = {"n": mo.count()}
    with aggregating(results=results, schema=numbers) as first:
        feed(first, [{"user": 1, "cents": 1}], numbers)
        snapshot = first.snapshot()
    texts = pa.schema([("user", pa.string()), ("cents", pa.int64())])
    with (
        aggregating(results=results, schema=texts, snapshot=snapshot) as second,
        pytest.raises(KeysChanged),
    ):
        feed(second, [{"user": "1", "cents": 1}], texts)


def test_a_result_that_is_added_later_begins_with_the_next_record() -> None:
    rows = [{"user": "ada", "cents": 5, "weight": 1.0, "page": "/"}]
    with aggregating(results={"n": mo.count()}) as first:
        feed(first, rows)
        snapshot = first.snapshot()
    with aggregating(results={"n": mo.count(), "total": mo.sum("cents")}, snapshot=snapshot) as second:
        assert feed(second, rows) == [{"user": "ada", "n": 2, "total": 5}]


def test_timestamps_are_those_of_the_last_row_of_a_key() -> None:
    rows = [{"user": u, "cents": 1, "weight": None, "page": None} for u in ("ada", "bob", "ada")]
    with aggregating(results={"n": mo.count()}) as harness:
        out = harness.process_batch(rows, [10, 20, 30])
        assert dict(zip([r["user"] for r in out], harness.timestamps)) == {"ada": 30, "bob": 20}


def test_the_state_of_a_key_can_be_asked_for() -> None:
    with aggregating(results={"n": mo.count(), "total": mo.sum("cents")}, schema=SCHEMA) as harness:
        feed(harness, [{"user": "ada", "cents": 5, "weight": None, "page": None}])
        backend = harness._subtasks[0].operator.backend
        from moorline.model import keys  # noqa: PLC0415
        from moorline.state.peeking import value_of  # noqa: PLC0415

        assert value_of(backend.peek("aggregates", keys.encode("ada"))) == {"n": 1, "total": 5}
        assert value_of(backend.peek("aggregates", keys.encode("bob"))) is None


def test_all_results_are_covered() -> None:
    assert {a.kind for a in RESULTS.values()} == {
        "count",
        "sum",
        "min",
        "max",
        "avg",
        "first",
        "last",
        "approx_count_distinct",
    }
