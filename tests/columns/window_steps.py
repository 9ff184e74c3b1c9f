"""Windows over columns in a harness, and the same windows record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import moorline as mo
from moorline.api.columns.streams import KeyedColumnStream
from moorline.model.columns import ColumnBatch
from moorline.model.config.state import StateConfig
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


ASSIGNERS = [
    mo.TumblingEventTimeWindows("10ms"),
    mo.TumblingEventTimeWindows("7ms", offset="-3ms"),
    mo.SlidingEventTimeWindows("10ms", "5ms"),
    mo.SlidingEventTimeWindows("10ms", "4ms", offset="1ms"),
    mo.SlidingEventTimeWindows("4ms", "10ms"),
]
ROW = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["ada", "bob", "", "ü"]),
        "number": st.none() | st.integers(-(10**12), 10**12),
        "weight": st.none() | st.floats(-1e6, 1e6) | st.just(float("nan")),
        "page": st.none() | st.sampled_from(["/", "/a"]),
    }
)


@dataclass(frozen=True)
class Restore:
    """Go on from a snapshot, at another parallelism."""

    parallelism: int


STEPS = st.lists(
    st.lists(st.tuples(ROW, st.integers(-25, 60)), min_size=1, max_size=12)
    | st.integers(-20, 70)
    | st.builds(Restore, st.integers(1, 3))
    | st.just("snapshot"),
    max_size=10,
)


def outputs(
    steps: list[Any],
    assigner: Any,
    keys: tuple[str, ...],
    lateness: int,
    forms: Sequence[bool],
    states: Sequence[StateConfig],
) -> list[Any]:
    """What comes out of each step. ``forms``: whether it goes by columns, ``states``: where; in turn after restores."""
    out: list[Any] = []
    form, watermark = 0, -(1 << 63)
    harness = windowing(assigner, keys, lateness, in_columns=forms[0], state=states[0])
    try:
        for step in [*steps, (1 << 63) - 1]:
            if isinstance(step, int):
                watermark = max(watermark, step)
                made = harness.watermark(watermark)
                out.append((shown(made), sorted(harness.timestamps)))
            elif isinstance(step, list):
                made = harness.process_batch(columns([row for row, _ in step]), [time for _, time in step])
                # Late rows fire their windows one after the other.
                out.append((shown(made), [shown([row]) for row in made if row[keys[0]] in ("ada", 1)]))
            else:
                snapshot = harness.snapshot()
                harness.confirm()
                if isinstance(step, Restore):
                    out.append(shown(harness.side_output(LATE)))
                    harness.close()
                    form, watermark = form + 1, -(1 << 63)
                    harness = windowing(
                        assigner,
                        keys,
                        lateness,
                        in_columns=forms[form % len(forms)],
                        state=states[form % len(states)],
                        snapshot=snapshot,
                        parallelism=step.parallelism,
                    )
        out.append(shown(harness.side_output(LATE)))
    finally:
        harness.close()
    return out
