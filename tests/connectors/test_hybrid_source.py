"""Sources that are read one after the other: each record once, and the switch when all have read all."""

from __future__ import annotations

from typing import Any

import pytest

import moorline as mo
from moorline.api.sources import EnumeratorContext, SourceContext
from moorline.errors import InvalidArgument, SnapshotCorrupt
from moorline.testing import OperatorHarness
from moorline.testing.contracts.source import RunningSource, Snapshot, SourceContract
from moorline.testing.simulation.jobs.connectors import GrowingSource
from moorline.testing.simulation.jobs.counting import SplitSource


class Growing(GrowingSource):
    """Without looks that fail, which would fail the attempt."""

    is_bounded = True

    def open_enumerator(self, ctx):
        enumerator = super().open_enumerator(ctx)
        enumerator._may_fail = False
        return enumerator


def splits(part: int, count: int = 4) -> dict[int, list[str]]:
    return {n: [f"{part}-{n}-{i}" for i in range(3 + 5 * n)] for n in range(count)}


def records(*parts: int) -> list[str]:
    return [record for part in parts for lists in splits(part).values() for record in lists]


class TestReadersThenDriver(SourceContract):
    @pytest.fixture
    def source(self):
        return mo.hybrid(SplitSource(splits(0)), Growing(splits(1), 7))

    @pytest.fixture
    def expected(self):
        return records(0, 1)


class TestDriverThenReaders(SourceContract):
    @pytest.fixture
    def source(self):
        return mo.hybrid(Growing(splits(0), 7), SplitSource(splits(1)))

    @pytest.fixture
    def expected(self):
        return records(0, 1)


class FromTheEnd:
    """The source that begins where the one before has ended: its splits say what was read of the others."""

    def __call__(self, end: mo.SourceEnd) -> mo.Source:
        assert end.positions == {n: len(lists) for n, lists in splits(1).items()}
        return SplitSource({10 * n: [f"2-{n}-{length}"] for n, length in end.positions.items()})


class TestThreeOfWhichOneIsDerived(SourceContract):
    @pytest.fixture
    def source(self, tmp_path):
        for n, lists in splits(0).items():
            (tmp_path / f"{n}.txt").write_text("".join(f"{record}\n" for record in lists))
        return mo.hybrid(mo.read_files(str(tmp_path / "*.txt"), format="text"), SplitSource(splits(1)), FromTheEnd())

    @pytest.fixture
    def expected(self):
        return records(0, 1) + [f"2-{n}-{len(lists)}" for n, lists in splits(1).items()]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_the_next_part_begins_when_all_readers_have_read_all_of_the_first(parallelism):
    source = mo.hybrid(Growing(splits(0), 3), Growing(splits(1), 4), SplitSource(splits(2)))
    running = RunningSource(source, parallelism, 1, Snapshot({}))
    found: list[str] = []
    while len(found) < len(records(0, 1, 2)):
        running.look()
        for subtask in range(parallelism):
            found += running.read(subtask)
    running.close()
    assert [record[0] for record in found] == sorted(record[0] for record in found)


def test_one_reader_that_has_not_read_all_holds_up_the_switch():
    running = RunningSource(mo.hybrid(SplitSource(splits(0)), SplitSource(splits(1))), 2, 1, Snapshot({}))
    running.look()
    for _ in range(60):
        assert all(record.startswith("0-") for record in running.read(0))
        running.look()
    assert running.enumerated[0] == 0
    for _ in range(60):
        running.read(1)
    running.look()
    assert running.enumerated[0] == 1
    running.close()


def harness(source: mo.Source, snapshot: Any = None, parallelism: int = 2) -> OperatorHarness:
    strategy = mo.WatermarkStrategy.monotonous(timestamp=lambda record: int(record.split("-")[0]) * 1_000)
    return OperatorHarness.of(
        lambda job: job.source(source, uid="source", watermarks=strategy),
        inputs=0,
        parallelism=parallelism,
        snapshot=snapshot,
    )


def test_a_snapshot_in_the_second_part_goes_on_there_at_another_parallelism():
    source = mo.hybrid(SplitSource(splits(0)), SplitSource(splits(1)))
    with harness(source) as first:
        found = first.read(len(records(0)) + 5)
        snapshot = first.snapshot()
    assert any(record.startswith("1-") for record in found)
    with harness(source, snapshot, parallelism=3) as again:
        found += again.read(len(records(0, 1)) - len(found))
        assert again.read(0) == []
    assert sorted(found) == sorted(records(0, 1))


class Unnamed(SplitSource):
    """A source whose readers do not say which splits they have."""

    def open(self, ctx):
        reader = super().open(ctx)
        reader.splits = lambda: None
        return reader


@pytest.mark.parametrize("first", [SplitSource, Unnamed])
@pytest.mark.parametrize("then", [SplitSource, Unnamed])
def test_event_time_goes_on_with_the_second_part_and_does_not_wait_for_the_first(first, then):
    source = mo.hybrid(first(splits(1, count=2)), then({0: ["5-0"] * 20}))
    with harness(source, parallelism=1) as reading:
        reading.read(5)
        reading.advance_clock(1_000)
        assert reading.watermarks[-1] == 999
        found = reading.read(6 + 4)
        assert found[-1] == "5-0"
        reading.advance_clock(1_000)
        assert reading.watermarks[-1] == 4_999


def test_a_subtask_that_has_read_its_share_of_the_first_part_does_not_hold_up_time():
    source = mo.hybrid(SplitSource({0: ["1-0"] * 50}), SplitSource(splits(5)))
    with harness(source) as reading:
        reading.read(10)
        reading.advance_clock(1_000)
        assert None in reading.watermarks, "the one without a split is idle"
        assert 999 in reading.watermarks


class Acknowledging(SplitSource):
    """Notes which checkpoints its readers have heard of."""

    def __init__(self, splits: dict[int, list[str]], heard: list[int]) -> None:
        super().__init__(splits)
        self.heard = heard

    def open(self, ctx):
        reader = super().open(ctx)
        reader.notify_checkpoint_complete = self.heard.append
        return reader


def test_a_checkpoint_of_the_first_part_is_none_of_the_second_ones_business():
    first, second = [], []
    source = mo.hybrid(Acknowledging({0: ["a"]}, first), Acknowledging({0: ["b", "c"]}, second))
    reader = source.open(SourceContext("source", 0, 1, 1))
    enumerator = source.open_enumerator(EnumeratorContext("job", "source", 1))
    enumerator.discover()
    reader.announced(enumerator.announcement())
    reader.positions_for(1)
    reader.positions_for(2)
    reader.notify_checkpoint_complete(1)
    while reader.report is None:
        reader.read(10)
    enumerator.reported(0, reader.report)
    enumerator.discover()
    reader.announced(enumerator.announcement())
    reader.positions_for(3)
    reader.notify_checkpoint_complete(2)
    reader.notify_checkpoint_complete(3)
    assert (first, second) == ([1], [3])


def test_mistakes_are_refused_before_the_start(tmp_path):
    stream = mo.generate(lambda n: n)
    with pytest.raises(InvalidArgument, match="It does not end"):
        mo.hybrid(stream, mo.from_items([1]))
    with pytest.raises(InvalidArgument, match="Give a source"):
        mo.hybrid([1], stream)
    with pytest.raises(InvalidArgument, match="a function that makes one"):
        mo.hybrid(mo.from_items([1]), "kafka")
    with pytest.raises(Exception, match="nothing-here"):
        mo.hybrid(mo.read_files(str(tmp_path / "nothing-here")), stream).check()
    derived = mo.hybrid(mo.from_items([1]), lambda end: "no source")
    enumerator = derived.open_enumerator(EnumeratorContext("job", "source", 1))
    enumerator.discover()
    enumerator.reported(0, [0, {}, None])
    with pytest.raises(InvalidArgument, match="must return a source"):
        enumerator.discover()


def test_it_is_bounded_if_all_parts_are():
    assert mo.hybrid(mo.from_items([1]), mo.from_items([2])).is_bounded is True
    assert mo.hybrid(mo.from_items([1]), mo.generate(lambda n: n)).is_bounded is False
    assert mo.hybrid(mo.from_items([1]), lambda end: mo.from_items([2])).is_bounded is None


@pytest.mark.parametrize("split", ["2/x", "x/1", "0:x", 7, "", "9" * 30 + "/x", "0:١"])
def test_positions_of_another_source_are_refused(split):
    source = mo.hybrid(mo.from_items([1]), mo.from_items([2]))
    with pytest.raises(SnapshotCorrupt, match="is not a split of a source with 2 parts"):
        source.open(SourceContext("source", 0, 1, 1, {split: 0}))


@pytest.mark.parametrize("state", [[2, None, []], ["x"], 7, [0, None, [["a"]]], {}])
def test_a_state_of_another_source_is_refused(state):
    source = mo.hybrid(mo.from_items([1]), mo.from_items([2]))
    with pytest.raises(SnapshotCorrupt):
        source.open_enumerator(EnumeratorContext("job", "source", 1, restored=state))


def test_in_a_batch_the_parts_are_read_one_after_the_other():
    source = mo.hybrid(Growing(splits(0), 3), SplitSource(splits(1)), Growing(splits(2), 5))
    enumerator = source.open_enumerator(EnumeratorContext("job", "source", 1, parallelism=2, is_batch=True))
    found: dict[Any, Any] = {}
    while (new := enumerator.discover()) is not None:
        found.update(new)
    read = []
    for subtask in range(2):
        context = SourceContext("source", subtask, 2, 1, found)
        reader = source.open(context)
        reader.announced(enumerator.announcement())
        reader.add_splits({split: position for split, position in found.items() if context.owns(split)})
        reader.no_more_splits()
        own: list[str] = []
        while (records_read := reader.read(7)) is not None:
            own += records_read
        assert [record[0] for record in own] == sorted(record[0] for record in own)
        read += own
    assert sorted(read) == sorted(records(0, 1, 2))
    derived = mo.hybrid(mo.from_items([1]), lambda end: mo.from_items([2]))
    with pytest.raises(InvalidArgument, match='mode="streaming"'):
        derived.open_enumerator(EnumeratorContext("job", "source", 1, is_batch=True)).discover()
