"""Who gets what after a restart: against Flink's own printout, and against a naive twin."""

from __future__ import annotations

import golden
import pytest
from hypothesis import given
from hypothesis import strategies as st

import moorline as mo
from moorline.errors import MaxParallelismChanged, OperatorNotFound
from moorline.model.graph import Graph
from moorline.model.key_groups import KeyGroupRange, owned, owner
from moorline.model.keys import key_group
from moorline.model.manifest import (
    ElementsHandle,
    Manifest,
    OperatorEntry,
    OperatorHandles,
    RawHandle,
    RowsHandle,
    SnapshotFile,
    StoreHandle,
)
from moorline.model.type_tree.tree import INT
from moorline.model.wire.deployment import OperatorRestore
from moorline.protocol.lowering import lower
from moorline.protocol.redistribution import key_groups_of, redistribute

Counts = dict[str, list[int]]


def graph(parallelism: int, max_parallelism: int | None = None) -> Graph:
    job = mo.Job("job", parallelism=parallelism, max_parallelism=max_parallelism)
    stream = job.source(mo.from_items([]), uid="in", parallelism=1)
    stream.key_by(abs).reduce(max, uid="op").sink(mo.discard(), uid="out")
    return job.graph()


def manifest(subtasks: list[OperatorHandles], max_parallelism: int = 128, uid: str = "op") -> Manifest:
    return Manifest("job", 1, 1, 0, [OperatorEntry(uid, uid, len(subtasks), max_parallelism, subtasks)])


def with_elements(counts: Counts, union: frozenset[str] = frozenset()) -> Manifest:
    """Operator state: how many elements each old subtask has of each state. Element n of old subtask t is (t, n)."""
    width = len(next(iter(counts.values())))
    subtasks = []
    for old in range(width):
        handles = [
            ElementsHandle(state, "union" if state in union else "split", sizes[old], [b"%d" % old])
            for state, sizes in counts.items()
            if sizes[old]
        ]
        subtasks.append(OperatorHandles("op", [], handles))
    return manifest(subtasks)


def restores(of: Manifest, parallelism: int) -> list[OperatorRestore]:
    plan = lower(graph(parallelism))
    found = redistribute(of, plan, "the snapshot")
    vertex = next(v.id for v in plan.vertices if "op" in v.operators)
    return [found[vertex, index]["op"] for index in range(parallelism)]


def elements(of: Manifest, parallelism: int) -> list[dict[str, list[tuple[int, int]]]]:
    """By new subtask and state: pairs of old subtask and position."""
    return [
        {
            state: [(int(s.handle.inline[0]), n) for s in slices for n in range(s.start, s.stop)]
            for state, slices in restore.elements.items()
        }
        for restore in restores(of, parallelism)
    ]


# --- Flink's own numbers ----------------------------------------------------------------------

SHAPES: dict[str, tuple[Counts, frozenset[str]]] = {
    "split5": ({"s": [3, 2]}, frozenset()),
    "split2states": ({"a": [2, 2], "b": [2, 2]}, frozenset()),
    "union+bcast": ({"u": [1, 2]}, frozenset({"u"})),
}


@pytest.mark.parametrize("expected", golden.repartitions(), ids=str)
def test_operator_state_goes_where_flink_sends_it(expected):
    counts, union = SHAPES[expected.name]
    assert len(next(iter(counts.values()))) == expected.old
    wanted = []
    for parts in expected.subtasks:
        mine: dict[str, list[tuple[int, int]]] = {}
        for state, old, positions in parts:
            if state != "bc":  # broadcast state is not there yet
                mine.setdefault(state, []).extend((old, n) for n in positions)
        wanted.append(mine)
    assert elements(with_elements(counts, union), expected.new) == wanted


# --- operator state ---------------------------------------------------------------------------

sizes = st.integers(1, 5).flatmap(
    lambda width: st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.integers(0, 6), min_size=width, max_size=width), min_size=1
    )
)


@given(sizes, st.integers(1, 7))
def test_an_even_split_loses_and_doubles_nothing_and_keeps_the_order(counts, parallelism):
    found = elements(with_elements(counts), parallelism)
    for state, of_subtasks in counts.items():
        everything = [(old, n) for old, count in enumerate(of_subtasks) for n in range(count)]
        dealt = [mine.get(state, []) for mine in found]
        assert sorted(e for part in dealt for e in part) == everything
        for part in dealt:
            assert part == sorted(part), "a slice is contiguous and in order"
        if parallelism != len(of_subtasks):
            lengths = sorted(map(len, dealt))
            assert lengths[-1] - lengths[0] <= 1


def naive_split(counts: Counts, parallelism: int) -> list[dict[str, list[tuple[int, int]]]]:
    """The rule of the documentation, one element at a time."""
    found: list[dict[str, list[tuple[int, int]]]] = [{} for _ in range(parallelism)]
    start = 0
    for state in sorted(counts):
        everything = [(old, n) for old, count in enumerate(counts[state]) for n in range(count)]
        quotas = [len(everything) // parallelism + (k < len(everything) % parallelism) for k in range(parallelism)]
        for k, quota in enumerate(quotas):
            for _ in range(quota):
                found[(start + k) % parallelism].setdefault(state, []).append(everything.pop(0))
        start = (start + sum(counts[state]) % parallelism) % parallelism
    return found


@given(sizes, st.integers(1, 7))
def test_an_even_split_agrees_with_the_naive_twin(counts, parallelism):
    if parallelism != len(next(iter(counts.values()))):
        assert elements(with_elements(counts), parallelism) == naive_split(counts, parallelism)


@given(sizes)
def test_at_the_same_parallelism_every_element_stays_where_it_was(counts):
    width = len(next(iter(counts.values())))
    assert elements(with_elements(counts), width) == [
        {s: [(old, n) for n in range(c[old])] for s, c in counts.items() if c[old]} for old in range(width)
    ]


@given(sizes, st.integers(1, 7))
def test_union_state_is_sent_whole_to_everybody(counts, parallelism):
    found = elements(with_elements(counts, frozenset(counts)), parallelism)
    whole = {s: [(old, n) for old, c in enumerate(cs) for n in range(c)] for s, cs in counts.items() if any(cs)}
    assert found == [whole] * parallelism


def test_union_state_does_not_shift_the_split_of_another():
    both = with_elements({"a": [4, 0], "u": [1, 1], "v": [4, 0]}, frozenset({"u"}))
    alone = with_elements({"a": [4, 0], "v": [4, 0]})
    for with_union, without in zip(elements(both, 3), elements(alone, 3), strict=True):
        assert {s: with_union[s] for s in ("a", "v") if s in with_union} == without


# --- keyed state ------------------------------------------------------------------------------


def with_keys(old: int, max_parallelism: int = 128) -> Manifest:
    subtasks = []
    for index in range(old):
        mine = owned(index, old, max_parallelism)
        file = SnapshotFile(f"data/{index}", 1, [])
        subtasks.append(OperatorHandles("op", [RowsHandle("s", "value", INT, mine.first, mine.end, 1, file)], []))
    return manifest(subtasks, max_parallelism)


@given(st.integers(1, 9), st.integers(1, 9))
def test_a_subtask_gets_exactly_the_files_with_key_groups_of_its_own(old, new):
    for index, restore in enumerate(restores(with_keys(old), new)):
        mine = owned(index, new, 128)
        overlapping = [o for o in range(old) if any(k in owned(o, old, 128) for k in range(mine.first, mine.end))]
        assert [k.file.path for k in restore.keyed] == [f"data/{o}" for o in overlapping]


# --- what cannot be restored ------------------------------------------------------------------


def test_state_of_an_operator_that_is_gone_is_an_error():
    handles = OperatorHandles("old-op", [], [ElementsHandle("s", "split", 1, [b"x"])])
    with pytest.raises(OperatorNotFound, match="the snapshot holds state for operator 'old-op'"):
        redistribute(manifest([handles], uid="old-op"), lower(graph(1)), "the snapshot")


def test_an_operator_that_is_gone_and_had_no_state_is_none():
    empty = OperatorHandles("old-op", [], [ElementsHandle("s", "split", 0, [])])
    assert redistribute(manifest([empty], uid="old-op"), lower(graph(1)), "the snapshot") == {}


def test_a_new_operator_starts_empty():
    found = redistribute(manifest([OperatorHandles("op")]), lower(graph(1)), "the snapshot")
    assert all(list(parts) == ["op"] for parts in found.values())


def test_the_number_of_key_groups_is_the_snapshots_unless_the_user_set_one():
    assert key_groups_of(with_keys(1, 256), graph(2)) == 256
    assert key_groups_of(with_keys(1, 256), graph(2, max_parallelism=256)) == 256
    assert key_groups_of(Manifest("job", 1, 1, 0, []), graph(2)) == 128


def test_another_number_of_key_groups_is_what_the_user_set_or_what_the_parallelism_needs():
    assert key_groups_of(with_keys(1, 128), graph(2, max_parallelism=256)) == 256
    assert key_groups_of(with_keys(1, 128), graph(2, max_parallelism=3)) == 3
    assert key_groups_of(with_keys(1, 4), graph(5)) == 128


@pytest.mark.parametrize(("shape", "told"), [(RawHandle, "raw keyed state"), (StoreHandle, "outside store")])
def test_state_that_belongs_to_key_groups_and_not_to_keys_cannot_be_dealt_out_anew(shape, told):
    stored = manifest([OperatorHandles("op", [shape("s", "bytes", 0, 4, 1)])], max_parallelism=4)
    assert key_groups_of(stored, graph(3)) == 4
    with pytest.raises(MaxParallelismChanged, match=told) as caught:
        key_groups_of(stored, graph(5))
    assert (caught.value.snapshot, caught.value.job) == (4, 128)


@given(st.integers(1, 40), st.integers(1, 300), st.integers(1, 300), st.lists(st.integers(0, 999), max_size=20))
def test_with_another_number_of_key_groups_every_key_finds_its_new_owner(parallelism, stored, now, found):
    now = max(parallelism, now)
    plans = redistribute(with_keys(3 if stored >= 3 else 1, stored), lower(graph(parallelism, now)), "the snapshot")
    by_index = {subtask.index: parts["op"] for subtask, parts in plans.items() if "op" in parts}
    for number in found:
        mine = by_index[owner(key_group(number, now), parallelism, now)]
        assert sum(key_group(number, stored) in KeyGroupRange(k.first, k.end) for k in mine.keyed) == 1
        assert mine.key_groups == (None if stored == now else stored)
