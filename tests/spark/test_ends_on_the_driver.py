"""Both ends of a job with the driver's help, on real Spark: files that arrive while it runs, into a table."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import cloudpickle
import folder_table
import pytest
from folder_table import FolderTable, rows_of
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def by_value():
    """A worker cannot import a test module."""
    modules = [sys.modules[__name__], folder_table]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


FILES, LINES = 12, 200


class Inbox(mo.Source):
    """Every file is a split, and one named ``done`` says that there will be no more."""

    enumerates = True
    is_bounded = True

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, ctx):
        return InboxReader(Path(self.folder))

    def open_enumerator(self, ctx):
        return Finder(Path(self.folder), ctx)


class Finder(mo.SplitEnumerator):
    interval_ms = 50

    def __init__(self, folder: Path, ctx: mo.EnumeratorContext) -> None:
        self.folder, self.known = folder, set(ctx.restored or [])

    def discover(self):
        is_done = (self.folder / "done").exists()
        fresh = sorted({f.name for f in self.folder.glob("*.txt")} - self.known)
        self.known.update(fresh)
        return None if is_done and not fresh else dict.fromkeys(fresh, 0)

    def snapshot(self):
        return sorted(self.known)


class InboxReader(mo.SourceReader):
    def __init__(self, folder: Path) -> None:
        self.folder, self.at, self.has_all = folder, {}, False

    def add_splits(self, splits):
        self.at.update(splits)

    def no_more_splits(self):
        self.has_all = True

    def read(self, limit):
        if not self.at:
            return None if self.has_all else []
        name, at = next(iter(self.at.items()))
        lines = (self.folder / name).read_text().splitlines()[at : at + 20]
        if lines:
            self.at[name] = at + len(lines)
        else:
            del self.at[name]
        time.sleep(0.002)
        return lines

    def positions(self):
        return dict(self.at)


class Count(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)

    def __init__(self, broken: str) -> None:
        self.broken = broken

    def process_element(self, value, ctx):
        count = self.count.value() + 1
        self.count.update(count)
        if count == FILES * LINES // 10 and not Path(self.broken).exists():
            Path(self.broken).touch()
            raise RuntimeError("once")
        yield [value, count]


def build(tmp_path: Path) -> mo.Job:
    job = mo.Job("inbox", parallelism=2)
    lines = job.source(Inbox(str(tmp_path / "inbox")), uid="inbox")
    counted = lines.key_by(lambda line: line).process(Count(str(tmp_path / "broken")), uid="count")
    counted.sink(FolderTable(str(tmp_path / "table")), uid="table")
    return job


def arrive(inbox: Path, first: int = 0, end: int = FILES) -> None:
    inbox.mkdir(exist_ok=True)
    for number in range(first, end):
        (inbox / ".new").write_text("".join(f"k{line % 7}\n" for line in range(LINES)))
        (inbox / ".new").rename(inbox / f"{number}.txt")
    if end == FILES:
        (inbox / "done").touch()


def expected() -> list[list]:
    totals = Counter(f"k{line % 7}" for line in range(LINES) for _ in range(FILES))
    return sorted([key, n] for key, total in totals.items() for n in range(1, total + 1))


def test_files_that_arrive_are_counted_once_across_a_failure_and_a_rescale(spark, tmp_path):
    arrive(tmp_path / "inbox", end=FILES // 2)
    checkpoints = mo.Checkpoints(str(tmp_path / "checkpoints"), interval="200ms")
    handle = mo.start(build(tmp_path), spark, checkpoints=checkpoints, restart=mo.FixedDelay(attempts=5, delay="50ms"))
    eventually(lambda: rows_of(tmp_path / "table") or not handle.is_active, "something is in the table")
    handle.rescale(3)
    arrive(tmp_path / "inbox", first=FILES // 2)
    result = handle.wait()
    assert len(result.failures) == 1
    assert max(result.restored_from) > 0
    assert sorted(rows_of(tmp_path / "table")) == expected()
    versions = list((tmp_path / "table").glob("version-*"))
    assert 1 < len(versions) <= len(result.checkpoints)


def hybrid_job(tmp_path: Path) -> mo.Job:
    job = mo.Job("hybrid", parallelism=2)
    inbox, archive = Inbox(str(tmp_path / "inbox")), mo.read_files(str(tmp_path / "archive" / "*"), format="text")
    lines = job.source(mo.hybrid(archive, inbox), uid="lines")
    counted = lines.key_by(lambda line: line).process(Count(str(tmp_path / "broken")), uid="count")
    counted.sink(FolderTable(str(tmp_path / "table")), uid="table")
    return job


def test_an_archive_and_then_files_that_arrive_across_a_failure_and_a_rescale(spark, tmp_path):
    arrive(tmp_path / "inbox", end=FILES // 2)
    (tmp_path / "archive").mkdir()
    for file in (tmp_path / "inbox").glob("*.txt"):
        file.rename(tmp_path / "archive" / file.name)
    checkpoints = mo.Checkpoints(str(tmp_path / "checkpoints"), interval="200ms")
    restart = mo.FixedDelay(attempts=5, delay="50ms")
    handle = mo.start(hybrid_job(tmp_path), spark, checkpoints=checkpoints, restart=restart)
    eventually(lambda: rows_of(tmp_path / "table") or not handle.is_active, "something is in the table")
    arrive(tmp_path / "inbox", first=FILES // 2, end=FILES - 1)
    handle.rescale(3)
    arrive(tmp_path / "inbox", first=FILES - 1)
    result = handle.wait()
    assert len(result.failures) == 1
    assert max(result.restored_from) > 0
    assert sorted(rows_of(tmp_path / "table")) == expected()


def test_the_same_job_as_a_batch(spark, tmp_path):
    arrive(tmp_path / "inbox")
    (tmp_path / "broken").touch()
    mo.run(build(tmp_path), spark, mode="batch")
    assert sorted(rows_of(tmp_path / "table")) == expected()
    assert len(list((tmp_path / "table").glob("version-*"))) == 1


def test_an_archive_and_files_that_are_there_as_a_batch(spark, tmp_path):
    arrive(tmp_path / "archive", end=FILES // 2)
    arrive(tmp_path / "inbox", first=FILES // 2)
    (tmp_path / "broken").touch()
    mo.run(hybrid_job(tmp_path), spark, mode="batch")
    assert sorted(rows_of(tmp_path / "table")) == expected()


def test_without_checkpoints_the_table_has_one_version(spark, tmp_path):
    arrive(tmp_path / "inbox")
    (tmp_path / "broken").touch()
    mo.run(build(tmp_path), spark, mode="streaming")
    assert sorted(rows_of(tmp_path / "table")) == expected()
    assert len(list((tmp_path / "table").glob("version-*"))) == 1
