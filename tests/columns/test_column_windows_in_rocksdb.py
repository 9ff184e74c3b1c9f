"""Windows over columns in RocksDB are windows of records, whether they fit into the cache or not, over any restore."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples
from window_steps import ASSIGNERS, STEPS, columns, outputs, windowing

import moorline as mo
from moorline.model import keys
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.state.peeking import value_of
from moorline.state.rocksdb import columns as row_columns
from moorline.state.rocksdb import windows
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.subtask.columns.windows import ColumnWindowOperator

INCREMENTAL = StateConfig(RocksDb(memory="16MB"), incremental=True)
FULL = StateConfig(RocksDb(memory="16MB"))
TUMBLING = mo.TumblingEventTimeWindows("10ms")


@pytest.fixture(params=[False, True], ids=["roomy", "full"])
def is_full(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With a cache that is full all the time, and timers that are looked up two at a time?"""
    if request.param:
        monkeypatch.setattr(row_columns, "ENTRY_BYTES", 1 << 30)
        monkeypatch.setattr(windows, "DUE_ROWS", 2)
    return bool(request.param)


@pytest.mark.usefixtures("is_full")
def test_they_are_windows_of_records() -> None:
    @settings(max_examples=examples(8))
    @given(
        steps=STEPS,
        assigner=st.sampled_from(ASSIGNERS),
        keys=st.sampled_from([("user",), ("number",), ("user", "page")]),
        lateness=st.sampled_from([0, 5, 30]),
        states=st.sampled_from([[INCREMENTAL], [FULL], [FULL, ON_THE_HEAP], [ON_THE_HEAP, FULL]]),
        forms=st.sampled_from([[True], [True, False], [False, True]]),
    )
    def each(steps: Any, assigner: Any, keys: Any, lateness: int, states: Any, forms: list[bool]) -> None:
        if keys == ("number",):
            steps = [
                [(r | {"number": (r["number"] or 0) % 3}, t) for r, t in s] if isinstance(s, list) else s for s in steps
            ]
        made = outputs(steps, assigner, keys, lateness, forms, states)
        assert made == outputs(steps, assigner, keys, lateness, [False], [ON_THE_HEAP])

    each()


def rows(*users: str) -> Any:
    return columns([{"user": u, "number": n, "weight": None, "page": None} for n, u in enumerate(users)])


def table_of(harness: Any) -> windows.WindowsInColumns:
    operator = harness._subtasks[0].operator
    assert type(operator) is ColumnWindowOperator
    assert isinstance(operator.backend, RocksDbBackend)
    assert isinstance(operator._table, windows.WindowsInColumns)
    return operator._table


def written(harness: Any) -> int:
    """All rows of windows and timers that there are."""
    store = harness._subtasks[0].operator.backend.database.store
    return sum(1 for _ in store.scan(b"\0\1", b"\xff\xff"))


def test_windows_that_are_over_before_they_are_written_are_no_rows() -> None:
    with windowing(TUMBLING, state=INCREMENTAL) as harness:
        for first in range(0, 100, 10):
            harness.process_batch(rows("ada", "bob"), [first + 1, first + 2])
            assert len(harness.watermark(first + 10)) == 2
        assert table_of(harness)._store.rows_read == 0
        assert written(harness) == 0


def test_what_is_over_is_removed_from_the_rows() -> None:
    with windowing(TUMBLING, lateness=20, state=INCREMENTAL) as harness:
        harness.process_batch(rows("ada", "bob"), [1, 15])
        harness.snapshot()
        assert written(harness) == 6  # each with two for its timer
        assert len(harness.watermark(10)) == 1
        harness.snapshot()
        assert written(harness) == 6  # it is kept for late rows, with another timer
        assert len(harness.watermark(100)) == 1
        harness.snapshot()
        assert written(harness) == 0


@pytest.mark.usefixtures("is_full")
def test_late_rows_find_what_their_windows_had() -> None:
    with windowing(TUMBLING, lateness=50, state=INCREMENTAL) as harness:
        harness.process_batch(rows("ada", "bob", "ada"), [1, 2, 3])
        assert sorted((r["user"], r["rows"]) for r in harness.watermark(20)) == [("ada", 2), ("bob", 1)]
        late = harness.process_batch(rows("ada", "bob"), [4, 5])
        assert sorted((r["user"], r["rows"]) for r in late) == [("ada", 3), ("bob", 2)]
        assert harness.watermark(60) == []


@pytest.mark.usefixtures("is_full")
def test_the_windows_of_a_key_can_be_asked_for() -> None:
    with windowing(TUMBLING, state=INCREMENTAL) as harness:
        harness.process_batch(rows("ada", "ada", "bob"), [1, 15, 2])
        backend = harness._subtasks[0].operator.backend
        assert backend is not None
        found = backend.peek("window-contents", keys.encode("ada"))
        values = value_of(found)
        assert len(values) == 2
        assert backend.entries() >= 2


def test_nothing_is_read_for_windows_that_end_after_all_that_was_restored() -> None:
    with windowing(TUMBLING, state=INCREMENTAL) as first:
        first.process_batch(rows("ada"), [1])
        snapshot = first.snapshot()
    with windowing(TUMBLING, state=INCREMENTAL, snapshot=snapshot) as second:
        second.process_batch(rows("ada", "bob"), [55, 56])
        assert table_of(second)._store.rows_read == 0
        assert sorted((r["user"], r["rows"]) for r in second.watermark(1_000)) == [("ada", 1), ("ada", 1), ("bob", 1)]
