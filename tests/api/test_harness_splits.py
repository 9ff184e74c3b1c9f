"""A source in the harness whose splits the driver would find."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.testing import OperatorHarness

SHELVES: dict[str, list[str]] = {}


class Shelves(mo.Source):
    enumerates = True

    def open(self, ctx):
        return ShelfReader()

    def open_enumerator(self, ctx):
        return Finder(ctx)


class Finder(mo.SplitEnumerator):
    interval_ms = 1_000

    def __init__(self, ctx):
        self.known = list(ctx.restored or [])

    def discover(self):
        if "burnt" in SHELVES:
            raise OSError("the library is on fire")
        fresh = [shelf for shelf in SHELVES if shelf not in self.known]
        self.known += fresh
        return dict.fromkeys(fresh, 0)

    def snapshot(self):
        return self.known


class ShelfReader(mo.SourceReader):
    def __init__(self):
        self.at = {}

    def add_splits(self, splits):
        self.at.update(splits)

    def read(self, limit):
        found = [book for shelf, at in self.at.items() for book in SHELVES[shelf][at:]]
        self.at = {shelf: len(SHELVES[shelf]) for shelf in self.at}
        return found

    def positions(self):
        return dict(self.at)


@pytest.fixture(autouse=True)
def shelves():
    SHELVES.clear()
    SHELVES.update(a=["a1", "a2"], b=["b1"])


def harness(parallelism: int = 1, snapshot=None) -> OperatorHarness:
    return OperatorHarness.of(
        lambda job: job.source(Shelves(), uid="books"), inputs=0, parallelism=parallelism, snapshot=snapshot
    )


def test_splits_are_found_when_it_reads_and_the_interval_is_over():
    with harness() as source:
        assert sorted(source.read(3)) == ["a1", "a2", "b1"]
        SHELVES["c"] = ["c1"]
        assert source.read(0) == []
        source.advance_clock(1_000)
        assert source.read(1) == ["c1"]


def test_a_snapshot_has_what_was_found():
    with harness(2) as source:
        source.read(3)
        snapshot = source.snapshot()
    SHELVES["a"].append("a3")
    SHELVES["c"] = ["c1"]
    with harness(3, snapshot) as again:
        assert sorted(again.read(2)) == ["a3", "c1"]


def test_what_an_enumerator_raises_is_raised():
    SHELVES["burnt"] = []
    with harness() as source, pytest.raises(OSError, match="on fire"):
        source.read(1)
