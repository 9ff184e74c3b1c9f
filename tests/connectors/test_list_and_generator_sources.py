"""from_items and generate, read as a subtask reads them."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.api.sources import Source, SourceContext, SourceReader
from moorline.connectors.generator import Generator, generate
from moorline.connectors.items import from_items
from moorline.errors import InvalidArgument, RestoreError


def open_all(source: Source, parallelism: int, positions: dict[Any, Any], attempt: int = 1) -> list[SourceReader]:
    return [source.open(SourceContext("s", n, parallelism, attempt, dict(positions))) for n in range(parallelism)]


def union(readers: list[SourceReader]) -> dict[Any, Any]:
    together: dict[Any, Any] = {}
    for reader in readers:
        assert not together.keys() & reader.positions().keys(), "a split has two owners"
        together.update(reader.positions())
    return together


def read_with_restarts(source: Source, chance: random.Random) -> list[Any]:
    """Read to the end with random limits, restarting at random points at random parallelism."""
    out: list[Any] = []
    positions: dict[Any, Any] = {}
    while True:
        readers = open_all(source, chance.randrange(1, 5), positions)
        steps = chance.choice([1, 3, 10, 1000])
        open_ones = list(readers)
        while open_ones and steps:
            steps -= 1
            reader = chance.choice(open_ones)
            limit = chance.randrange(1, 9)
            records = reader.read(limit)
            if records is None:
                open_ones.remove(reader)
            else:
                assert len(records) <= limit
                out += records
        positions = union(readers)
        if not open_ones:
            return out


@given(st.integers(0, 60), st.randoms(use_true_random=False))
def test_items_come_once_and_in_order_through_any_restarts(count: int, chance: random.Random) -> None:
    assert read_with_restarts(from_items(range(count)), chance) == list(range(count))


@given(st.integers(0, 60), st.integers(1, 7), st.randoms(use_true_random=False))
def test_generated_records_come_once_through_any_restarts(count: int, splits: int, chance: random.Random) -> None:
    out = read_with_restarts(generate(lambda i: i, count=count, splits=splits), chance)
    assert sorted(out) == list(range(count))
    for split in range(splits):
        mine = [i for i in out if i % splits == split]
        assert mine == sorted(mine)


def test_items_are_read_by_one_subtask_only() -> None:
    first, second = open_all(from_items("ab"), 2, {})
    assert second.read(10) is None and second.positions() == {}
    assert first.read(10) == ["a", "b"] and first.read(10) is None and first.positions() == {0: 2}


def test_items_must_be_iterable() -> None:
    with pytest.raises(InvalidArgument, match="items"):
        from_items(7)  # type: ignore[arg-type]


def test_a_list_that_has_become_shorter_is_refused() -> None:
    with pytest.raises(RestoreError, match=r"had read 5 items.*only 2"):
        open_all(from_items("ab"), 1, {0: 5})


def test_without_count_there_is_no_end() -> None:
    [reader] = open_all(generate(lambda i: i), 1, {})
    seen = [i for _ in range(80) for i in reader.read(100) or []]
    assert sorted(seen) == list(range(8000))


def test_restored_positions_of_another_number_of_splits_are_refused() -> None:
    for splits, positions in [(4, {s: s for s in range(8)}), (8, {s: s for s in range(4)}), (2, {0: 0, 1: 2})]:
        with pytest.raises(RestoreError, match="splits="):
            open_all(generate(str, splits=splits), 1, positions)


def test_a_function_that_fails_has_read_nothing() -> None:
    def one_bad(i: int) -> int:
        if i == 4:
            raise ValueError("no 4")
        return i

    [reader] = open_all(generate(one_bad, count=10, splits=1), 1, {})
    assert reader.read(3) == [0, 1, 2]
    with pytest.raises(ValueError, match="no 4"):
        reader.read(3)
    assert reader.positions() == {0: 3}


@pytest.mark.parametrize("wrong", [{"count": -1}, {"count": 1.5}, {"splits": 0}, {"rate": 0}, {"rate": float("inf")}])
def test_arguments_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        generate(str, **wrong)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_whole_source() -> None:
    clock = Clock()
    readers = open_all(Generator(lambda i: i, rate=100, splits=8, clock=clock), 3, {})
    counts = [0, 0, 0]
    for _ in range(1000):
        clock.now += 0.01
        for n, reader in enumerate(readers):
            counts[n] += len(reader.read(1000) or [])
    assert 990 <= sum(counts) <= 1000
    assert counts[0] > counts[2]  # three splits of eight against two


def test_nothing_is_due_when_no_time_has_passed() -> None:
    clock = Clock()
    [reader] = open_all(Generator(lambda i: i, rate=10, clock=clock), 1, {})
    assert reader.read(10) == []
    clock.now += 0.35
    assert len(reader.read(10) or []) == 3
    assert reader.read(10) == []


def test_a_source_that_was_held_up_catches_up_on_one_second_only() -> None:
    clock = Clock()
    [reader] = open_all(Generator(lambda i: i, rate=10, splits=1, clock=clock), 1, {})
    clock.now += 3600
    assert len(reader.read(1000) or []) == 10
    assert reader.read(1000) == []


def test_slow_rates_do_come_due() -> None:
    clock = Clock()
    [reader] = open_all(Generator(lambda i: i, rate=0.25, splits=1, clock=clock), 1, {})
    got = []
    for _ in range(42):
        clock.now += 1.0
        got += reader.read(5) or []
    assert got == list(range(10))
