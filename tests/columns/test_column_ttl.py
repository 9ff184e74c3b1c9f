"""Aggregates with a time to live: in columns as record by record, and what is over gives its slots back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from column_steps import SCHEMA, feed
from hypothesis import given, settings
from hypothesis import strategies as st

import moorline as mo
from moorline.api.columns.streams import KeyedColumnStream
from moorline.model.config.state import ON_THE_HEAP, StateConfig
from moorline.subtask.columns.aggregate import AggregateOperator
from moorline.testing.harness import OperatorHarness

RESULTS = {"n": mo.count(), "total": mo.sum("cents"), "first_page": mo.first("page"), "most": mo.max("weight")}


def aggregating(ttl: Any = "1s", emit: Any = "changes", **options: Any) -> OperatorHarness:
    def build(stream: Any) -> Any:
        keyed = KeyedColumnStream(stream._job, stream._origins, SCHEMA, ("user",))
        return keyed.aggregate(emit=emit, ttl=ttl, uid="totals", **RESULTS)

    return OperatorHarness.of(build, **options)


def rows(users: str, cents: int = 1) -> list[dict[str, Any]]:
    return [{"user": user, "cents": cents, "weight": cents / 2, "page": f"/{cents}"} for user in users]


STEPS = st.lists(
    st.text("abc", min_size=1, max_size=5) | st.sampled_from([1, 400, 999, 1000, 5000]) | st.just("restore"),
    max_size=12,
)


def outputs(steps: list[Any], forms: list[str], state: StateConfig) -> list[Any]:
    """The last row of each key, of each batch. ``forms``: what is emitted, in turn, after each restore."""
    out, form, clock = [], 0, 0
    harness = aggregating(emit=forms[0], state=state)
    for number, step in enumerate(steps):
        if step == "restore":
            snapshot = harness.snapshot()
            harness.confirm()
            harness.close()
            form += 1
            harness = aggregating(emit=forms[form % len(forms)], state=state, snapshot=snapshot)
            harness.advance_clock(clock)
        elif isinstance(step, int):
            clock += step
            harness.advance_clock(step)
        else:
            made = feed(harness, rows(step, number))
            out.append(sorted(map(repr, {row["user"]: row for row in made}.values())))
    harness.close()
    return out


@settings(max_examples=20)
@given(steps=STEPS, incremental=st.booleans(), forms=st.sampled_from([["changes"], ["changes", "updates"]]))
def test_they_expire_as_they_do_record_by_record(steps: Any, incremental: bool, forms: list[str]) -> None:
    state = StateConfig(incremental=True) if incremental else ON_THE_HEAP
    assert outputs(steps, forms, state) == outputs(steps, ["updates"], state)


def test_what_is_over_its_time_gives_its_slot_back() -> None:
    with aggregating() as harness:
        operator = harness._subtasks[0].operator
        assert isinstance(operator, AggregateOperator)
        for start in range(0, 600, 3):
            feed(harness, rows([chr(1000 + start + n) for n in range(3)]))
            harness.advance_clock(500)
        assert operator._table.size < 20


def test_what_is_over_its_time_is_not_shown() -> None:
    from moorline.model import keys  # noqa: PLC0415
    from moorline.state.peeking import value_of  # noqa: PLC0415

    with aggregating() as harness:
        feed(harness, rows("a", 5))
        operator = harness._subtasks[0].operator
        assert value_of(operator.backend.peek("aggregates", keys.encode("a")))["n"] == 1
        operator.moment.processing_ms += 1000
        assert value_of(operator.backend.peek("aggregates", keys.encode("a"))) is None


def test_full_snapshots_leave_out_what_is_over_its_time_where_that_is_asked_for() -> None:
    ttl = mo.StateTtlConfig("1s", cleanup_full_snapshot=True)
    with aggregating(ttl) as harness:
        feed(harness, rows("ab"))
        table = harness._subtasks[0].operator._table
        now = harness._subtasks[0].operator.moment.processing_ms
        assert len(table.copied(None, now=now + 999)) == 2
        assert len(table.copied(None, now=now + 1000)) == 0


@pytest.mark.parametrize(
    "ttl",
    [mo.StateTtlConfig("1s", time="event"), mo.StateTtlConfig("1s", visibility="return_expired_if_not_cleaned_up")],
)
def test_what_goes_by_each_record_goes_record_by_record(ttl: Any) -> None:
    with aggregating(ttl) as harness:
        assert not isinstance(harness._subtasks[0].operator, AggregateOperator)
        assert feed(harness, rows("aa"))[-1]["n"] == 2


def test_slots_of_those_that_remain_stay() -> None:
    with aggregating() as harness:
        feed(harness, rows("ab"))
        harness.advance_clock(700)
        feed(harness, rows("b"))
        harness.advance_clock(700)
        assert [row["n"] for row in feed(harness, rows("bc"))] == [3, 1]
        table = harness._subtasks[0].operator._table
        harness.advance_clock(700)
        feed(harness, rows("c"))
        assert np.sort(table.used()).size == len(table) <= 2 + 1
