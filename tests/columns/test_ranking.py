"""deduplicate and top: equal to a plain loop, over restores, in RocksDB, and in a batch job."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorline.api.columns.streams import KeyedColumnStream
from moorline.errors import InvalidArgument
from moorline.model.columns import ColumnBatch
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("points", pa.float64()), ("id", pa.int64())])
POINTS = st.none() | st.just(float("nan")) | st.integers(-5, 5).map(float)
BATCHES = st.lists(st.lists(st.tuples(st.sampled_from("abc"), POINTS), max_size=15), max_size=4).map(
    lambda batches: [
        [{"user": u, "points": p, "id": 100 * b + n} for n, (u, p) in enumerate(batch)]
        for b, batch in enumerate(batches)
    ]
)


def harness(step: Any, **options: Any) -> OperatorHarness:
    def build(stream: Any) -> Any:
        return step(KeyedColumnStream(stream._job, stream._origins, SCHEMA, ("user",)))

    return OperatorHarness.of(build, **options)


def feed(harness: OperatorHarness, rows: list[dict[str, Any]], stamps: Any = None) -> list[dict[str, Any]]:
    return harness.process_batch(ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)), stamps) if rows else []


def top_of(rows: list[dict[str, Any]], n: int, descending: bool) -> dict[tuple[str, int], int]:
    """The id of the row at each rank of each user."""
    ranked: dict[tuple[str, int], int] = {}
    for user in {row["user"] for row in rows}:
        own = [r for r in rows if r["user"] == user and r["points"] is not None and r["points"] == r["points"]]
        best = sorted(own, key=lambda r: -r["points"] if descending else r["points"])[:n]
        ranked |= {(user, rank): row["id"] for rank, row in enumerate(best, 1)}
    return ranked


@given(
    batches=BATCHES,
    n=st.integers(1, 4),
    descending=st.booleans(),
    cut=st.integers(0, 4),
    parallelism=st.integers(1, 3),
    incremental=st.booleans(),
)
def test_the_ranks_are_those_of_a_plain_loop(
    batches: Any, n: int, descending: bool, cut: int, parallelism: int, incremental: bool
) -> None:
    state = StateConfig(incremental=True) if incremental else ON_THE_HEAP
    seen: list[dict[str, Any]] = []
    ranked: dict[tuple[str, int], int] = {}

    def step(keyed: Any) -> Any:
        return keyed.top(n, by="points", descending=descending, uid="top")

    def check(harness: OperatorHarness, batch: list[dict[str, Any]]) -> None:
        seen.extend(batch)
        for row in feed(harness, batch):
            place = row["user"], row["rank"]
            assert ranked.get(place) != row["id"], "what has not changed does not come out"
            ranked[place] = row["id"]
            assert {k: row[k] for k in SCHEMA.names} in seen
        assert ranked == top_of(seen, n, descending)

    with harness(step, parallelism=2, state=state) as first:
        for batch in batches[:cut]:
            check(first, batch)
            first.snapshot()
            first.confirm()
        snapshot = first.snapshot()
    with harness(step, parallelism=parallelism, state=state, snapshot=snapshot) as second:
        for batch in batches[cut:]:
            check(second, batch)


@pytest.mark.parametrize("keep", ["first", "last"])
@given(batches=BATCHES, cut=st.integers(0, 4), parallelism=st.integers(1, 3))
def test_one_row_of_each_key_stays(keep: Any, batches: Any, cut: int, parallelism: int) -> None:
    def step(keyed: Any) -> Any:
        return keyed.deduplicate(keep=keep, uid="one")

    out = []
    with harness(step, parallelism=2) as first:
        for batch in batches[:cut]:
            out.append(feed(first, batch))
        snapshot = first.snapshot()
    with harness(step, parallelism=parallelism, snapshot=snapshot) as second:
        out += [feed(second, batch) for batch in batches[cut:]]
    known: set[str] = set()
    for batch, made in zip(batches, out):
        if keep == "first":
            expected = {r["user"]: r["id"] for r in reversed(batch) if r["user"] not in known}
            known |= set(expected)
        else:
            expected = {r["user"]: r["id"] for r in batch}
        assert {row["user"]: row["id"] for row in made} == expected
        assert len(made) == len(expected)


@settings(max_examples=10, deadline=None)
@given(batches=BATCHES)
def test_rocksdb_gives_the_same(batches: Any) -> None:
    for step in (lambda k: k.top(2, by="points", uid="s"), lambda k: k.deduplicate(uid="s")):
        with harness(step) as heap, harness(step, state=StateConfig(rocksdb=RocksDb())) as rocksdb:
            for batch in batches:
                assert repr(feed(rocksdb, batch)) == repr(feed(heap, batch))


def test_rows_have_the_timestamp_of_the_last_row_of_their_key() -> None:
    rows = [{"user": u, "points": p, "id": n} for n, (u, p) in enumerate([("a", 3.0), ("b", 1.0), ("a", 2.0)])]
    with harness(lambda k: k.top(2, by="points", uid="s")) as made:
        out = feed(made, rows, [10, 20, 30])
        assert [(r["user"], r["rank"], t) for r, t in zip(out, made.timestamps)] == [
            ("a", 1, 30),
            ("a", 2, 30),
            ("b", 1, 20),
        ]


def test_a_key_is_new_again_when_its_time_is_over() -> None:
    row = {"user": "a", "points": 1.0, "id": 1}
    with harness(lambda k: k.deduplicate(ttl="10s", uid="s")) as made:
        assert len(feed(made, [row, row])) == 1
        assert feed(made, [row]) == []
        made.clock.advance("11s")
        assert len(feed(made, [row])) == 1


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda k: k.top(0, by="points"), "from 1"),
        (lambda k: k.top(3, by="point"), "Did you mean 'points'"),
        (lambda k: k.top(3, by="points", rank="id"), "no other column"),
        (lambda k: k.deduplicate(keep="newest"), '"first" or "last"'),
        (lambda k: k.deduplicate(keep="last", ttl="1h"), "nothing is kept"),
    ],
)
def test_a_mistake_is_found_when_the_job_is_built(step: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        harness(step)
