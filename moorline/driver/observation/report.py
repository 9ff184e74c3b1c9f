"""The figures of a job as JSON: per vertex, per subtask in it and per operator in that, and summed up by operator.

Called by other threads than the one that supervises, so it copies what may change before it looks at it. The shape is
a reference page (``docs/reference/metrics.md``); names in it are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from moorline.driver.attempts.running import RunningAttempt
from moorline.driver.observation.hot_keys import hot_key, hottest
from moorline.driver.observation.observation import Observation
from moorline.driver.observation.rates import Window
from moorline.model.graph import Plan, Vertex
from moorline.model.ids import SubtaskId
from moorline.model.wire.figures import OperatorFigures
from moorline.model.wire.messages import Progress
from moorline.protocol.supervision.lifecycle import JobStatus

log = logging.getLogger("moorline")

#: Counts of a report that are summed up over the subtasks of a vertex.
SUMS = ("records_in", "records_out", "bytes_in", "bytes_out", "keys", "in_flight_bytes")
#: Those of them with a rate.
RATES = ("records_in", "records_out", "bytes_in", "bytes_out")


def figures_of(observation: Observation, attempt: RunningAttempt | None) -> dict[str, Any]:
    """Everything about the last attempt and the checkpoints of the job, as JSON. ``attempt``: None before the first."""
    wall_ms = observation.wall_ms()
    plan = attempt.deployment.plan if attempt is not None else None
    windows = observation.rates.windows() if attempt is not None else {}
    vertices = [_vertex(plan, v, attempt, windows, wall_ms) for v in plan.vertices] if attempt and plan else []
    made = {
        "time_ms": wall_ms,
        "uptime_ms": wall_ms - observation.began_ms,
        "attempts": observation.attempts.count,
        "failures": observation.attempts.failures,
        "losses": dict(observation.attempts.losses),
        "vertices": vertices,
        "links": _links(plan) if plan is not None else [],
        "operators": _operators(vertices),
        "checkpoints": _checkpoints(observation),
    }
    builtins: dict[str, Any] = msgspec.to_builtins(made)  # what users have defined is still typed
    return builtins


def publish_progress(observation: Observation, attempt: RunningAttempt | None, status: JobStatus) -> None:
    """Have listeners know how far a job is. On the driver's thread, which goes on whatever happens here."""
    try:
        number = attempt.number if attempt is not None else 0
        figures = figures_of(observation, attempt)
        observation.progressed(status.value, number, _sums(figures))
        running = 0 if attempt is None or attempt.has_ended else number
        observation.measured(status.value, running, figures)
    except Exception:  # it is for people, and no reason for a job to fail
        log.exception("the progress of a job could not be published")


def _sums(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of an event of progress: by operator, without those of each subtask."""
    roots = {vertex["operators"][0]["uid"]: vertex for vertex in figures["vertices"]}
    targets = {link["target"] for link in figures["links"]}
    sources = [vertex for vertex in roots.values() if vertex["id"] not in targets]
    # Without keys: they are data, and events go to files and logs.
    operators = {u: {n: f for n, f in of.items() if n != "hot_keys"} for u, of in figures["operators"].items()}
    for uid, vertex in roots.items():
        shares = {name: vertex[name] for name in ("busy", "back_pressured", "idle", "most_busy")}
        operators[uid] = {**operators.get(uid, {}), **shares}
    return {
        "uptime_ms": figures["uptime_ms"],
        "failures": figures["failures"],
        "records_in": sum(vertex["records_in"] for vertex in sources),
        "records_in_per_second": round(sum(vertex["records_in_per_second"] for vertex in sources), 1),
        "operators": operators,
        "checkpoints": figures["checkpoints"],
    }


def _links(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "source": link.source,
            "target": link.target,
            "operator": link.source_operator,
            "tag": link.tag,
            "partitioning": link.partitioning.value,
            "feedback": link.feedback,
        }
        for link in plan.links
    ]


def _vertex(
    plan: Plan, vertex: Vertex, attempt: RunningAttempt, windows: Mapping[SubtaskId, Window], wall_ms: int
) -> dict[str, Any]:
    ids = [SubtaskId(vertex.id, index) for index in range(vertex.parallelism)]
    subtasks = [_subtask(plan, s, attempt, windows.get(s), wall_ms) for s in ids]
    heard = [s for s in subtasks if s["reported"]]
    sums: dict[str, Any] = {name: sum(s[name] for s in heard) for name in (*SUMS, "blocked_bytes")}
    sums |= {f"{name}_per_second": round(sum(s[f"{name}_per_second"] for s in heard), 1) for name in RATES}
    for share in ("busy", "back_pressured", "idle"):
        sums[share] = round(sum(s[share] for s in heard) / len(heard), 3) if heard else 0.0
        sums[f"most_{share}"] = max((s[share] for s in heard), default=0.0)
    return {
        "id": vertex.id,
        "stage": vertex.stage,
        "parallelism": vertex.parallelism,
        "operators": [
            {"uid": uid, "name": plan.graph.by_uid[uid].name, "kind": plan.graph.by_uid[uid].kind.value}
            for uid in vertex.operators
        ],
        **sums,
        "subtasks": subtasks,
    }


def _subtask(
    plan: Plan, subtask: SubtaskId, attempt: RunningAttempt, window: Window | None, wall_ms: int
) -> dict[str, Any]:
    report = window.new if window is not None else Progress(records_in=0, records_out=0)
    window = window or Window(report, report, 0)
    place = attempt.places.get(subtask)
    busy, back_pressured, idle = window.shares()
    return {
        "subtask": str(subtask),
        "index": subtask.index,
        "reported": report is not window.old,
        "is_running": subtask in attempt.running,
        "host": place.host if place is not None else "",
        "pid": place.pid if place is not None else 0,
        "executor": place.executor if place is not None else "",
        **{name: getattr(report, name) for name in (*SUMS, "blocked_bytes")},
        **{f"{name}_per_second": window.per_second(name) for name in RATES},
        "in_flight_ms": _in_flight_ms(report, window),
        "busy": busy,
        "back_pressured": back_pressured,
        "idle": idle,
        "busy_ms": report.busy_ms,
        "back_pressured_ms": report.backpressured_ms,
        "idle_ms": report.idle_ms,
        "stalled_ms": report.stalled_ms,
        "stalled_at": report.stalled_at,
        "process": {name: getattr(report.process, name) for name in report.process.__struct_fields__},
        "operators": [_operator(f, window, report, wall_ms) for f in report.operators],
    }


def _operator(figures: OperatorFigures, window: Window, report: Progress, wall_ms: int) -> dict[str, Any]:
    rate_in, rate_out = window.of_operator(figures)
    return {
        "uid": figures.uid,
        "records_in": figures.records_in,
        "records_out": figures.records_out,
        "records_in_per_second": rate_in,
        "records_out_per_second": rate_out,
        "watermark": figures.watermark,
        "watermark_lag_ms": None if figures.watermark is None else wall_ms - figures.watermark,
        "event_time_lag_ms": None if figures.event_time is None else wall_ms - figures.event_time,
        "has_ended": figures.has_ended,
        "keys": figures.keys,
        "states": figures.states,
        "timers": figures.timers,
        "backend": figures.backend,
        "splits": figures.splits,
        "late_records": report.counters.get(figures.uid, {}).get("late_records", 0),
        "counters": report.counters.get(figures.uid, {}),
        "outage": report.outages.get(figures.uid, ""),
        "metrics": figures.metrics,
        "keyed_per_second": figures.keyed_per_second,
        "hot_keys": [hot_key(hot.key, hot.share, figures.keyed_per_second) for hot in figures.hot_keys],
    }


#: How the figures of an operator's subtasks become one.
_SUMMED = ("records_in", "records_out", "keys", "timers", "late_records")
_SUMMED_BY_NAME = ("states", "backend", "counters")


def _operators(vertices: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By uid, over all subtasks: counts are added up, a watermark is the least, a lag is the greatest."""
    operators: dict[str, dict[str, Any]] = {}
    for vertex in vertices:
        for subtask in vertex["subtasks"]:
            for figures in subtask["operators"]:
                _add(operators.setdefault(figures["uid"], _nothing(vertex["id"])), figures)
    for sums in operators.values():
        for name in ("records_in_per_second", "records_out_per_second", "keyed_per_second"):
            sums[name] = round(sums[name], 1)
        sums["hot_keys"] = hottest(sums["hot_keys"], sums["keyed_per_second"])
    return operators


def _nothing(vertex: int) -> dict[str, Any]:
    return {
        "vertex": vertex,
        **dict.fromkeys(_SUMMED, 0),
        "records_in_per_second": 0.0,
        "records_out_per_second": 0.0,
        **{name: {} for name in _SUMMED_BY_NAME},
        "watermark": None,
        "watermark_lag_ms": None,
        "event_time_lag_ms": None,
        "records_behind": None,
        "outage": "",
        "metrics": {},
        "keyed_per_second": 0.0,
        "hot_keys": [],
    }


def _add(sums: dict[str, Any], figures: dict[str, Any]) -> None:
    for name in (*_SUMMED, "records_in_per_second", "records_out_per_second", "keyed_per_second"):
        sums[name] += figures[name]
    sums["hot_keys"] += figures["hot_keys"]
    for name in _SUMMED_BY_NAME:
        for key, count in figures[name].items():
            sums[name][key] = sums[name].get(key, 0) + count
    if figures["watermark"] is not None:
        known = sums["watermark"]
        sums["watermark"] = figures["watermark"] if known is None else min(known, figures["watermark"])
    for lag in ("watermark_lag_ms", "event_time_lag_ms"):
        if figures[lag] is not None:
            sums[lag] = max(figures[lag], sums[lag] if sums[lag] is not None else figures[lag])
    behind = [split["records_behind"] for split in figures["splits"].values() if "records_behind" in split]
    if behind:
        sums["records_behind"] = (sums["records_behind"] or 0) + sum(behind)
    sums["outage"] = sums["outage"] or figures["outage"]
    for name, metric in figures["metrics"].items():
        known = sums["metrics"].get(name)
        sums["metrics"][name] = metric if known is None or known.kind != metric.kind else known.plus(metric)


def _checkpoints(observation: Observation) -> dict[str, Any]:
    history = observation.checkpoints
    return {
        "completed": history.completed,
        "failed": dict(history.failed),
        "in_progress": history.in_progress(observation.now_ms),
        "last": history.last.summary() if history.last is not None else None,
        "last_operators": history.last.details()["operators"] if history.last is not None else {},
        "since_last_ms": _since_last_ms(observation),
    }


def _since_last_ms(observation: Observation) -> int | None:
    """The time since a checkpoint was complete; since this run began if none was, so that an alert sees that too."""
    if not observation.takes_checkpoints:
        return None
    last_ms = observation.checkpoints.last_ms
    return max(0, observation.wall_ms() - observation.began_ms if last_ms is None else observation.now_ms - last_ms)


def _in_flight_ms(report: Progress, window: Window) -> int | None:
    """The time that what is in flight takes at the present rate; None if nothing moves."""
    rate = window.per_second("bytes_out")
    return round(1000 * report.in_flight_bytes / rate) if rate > 0 else None if report.in_flight_bytes else 0
