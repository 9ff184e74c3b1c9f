"""A job in columns for the simulator: tumbling and sliding windows, each of which must come out once, and whole."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from moorline.api.columns import aggregates
from moorline.api.job import Job
from moorline.api.windows.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from moorline.testing.simulation.audit.ledger import LedgerSink
from moorline.testing.simulation.jobs.counting import SimulatedJob
from moorline.testing.simulation.jobs.features import Timed, timed_input, timed_stream

SIZE, SLIDE = 20, 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def column_windows_job(
    seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0
) -> SimulatedJob:
    """Rows become columns, and are aggregated in windows by a column of texts or of ints."""
    splits = timed_input(chance, records)
    by_number = chance.random() < 0.5
    #: Windows that have fired are kept for a while, or not. No row is late.
    lateness = chance.choice([0, 30])
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    schema = pa.schema([("key", pa.int64() if by_number else pa.string()), ("number", pa.int64())])

    def key_of(record: Timed) -> Any:
        return len(record[0]) * 1000 + ord(record[0][-1]) if by_number else record[0]

    stream = timed_stream(job, splits, parallelism)
    rows = stream.map(lambda r: {"key": key_of(r), "number": r[2]}, uid="rows", parallelism=min(parallelism, 2))
    keyed = rows.with_schema(schema, uid="columns", parallelism=min(parallelism, 2)).key_by("key")
    ledgers: dict[str, Counter[Any]] = {}
    for name, assigner in (
        ("tumbling", TumblingEventTimeWindows(SIZE / 1000)),
        ("sliding", SlidingEventTimeWindows(SIZE / 1000, SLIDE / 1000)),
    ):
        windows = keyed.window(assigner).allowed_lateness(lateness / 1000)
        made = windows.aggregate(
            n=aggregates.count(),
            total=aggregates.sum("number"),
            most=aggregates.max("number"),
            latest=aggregates.last("number"),
            uid=name,
        )
        ledger = f"sim-{seed}-{name}"
        made.map(_told, uid=f"{name}-told").sink(LedgerSink(ledger), uid=f"{name}-out")
        ledgers[ledger] = _expected(splits, key_of, SIZE if name == "tumbling" else SLIDE)
    return SimulatedJob(job, ledgers)


def _told(row: dict[str, Any]) -> Any:
    # Which number is the latest depends on how splits mix; that there is one does not.
    start = round((row["window_start"] - _EPOCH).total_seconds() * 1000)
    return row["key"], start, row["n"], row["total"], row["most"], row["latest"] is not None


def _expected(splits: dict[int, list[Timed]], key_of: Any, period: int) -> Counter[Any]:
    windows: dict[tuple[Any, int], list[int]] = {}
    for record in (r for rs in splits.values() for r in rs):
        for start in range(record[1] // period * period, record[1] - SIZE, -period):
            windows.setdefault((key_of(record), start), []).append(record[2])
    return Counter((key, start, len(ns), sum(ns), max(ns), True) for (key, start), ns in windows.items())
