"""What any place that keeps state in columns promises: on the heap, whole or in increments, and over RocksDB's rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from column_steps import aggregating, feed
from window_steps import columns, windowing

import moorline as mo
from moorline.model import keys
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.state.columns.backend import ColumnBackend
from moorline.state.peeking import value_of
from moorline.state.rocksdb import columns as cache
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.testing.harness import HarnessSnapshot, OperatorHarness

SCHEMA = pa.schema([("user", pa.int64()), ("cents", pa.int64())])
RESULTS = {"n": mo.count(), "total": mo.sum("cents")}
MANY = [{"user": n, "cents": n} for n in range(500)]


class ColumnContract:
    """Tests of a place. A subclass says which."""

    place: StateConfig
    backend: type = ColumnBackend

    def running(self, snapshot: HarnessSnapshot | None = None, parallelism: int = 1, **options: Any) -> OperatorHarness:
        options |= {"snapshot": snapshot, "parallelism": parallelism, "state": self.place}
        return aggregating(("user",), RESULTS, SCHEMA, **options)

    def totals(self, harness: OperatorHarness, *users: int) -> list[tuple[int, int]]:
        """What is kept for some keys."""
        backends = [subtask.operator.backend for subtask in harness._subtasks]
        made = []
        for user in users:
            peeked = [value_of(backend.peek("aggregates", keys.encode(user))) for backend in backends]
            kept = [of_key for of_key in peeked if of_key is not None]
            assert len(kept) < 2, "a key is in two subtasks"
            made.append((kept[0]["n"], kept[0]["total"]) if kept else (0, 0))
        return made

    def test_it_is_this_place(self) -> None:
        with self.running() as harness:
            assert type(harness._subtasks[0].operator.backend) is self.backend

    def test_a_snapshot_has_nothing_of_what_comes_after_it(self) -> None:
        with self.running() as harness:
            feed(harness, [{"user": 1, "cents": 5}], SCHEMA)
            before = harness.snapshot()
            feed(harness, [{"user": 1, "cents": 7}, {"user": 2, "cents": 1}], SCHEMA)
            assert self.totals(harness, 1, 2) == [(2, 12), (1, 1)]
        with self.running(before) as again:
            assert self.totals(again, 1, 2) == [(1, 5), (0, 0)]

    @pytest.mark.parametrize("is_confirmed", [True, False])
    def test_a_snapshot_has_all_whatever_became_of_those_before_it(self, is_confirmed: bool) -> None:
        with self.running() as harness:
            for user in (1, 2, 1, 3):
                feed(harness, [{"user": user, "cents": 10 * user}], SCHEMA)
                snapshot = harness.snapshot()
                harness.confirm() if is_confirmed else harness.abort()
            snapshot = harness.snapshot()
        with self.running(snapshot) as again:
            assert self.totals(again, 1, 2, 3) == [(2, 20), (1, 20), (1, 30)]

    @pytest.mark.parametrize("parallelism", [1, 2, 3])
    def test_each_key_is_in_one_subtask_after_a_restore(self, parallelism: int) -> None:
        with self.running(parallelism=2) as harness:
            feed(harness, MANY, SCHEMA)
            snapshot = harness.snapshot()
        with self.running(snapshot, parallelism) as again:
            kept = [set(subtask.operator.backend.keys("aggregates")) for subtask in again._subtasks]
            assert sum(map(len, kept)) == len(set().union(*kept)) == len(MANY)
            out = feed(again, MANY, SCHEMA)
            assert {row["user"]: (row["n"], row["total"]) for row in out} == {n: (2, 2 * n) for n in range(500)}

    def test_keys_go_to_other_groups(self) -> None:
        with self.running(max_parallelism=16) as harness:
            feed(harness, MANY, SCHEMA)
            snapshot = harness.snapshot()
        with self.running(snapshot, 3, max_parallelism=300) as again:
            assert len(feed(again, MANY, SCHEMA)) == len(MANY)
            assert self.totals(again, 0, 499) == [(2, 0), (2, 998)]

    def test_keys_of_another_kind_join_ints(self) -> None:
        schema = pa.schema([("user", pa.uint64()), ("cents", pa.int64())])
        with aggregating(("user",), RESULTS, schema, state=self.place) as harness:
            feed(harness, [{"user": 1, "cents": 5}], schema)
            feed(harness, [{"user": 2**64 - 1, "cents": 7}, {"user": 1, "cents": 1}], schema)
            snapshot = harness.snapshot()
        with aggregating(("user",), RESULTS, schema, state=self.place, snapshot=snapshot) as again:
            assert self.totals(again, 1, 2**64 - 1) == [(2, 6), (1, 7)]

    @pytest.mark.parametrize("is_confirmed", [True, False])
    def test_windows_that_are_over_are_in_no_later_snapshot(self, is_confirmed: bool) -> None:
        row = {"user": "ada", "number": 1, "weight": None, "page": None}
        options: dict[str, Any] = {"results": {"n": mo.count()}, "state": self.place}
        with windowing(mo.TumblingEventTimeWindows("10ms"), **options) as harness:
            harness.process_batch(columns([row, row]), [3, 13])
            harness.snapshot()
            harness.confirm() if is_confirmed else harness.abort()
            assert [r["n"] for r in harness.watermark(10)] == [1]
            snapshot = harness.snapshot()
        with windowing(mo.TumblingEventTimeWindows("10ms"), snapshot=snapshot, **options) as again:
            again.process_batch(columns([row]), [14])
            assert [r["n"] for r in again.watermark(1_000)] == [2]


class TestOnTheHeap(ColumnContract):
    place = ON_THE_HEAP


class TestInIncrements(ColumnContract):
    place = StateConfig(incremental=True)


class TestOverRocksDb(ColumnContract):
    place = StateConfig(RocksDb(memory="16MB"), incremental=True)
    backend = RocksDbBackend


class TestOverRocksDbWithAFullCache(ColumnContract):
    place = StateConfig(RocksDb(memory="16MB"), incremental=True)
    backend = RocksDbBackend

    @pytest.fixture(autouse=True)
    def full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache, "ENTRY_BYTES", 1 << 30)
