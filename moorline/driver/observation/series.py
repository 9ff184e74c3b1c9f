"""The last ten minutes of a job: a point every two seconds, for graphs over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from moorline.driver.observation.rates import Window
from moorline.model.graph import Plan
from moorline.model.ids import SubtaskId

STEP_MS = 2_000
POINTS = 300

#: The figures of a point, for each operator that begins a chain. The last two are None where there is no event time.
FIGURES = (
    "records_in_per_second",
    "records_out_per_second",
    "busy",
    "back_pressured",
    "idle",
    "watermark_lag_ms",
    "records_behind",
)


class Series:
    """Points of one job, over all of its attempts."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, dict[str, list[Any]]]] = deque(maxlen=POINTS)
        self._added_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        return self._added_ms is None or now_ms - self._added_ms >= STEP_MS

    def add(self, plan: Plan, windows: Mapping[SubtaskId, Window], wall_ms: int, now_ms: int) -> None:
        """Add a point: rates are summed up over the subtasks of an operator, shares averaged, lags the worst."""
        self._added_ms = now_ms
        by_operator: dict[str, list[Window]] = {}
        for subtask, window in windows.items():
            by_operator.setdefault(plan.vertices[subtask.vertex].operators[0], []).append(window)
        self._points.append((wall_ms, {uid: _point(of, wall_ms) for uid, of in by_operator.items()}))

    def columns(self) -> dict[str, Any]:
        """The points as columns, oldest first; None where an operator had none. As JSON."""
        points = list(self._points)
        uids = list(dict.fromkeys(uid for _, point in points for uid in point))
        absent: list[Any] = [None] * len(FIGURES)
        return {
            "time_ms": [wall_ms for wall_ms, _ in points],
            "operators": {
                uid: dict(zip(FIGURES, map(list, zip(*(point.get(uid, absent) for _, point in points)))))
                for uid in uids
            },
        }


def _point(windows: list[Window], wall_ms: int) -> list[Any]:
    shares = [window.shares() for window in windows]
    averages = [round(sum(column) / len(windows), 3) for column in zip(*shares)]
    operators = [figures for window in windows for figures in window.new.operators]
    watermarks = [figures.watermark for figures in operators if figures.watermark is not None]
    behind = [split["records_behind"] for f in operators for split in f.splits.values() if "records_behind" in split]
    return [
        round(sum(window.per_second("records_in") for window in windows), 1),
        round(sum(window.per_second("records_out") for window in windows), 1),
        *averages,
        wall_ms - min(watermarks) if watermarks else None,
        sum(behind) if behind else None,
    ]
