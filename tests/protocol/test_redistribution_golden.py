"""Broadcast, union, even-split and raw keyed state go where Flink 2.3 itself has sent them (``tests/golden``)."""

from __future__ import annotations

import golden
import pytest
from hypothesis import given
from hypothesis import strategies as st

import moorline as mo
from moorline.model.key_groups import owned
from moorline.model.manifest import ElementsHandle, Manifest, OperatorEntry, OperatorHandles, RawHandle, SnapshotFile
from moorline.model.type_tree.tree import BYTES
from moorline.model.wire.deployment import OperatorRestore
from moorline.protocol.lowering import lower
from moorline.protocol.redistribution import redistribute
from moorline.testing import OperatorHarness

#: By state, how many elements each old subtask had; and how they are dealt out.
STATES = {
    "split5": {"s": ("split", [3, 2])},
    "split2states": {"a": ("split", [2, 2]), "b": ("split", [2, 2])},
    "union+bcast": {"u": ("union", [1, 2]), "bc": ("broadcast", [1, 1])},
}


def restores(subtasks: list[OperatorHandles], parallelism: int, max_parallelism: int = 128) -> list[OperatorRestore]:
    job = mo.Job("job", parallelism=parallelism, max_parallelism=max_parallelism)
    stream = job.source(mo.from_items([]), uid="in", parallelism=1)
    stream.key_by(abs).reduce(max, uid="op").sink(mo.discard(), uid="out")
    plan = lower(job.graph())
    entry = OperatorEntry("op", "op", len(subtasks), max_parallelism, subtasks)
    found = redistribute(Manifest("job", 1, 1, 0, [entry]), plan, "the snapshot")
    vertex = next(v.id for v in plan.vertices if "op" in v.operators)
    return [found[vertex, index]["op"] for index in range(parallelism)]


def dealt_out(states: dict[str, tuple[str, list[int]]], parallelism: int) -> list[dict[str, list[tuple[int, int]]]]:
    """By new subtask and state: pairs of old subtask and position."""
    width = len(next(iter(states.values()))[1])
    handles = [
        [ElementsHandle(name, mode, sizes[old], [b"%d" % old]) for name, (mode, sizes) in states.items() if sizes[old]]
        for old in range(width)
    ]
    return [
        {
            state: [(int(s.handle.inline[0]), n) for s in slices for n in range(s.start, s.stop)]
            for state, slices in restore.elements.items()
        }
        for restore in restores([OperatorHandles("op", [], h) for h in handles], parallelism)
    ]


@pytest.mark.parametrize("expected", golden.repartitions(), ids=str)
def test_every_kind_of_operator_state_goes_where_flink_sends_it(expected):
    wanted = []
    for parts in expected.subtasks:
        mine: dict[str, list[tuple[int, int]]] = {}
        for state, old, positions in parts:
            mine.setdefault(state, []).extend((old, n) for n in positions)
        wanted.append(mine)
    assert dealt_out(STATES[expected.name], expected.new) == wanted


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4))
def test_broadcast_state_comes_from_the_old_copy_of_the_same_place(old, new, size):
    found = dealt_out({"rules": ("broadcast", [size] * old)}, new)
    assert found == [{"rules": [(index % old, n) for n in range(size)]} for index in range(new)]


def test_a_copy_that_is_empty_is_restored_as_empty_and_not_from_another():
    assert dealt_out({"rules": ("broadcast", [0, 2])}, 4) == [{}, {"rules": [(1, 0), (1, 1)]}] * 2


def test_broadcast_and_union_state_do_not_shift_the_split_of_another():
    alone = dealt_out({"a": ("split", [4, 0]), "c": ("split", [4, 0])}, 3)
    both = dealt_out({"a": ("split", [4, 0]), "b": ("broadcast", [5, 5]), "c": ("split", [4, 0])}, 3)
    assert [{s: e for s, e in part.items() if s != "b"} for part in both] == alone


# --- raw keyed state ------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_parallelism", "parallelism", "ranges"), golden.ranges())
@pytest.mark.parametrize("old", [1, 3])
def test_raw_keyed_state_goes_by_flinks_key_group_ranges(max_parallelism, parallelism, ranges, old):
    subtasks = []
    for index in range(min(old, max_parallelism)):
        mine = owned(index, min(old, max_parallelism), max_parallelism)
        file = SnapshotFile(f"data/{index}", 1, [])
        raw = RawHandle("raw", BYTES, mine.first, mine.end, mine.end - mine.first, file)
        subtasks.append(OperatorHandles("op", [raw], []))
    for restore, (first, last) in zip(restores(subtasks, parallelism, max_parallelism), ranges, strict=True):
        covered = [n for handle in restore.keyed for n in range(handle.first, handle.end)]
        assert covered == list(range(first, last + 1))


class Raw(mo.KeyedProcessFunction, mo.CheckpointedFunction):
    """Writes into each of its key groups who wrote it."""

    def initialize_state(self, ctx):
        self.found = {group: stream.read() for group, stream in ctx.raw_keyed_state}
        self.mine = ctx.key_groups

    def process_element(self, value, ctx):
        pass

    def snapshot_state(self, ctx):
        for group in self.mine:
            ctx.raw_keyed_state.start_key_group(group).write(b"%d:%d" % (group, self.mine.start))


@pytest.mark.parametrize(
    ("max_parallelism", "parallelism", "ranges"), [shape for shape in golden.ranges() if shape[1] <= 16]
)
def test_the_bytes_of_a_key_group_reach_the_subtask_that_flink_gives_it_to(max_parallelism, parallelism, ranges):
    def harness(width, snapshot=None):
        return OperatorHarness.of(
            lambda s: s.key_by(abs).process(Raw(), uid="raw"),
            parallelism=width,
            max_parallelism=max_parallelism,
            snapshot=snapshot,
        )

    writers = {g: owned(i, 2, max_parallelism).first for i in range(2) for g in owned_groups(i, 2, max_parallelism)}
    after = harness(parallelism, harness(2).snapshot())
    for function, (first, last) in zip(after.functions, ranges, strict=True):
        assert function.found == {group: b"%d:%d" % (group, writers[group]) for group in range(first, last + 1)}


def owned_groups(index: int, parallelism: int, max_parallelism: int) -> range:
    mine = owned(index, parallelism, max_parallelism)
    return range(mine.first, mine.end)
