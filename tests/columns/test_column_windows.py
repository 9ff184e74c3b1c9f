"""Windows over columns are windows of records: whatever comes when, over restores, rescales, and from form to form."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from window_steps import ASSIGNERS, RESULTS, SCHEMA, STEPS, columns, outputs, windowing

import moorline as mo
from moorline.errors import InvalidArgument, TimestampMissing
from moorline.model.config.state import ON_THE_HEAP, StateConfig
from moorline.subtask.columns.windows import ColumnWindowOperator
from moorline.subtask.windows.operator import WindowOperator


@settings(max_examples=25)
@given(
    steps=STEPS,
    assigner=st.sampled_from(ASSIGNERS),
    keys=st.sampled_from([("user",), ("number",), ("user", "page")]),
    lateness=st.sampled_from([0, 5, 30]),
    incremental=st.booleans(),
    forms=st.sampled_from([[True], [True, False], [False, True]]),
)
def test_they_are_windows_of_records(
    steps: Any, assigner: Any, keys: Any, lateness: int, incremental: bool, forms: list[bool]
) -> None:
    if keys == ("number",):
        steps = [
            [(r | {"number": (r["number"] or 0) % 3}, t) for r, t in s] if isinstance(s, list) else s for s in steps
        ]
    state = StateConfig(incremental=True) if incremental else ON_THE_HEAP
    made = outputs(steps, assigner, keys, lateness, forms, [state])
    assert made == outputs(steps, assigner, keys, lateness, [False], [state])


def test_it_is_columns_that_were_tested() -> None:
    for in_columns, operator in ((True, ColumnWindowOperator), (False, WindowOperator)):
        with windowing(ASSIGNERS[0], in_columns=in_columns) as harness:
            assert type(harness._subtasks[0].operator) is operator


def rows(*users: str) -> Any:
    return columns([{"user": u, "number": n, "weight": None, "page": None} for n, u in enumerate(users)])


def test_slots_are_given_back_when_windows_are_over() -> None:
    with windowing(ASSIGNERS[0], lateness=5) as harness:
        table = harness._subtasks[0].operator._table
        for start in range(0, 2000, 10):
            harness.process_batch(rows(*"abcdef"), [start] * 6)
            harness.watermark(start + 4)
            assert len(table) <= 12
            assert table.size <= 12
        harness.finish()
        assert (len(table), len(table.windows)) == (0, 0)


def test_late_rows_that_nobody_wants_are_counted() -> None:
    for in_columns in (True, False):
        with windowing(ASSIGNERS[0], late=False, in_columns=in_columns) as harness:
            harness.process_batch(rows("a"), [15])
            harness.watermark(20)
            assert harness.process_batch(rows("a", "b", "a"), [3, 25, 4]) == []
            assert harness._subtasks[0].operator.counters == {"late_records": 2}


def test_the_windows_of_a_key_can_be_asked_for() -> None:
    from moorline.model import keys  # noqa: PLC0415
    from moorline.state.peeking import value_of  # noqa: PLC0415

    with windowing(ASSIGNERS[0], results={"n": mo.count()}) as harness:
        harness.process_batch(rows("ada", "bob", "ada"), [1, 2, 15])
        backend = harness._subtasks[0].operator.backend
        found = value_of(backend.peek("window-contents", keys.encode("ada")))
        assert found == {(0, 10): {"n": 1}, (10, 20): {"n": 1}}


def test_a_row_without_a_time_is_refused() -> None:
    with windowing(ASSIGNERS[0]) as harness, pytest.raises(TimestampMissing):
        harness.process_batch(rows("ada"))


def test_a_time_that_no_timestamp_can_hold_is_refused() -> None:
    with windowing(ASSIGNERS[0]) as harness, pytest.raises(InvalidArgument, match="years 1 to 9999"):
        harness.process_batch(rows("ada"), [1 << 60])


def test_a_result_may_not_be_named_as_a_bound_of_the_window() -> None:
    with pytest.raises(InvalidArgument, match="window"):
        windowing(ASSIGNERS[0], results={"window_end": mo.count()})


def test_an_evictor_is_refused() -> None:
    keyed = mo.Job("j").source(mo.from_items([{}])).with_schema(SCHEMA, uid="c").key_by("user")
    with pytest.raises(InvalidArgument, match="takes records out"):
        keyed.window(ASSIGNERS[0]).evictor(mo.CountEvictor(3)).aggregate(n=mo.count(), uid="w")


@pytest.mark.parametrize("arrow", [pa.int16(), pa.date32(), pa.timestamp("us", "UTC"), pa.float64(), pa.bool_()])
def test_keys_come_back_as_what_they_were(arrow: pa.DataType) -> None:
    schema = pa.schema([("user", arrow), ("number", pa.int64())])
    values = pa.array([0, 1], pa.int64())
    values = values.cast(pa.int32()).cast(arrow) if arrow == pa.date32() else values.cast(arrow)
    batch = columns([{"user": user, "number": 1} for user in values.to_pylist()], schema)
    with windowing(ASSIGNERS[0], schema=schema, results={"n": mo.count()}) as harness:
        harness.process_batch(batch, [1, 2])
        assert sorted(row["user"] for row in harness.finish()) == values.to_pylist()


def test_sessions_merge_what_is_kept_of_each() -> None:
    results = {**RESULTS, "least_page": mo.min("page")}
    made = [
        {"user": "ada", "number": n, "weight": w, "page": p}
        for n, w, p in [(5, 1.5, "/b"), (7, None, None), (-2, 9.0, "/a"), (None, 4.0, "/c")]
    ]
    with windowing(mo.EventTimeSessionWindows("10ms"), results=results) as harness:
        assert type(harness._subtasks[0].operator) is WindowOperator
        # Two sessions, which the third row makes one of; the fourth is in another.
        harness.process_batch(columns(made), [0, 18, 9, 60])
        first, second = harness.finish()
    assert first["window_end"].timestamp() == 0.028
    assert {name: first[name] for name in results} == {
        "rows": 3,
        "pages": 2,
        "total": 10,
        "most": 9.0,
        "least": -2,
        "mean": 10 / 3,
        "first_page": "/b",
        "last_number": -2,
        "least_page": "/a",
    }
    assert (second["rows"], second["total"], second["mean"]) == (1, None, None)
