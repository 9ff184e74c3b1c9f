"""Progress of an attempt, summed up over its subtasks: for handles, the command line and HTTP.

Called by other threads than the one that supervises, so it copies what may change before it looks at it.
"""

from __future__ import annotations

from typing import Any

from moorline.driver.attempts.running import RunningAttempt

#: Added up for every operator that begins a chain.
_SUMS = ("records_in", "records_out", "keys", "held_bytes", "in_flight_bytes", "busy", "back_pressured", "idle")


def progress_of(attempt: RunningAttempt | None) -> dict[str, Any]:
    """Records in and out per operator, how it has spent its time, how many keys have state, what waits."""
    if attempt is None:
        return {
            "operators": {},
            "records_in": 0,
            "keys": 0,
            "restored": {"read_bytes": 0, "snapshot_bytes": 0},
            "counters": {},
            "stalled": {},
            "uncommitted": {},
            "outages": {},
        }
    plan, reports = attempt.deployment.plan, dict(attempt.progress)
    operators: dict[str, dict[str, Any]] = {}
    for subtask, report in reports.items():
        root = plan.vertices[subtask.vertex].operators[0]
        sums = operators.setdefault(root, dict.fromkeys(_SUMS, 0))
        sums["records_in"] += report.records_in
        sums["records_out"] += report.records_out
        sums["keys"] += report.keys
        sums["held_bytes"] += report.blocked_bytes
        sums["in_flight_bytes"] += report.in_flight_bytes
        sums["busy"] += report.busy_ms
        sums["back_pressured"] += report.backpressured_ms
        sums["idle"] += report.idle_ms
    counters: dict[str, dict[str, int]] = {}
    for report in reports.values():
        for uid, counts in report.counters.items():
            of_operator = counters.setdefault(uid, {})
            for counter, count in counts.items():
                of_operator[counter] = of_operator.get(counter, 0) + count
    for sums in operators.values():
        spent = max(1, sums["busy"] + sums["back_pressured"] + sums["idle"])
        for share in ("busy", "back_pressured", "idle"):
            sums[share] = round(sums[share] / spent, 3)
    uncommitted: dict[str, list[int]] = {}
    for batch in attempt.checkpoints.connectors.commits.pending:
        uncommitted.setdefault(batch.uid, []).append(batch.checkpoint)
    sources = {plan.vertices[s.vertex].operators[0] for s in plan.source_subtasks()}
    return {
        "operators": operators,
        "records_in": sum(o["records_in"] for uid, o in operators.items() if uid in sources),
        "keys": sum(o["keys"] for o in operators.values()),
        "restored": {
            "read_bytes": sum(dict(attempt.read_bytes).values()),
            "snapshot_bytes": attempt.snapshot_bytes,
        },
        "counters": counters,
        "stalled": {
            str(subtask): {"seconds": report.stalled_ms / 1000, "at": report.stalled_at}
            for subtask, report in reports.items()
            if report.stalled_ms
        },
        "uncommitted": uncommitted,
        "outages": {uid: cause for report in reports.values() for uid, cause in report.outages.items()},
    }
