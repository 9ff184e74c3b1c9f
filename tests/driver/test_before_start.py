"""What can be known before Spark is started is refused then."""

from __future__ import annotations

from pathlib import Path

import pytest

import moorline as mo
from moorline.errors import EndUnusable, StorageError


class NoSpark:
    """A Spark that must not be touched."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"Spark was asked for its {name}")


def job_of(source: mo.Source, sink: mo.Sink | None = None) -> mo.Job:
    job = mo.Job("early")
    job.source(source, uid="in").sink(sink or mo.collect("out"), uid="out")
    return job


def refused(job: mo.Job, error: type[Exception], match: str, **options: object) -> None:
    with pytest.raises(error, match=match):
        mo.start(job, NoSpark(), **options)
    if "checkpoints" not in options:
        with pytest.raises(error, match=match):
            mo.run(job, NoSpark(), mode="batch")


def test_a_misspelt_folder_is_refused(tmp_path: Path) -> None:
    refused(job_of(mo.read_files(tmp_path / "inn")), StorageError, "inn: there is no such file or folder")


def test_a_pattern_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    refused(job_of(mo.read_files(tmp_path / "*.csv")), StorageError, "no file matches")


def test_a_sink_that_cannot_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    job = job_of(mo.from_items([1]), mo.write_files(tmp_path / "out"))
    refused(job, StorageError, "could not stage files in")


def test_a_checkpoint_location_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chk").write_text("a file")
    checkpoints = mo.Checkpoints(str(tmp_path / "chk"))
    refused(job_of(mo.from_items([1])), StorageError, "a trial failed: could not write", checkpoints=checkpoints)


def test_what_a_connector_of_the_user_raises_is_named_by_its_uid() -> None:
    class Picky(mo.Source):
        is_bounded = True

        def open(self, ctx: mo.SourceContext) -> mo.SourceReader:
            raise AssertionError("it is not opened")

        def check(self) -> None:
            raise ConnectionError("no route to host")

    refused(job_of(Picky()), EndUnusable, "source 'in' cannot be used: ConnectionError: no route to host")
