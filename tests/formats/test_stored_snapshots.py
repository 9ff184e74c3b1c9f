"""Snapshots of every storage format, written by the code of their time, are restored by the code of today.

They lie in ``snapshots/``, and ``README.md`` there says what wrote them. Each is a job that was left half-way. Restored
on another backend, at another parallelism, it must end with the output of the whole job: its sinks are part of the
snapshot.
"""

from __future__ import annotations

import importlib
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from thoroughness import TIMES

import moorline as mo
from moorline.model.manifest import FORMAT
from moorline.storage.stores.open import open_store

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scenarios")]

whole_jobs = importlib.import_module("whole_jobs")
keyed_job = importlib.import_module("keyed_job")
timed_job = importlib.import_module("timed_job")
typed_job = importlib.import_module("typed_job")

JOBS = {
    "keyed": (keyed_job.keyed, keyed_job.keyed_output),
    "timed": (timed_job.timed, timed_job.timed_output),
    "typed": (typed_job.typed, typed_job.typed_output),
}
STORED = sorted(HERE.glob("snapshots/*.zip"))


def unpacked(archive: Path, folder: Path) -> str:
    """The URL of a copy, laid out as a checkpoint location or as a savepoint."""
    with zipfile.ZipFile(archive) as stored:
        is_savepoint = "manifest.json" in stored.namelist()
        stored.extractall(folder if is_savepoint else folder / "stored")
    return str(folder)


def entries(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as stored:
        return [stored.read(name).decode() for name in stored.namelist() if name.endswith(".json")]


def job_of(archive: Path) -> tuple[Callable[..., mo.Job], Callable[[], dict[str, Counter]]]:
    return next(job for name, job in JOBS.items() if f"-{name}-" in archive.name)


def format_of(archive: Path) -> int:
    return int(archive.name.partition("-")[0])


def restored(archive: Path, folder: Path, parallelism: int, backend: str) -> whole_jobs.WholeJob:
    """The job of a snapshot, started from a copy of it."""
    build, _ = job_of(archive)
    url = unpacked(archive, folder / "copy")
    is_savepoint = (folder / "copy" / "manifest.json").exists()
    return whole_jobs.WholeJob(
        build("stored", parallelism),
        None if is_savepoint else open_store(f"{url}/stored"),
        restore=url if is_savepoint else "latest",
        backend=mo.RocksDb(folder=str(folder / "rocksdb"), memory="8MB") if backend == "rocksdb" else "heap",
        checkpoints=mo.Checkpoints("memory://", interval="200ms", unaligned="unaligned" in archive.name),
    )


def output_of(job: whole_jobs.WholeJob) -> dict[str, Counter]:
    results = dict(job.supervision.results)
    if "tens" in results:
        # How many records each subtask saw depends on the parallelism; all of them together do not.
        counts = [record[1] for record in results["tens"] if isinstance(record, tuple)]
        assert sum(counts) == keyed_job.COUNT
        results["tens"] = [record for record in results["tens"] if not isinstance(record, tuple)]
    return {name: Counter(map(repr, records)) for name, records in results.items()}


#: Heap and RocksDB take turns, unless there is time for both.
TURNS = [
    (archive, turn) for number, archive in enumerate(STORED) for turn in range(2) if TIMES > 1 or turn == number % 2
]


@pytest.mark.parametrize(("archive", "turn"), TURNS, ids=lambda a: a.stem if isinstance(a, Path) else "")
def test_a_stored_snapshot_is_restored_and_the_job_ends_as_if_it_had_never_stopped(archive, turn, tmp_path):
    parallelism, backend = [(2, "heap"), (3, "rocksdb")][turn]
    _, output = job_of(archive)
    job = restored(archive, tmp_path, parallelism, backend).finish()
    assert job.supervision.restored_from[0] > 0, "it began all over"
    assert output_of(job) == output()


@pytest.mark.parametrize("archive", STORED, ids=lambda a: a.stem)
def test_every_file_of_a_stored_snapshot_is_sound(archive, tmp_path):
    url = unpacked(archive, tmp_path)
    report = mo.fsck(url if (tmp_path / "manifest.json").exists() else f"{url}/stored")
    assert report.problems == []


@pytest.mark.parametrize("archive", STORED, ids=lambda a: a.stem)
def test_a_stored_snapshot_has_the_format_that_its_name_says(archive):
    named = {int(number) for text in entries(archive) for number in re.findall(r'"format": ?(\d+)', text)}
    assert named == {format_of(archive)}


def test_there_are_snapshots_of_every_format():
    assert {format_of(archive) for archive in STORED} == set(range(1, FORMAT + 1))


@pytest.mark.parametrize("number", range(2, FORMAT + 1))
def test_every_format_since_the_second_has_increments_native_files_and_a_savepoint(number):
    texts = {a.stem: "\n".join(entries(a)) for a in STORED if format_of(a) == number}
    assert [name for name, text in texts.items() if re.search(r'"increment": ?true', text)]
    assert [name for name, text in texts.items() if re.search(r'"backend": ?"rocksdb"', text)]
    assert [name for name in texts if name.endswith("-savepoint")]


@pytest.mark.parametrize("number", range(3, FORMAT + 1))
def test_every_format_since_the_third_has_records_in_flight(number):
    texts = [text for a in STORED if format_of(a) == number for text in entries(a)]
    assert [text for text in texts if re.search(r'"records": ?[1-9]', text)]


@pytest.mark.parametrize("number", range(3, FORMAT + 1))
def test_every_format_since_the_third_has_a_state_of_every_sort_of_type(number):
    (archive,) = (a for a in STORED if format_of(a) == number and a.stem.endswith("typed-rocksdb-increments"))
    has_text = any(re.search(r'"type": ?"[^"]', text) or "enum Colour to" in text for text in entries(archive))
    assert has_text == (number < 4)


@pytest.mark.parametrize("name", JOBS)
def test_the_expected_output_is_that_of_a_job_that_never_stopped(name):
    build, output = JOBS[name]
    assert output_of(whole_jobs.WholeJob(build("whole")).finish()) == output()
