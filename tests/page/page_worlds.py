"""A job as its page is shown one: served by the real server, with figures that are made up."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import moorline
from moorline.errors import QueryFailed, SnapshotNotFound
from moorline.http.server import ConsoleServer
from moorline.model import keys
from moorline.storage.stores.permitted import check_savepoint

SAVEPOINTS = ["file:///data/checkpoints"]
TRACEBACK = """ZeroDivisionError: division by zero in operator 'score' (Score), subtask 1, record 48,211 of the attempt
Traceback (most recent call last):
  File "payments.py", line 48, in process_element
    ratio = value.amount / self.total.value()
ZeroDivisionError: division by zero"""

#: (uid, name, kind, states) of each vertex, and its busy and back-pressured shares.
SHOP: list[tuple[list[tuple[str, str, str, list[str]]], float, float, float]] = [
    ([("payments", "Kafka: payments", "source", []), ("clean", "clean", "map", [])], 0.31, 0.64, 18_400.0),
    ([("rates", "Rates", "source", [])], 0.02, 0.0, 12.0),
    ([("score", "Score", "broadcast_process", ["total", "recent"])], 0.93, 0.04, 18_388.0),
    ([("per_hour", "Tumbling 1 h", "window", ["window-contents"])], 0.22, 0.0, 18_240.0),
    ([("alerts", "Kafka: alerts", "sink", [])], 0.04, 0.0, 41.0),
    ([("archive", "Delta: archive", "sink", [])], 0.11, 0.0, 210.0),
]
LINKS = [
    (0, 2, "clean", "hash"),
    (1, 2, "rates", "broadcast"),
    (2, 3, "score", "hash"),
    (2, 4, "score", "rebalance"),
    (3, 5, "per_hour", "forward"),
]


class PageJob:
    """A job that says what a test has put into it, and notes what it is asked to do."""

    def __init__(self, parallelism: int = 4, vertices: Sequence[Any] = SHOP, job: str = "fraud-alerts") -> None:
        self.job, self.status, self.attempt = job, "running", 2
        self.vertices, self.parallelism, self.links = list(vertices), parallelism, LINKS if vertices is SHOP else []
        self.now_ms = time.time_ns() // 1_000_000
        self.done: list[tuple[Any, ...]] = []
        #: A look-up of the key "slow" waits for it.
        self.slow_key = threading.Event()
        self.error, self.traceback = TRACEBACK.splitlines()[0], TRACEBACK
        self.value: Any = {"count": 3, "last": (1.5, "Ada")}
        self.failure = "the checkpoint took too long"
        self.detail = "subtask 2/1: writing to s3://data/checkpoints timed out"
        self.metrics_asked = 0
        #: How far watermarks are ahead of the clock.
        self.ahead_ms = 0
        #: An operator, and those of its keys that get the most records, with their share.
        self.hot_uid = "score"
        self.hot_keys: list[tuple[Any, float]] = [("ada", 0.2912), ("grace", 0.0431), (7, 0.0388)]
        #: Checkpoints that are in storage.
        self.stored: tuple[int, ...] = (59, 60, 61)

    # --- what there is ---------------------------------------------------------------------------

    def described(self) -> dict[str, Any]:
        operators = {}
        for chain, *_ in self.vertices:
            for uid, name, kind, states in chain:
                operators[uid] = {
                    "name": name,
                    "kind": kind,
                    "function": name,
                    "parallelism": self.parallelism,
                    "has_own_parallelism": kind == "sink",
                    "has_generated_uid": False,
                    "is_keyed": bool(states),
                    "inputs": self._inputs(chain, uid),
                    "states": [{"name": s, "kind": "value", "expires": s == "recent"} for s in states],
                }
        graph = {
            "max_parallelism": 128,
            "stages": 4,
            "slots": self.parallelism * len(self.vertices),
            "operators": operators,
            "vertices": [
                {"id": n, "stage": n, "parallelism": self.parallelism, "operators": [o[0] for o in chain]}
                for n, (chain, *_) in enumerate(self.vertices)
            ],
            "links": self._links(),
        }
        configuration = {
            "job": {"key groups": "128", "backend": "rocksdb", "flush": "15ms", "in_flight": "250ms"},
            "restarts": {"strategy": "ExponentialDelay", "initial": "1s", "maximum": "1min"},
            "checkpoints": {"location": SAVEPOINTS[0], "interval": "10s", "retained": "3", "mode": "exactly_once"},
        }
        served = {"kind": "job", "job": self.job, "version": moorline.__version__, "spark_ui": "http://127.0.0.1:4040"}
        return {**served, "has_storage": True, "savepoints": SAVEPOINTS, "graph": graph, "configuration": configuration}

    def _inputs(self, chain: Any, uid: str) -> list[str]:
        uids = [operator[0] for operator in chain]
        if uid != uids[0]:
            return [uids[uids.index(uid) - 1]]
        return [source for _, to, source, _ in self.links if self.vertices[to][0] is chain]

    def _links(self) -> list[dict[str, Any]]:
        return [
            {"source": a, "target": b, "operator": uid, "tag": None, "partitioning": how, "feedback": False}
            for a, b, uid, how in self.links
        ]

    def status_told(self) -> dict[str, Any]:
        return {"job": self.job, "status": self.status, "attempt": self.attempt}

    def checkpoints_told(self) -> list[dict[str, Any]]:
        return []

    def metrics(self) -> dict[str, Any]:
        self.metrics_asked += 1
        vertices = [self._vertex(n, *vertex) for n, vertex in enumerate(self.vertices)]
        operators = {}
        for vertex in vertices:
            for chained in vertex["operators"]:
                parts = [o for s in vertex["subtasks"] for o in s["operators"] if o["uid"] == chained["uid"]]
                summed = ("records_in", "records_in_per_second", "records_out_per_second", "keys", "timers")
                sums = {name: sum(p[name] for p in parts) for name in (*summed, "late_records")}
                lag = {"watermark": parts[0]["watermark"], "watermark_lag_ms": parts[0]["watermark_lag_ms"]}
                more: dict[str, Any] = {"records_behind": None, "outage": "", "metrics": {}}
                hot = [{**k, "key": repr(k["key"])} for k in self._hottest()] if chained["uid"] == self.hot_uid else []
                operators[chained["uid"]] = {**sums, **lag, **more, "hot_keys": hot}
        checkpoints = {
            "completed": 61,
            "failed": {"EXPIRED": 1},
            "in_progress": [],
            "last": self._checkpoint(61),
            "since_last_ms": 4_200,
        }
        head = {"job": self.job, "status": self.status, "attempt": self.attempt, "time_ms": self.now_ms}
        counts = {"uptime_ms": 4_321_000, "attempts": 2, "failures": 1}
        return {**head, **counts, "vertices": vertices, "operators": operators, "checkpoints": checkpoints, "links": []}

    def _hottest(self) -> list[dict[str, Any]]:
        return [{"key": k, "share": s, "records_per_second": s * 18_388.0} for k, s in self.hot_keys]

    def _vertex(self, number: int, chain: Any, busy: float, held: float, rate: float) -> dict[str, Any]:
        subtasks = [self._subtask(number, n, chain, busy, held, rate) for n in range(self.parallelism)]
        names = ("records_in", "records_in_per_second", "records_out_per_second", "keys", "in_flight_bytes")
        more = ("bytes_in_per_second", "bytes_out_per_second", "blocked_bytes")
        return {
            "id": number,
            "parallelism": self.parallelism,
            "operators": [{"uid": uid, "name": name, "kind": kind} for uid, name, kind, _ in chain],
            **{name: sum(s[name] for s in subtasks) for name in (*names, *more)},
            **{name: sum(s[name] for s in subtasks) / len(subtasks) for name in ("busy", "back_pressured", "idle")},
            **{f"most_{name}": max(s[name] for s in subtasks) for name in ("busy", "back_pressured", "idle")},
            "subtasks": subtasks,
        }

    def _subtask(self, vertex: int, index: int, chain: Any, busy: float, held: float, rate: float) -> dict[str, Any]:
        # One key is hot: the second subtask of the scoring has twice as much to do as the others.
        weight = (2.1 if vertex == 2 and index == 1 else 1.0) * (1 + 0.06 * math.sin(3 * index + vertex))
        busy, records = min(1.0 - held, busy * min(weight, 1.05)), rate / self.parallelism * weight
        lag = 1_800 + 40 * vertex - self.ahead_ms
        operators = [
            {
                "uid": uid,
                "records_in": int(records * 4_000),
                "records_in_per_second": records,
                "records_out_per_second": records,
                "watermark": self.now_ms - lag,
                "watermark_lag_ms": lag,
                "keys": 25_000 if states else 0,
                "timers": 310 if kind == "window" else 0,
                "late_records": 3 if kind == "window" else 0,
                "splits": {},
                "counters": {},
                "metrics": {"suspicious": {"kind": "counter", "value": 12 + index}} if uid == "score" else {},
            }
            for uid, _, kind, states in chain
        ]
        return {
            "subtask": f"{vertex}/{index}",
            "index": index,
            "is_running": True,
            "host": f"worker-{index % 3 + 1}",
            "pid": 4_100 + 10 * vertex + index,
            "executor": str(index % 3),
            "records_in": int(records * 4_000),
            "records_in_per_second": records,
            "records_out_per_second": records,
            "bytes_in_per_second": records * 90,
            "bytes_out_per_second": records * 80,
            "keys": operators[-1]["keys"],
            "in_flight_bytes": 120_000 if held else 4_000,
            "blocked_bytes": 0,
            "busy": busy,
            "back_pressured": held,
            "idle": max(0.0, 1 - busy - held),
            "stalled_ms": 0,
            "stalled_at": "",
            "process": {
                "rss_bytes": 188_000_000 + 3_000_000 * index,
                "cpu_ms": 9_000,
                "gc_collections": 4,
                "gc_ms": 31,
            },
            "operators": operators,
        }

    def series(self) -> dict[str, Any]:
        points = 300
        times = [self.now_ms - 2_000 * (points - n) for n in range(points)]
        operators = {}
        for number, (chain, busy, held, rate) in enumerate(self.vertices):
            wave = [1 + 0.12 * math.sin(n / 17 + number) + 0.03 * math.sin(n * 1.7) for n in range(points)]
            gap = [None if 110 <= n < 118 else w for n, w in enumerate(wave)]
            operators[chain[0][0]] = {
                "records_in_per_second": [w and rate * w for w in gap],
                "records_out_per_second": [w and 0.9 * rate * w for w in gap],
                "busy": [w and min(1.0, busy * w) for w in gap],
                "back_pressured": [w and min(1.0, held * w) for w in gap],
                "idle": [w and max(0.0, 1 - (busy + held) * w) for w in gap],
                "watermark_lag_ms": [w and 1_800 * w + 90 * number for w in gap],
                "records_behind": [w and 900 * w for w in gap] if number == 0 else [None] * points,
            }
        return {"time_ms": times, "operators": operators}

    def history(self) -> dict[str, Any]:
        attempts = [
            self._attempt(2, "running", "", ""),
            self._attempt(1, "failed", self.error, self.traceback),
        ]
        ended = [self._checkpoint(n) for n in range(61, 20, -1)]
        savepoint = self._checkpoint(62) | {"kind": "savepoint", "savepoint": f"{SAVEPOINTS[0]}/before-upgrade"}
        return {"checkpoints": [savepoint, *ended], "in_progress": [], "attempts": attempts}

    def _attempt(self, number: int, outcome: str, error: str, traceback: str) -> dict[str, Any]:
        started = self.now_ms - 4_321_000 + 600_000 * number
        return {
            "attempt": number,
            "started_ms": started,
            "restored": 38 if number > 1 else None,
            "restore_location": "",
            "subtasks": self.parallelism * len(self.vertices),
            "outcome": outcome,
            "start_took_ms": 2_900,
            "read_bytes": 1_000_000,
            "ended_ms": started + 590_000 if error else None,
            "error": error,
            "traceback": traceback,
            "uid": "score" if error else "",
            "subtask": "2/1" if error else "",
            "host": "",
        }

    def _checkpoint(self, number: int) -> dict[str, Any]:
        failed = number == 44
        return {
            "checkpoint": number,
            "attempt": 2 if number > 38 else 1,
            "kind": "checkpoint",
            "started_ms": self.now_ms - 10_000 * (62 - number),
            "expected": 24,
            "savepoint": "",
            "status": "failed" if failed else "completed",
            "duration_ms": 60_000 if failed else 420 + 37 * (number * 7 % 11),
            "size": 48_000_000 + 210_000 * number,
            "uploaded": 900_000 + 31_000 * (number % 9),
            "align_ms": 40 + number % 7 * 9,
            "sync_ms": 4 + number % 3,
            "async_ms": 310 + 20 * (number % 5),
            "in_flight_records": 0,
            "reason": "EXPIRED" if failed else "",
            "failure": self.failure if failed else "",
            "detail": self.detail if failed else "",
            "acknowledged": 23 if failed else 24,
        }

    def checkpoint_details(self, checkpoint: int) -> dict[str, Any] | None:
        parts = []
        for number in range(len(self.vertices)):
            for n in range(self.parallelism):
                took = {"align_ms": 12 * n + 30, "sync_ms": 3, "async_ms": 200 + 60 * (n == 1) + 10 * number}
                parts.append(
                    {
                        "subtask": f"{number}/{n}",
                        "acknowledged_ms": sum(took.values()) + 15,
                        "size": 500_000,
                        "in_flight_records": 0,
                        **took,
                        "operators": {},
                    }
                )
        sums = {"subtasks": self.parallelism, "size": 2_000_000, "uploaded": 90_000, "rows": 100_000}
        phases = {"acknowledged_ms": 402, "align_ms": 66, "sync_ms": 3, "async_ms": 280}
        operators = {uid: {**sums, **phases} for chain, *_ in self.vertices for uid, _, _, states in chain if states}
        return {**self._checkpoint(checkpoint), "operators": operators, "subtasks": parts}

    # --- state and snapshots ---------------------------------------------------------------------

    def query_encoded(self, uid: str, state: str, key: bytes, level: str, timeout_ms: int) -> Any:
        self.done.append(("query", uid, state, keys.decode(key), level))
        if keys.decode(key) == "slow":
            assert self.slow_key.wait(60)
        if state == "nothing":
            raise QueryFailed(uid, state, "the operator has no such state")
        return self.value

    def explained(self, uid: str | None, top: int) -> dict[str, Any]:
        groups = [
            {"key_group": g, "rows": 800, "bytes": 30_000 + 25_000 * (g == 77) + 900 * (g % 13)} for g in range(128)
        ]
        states = []
        for chain, *_ in self.vertices:
            for operator, _, _, names in chain:
                for n, name in enumerate(names):
                    sizes = {
                        "rows": 100_000,
                        "keys": 100_000,
                        "bytes": 4_100_000 // (n + 1),
                        "stored": 1_900_000,
                        "written": 80_000,
                    }
                    grown = {"growth": {"rows": 900, "keys": 900, "bytes": 37_000}, "replaced": 10}
                    largest = [
                        {"key": key, "key_group": 77, "rows": 1, "bytes": 52_000 // (k + 1)}
                        for k, key in enumerate(["ada", 7, {"tuple": ["grace", 2]}])
                    ]
                    about = {"uid": operator, "state": name, "table": "keyed", "kind": "value", "type": "int"}
                    expired = (
                        {"rows": 12, "bytes": 480, "undated": 0, "now_ms": self.now_ms} if name == "recent" else None
                    )
                    states.append(
                        {**about, **sizes, **grown, "key_groups": groups, "largest": largest, "expired": expired}
                    )
        head = {
            "job": self.job,
            "checkpoint": 61,
            "url": SAVEPOINTS[0],
            "created_ms": self.now_ms,
            "stored": 60_810_000,
        }
        return {
            **head,
            "states": states,
            "operators": [{"uid": self.hot_uid, "hottest": self._hottest()}],
            "since": 60,
            "since_ms": self.now_ms - 10_000,
            "since_stored": 6,
        }

    def snapshots(self) -> dict[str, Any]:
        made = [
            {
                "checkpoint": n,
                "attempt": 2,
                "created_ms": self.now_ms - 10_000 * (62 - n),
                "bytes": 48_000_000 + 210_000 * n,
                "operators": 7,
                "in_flight": 0,
                "entry": "",
            }
            for n in self.stored
        ]
        return {"url": f"{SAVEPOINTS[0]}/{self.job}", "checkpoints": made, "damaged": [], "attempts": 2, "ended": ""}

    def snapshot(self, snapshot: int | str) -> dict[str, Any]:
        self._check(snapshot)
        state = {
            "uid": "score",
            "operator": "Score",
            "state": "total",
            "table": "keyed",
            "kind": "value",
            "type": "int",
            "parallelism": 4,
            "max_parallelism": 128,
        }
        size = {
            "first_key_group": 0,
            "end_key_group": 128,
            "rows": 100_000,
            "bytes": 2_000_000,
            "files": 4,
            "increments": 3,
            "backend": "",
        }
        return {"checkpoint": 61, "states": [{**state, **size}], "operators": []}

    def plan(self, snapshot: int | str) -> dict[str, Any]:
        self._check(snapshot)
        matches = {
            "uid": "score",
            "state": "total",
            "kind": "value",
            "verdict": "matches",
            "note": "int",
            "rows": 1,
            "size": 1,
        }
        converted = {**matches, "state": "recent", "verdict": "converted", "note": "int becomes float"}
        new = {**matches, "uid": "per_hour", "state": "window-contents", "verdict": "new", "note": "starts empty"}
        return {"problems": [], "notes": [], "states": [matches, converted, new], "is_safe": True}

    def diff(self, before: int | str, after: int | str) -> dict[str, Any]:
        self.done.append(("diff", before, after))
        change = {"what": "changed", "uid": "score", "state": "total", "key": self.value, "before": 17, "after": 18}
        return {
            "changes": [change, {**change, "what": "added", "key": "grace", "before": None}],
            "there_are_more": True,
        }

    def _check(self, snapshot: int | str) -> None:
        if isinstance(snapshot, str):
            check_savepoint(snapshot, SAVEPOINTS)
        elif snapshot > 61:
            raise SnapshotNotFound(SAVEPOINTS[0], f"it has no checkpoint {snapshot}")

    # --- what is to be done ----------------------------------------------------------------------

    def savepoint(self, path: str, timeout_ms: int) -> str:
        check_savepoint(path, SAVEPOINTS)
        self.done.append(("savepoint", path))
        return path

    def rescale(self, parallelism: int | dict[str, int], timeout_ms: int) -> None:
        self.done.append(("rescale", parallelism))

    def end(self, *, cancel: bool, savepoint: str, drain: bool, timeout_ms: int) -> None:
        self.done.append(("cancel",) if cancel else ("stop", savepoint, drain))
        self.status = "cancelled" if cancel else "finished"


class Shown:
    """A job, the server of its page, and the address with the token."""

    def __init__(self, job: PageJob | None = None) -> None:
        self.job = job or PageJob()
        self.server = ConsoleServer(self.job)
        self.url = self.server.page

    def close(self) -> None:
        self.server.close()
