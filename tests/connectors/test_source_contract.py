"""The contract for sources: sources of ours keep it, and it catches those that lose or double something."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import moorline as mo
from moorline.api.sources import Source
from moorline.testing.contracts.source import SourceContract
from moorline.testing.simulation.jobs.connectors import GrowingSource
from moorline.testing.simulation.jobs.counting import SplitSource

SPLITS = {n: [f"{n}-{i}" for i in range(5 + 7 * n)] for n in range(6)}
RECORDS = [record for records in SPLITS.values() for record in records]


class TestItems(SourceContract):
    @pytest.fixture
    def source(self):
        return mo.from_items(RECORDS)

    @pytest.fixture
    def expected(self):
        return RECORDS


class TestSplits(SourceContract):
    @pytest.fixture
    def source(self):
        return SplitSource(SPLITS)

    @pytest.fixture
    def expected(self):
        return RECORDS


class TestLines(SourceContract):
    @pytest.fixture
    def source(self, tmp_path):
        for n, records in SPLITS.items():
            (tmp_path / f"{n}.txt").write_text("".join(f"{record}\n" for record in records))
        return mo.read_files(str(tmp_path / "*.txt"), format="text")

    @pytest.fixture
    def expected(self):
        return RECORDS


class Growing(GrowingSource):
    """Without looks that fail, which would fail the attempt."""

    def open_enumerator(self, ctx):
        enumerator = super().open_enumerator(ctx)
        enumerator._may_fail = False
        return enumerator


class TestSplitsThatAreFoundLater(SourceContract):
    @pytest.fixture
    def source(self):
        return Growing(SPLITS, 7)

    @pytest.fixture
    def expected(self):
        return RECORDS


# --- what it catches --------------------------------------------------------------------------


class Impatient(SourceContract):
    patience = 0.05


def caught(source: Source) -> list[str]:
    """The promises of the contract that a source breaks."""
    broken = []
    for name, promise in vars(SourceContract).items():
        if not name.startswith("test_"):
            continue
        marks = [m for m in getattr(promise, "pytestmark", []) if m.name == "parametrize"]
        cases: list[dict[str, Any]] = [{mark.args[0]: value} for mark in marks for value in mark.args[1]] or [{}]
        for case in cases:
            try:
                getattr(Impatient(), name)(source, RECORDS, **case)
            except (AssertionError, IndexError, KeyError):
                broken.append(name)
                break
    return broken


class Reader(mo.SourceReader):
    """A reader of SPLITS, correct; each mutation overrides something."""

    def __init__(self, ctx: mo.SourceContext) -> None:
        self.ctx = ctx
        self.at = {s: ctx.positions.get(s, 0) for s in SPLITS if self.owns(s)}

    def owns(self, split: int) -> bool:
        return self.ctx.owns(split)

    def read(self, limit):
        for split, at in self.at.items():
            if at < len(SPLITS[split]):
                self.split = split
                self.at[split] = min(at + limit, len(SPLITS[split]))
                return SPLITS[split][at : self.at[split]]
        return None

    def positions(self):
        return dict(self.at)


class ForgetsASplit(Reader):
    def positions(self):
        return dict(itertools.islice(self.at.items(), 1))


class MovesItsPositionEarly(Reader):
    def positions(self):
        return {s: min(at + 1, len(SPLITS[s])) for s, at in self.at.items()}


class MovesItsPositionLate(Reader):
    def positions(self):
        return {s: max(at - 1, 0) for s, at in self.at.items()}


class SharesItsPositions(Reader):
    def __init__(self, ctx):
        super().__init__(ctx)
        self.at = {s: at[0] if isinstance(at, list) else at for s, at in self.at.items()}
        self.shared = {s: [at] for s, at in self.at.items()}

    def positions(self):
        for split, at in self.at.items():
            self.shared[split][0] = at
        return dict(self.shared)

    def read(self, limit):
        records = super().read(limit)
        self.positions()
        return records


class ReadsWhatOthersOwn(Reader):
    def owns(self, split):
        return True


class ReturnsTooMuch(Reader):
    def read(self, limit):
        return super().read(limit + 5)


class NamesTheWrongSplit(Reader):
    def splits(self):
        return [s for s, at in self.at.items() if at < len(SPLITS[s])]

    def read(self, limit):
        records = super().read(limit)
        self.split = -1
        return records


class With(mo.Source):
    def __init__(self, reader: type[Reader]) -> None:
        self.reader = reader

    def open(self, ctx):
        return self.reader(ctx)


def test_a_correct_source_breaks_nothing():
    assert caught(With(Reader)) == []


@pytest.mark.parametrize(
    "reader",
    [
        ForgetsASplit,
        MovesItsPositionEarly,
        MovesItsPositionLate,
        SharesItsPositions,
        ReadsWhatOthersOwn,
        ReturnsTooMuch,
        NamesTheWrongSplit,
    ],
    ids=lambda reader: reader.__name__,
)
def test_it_catches(reader):
    assert caught(With(reader))


class ForgetsWhatItFound(Growing):
    def open_enumerator(self, ctx):
        enumerator = super().open_enumerator(ctx)
        enumerator.snapshot = lambda: 0
        return enumerator


def test_it_catches_an_enumerator_that_finds_a_split_again(monkeypatch):
    with pytest.raises(AssertionError):
        Impatient().test_each_record_counts_once_whatever_crashes(ForgetsWhatItFound(SPLITS, 7), RECORDS, 1)
