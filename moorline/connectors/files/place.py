"""The place of a sink's files: what ``local/place.py`` and ``remote/place.py`` both do.

create     a file that is being written, on a disk of this machine
stage      the file is whole and durable under its name in the staging folder; nobody else looks there
publish    it appears under its final name in one step, and is never changed again
"""

from __future__ import annotations

from typing import IO, Protocol

from moorline.api.sinks import SinkCommitter, SinkContext
from moorline.connectors.files.part_names import Committable


class StagingArea(Protocol):
    """The part of a place that one writer stages its files in."""

    def create(self, unique: str) -> tuple[str, IO[bytes]]:
        """A new file to write to, and its path on a disk here."""

    def finish(self, path: str, file: IO[bytes]) -> int:
        """All of a file is written: close it. Returns its size."""

    def stage(self, files: list[tuple[str, Committable]]) -> None:
        """Have finished files durable under their names. By their paths; afterwards these are gone."""

    def discard(self, path: str) -> None:
        """Give a file up."""

    def close(self) -> None:
        """The writer is done. Nothing that was staged goes with it."""


class SinkPlace(Protocol):
    """The folder of a sink."""

    #: For people.
    path: str
    #: A file must not be larger than this, in bytes.
    largest: int | None
    #: May publishing take its time?
    is_remote: bool

    def check(self) -> None:
        """Try it, and leave nothing behind."""

    def open(self, ctx: SinkContext) -> StagingArea:
        """The staging area of a writer."""

    def committer(self, ctx: SinkContext | None) -> SinkCommitter:
        """Publishes files. What it is given was checked."""

    def roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...]) -> None:
        """Remove what a sink staged or published for checkpoints after ``checkpoint``."""

    def clean_up(self, job: str, uid: str) -> None:
        """Remove what a sink has staged."""
