"""Steps on columns in a batch job: equal to a plain loop, and for each key once where only its end is known."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from batch_worlds import run

import moorline as mo

SCHEMA = "user string, day bigint, points double, id bigint"


def rows_of(seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    points = [None, float("nan"), *map(float, range(5))]
    return [
        {"user": chance.choice("abcde"), "day": chance.randint(1, 2), "points": chance.choice(points), "id": n}
        for n in range(200)
    ]


def job_of(rows: list[dict[str, Any]], step: Any) -> mo.Job:
    job = mo.Job("batch", parallelism=2)
    columns = job.source(mo.from_items(rows), uid="rows", parallelism=1).with_schema(
        SCHEMA, uid="columns", parallelism=1
    )
    step(columns).sink(mo.collect("out"), uid="out")
    return job


SEEDS = pytest.mark.parametrize(("seed", "faults"), [(1, 0.0), (2, 0.02)])


@SEEDS
def test_ranks_come_out_once_for_each_key(seed: int, faults: float) -> None:
    rows = rows_of(seed)
    job = job_of(rows, lambda c: c.key_by("user", "day").top(3, by="points", uid="top"))
    found = run(job, seed=seed, faults=faults)
    expected = []
    for key in {(r["user"], r["day"]) for r in rows}:
        own = [r for r in rows if (r["user"], r["day"]) == key and r["points"] is not None and r["points"] >= 0]
        best = sorted(own, key=lambda r: -r["points"])[:3]
        expected += [{**row, "rank": n} for n, row in enumerate(best, 1)]
    assert sorted(map(str, found)) == sorted(map(str, expected))


@SEEDS
@pytest.mark.parametrize("keep", ["first", "last"])
def test_one_row_of_each_key_stays(seed: int, faults: float, keep: Any) -> None:
    rows = rows_of(seed)
    found = run(job_of(rows, lambda c: c.key_by("user").deduplicate(keep=keep, uid="one")), seed=seed, faults=faults)
    ordered = rows if keep == "last" else rows[::-1]
    assert {r["user"]: r["id"] for r in found} == {r["user"]: r["id"] for r in ordered}
    assert len(found) == 5


class Numbered(mo.KeyedBatchFunction):
    """The number of each row among those of its key."""

    n = mo.ValueState(int, default=0)

    def process_batch(self, keys: mo.BatchKeys, batch: pa.RecordBatch, states: mo.BatchStates) -> Any:
        seen = states.n.numpy().tolist()
        numbers = []
        for key in keys.of_rows.tolist():
            seen[key] += 1
            numbers.append(seen[key])
        states.n.update(seen)
        return batch.append_column("n", pa.array(numbers))


@SEEDS
def test_a_function_of_batches_has_one_key_at_a_time(seed: int, faults: float) -> None:
    rows = rows_of(seed)
    found = run(job_of(rows, lambda c: c.key_by("user").process_batches(Numbered(), uid="n")), seed=seed, faults=faults)
    seen: dict[str, int] = {}
    expected = {}
    for row in rows:
        seen[row["user"]] = expected[row["id"]] = seen.get(row["user"], 0) + 1
    assert {row["id"]: row["n"] for row in found} == expected
    assert len(found) == len(rows)


@SEEDS
def test_expressions_and_sketches_are_those_of_a_streaming_job(seed: int, faults: float) -> None:
    rows = rows_of(seed)

    def step(columns: Any) -> Any:
        large = columns.where(mo.col("points") >= 2, uid="large").select("user", half=mo.col("id") // 2, uid="half")
        return large.key_by("user").aggregate(about=mo.approx_count_distinct("half"), n=mo.count(), uid="about")

    found = run(job_of(rows, step), seed=seed, faults=faults)
    large = [r for r in rows if r["points"] is not None and r["points"] >= 2]
    for row in found:
        own = [r["id"] // 2 for r in large if r["user"] == row["user"]]
        assert row["n"] == len(own)
        assert abs(row["about"] - len(set(own))) <= 2
    assert len(found) == 5


@SEEDS
@pytest.mark.parametrize("kind", ["interval", "window"])
def test_joins_of_columns_are_columns_again(seed: int, faults: float, kind: str) -> None:
    chance = random.Random(seed)
    sides = [[{"ad": chance.randint(0, 9), "at": at} for at in range(60)] for _ in range(2)]
    job = mo.Job("joined", parallelism=2)
    by_time = mo.WatermarkStrategy.monotonous(timestamp=lambda row: row["at"] * 1000)
    shown, clicked = (
        job.source(mo.from_items(rows), uid=uid, watermarks=by_time, parallelism=1).with_schema(
            "ad bigint, at bigint", uid=f"{uid}-columns", parallelism=1
        )
        for uid, rows in zip(("shown", "clicked"), sides)
    )
    if kind == "interval":
        met = shown.key_by("ad").interval_join(clicked.key_by("ad")).between("-1s", "5s")
        pairs = met.columns(right_prefix="clicked_", uid="pairs")
    else:
        windows = shown.join(clicked).where("ad").equal_to("ad").window(mo.TumblingEventTimeWindows("8s"))
        pairs = windows.columns(right_prefix="clicked_", uid="pairs")
    pairs.select("ad", "at", later=mo.col("clicked_at") - mo.col("at"), uid="later").sink(mo.collect("out"), uid="out")
    found = run(job, seed=seed, faults=faults)
    expected = [
        {"ad": a["ad"], "at": a["at"], "later": b["at"] - a["at"]}
        for a in sides[0]
        for b in sides[1]
        if a["ad"] == b["ad"] and (-1 <= b["at"] - a["at"] <= 5 if kind == "interval" else a["at"] // 8 == b["at"] // 8)
    ]
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert expected
