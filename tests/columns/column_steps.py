"""Aggregates in a harness, and what a plain loop makes of the same rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import moorline as mo
from moorline.api.columns.streams import KeyedColumnStream
from moorline.model.columns import ColumnBatch
from moorline.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("cents", pa.int64()), ("weight", pa.float64()), ("page", pa.string())])
RESULTS = {
    "rows": mo.count(),
    "pages": mo.count("page"),
    "total": mo.sum("cents"),
    "least": mo.min("cents"),
    "most": mo.max("weight"),
    "mean": mo.avg("weight"),
    "first_page": mo.first("page"),
    "last_page": mo.last("page"),
    "least_page": mo.min("page"),
    "last_cents": mo.last("cents"),
    "first_cents": mo.first("cents"),
    "pages_about": mo.approx_count_distinct("page"),
    "weights_about": mo.approx_count_distinct("weight"),
}


def aggregating(
    keys: tuple[str, ...] = ("user",),
    results: dict[str, Any] | None = None,
    schema: pa.Schema = SCHEMA,
    emit: Any = "changes",
    **options: Any,
) -> OperatorHarness:
    """A harness around ``aggregate``."""

    def build(stream: Any) -> Any:
        keyed = KeyedColumnStream(stream._job, stream._origins, schema, keys)
        return keyed.aggregate(emit=emit, uid="totals", **(RESULTS if results is None else results))

    return OperatorHarness.of(build, **options)


def feed(harness: OperatorHarness, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    """The output for rows that come as one batch of columns to each subtask that owns some."""
    return harness.process_batch(ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=schema)))


def plain_loop(
    rows: list[dict[str, Any]], keys: tuple[str, ...] = ("user",), results: dict[str, Any] | None = None
) -> dict[Any, dict[str, Any]]:
    """The last row of each key."""
    kept: dict[Any, dict[str, Any]] = {}
    wanted = RESULTS if results is None else results
    for row in rows:
        own = kept.setdefault(tuple(row[k] for k in keys), {})
        for name, aggregate in wanted.items():
            aggregate.add(name, own, row)
    return {
        key: {**dict(zip(keys, key)), **{name: a.result(name, own) for name, a in wanted.items()}}
        for key, own in kept.items()
    }
