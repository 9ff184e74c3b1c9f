"""Aggregates with a time to live: in columns as record by record, and what is over gives its slots back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from column_steps import SCHEMA, feed
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

import moorline as mo
from moorline.api.columns.streams import KeyedColumnStream
from moorline.model import keys
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.state.columns.stamps import Stamps
from moorline.state.peeking import value_of
from moorline.state.rocksdb import backend, columns
from moorline.subtask.columns.aggregate import AggregateOperator
from moorline.testing.harness import OperatorHarness

ROCKSDB = StateConfig(RocksDb(memory="16MB"), incremental=True)
FULL_ROCKSDB = StateConfig(RocksDb(memory="16MB"))
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


def outputs(steps: list[Any], forms: list[str], states: list[StateConfig]) -> list[Any]:
    """The last row of each key, of each batch. ``forms``, ``states``: what is emitted, and where, in turn."""
    out, form, clock = [], 0, 0
    harness = aggregating(emit=forms[0], state=states[0])
    for number, step in enumerate(steps):
        if step == "restore":
            snapshot = harness.snapshot()
            harness.confirm()
            harness.close()
            form += 1
            state = states[form % len(states)]
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
    assert outputs(steps, forms, [state]) == outputs(steps, ["updates"], [state])


@settings(max_examples=examples(6), deadline=None)
@given(
    steps=STEPS,
    states=st.lists(st.sampled_from([ROCKSDB, FULL_ROCKSDB, ON_THE_HEAP]), min_size=1, max_size=3),
    forms=st.sampled_from([["changes"], ["changes", "updates"]]),
    is_full=st.booleans(),
)
def test_they_expire_in_rocksdb_too_from_form_to_form(
    steps: Any, states: list[StateConfig], forms: list[str], is_full: bool
) -> None:
    expected = outputs(steps, ["updates"], [ON_THE_HEAP])
    with pytest.MonkeyPatch.context() as patched:
        if is_full:  # the cache is emptied after each batch
            patched.setattr(columns, "ENTRY_BYTES", 1 << 30)
        # Rows that are over their time are removed after each batch.
        patched.setattr(backend, "TURNS", 1)
        assert outputs(steps, forms, states) == expected


def test_rows_that_are_over_their_time_are_removed_from_rocksdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "TURNS", 1)
    with aggregating(state=ROCKSDB) as harness:
        made = harness._subtasks[0].operator.backend
        for start in range(0, 60, 3):
            feed(harness, rows([chr(1000 + start + n) for n in range(3)]))
            harness.advance_clock(500)
        assert isinstance(harness._subtasks[0].operator, AggregateOperator)
        assert made.entries() < 30


def test_what_is_over_its_time_is_not_shown_of_rocksdb() -> None:
    with aggregating(state=ROCKSDB) as harness:
        feed(harness, rows("a", 5))
        operator = harness._subtasks[0].operator
        assert value_of(operator.backend.peek("aggregates", keys.encode("a")))["n"] == 1
        operator.moment.processing_ms += 1000
        assert value_of(operator.backend.peek("aggregates", keys.encode("a"))) is None


def test_a_stamp_of_a_clock_that_was_ahead_stays() -> None:
    stamps = Stamps(mo.StateTtlConfig("1s"))
    slots = np.array([0])
    stamps.open(slots, 1)
    stamps.touch(slots, 5000)
    stamps.touch(slots, 4000)
    assert stamps.of(slots).tolist() == [5000]


def test_what_is_over_its_time_gives_its_slot_back() -> None:
    with aggregating() as harness:
        operator = harness._subtasks[0].operator
        assert isinstance(operator, AggregateOperator)
        for start in range(0, 600, 3):
            feed(harness, rows([chr(1000 + start + n) for n in range(3)]))
            harness.advance_clock(500)
        assert operator._table.size < 20


def test_what_is_over_its_time_is_not_shown() -> None:
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
