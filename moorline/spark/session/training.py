"""The process that makes an archive of Java's classes: it runs a small job in a JVM that writes the archive at its end.

    python -m moorline.spark.session.training ~/.cache/moorline/spark-0123456789abcdef0123.jsa

``spark/session/archive.py`` starts it, and says what becomes of its files.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from moorline.api.job import Job
from moorline.connectors.collect import collect
from moorline.connectors.generator import generate
from moorline.spark.run import run
from moorline.spark.session import archive as archives
from moorline.spark.session.embedded import shared

#: An archive that nobody has used for so long is removed when another one is made.
UNUSED_SECONDS = 30 * 24 * 3600
SLOTS = 8


def make(archive: Path) -> bool:
    """Make the archive, unless it is there or another process is at it. Returns whether it is there."""
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if archive.exists():
            return True
        _clean_up(archive)
        part = archive.with_suffix(f".{os.getpid()}.part")
        try:
            _train(part)
            os.chmod(part, 0o600)
            archive.with_suffix(".sum").write_text(archives.checksum(part))
            os.replace(part, archive)
        except Exception as error:  # of many kinds, and all of them mean that it cannot be made here
            part.unlink(missing_ok=True)
            archive.with_suffix(".failed").write_text(f"{type(error).__name__}: {error}\n")
            return False
    return True


def _clean_up(archive: Path) -> None:
    """Remove what makers have left that were killed, and what has not been used for long. We hold the lock."""
    for part in archive.parent.glob(f"{archive.stem}.*.part"):
        part.unlink(missing_ok=True)
    for other in archive.parent.glob("spark-*.jsa"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > UNUSED_SECONDS:
                other.unlink()
                other.with_suffix(".sum").unlink()


def _train(part: Path) -> None:
    """Have a JVM load what jobs of both kinds need, and write it down."""
    spark = shared.use(SLOTS, 1, archives.options_to_make(part))
    _stream(spark)
    shared.close()
    if not part.exists():
        raise RuntimeError("Java has written no archive")


def _stream(spark: SparkSession) -> None:
    job = Job("training", parallelism=2)
    numbers = job.source(generate(lambda n: n, count=100, splits=2), uid="numbers")
    numbers.key_by(lambda n: n % 7).map(lambda n: n, uid="same").sink(collect("out"), uid="out")
    for mode in ("streaming", "batch"):
        assert len(run(job, spark, mode=mode).collected("out")) == 100


def main() -> None:
    with suppress(OSError, AttributeError):
        os.nice(19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    sys.exit(0 if make(Path(sys.argv[1])) else 1)


if __name__ == "__main__":
    main()
