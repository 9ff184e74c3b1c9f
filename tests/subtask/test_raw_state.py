"""Bytes of the user's own: raw keyed and raw operator state."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.testing import OperatorHarness


class Raw(mo.KeyedProcessFunction, mo.CheckpointedFunction):
    """Writes what it is told to: records are (key group, bytes) or (None, bytes) for a piece without one."""

    def __init__(self):
        self.groups, self.pieces = {}, []

    def initialize_state(self, ctx):
        self.groups = {group: stream.read() for group, stream in ctx.raw_keyed_state}
        self.pieces = [stream.read() for stream in ctx.raw_state]

    def process_element(self, value, ctx):
        group, data = value
        if group is None:
            self.pieces.append(data)
        else:
            self.groups[group] = data

    def snapshot_state(self, ctx):
        for group, data in self.groups.items():
            ctx.raw_keyed_state.start_key_group(group).write(data)
        for piece in self.pieces:
            ctx.raw_state.start_partition().write(piece)


def raw(parallelism=1, snapshot=None, function=None):
    return OperatorHarness.of(
        lambda s: s.key_by(lambda r: 0).process(function or Raw(), uid="raw"),
        parallelism=parallelism,
        max_parallelism=8,
        snapshot=snapshot,
    )


def test_only_what_was_written_comes_back():
    before = raw()
    before.process_all([(3, b"three"), (7, b""), (None, b"piece"), (None, b"")])
    (after,) = raw(1, before.snapshot()).functions
    assert after.groups == {3: b"three", 7: b""}
    assert after.pieces == [b"piece", b""]


def test_nothing_written_is_nothing_restored():
    (after,) = raw(1, raw().snapshot()).functions
    assert (after.groups, after.pieces) == ({}, [])


def test_large_pieces_go_to_files():
    before = raw()
    before.process_all([(5, b"x" * 1_000_000), (None, b"y" * 1_000_000)])
    snapshot = before.snapshot()
    assert len(snapshot.manifest.files()) == 2
    after = raw(2, snapshot).functions
    assert [list(f.groups) for f in after] == [[], [5]]
    assert after[1].groups[5] == b"x" * 1_000_000
    assert [p for f in after for p in f.pieces] == [b"y" * 1_000_000]


def test_a_key_group_is_started_once():
    class Twice(Raw):
        def snapshot_state(self, ctx):
            ctx.raw_keyed_state.start_key_group(1)
            ctx.raw_keyed_state.start_key_group(1)

    with pytest.raises(InvalidArgument, match=r"got 1\. Start each of the own key groups, 0 to 7, at most once"):
        raw(function=Twice()).snapshot()


class Named(mo.MapFunction, mo.CheckpointedFunction):
    """A list state that has the name raw state is kept under."""

    def initialize_state(self, ctx):
        self.state = ctx.operator_state.list_state(mo.ListStateDescriptor("raw", int))
        self.restored = list(self.state.get())

    def map(self, value):
        return value

    def snapshot_state(self, ctx):
        self.state.update([1, 2])


def test_a_list_state_may_have_any_name():
    before = OperatorHarness(Named())
    assert OperatorHarness.restore(before.snapshot(), Named()).functions[0].restored == [1, 2]
