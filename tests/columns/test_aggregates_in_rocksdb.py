"""Aggregates over columns in RocksDB: equal to a plain loop, also with a full cache and over restores."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from column_steps import RESULTS, SCHEMA, aggregating, feed, plain_loop

import moorline as mo
from moorline.model import keys
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.state.peeking import value_of
from moorline.state.rocksdb import columns
from moorline.state.rocksdb.backend import RocksDbBackend

ROCKSDB = StateConfig(RocksDb(memory="16MB"), incremental=True)
FULL_ROCKSDB = StateConfig(RocksDb(memory="16MB"))
#: Fields that msgpack and Arrow both have, and that are packed without an object in between.
NUMBERS = {"rows": mo.count(), "total": mo.sum("cents"), "page": mo.last("page"), "mean": mo.avg("weight")}


def some_rows(seed: int, count: int = 60) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return [
        {
            "user": chance.choice(["ada", "bob", "eve", "", "ü", "a\0b", "x" * 40]),
            "cents": chance.choice([None, -3, 10**12]),
            "weight": chance.choice([None, 0.5, -1e6, 2.0]),
            "page": chance.choice([None, "/", "/a"]),
        }
        for _ in range(count)
    ]


def last_of_each(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {(row["user"],): row for row in rows}


@pytest.mark.parametrize("results", [RESULTS, NUMBERS])
@pytest.mark.parametrize("room", [None, 1])
def test_they_are_those_of_a_plain_loop_also_with_a_cache_that_is_full_all_the_time(monkeypatch, results, room):
    if room is not None:
        monkeypatch.setattr(columns, "ENTRY_BYTES", 1 << 30)
    rows, out = some_rows(1), []
    with aggregating(results=results, state=ROCKSDB, parallelism=2) as harness:
        for first in range(0, len(rows), 7):
            out += feed(harness, rows[first : first + 7])
    assert last_of_each(out) == plain_loop(rows, results=results)


def test_it_is_rocksdb_in_columns_that_was_tested():
    with aggregating(state=ROCKSDB) as harness:
        feed(harness, some_rows(1))
        backend = harness._subtasks[0].operator.backend
        assert isinstance(backend, RocksDbBackend)
        assert isinstance(backend._states.parts["aggregates"].rows, columns.RowsInColumns)


@pytest.mark.parametrize("results", [RESULTS, NUMBERS])
@pytest.mark.parametrize("emits", [("changes", "changes"), ("updates", "changes"), ("changes", "updates")])
@pytest.mark.parametrize(
    "states", [(ROCKSDB, ROCKSDB), (ON_THE_HEAP, ROCKSDB), (FULL_ROCKSDB, ON_THE_HEAP), (FULL_ROCKSDB, ROCKSDB)]
)
def test_snapshots_go_from_each_form_to_each_other(emits, states, results):
    before, after = some_rows(2), some_rows(3)
    with aggregating(emit=emits[0], state=states[0], results=results, parallelism=2) as first:
        feed(first, before)
        snapshot = first.snapshot()
    with aggregating(emit=emits[1], state=states[1], results=results, parallelism=3, snapshot=snapshot) as second:
        out = feed(second, after)
    expected = plain_loop(before + after, results=results)
    for key, row in last_of_each(out).items():
        assert row == expected[key]


def test_what_was_written_before_the_last_snapshot_is_in_the_next_one():
    rows = some_rows(4)
    with aggregating(state=ROCKSDB) as first:
        for row in rows:
            feed(first, [row])
            snapshot = first.snapshot()
            first.confirm()
    with aggregating(state=ROCKSDB, snapshot=snapshot) as second:
        out = feed(second, rows)
    assert last_of_each(out) == plain_loop(rows + rows)


def test_int_keys_are_counted_however_large_they_are():
    schema = pa.schema([("user", pa.int64()), *list(SCHEMA)[1:]])
    rows = [
        {"user": key, "cents": 1, "weight": None, "page": None} for key in [2**63 - 1, -(2**63), 0, -1, 5, 5, 0] * 3
    ]
    with aggregating(state=ROCKSDB, schema=schema, results={"rows": mo.count()}) as harness:
        out = feed(harness, rows, schema)
    assert {row["user"]: row["rows"] for row in out} == {2**63 - 1: 3, -(2**63): 3, 0: 6, -1: 3, 5: 6}


def test_the_state_of_a_key_can_be_asked_for_before_it_is_written():
    with aggregating(state=ROCKSDB, results={"rows": mo.count(), "total": mo.sum("cents")}) as harness:
        feed(harness, [{"user": "ada", "cents": 5, "weight": None, "page": None}] * 2)
        backend = harness._subtasks[0].operator.backend
        assert value_of(backend.peek("aggregates", keys.encode("ada"))) == {"rows": 2, "total": 10}
        assert list(backend.keys("aggregates")) == ["ada"]
        assert backend.entries() == 1


def test_many_changes_are_written_at_once(monkeypatch):
    monkeypatch.setattr(columns, "MOST_DIRTY", 3)
    written: list[int] = []
    original = columns.RowsInColumns._packed
    monkeypatch.setattr(
        columns.RowsInColumns, "_packed", lambda self, slots: written.append(len(slots)) or original(self, slots)
    )
    with aggregating(state=ROCKSDB) as harness:
        for row in [{"user": str(n % 4), "cents": n, "weight": None, "page": None} for n in range(8)]:
            feed(harness, [row])
    assert written[:2] == [3, 3]
