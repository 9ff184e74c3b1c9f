"""Windows over columns in a harness, and the same windows record by record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import moorline as mo
from moorline.api.columns.streams import KeyedColumnStream
from moorline.model.columns import ColumnBatch
from moorline.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("number", pa.int64()), ("weight", pa.float64()), ("page", pa.string())])
RESULTS = {
    "rows": mo.count(),
    "pages": mo.count("page"),
    "total": mo.sum("number"),
    "most": mo.max("weight"),
    "least": mo.min("number"),
    "mean": mo.avg("number"),
    "first_page": mo.first("page"),
    "last_number": mo.last("number"),
}
LATE = mo.OutputTag("late")


class OneByOne(mo.EventTimeTrigger):
    """The usual trigger by another name, with which windows go record by record."""


def windowing(
    assigner: Any,
    keys: tuple[str, ...] = ("user",),
    lateness: int = 0,
    *,
    in_columns: bool = True,
    results: dict[str, Any] | None = None,
    schema: pa.Schema = SCHEMA,
    late: bool = True,
    **options: Any,
) -> OperatorHarness:
    """A harness around windows with aggregates. ``lateness`` in milliseconds."""

    def build(stream: Any) -> Any:
        keyed = KeyedColumnStream(stream._job, stream._origins, schema, keys)
        windowed = keyed.window(assigner).allowed_lateness(f"{lateness}ms")
        if late:
            windowed = windowed.side_output_late_data(LATE)
        if not in_columns:
            windowed = windowed.trigger(OneByOne())
        return windowed.aggregate(uid="windows", **(RESULTS if results is None else results))

    return OperatorHarness.of(build, **options)


def columns(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> ColumnBatch:
    return ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=schema))


def shown(rows: list[dict[str, Any]]) -> list[str]:
    """Rows that can be compared, whatever their order: NaN equals NaN, and zones of UTC each other."""
    return sorted(repr({k: v.timestamp() if hasattr(v, "timestamp") else v for k, v in row.items()}) for row in rows)
