"""Functions of whole batches with state: equal to a function of records on every backend, and exact about mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorline as mo
from moorline.api.columns.streams import KeyedColumnStream
from moorline.errors import InvalidArgument, InvalidKey, InvalidOutput, MoorlineError, StateMisused, UserCodeFailed
from moorline.model.columns import ColumnBatch
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.subtask.columns.batch_process import LiveBatchState
from moorline.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("day", pa.int64()), ("cents", pa.int64())])
ROWS = st.lists(
    st.fixed_dictionaries(
        {"user": st.sampled_from("abcde"), "day": st.none() | st.integers(1, 3), "cents": st.integers(-100, 100)}
    ),
    max_size=30,
)
OUT = "user string, spent bigint, visits bigint, best bigint"


class Spent(mo.KeyedBatchFunction):
    """Sums, counts and the best one; at a balance of exactly 0 a key is forgotten."""

    spent = mo.ValueState(int, default=0)
    visits = mo.ValueState(int, default=0)
    best = mo.ValueState(int)

    def process_batch(self, keys: mo.BatchKeys, batch: pa.RecordBatch, states: mo.BatchStates) -> Any:
        spent = states.spent.numpy() + keys.sums(batch["cents"])
        visits = states.visits.numpy() + keys.counts()
        best = states.best.array().fill_null(-1000).to_numpy(zero_copy_only=False).copy()
        np.maximum.at(best, keys.of_rows, batch["cents"].to_numpy())
        states.spent.update(spent)
        states.visits.update(visits)
        states.best.update(best, where=best > 0)
        states.visits.clear(where=spent == 0)
        return pa.record_batch({"user": keys.values, "spent": spent, "visits": visits, "best": best})


def harness(
    function: mo.KeyedBatchFunction | None = None, keys: tuple[str, ...] = ("user",), out: Any = OUT, **options: Any
) -> OperatorHarness:
    def build(stream: Any) -> Any:
        keyed = KeyedColumnStream(stream._job, stream._origins, SCHEMA, keys)
        return keyed.process_batches(Spent() if function is None else function, schema=out, uid="spent")

    return OperatorHarness.of(build, **options)


def feed(harness: OperatorHarness, rows: list[dict[str, Any]], stamps: Any = None) -> list[dict[str, Any]]:
    if not rows:
        return []
    return harness.process_batch(ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)), stamps)


def plain_loop(batches: list[list[dict[str, Any]]]) -> list[list[tuple[Any, ...]]]:
    """The rows of each batch, by key."""
    kept: dict[str, tuple[int, int, int | None]] = {}
    out = []
    for batch in batches:
        made = []
        for user in dict.fromkeys(row["user"] for row in batch):
            cents = [row["cents"] for row in batch if row["user"] == user]
            spent, visits, before = kept.get(user, (0, 0, None))
            spent, visits = spent + sum(cents), visits + len(cents)
            best = max([*cents, -1000 if before is None else before])
            made.append((user, spent, visits, best))
            kept[user] = spent, visits if spent else 0, best if best > 0 else before
        out.append(sorted(made))
    return out


def as_tuples(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


@given(
    batches=st.lists(ROWS, max_size=5),
    cut=st.integers(0, 5),
    parallelism=st.integers(1, 3),
    incremental=st.booleans(),
)
def test_it_is_a_plain_loop_over_a_restore_at_another_parallelism(
    batches: Any, cut: int, parallelism: int, incremental: bool
) -> None:
    state = StateConfig(incremental=True) if incremental else ON_THE_HEAP
    out = []
    with harness(parallelism=2, state=state) as first:
        for batch in batches[:cut]:
            out.append(feed(first, batch))
            first.snapshot()
            first.confirm()
        snapshot = first.snapshot()
    with harness(parallelism=parallelism, state=state, snapshot=snapshot) as second:
        out += [feed(second, batch) for batch in batches[cut:]]
    assert list(map(as_tuples, out)) == plain_loop(batches)


@settings(max_examples=10, deadline=None)
@given(batches=st.lists(ROWS, min_size=1, max_size=4))
def test_rocksdb_gives_the_same(batches: Any) -> None:
    with harness(state=StateConfig(rocksdb=RocksDb())) as stored:
        assert [as_tuples(feed(stored, batch)) for batch in batches] == plain_loop(batches)


def test_state_that_expires_does() -> None:
    class Seen(mo.KeyedBatchFunction):
        seen = mo.ValueState(bool, default=False, ttl="10s")

        def process_batch(self, keys: Any, batch: Any, states: Any) -> Any:
            rows = keys.first_rows[~states.seen.numpy()]
            states.seen.update([True] * len(keys))
            return batch.take(pa.array(rows))

    with harness(Seen(), out=None) as made:
        row = {"user": "a", "day": 1, "cents": 5}
        assert feed(made, [row, row]) == [row]
        made.clock.advance("9s")
        assert feed(made, [row]) == []
        made.clock.advance("11s")
        assert feed(made, [row]) == [row]


class Recorded(mo.KeyedBatchFunction):
    """Emits the sums that a function of records has kept."""

    total = mo.ValueState(int, default=0)

    def process_batch(self, keys: Any, batch: Any, states: Any) -> Any:
        states.total.update(states.total.numpy() + keys.sums(batch["cents"]))
        return pa.record_batch({"user": keys.values, "total": states.total.array()})


class ByRecord(mo.KeyedProcessFunction):
    total = mo.ValueState(int, default=0)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.total.update(self.total.value() + value["cents"])
        yield {"user": value["user"], "total": self.total.value()}


def test_a_function_of_records_takes_its_state_over_and_back() -> None:
    def by_record(stream: Any) -> Any:
        return KeyedColumnStream(stream._job, stream._origins, SCHEMA, ("user",)).process(ByRecord(), uid="spent")

    row = {"user": "a", "day": 1, "cents": 5}
    with OperatorHarness.of(by_record) as first:
        feed(first, [row, row])
        snapshot = first.snapshot()
    with harness(Recorded(), out=None, snapshot=snapshot) as second:
        assert feed(second, [row]) == [{"user": "a", "total": 15}]
        snapshot = second.snapshot()
    with OperatorHarness.of(by_record, snapshot=snapshot) as third:
        assert feed(third, [row]) == [{"user": "a", "total": 20}]


def test_a_key_may_be_of_several_columns_of_which_some_are_null() -> None:
    class Count(mo.KeyedBatchFunction):
        n = mo.ValueState(int, default=0)

        def process_batch(self, keys: Any, batch: Any, states: Any) -> Any:
            states.n.update(states.n.numpy() + keys.counts())
            user, day = keys.values.flatten()
            return pa.record_batch({"user": user, "day": day, "n": states.n.array()})

    rows = [{"user": u, "day": d, "cents": 1} for u, d in [("a", 1), ("b", None), ("a", 2), ("a", 1), ("b", None)]]
    with harness(Count(), ("user", "day"), out=None, parallelism=2) as made:
        feed(made, rows)
        out = feed(made, rows)
    assert sorted(map(str, out)) == sorted(
        map(str, [{"user": "a", "day": 1, "n": 4}, {"user": "b", "day": None, "n": 4}, {"user": "a", "day": 2, "n": 2}])
    )


def test_rows_of_keys_have_the_timestamps_of_their_last_rows() -> None:
    rows = [{"user": u, "day": 1, "cents": 1} for u in "aba"]
    with harness() as made:
        out = feed(made, rows, [10, 20, 30])
        assert dict(zip([row["user"] for row in out], made.timestamps)) == {"a": 30, "b": 20}


def returning(function: Any) -> mo.KeyedBatchFunction:
    class Made(mo.KeyedBatchFunction):
        n = mo.ValueState(int)

        def process_batch(self, keys: Any, batch: Any, states: Any) -> Any:
            return function(keys, batch, states)

    return Made()


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda k, b, s: s.n.numpy(), StateMisused, "no value for 2 of 2 keys"),
        (lambda k, b, s: s.n.update([1]), StateMisused, "1 values for 2 keys"),
        (lambda k, b, s: s.n.update(["x", "y"]), StateMisused, "It holds int"),
        (lambda k, b, s: s.n.update(np.array([0.5, 1])), StateMisused, "It holds int"),
        (lambda k, b, s: s.n.clear(where=[True]), StateMisused, "1 choices for 2 keys"),
        (lambda k, b, s: s.m.array(), UserCodeFailed, "m"),
        (lambda k, b, s: setattr(s, "n", [1, 2]), StateMisused, r"states\.n\.update"),
        (lambda k, b, s: s.n.update({1, 2}), StateMisused, "what belongs to which key"),
        (lambda k, b, s: s.n.update({"a": 1, "b": 2}), StateMisused, "what belongs to which key"),
        (lambda k, b, s: s.n.update(5), StateMisused, "a value for each key"),
        (lambda k, b, s: b.to_pandas().groupby("user").sum(), InvalidOutput, "reset_index"),
        (lambda k, b, s: 5, InvalidOutput, "RecordBatch"),
    ],
)
def test_a_mistake_is_named(function: Any, error: type[MoorlineError], message: str) -> None:
    with harness(returning(function), out=None) as made, pytest.raises(error, match=message):
        feed(made, [{"user": u, "day": 1, "cents": 1} for u in "aba"])


def test_a_number_of_rows_without_timestamps_is_refused() -> None:
    with (
        harness(returning(lambda k, b, s: b.slice(0, 1)), out=None) as made,
        pytest.raises(InvalidOutput, match="1 rows"),
    ):
        feed(made, [{"user": u, "day": 1, "cents": 1} for u in "aba"], [1, 2, 3])


def test_a_null_is_no_key() -> None:
    with harness() as made, pytest.raises(InvalidKey, match="None"):
        feed(made, [{"user": None, "day": 1, "cents": 1}])


class WithList(mo.KeyedBatchFunction):
    pages = mo.ListState(str)

    def process_batch(self, keys: Any, batch: Any, states: Any) -> None: ...


@pytest.mark.parametrize("function", [WithList(), ByRecord(), lambda keys, batch, states: None])
def test_what_cannot_be_one_is_refused_when_the_job_is_built(function: Any) -> None:
    with pytest.raises(InvalidArgument):
        harness(function)


def test_it_is_the_dict_that_was_tested() -> None:
    with harness() as made:
        states = made._subtasks[0].operator._states
        assert all(isinstance(s, LiveBatchState) and s._table is not None for s in vars(states).values())
