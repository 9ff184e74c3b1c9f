"""The contract for sinks catches those that lose or double a record, whichever process commits."""

from __future__ import annotations

import inspect
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

import moorline as mo
from moorline.testing.contracts.sink import SinkContract

_NUMBERS = itertools.count()


class Folder(mo.Sink):
    """A file for each committable, under a name that is used once. Correct; each mutation overrides something."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, ctx):
        return Writer(ctx)

    def commit(self, committables):
        for committable in committables:
            self.publish(*committable)

    def publish(self, name: str, records: list[Any]) -> None:
        """In one step, and once: whoever comes second finds the file."""
        staged = Path(self.folder) / f".{os.getpid()}-{next(_NUMBERS)}"
        staged.write_text(json.dumps(records))
        self.show(staged, name)

    def show(self, staged: Path, name: str) -> None:
        staged.rename(Path(self.folder) / f"{name}.json")

    def roll_back(self, job, uid, checkpoint, lineages=()):
        for file in self.published():
            _, of, lineage, number, _ = file.stem.split("-")
            if of == uid and int(number) > checkpoint and (not lineages or lineage.startswith(lineages)):
                file.unlink()

    def published(self) -> list[Path]:
        return sorted(Path(self.folder).glob("[!.]*.json"))

    def visible(self) -> list[Any]:
        return [record for file in self.published() for record in json.loads(file.read_text())]


class Writer(mo.SinkWriter):
    def __init__(self, ctx: mo.SinkContext) -> None:
        self.ctx, self.records = ctx, list[Any]()

    def write(self, records):
        self.records += records

    def prepare(self, checkpoint):
        records, self.records = self.records, []
        ctx = self.ctx
        # The uid has no "-" in its name then.
        name = f"{ctx.job}-{ctx.uid.replace('-', '_')}-{ctx.lineage}-{checkpoint}-{ctx.subtask}"
        return [[name, records]] if records else []


class OnTheDriver(Folder):
    """The same, committed by the driver in one step."""

    commits_on_driver = True

    def open_committer(self, ctx):
        return Committer(self)


class Committer(mo.GlobalCommitter):
    def __init__(self, sink: Folder) -> None:
        self.sink = sink

    def commit(self, lineage, checkpoint, committables):
        self.sink.commit(committables)


# --- mutations ------------------------------------------------------------------------------------


class CommitsTwice(Folder):
    def show(self, staged, name):
        super().show(staged, f"{name}{next(_NUMBERS)}")


class CommitsTwiceOnTheDriver(OnTheDriver):
    def show(self, staged, name):
        super().show(staged, f"{name}{next(_NUMBERS)}")


class ShowsWhatIsNotCommitted(Folder):
    def open(self, ctx):
        sink = self

        class Eager(Writer):
            def prepare(self, checkpoint):
                staged = super().prepare(checkpoint)
                sink.commit(staged)
                return staged

        return Eager(ctx)


class LosesAStagedRecord(Folder):
    def open(self, ctx):
        class Careless(Writer):
            def prepare(self, checkpoint):
                return [[name, records[1:]] for name, records in super().prepare(checkpoint)]

        return Careless(ctx)


class LosesAStagedRecordOnTheDriver(OnTheDriver):
    def commit(self, committables):
        super().commit(committables[:1])


class CommitsWhatCameAfterTheBarrier(Folder):
    def open(self, ctx):
        class Late(Writer):
            def prepare(self, checkpoint):
                shared = self.records
                return [[name, shared] for name, _ in super().prepare(checkpoint)]

            def write(self, records):
                self.__dict__.setdefault("all", self.records).extend(records)
                self.records = self.all

        return Late(ctx)


class ForgetsASubtask(Folder):
    def show(self, staged, name):
        super().show(staged, name.rpartition("-")[0] + "-0")


class KeepsWhatWasStagedInItself(Folder):
    """What is staged is not in the snapshot, but in a process that may be gone."""

    staged: list[Any] = []

    def open(self, ctx):
        staged = self.staged = []

        class Forgetful(Writer):
            def prepare(self, checkpoint):
                staged.extend(super().prepare(checkpoint))
                return [len(staged)] if staged else []

        return Forgetful(ctx)

    def commit(self, committables):
        super().commit(self.staged)


class DoesNotRollBack(Folder):
    def roll_back(self, job, uid, checkpoint, lineages=()):
        pass


class RollsBackTooMuch(Folder):
    def roll_back(self, job, uid, checkpoint, lineages=()):
        super().roll_back(job, uid, checkpoint - 1)


class CleansUpWhatIsCommitted(Folder):
    def clean_up(self, job, uid):
        for file in self.published():
            file.unlink()


def caught(made: type[Folder], folder: Path) -> list[str]:
    """The promises of the contract that a sink breaks."""
    broken = []
    for name, promise in vars(SinkContract).items():
        if not name.startswith("test_"):
            continue
        wanted = inspect.signature(promise).parameters
        for seed in range(5) if "seed" in wanted else (None,):
            place = folder / f"{name}-{seed}"
            place.mkdir()
            sink = made(place)
            given = {"sink": sink, "visible": sink.visible, "seed": seed}
            try:
                promise(SinkContract(), **{argument: given[argument] for argument in wanted if argument != "self"})
            except pytest.skip.Exception:
                continue
            except (AssertionError, OSError):
                broken.append(name)
                break
    return broken


@pytest.mark.parametrize("made", [Folder, OnTheDriver])
def test_a_correct_sink_breaks_nothing(made, tmp_path):
    assert caught(made, tmp_path) == []


@pytest.mark.parametrize(
    "made, promise",
    [
        (CommitsTwice, "test_committing_twice_is_harmless"),
        (CommitsTwiceOnTheDriver, "test_committing_twice_is_harmless"),
        (ShowsWhatIsNotCommitted, "test_nothing_is_visible_before_the_commit"),
        (LosesAStagedRecord, "test_committed_records_are_visible"),
        (LosesAStagedRecordOnTheDriver, "test_a_commit_can_cover_several_checkpoints_and_subtasks"),
        (CommitsWhatCameAfterTheBarrier, "test_a_commit_covers_only_what_was_prepared"),
        (ForgetsASubtask, "test_a_commit_can_cover_several_checkpoints_and_subtasks"),
        (KeepsWhatWasStagedInItself, "test_committed_records_are_visible"),
        (DoesNotRollBack, "test_rolling_back_takes_back_newer_checkpoints"),
        (RollsBackTooMuch, "test_nothing_is_lost_by_the_roll_back_before_a_restore"),
        (CleansUpWhatIsCommitted, "test_cleaning_up_keeps_what_was_committed"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_it_catches(made, promise, tmp_path):
    assert promise in caught(made, tmp_path)
