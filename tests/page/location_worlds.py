"""A checkpoint location as its page is shown one, with figures that are made up: that of a shop with five jobs."""

from __future__ import annotations

import time
from typing import Any

import moorline
from moorline.http.served_location import ServedLocation

MIB, MINUTE_MS = 1 << 20, 60_000
#: Job, status, its newest checkpoint, how old it is in minutes, its size, checkpoints that are kept, attempts, damaged.
JOBS = (
    ("fraud-alerts", "not ended", 1_204, 0.1, 58 * MIB, 3, 2, 0),
    ("orders-per-hour", "not ended", 7_311, 0.2, 812 * MIB, 3, 1, 0),
    ("sessions", "not ended", 388, 0.4, 4_410 * MIB, 3, 5, 0),
    ("stock-levels", "not ended", 95, 190.0, 120 * MIB, 2, 9, 1),
    ("backfill-2025", "finished", 41, 2_900.0, 9 * MIB, 1, 1, 0),
)
#: Place, job, its checkpoint, how old it is in minutes, its size.
SAVEPOINTS = (
    ("fraud-alerts-before-v2", "fraud-alerts", 1_130, 14.0, 57 * MIB),
    ("sessions-monday", "sessions", 212, 1_500.0, 3_980 * MIB),
)


class Shop(ServedLocation):
    """Serves what is above; what is in the snapshots there is not."""

    def __init__(self) -> None:
        super().__init__("memory://shop", version=moorline.__version__)
        self._now_ms = time.time_ns() // 1_000_000

    def described(self) -> dict[str, Any]:
        return super().described() | {"location": "s3://shop/checkpoints"}

    def jobs(self) -> dict[str, Any]:
        jobs = [
            {"folder": job, "job": job, "status": status, "newest": newest, "created_ms": self._ago(age), "bytes": size}
            | {"checkpoints": kept, "attempts": attempts, "damaged": damaged, "note": ""}
            for job, status, newest, age, size, kept, attempts, damaged in JOBS
        ]
        savepoints = [
            {"place": place, "job": job, "checkpoint": number, "attempt": 1, "created_ms": self._ago(age)}
            | {"bytes": size, "in_flight": 0, "note": ""}
            for place, job, number, age, size in SAVEPOINTS
        ]
        return {"jobs": jobs, "savepoints": savepoints}

    def _ago(self, minutes: float) -> int:
        return self._now_ms - int(minutes * MINUTE_MS)
