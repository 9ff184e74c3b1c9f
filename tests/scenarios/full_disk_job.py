"""A whole job on a disk that is full for a while, for ``test_full_disk.py``.

    python full_disk_job.py CASE DISK ELSEWHERE

DISK is small and empty. The part of the job that CASE names is on it: ``checkpoints``, ``rocksdb`` (the local folder)
or ``sink``; everything else is in the folder ELSEWHERE. A ballast takes the rest of the disk after three checkpoints.
The job fails of it to the end, so does the next driver, and a third one goes on by itself when the ballast is gone.
``open`` asks for less: a database that is restored is opened on the full disk. Prints what was seen as JSON.
"""

from __future__ import annotations

import errno
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from whole_jobs import WholeJob

import moorline as mo
from moorline.model.config.state import RocksDb
from moorline.state.rocksdb.store import Store
from moorline.storage.stores.local import LocalStore
from moorline.testing.simulation.jobs.counting import SplitSource

RECORDS, KEYS = 4000, 40
#: Large enough that neither a snapshot nor a file of the sink gets by on what is left of a page.
PADDING = "x" * 2000


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)
    last = mo.ValueState(str)

    def process_element(self, n, ctx):
        self.seen.update(self.seen.value() + 1)
        self.last.update(f"{n} {PADDING}")
        yield {"key": ctx.current_key, "count": self.seen.value(), "padding": PADDING}


def job(out: Path) -> mo.Job:
    made = mo.Job("full-disk", parallelism=2, max_parallelism=16)
    splits = {f"split-{n}": list(range(n, RECORDS, 4)) for n in range(4)}
    counted = made.source(SplitSource(splits), uid="numbers").key_by(lambda n: n % KEYS).process(Count(), uid="count")
    counted.sink(mo.write_files(out, format="jsonl"), uid="out")
    return made


def run(case: str, disk: Path, elsewhere: Path, restore: str | None, restarts: int = 3) -> WholeJob:
    places = {name: (disk if name == case else elsewhere) / name for name in ("checkpoints", "rocksdb", "sink")}
    return WholeJob(
        job(places["sink"]),
        LocalStore(places["checkpoints"]),  # type: ignore[arg-type]
        checkpoints=mo.Checkpoints("file:///not-used", interval="40ms", retained=2, tolerable_failures=1),
        backend=RocksDb(memory="8MB", folder=str(places["rocksdb"])) if case == "rocksdb" else "heap",
        restart=mo.FixedDelay(restarts, "5ms"),
        restore=restore,
    )


def fill(disk: Path) -> Path:
    """Take all that is left of the disk."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
    return ballast


def published(folder: Path) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for path in folder.glob("part-*"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            found[record["key"], record["count"]] += 1
    return found


def whole_job(case: str, disk: Path, elsewhere: Path) -> dict[str, Any]:
    first = run(case, disk, elsewhere, None).checkpoints(3)
    ballast = fill(disk)
    first.until(lambda: first.supervision.status.is_terminal)
    second = run(case, disk, elsewhere, "latest")
    second.until(lambda: second.supervision.status.is_terminal)
    third = run(case, disk, elsewhere, "latest", restarts=10_000)
    third.until(lambda: third.supervision.status is mo.JobStatus.RESTARTING)
    ballast.unlink()
    third.finish()
    expected = Counter((n % KEYS, n // KEYS + 1) for n in range(RECORDS))
    found = published((disk if case == "sink" else elsewhere) / "sink")
    complete = [c.checkpoint for driver in (first, second) for c in driver.supervision.checkpoints]
    return {
        "errors": [str(driver.supervision.error) for driver in (first, second)],
        "complete": max(complete),
        "restored": third.supervision.restored_from,
        "missing": sum((expected - found).values()),
        "too many": sum((found - expected).values()),
    }


def open_on_a_full_disk(disk: Path) -> dict[str, Any]:
    folder = disk / "db"
    store = Store(folder, 1 << 20)
    store.close()
    ballast = fill(disk)
    try:
        Store(folder, 1 << 20, must_exist=True)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        ballast.unlink()
        Store(folder, 1 << 20, must_exist=True).close()
    return {"error": ""}


def main(case: str, disk: Path, elsewhere: Path) -> None:
    print(json.dumps(open_on_a_full_disk(disk) if case == "open" else whole_job(case, disk, elsewhere)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
