"""The benchmark of Nexmark: its events are those that were asked for, and its queries find what DuckDB finds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import moorline as mo
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.job import JobSimulation
from moorline.testing.simulation.pace import SimulatedPace
from moorline.testing.simulation.run import CALM, usual_faults

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from nexmark_queries.all_queries import QUERIES
from nexmark_queries.events import TABLES, Shape, write
from nexmark_queries.expected import SQL, difference, expected, found
from nexmark_queries.flink import SQL as FLINK_SQL
from nexmark_queries.tables import Tables

#: Forty seconds, and midnight among them.
SMALL = Shape(400, spacing_us=100_000, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("nexmark")
    write(SMALL, made)
    return made


def read(folder: Path, table: str) -> pa.Table:
    return pq.read_table(folder / table).sort_by("date_time")


# --- events --------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_events_and_another_one_others(tmp_path: Path) -> None:
    for name, seed in (("first", 5), ("again", 5), ("other", 6)):
        write(Shape(5_000, seed=seed), tmp_path / name)
    for table in TABLES:
        first, again, other = (pq.read_table(tmp_path / name / table) for name in ("first", "again", "other"))
        assert first.equals(again)
        assert not first.equals(other)
        assert first["date_time"].equals(other["date_time"])


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids(tmp_path: Path) -> None:
    assert write(Shape(50_000), tmp_path) == {"person": 1_000, "auction": 3_000, "bid": 46_000}
    assert write(Shape(51), tmp_path / "more") == {"person": 2, "auction": 3, "bid": 46}


def test_more_events_begin_with_the_same_ones(tmp_path: Path) -> None:
    write(Shape(50_000), tmp_path / "some", files=1)
    write(Shape(60_000), tmp_path / "more", files=1)
    for table in TABLES:
        some = pq.read_table(tmp_path / "some" / table)
        assert pq.read_table(tmp_path / "more" / table)[: len(some)].equals(some)


def test_each_file_has_its_rows_in_the_order_of_time_and_reaches_over_all_of_it(folder: Path) -> None:
    for table in ("auction", "bid"):
        for file in sorted((folder / table).iterdir()):
            times = np.asarray(pq.read_table(file)["date_time"])
            assert (np.diff(times) >= 0).all()
            assert np.ptp(times) > 0.7 * 400 * 100


def test_half_of_the_bids_are_for_hot_auctions_and_most_by_hot_bidders(tmp_path: Path) -> None:
    write(Shape(200_000), tmp_path)
    bids, auctions = read(tmp_path, "bid"), read(tmp_path, "auction")
    # A few of those that are not chosen for being hot are so by chance.
    assert 0.5 < np.mean(np.asarray(bids["auction"]) % 100 == 0) < 0.53
    assert 0.75 < np.mean(np.asarray(bids["bidder"]) % 100 == 1) < 0.78
    assert 0.75 < np.mean(np.asarray(auctions["seller"]) % 100 == 0) < 0.78
    prices = np.log10(np.asarray(bids["price"]))
    assert prices.min() >= 2
    assert prices.max() <= 8
    assert abs(np.median(prices) - 5) < 0.05


def test_ids_are_given_in_turn_and_auctions_end_after_they_begin(folder: Path) -> None:
    auctions = pq.read_table(folder / "auction").sort_by("id")
    assert auctions["id"].to_pylist() == list(range(1_000, 1_000 + 24))
    assert (np.asarray(auctions["expires"]) > np.asarray(auctions["date_time"])).all()


# --- queries -------------------------------------------------------------------------------------


def simulated(name: str, folder: Path, seed: int, faults: Faults, fault_steps: int = 0) -> JobSimulation:
    """A run of a query without Spark."""
    query = QUERIES[name]

    def build() -> mo.Job:
        job = mo.Job(f"nexmark-{name}", parallelism=2)
        (query.checked or query.build)(Tables(job, folder)).sink(mo.collect("out"), uid="out")
        return job

    # As many subtasks as there are files: one that read two of them would find the second one late.
    options: dict[str, Any] = {"interval_ms": 400, "rescale": False, "rocksdb": 0}
    simulation = JobSimulation(seed, build, SimulatedPace(seed), faults=faults, fault_steps=fault_steps, **options)
    simulation.run()
    return simulation


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_finds_what_duckdb_finds(name: str, folder: Path) -> None:
    columns, wanted = expected(name, folder)
    assert wanted or name == "q2", "these events do not check it"
    simulation = simulated(name, folder, 0, CALM)
    assert not difference(wanted, found(QUERIES[name], simulation.results["out"], columns))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["q3", "q8", "q9", "q18"])
def test_a_query_finds_the_same_when_workers_and_drivers_die(name: str, folder: Path) -> None:
    columns, wanted = expected(name, folder)
    restored = 0
    for seed in range(1, 9):
        simulation = simulated(name, folder, seed, usual_faults(500), 1_500)
        assert not difference(wanted, found(QUERIES[name], simulation.results["out"], columns)), f"seed {seed}"
        restored += len(simulation.tally.restored)
        if seed > 1 and restored:
            break
    assert restored, "there was no fault to recover from"


def test_every_query_has_its_sql() -> None:
    assert set(SQL) == set(FLINK_SQL) == set(QUERIES)
    assert len(QUERIES) == 20


def test_a_wrong_result_is_seen(folder: Path) -> None:
    columns, wanted = expected("q17", folder)
    rows = [dict(zip(columns, row)) for row in wanted]
    assert not difference(wanted, found(QUERIES["q17"], rows, columns))
    assert "1 rows missing" in difference(wanted, found(QUERIES["q17"], rows[1:], columns))
    rows[0] = {**rows[0], "total_bids": rows[0]["total_bids"] + 1}
    assert "1 rows missing and 1 surplus" in difference(wanted, found(QUERIES["q17"], rows, columns))
