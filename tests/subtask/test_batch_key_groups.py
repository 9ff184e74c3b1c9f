"""Aggregates and windows over columns in a batch job: by key group, and the same as a plain loop finds."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from batch_worlds import BatchWorld, run

import moorline as mo
from moorline.errors import InvalidKey
from moorline.subtask.batch import key_groups

SCHEMA = "user string, day bigint, price decimal(10,2), points double, at bigint, id bigint"
SEEDS = pytest.mark.parametrize(("seed", "faults"), [(1, 0.0), (2, 0.05), (3, 0.05)])


def rows_of(seed: int, count: int = 400) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return [
        {
            "user": chance.choice("abcdefghij"),
            "day": chance.randint(1, 3),
            "price": Decimal(chance.randint(0, 999)) / 100,
            "points": chance.choice([None, *map(float, range(5))]),
            "at": chance.randint(0, 60_000),
            "id": n,
        }
        for n in range(count)
    ]


def columns_of(job: mo.Job, rows: list[dict[str, Any]], timed: bool) -> Any:
    made = job.source(mo.from_items(rows), uid="rows", parallelism=1).with_schema(SCHEMA, uid="columns", parallelism=1)
    return made.with_watermark("at", "0s", uid="times", parallelism=1) if timed else made


def aggregated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The results of rows of one key, in their order."""
    points = [r["points"] for r in rows if r["points"] is not None]
    return {
        "n": len(rows),
        "known": len(points),
        "total": sum(r["price"] for r in rows),
        "least": min(points, default=None),
        "most": max(points, default=None),
        "mean": sum(points) / len(points) if points else None,
        "first": rows[0]["id"],
        "last": rows[-1]["id"],
    }


RESULTS = {
    "n": mo.count(),
    "known": mo.count("points"),
    "total": mo.sum("price"),
    "least": mo.min("points"),
    "most": mo.max("points"),
    "mean": mo.avg("points"),
    "first": mo.first("id"),
    "last": mo.last("id"),
}


@SEEDS
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("key", [("user",), ("id",), ("user", "day")])
def test_each_key_has_one_row_in_the_end(seed: int, faults: float, timed: bool, key: tuple[str, ...]) -> None:
    rows = rows_of(seed)
    job = mo.Job("totals", parallelism=2)
    columns_of(job, rows, timed).key_by(*key).aggregate(**RESULTS, uid="totals").sink(mo.collect("out"), uid="out")
    found = run(job, seed=seed, faults=faults)
    by_key: dict[Any, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda r: r["at"]) if timed else rows:
        by_key.setdefault(tuple(row[name] for name in key), []).append(row)
    expected = {k: aggregated(own) for k, own in by_key.items()}
    assert {tuple(r[name] for name in key): {n: r[n] for n in RESULTS} for r in found} == expected
    assert len(found) == len(expected)


class Stamped(mo.ProcessFunction):
    """What comes, with its timestamp."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value["user"], ctx.timestamp()


@pytest.mark.parametrize("results", [{"n": mo.count()}, {"first": mo.first("id")}])
def test_a_result_has_the_timestamp_of_the_last_record_of_its_key(results: Any) -> None:
    rows = rows_of(5)
    job = mo.Job("stamps", parallelism=2)
    totals = columns_of(job, rows, timed=True).key_by("user").aggregate(**results, uid="totals")
    totals.process(Stamped(), uid="stamped").sink(mo.collect("out"), uid="out")
    assert dict(run(job)) == {
        user: max(r["at"] for r in rows if r["user"] == user) for user in {r["user"] for r in rows}
    }


@SEEDS
@pytest.mark.parametrize("slide", [10, 5])
def test_windows_end_with_their_key_group(seed: int, faults: float, slide: int) -> None:
    rows = rows_of(seed)
    job = mo.Job("windows", parallelism=2)
    size = 10
    assigner = (
        mo.TumblingEventTimeWindows(f"{size}s")
        if slide == size
        else mo.SlidingEventTimeWindows(f"{size}s", f"{slide}s")
    )
    windows = columns_of(job, rows, timed=True).key_by("user").window(assigner).allowed_lateness("1min")
    windows.aggregate(n=mo.count(), total=mo.sum("id"), uid="totals").sink(mo.collect("out"), uid="out")
    found = run(job, seed=seed, faults=faults)
    expected: dict[Any, list[int]] = {}
    for row in rows:
        last = row["at"] // 1000 // slide * slide
        for start in range(last, last - size, -slide):
            if row["at"] < (start + size) * 1000:
                begin = datetime.fromtimestamp(start, UTC)
                expected.setdefault((row["user"], begin), []).append(row["id"])
    assert {(r["user"], r["window_start"]): (r["n"], r["total"]) for r in found} == {
        key: (len(ids), sum(ids)) for key, ids in expected.items()
    }
    assert len(found) == len(expected)


def test_more_results_than_are_passed_on_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_groups, "EMITTED_ROWS", 3)
    rows = rows_of(4)
    job = mo.Job("many", parallelism=2)
    columns_of(job, rows, False).key_by("id").aggregate(n=mo.count(), uid="n").sink(mo.collect("out"), uid="out")
    assert sorted((r["id"], r["n"]) for r in run(job)) == [(n, 1) for n in range(len(rows))]


def test_streams_that_are_united_are_aggregated_together() -> None:
    rows = rows_of(6)
    job = mo.Job("united", parallelism=2)
    half = len(rows) // 2
    sides = [
        job.source(mo.from_items(part), uid=f"rows-{n}", parallelism=1).with_schema(SCHEMA, uid=f"columns-{n}")
        for n, part in enumerate((rows[:half], rows[half:]))
    ]
    both = sides[0].union(sides[1]).with_schema(SCHEMA, uid="both")
    both.key_by("day").aggregate(n=mo.count(), uid="n").sink(mo.collect("out"), uid="out")
    assert {r["day"]: r["n"] for r in run(job)} == {d: sum(r["day"] == d for r in rows) for d in (1, 2, 3)}


def test_results_are_aggregated_again_in_a_later_stage() -> None:
    rows = rows_of(7)
    job = mo.Job("twice", parallelism=2)
    per_user = columns_of(job, rows, False).key_by("user", "day").aggregate(n=mo.count(), uid="n")
    per_user.key_by("day").aggregate(users=mo.count(), uid="users").sink(mo.collect("out"), uid="out")
    expected = {day: len({r["user"] for r in rows if r["day"] == day}) for day in (1, 2, 3)}
    assert {r["day"]: r["users"] for r in run(job)} == expected


def test_a_null_key_is_refused_with_its_row() -> None:
    job = mo.Job("null", parallelism=2)
    rows = [{**row, "user": None} for row in rows_of(8, 3)]
    columns_of(job, rows, False).key_by("user").aggregate(n=mo.count(), uid="n").sink(mo.collect("out"), uid="out")
    with pytest.raises(InvalidKey, match="'user' is null"):
        BatchWorld(job).run()
