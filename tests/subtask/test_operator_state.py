"""Operator state through the harness: lists, unions, broadcast maps, raw bytes; and who is told what when."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.errors import InvalidArgument, ReadOnlyState, StateIncompatible, StateRegisteredLate, StateTypeMismatch
from moorline.testing import OperatorHarness


class Buffering(mo.MapFunction, mo.CheckpointedFunction):
    """Keeps what it has seen in even-split state, and counts in union state."""

    def initialize_state(self, ctx):
        self.saved = ctx.operator_state.list_state(mo.ListStateDescriptor("seen", int))
        self.counts = ctx.operator_state.union_list_state(mo.ListStateDescriptor("counts", int))
        self.is_restored = ctx.is_restored
        self.seen = list(self.saved.get())
        self.all_counts = list(self.counts.get())
        self.count = 0

    def map(self, value):
        self.seen.append(value)
        self.count += 1
        return value

    def snapshot_state(self, ctx):
        self.saved.update(self.seen)
        self.counts.update([self.count])


def build(function, **options):
    return lambda stream: stream.map(function, uid="function", **options)


def restore(snapshot, function, parallelism, **options):
    return OperatorHarness.of(build(function, **options), parallelism=parallelism, snapshot=snapshot)


def test_state_that_was_snapshotted_comes_back_where_it_was_if_the_parallelism_is_the_same():
    before = OperatorHarness(Buffering(), parallelism=2)
    before.process_all([1, 2, 3])  # 1 and 3 go to the first subtask
    after = restore(before.snapshot(), Buffering(), 2)
    assert [f.seen for f in after.functions] == [[1, 3], [2]]
    assert [f.all_counts for f in after.functions] == [[2, 1], [2, 1]]


@pytest.mark.parametrize(
    ("parallelism", "expected"), [(1, [[1, 3, 5, 2, 4]]), (3, [[1, 3], [5, 2], [4]]), (4, [[1, 3], [5], [2], [4]])]
)
def test_an_even_split_deals_out_in_order_and_a_union_gives_everything_to_all(parallelism, expected):
    before = OperatorHarness(Buffering(), parallelism=2)
    before.process_all([1, 2, 3, 4, 5])
    after = restore(before.snapshot(), Buffering(), parallelism)
    assert [f.seen for f in after.functions] == expected
    assert all(f.all_counts == [3, 2] for f in after.functions)


def test_is_restored_tells_a_first_start_from_a_restore():
    before = OperatorHarness(Buffering())
    assert not before.functions[0].is_restored
    assert restore(before.snapshot(), Buffering(), 1).functions[0].is_restored


def test_a_snapshot_does_not_follow_what_happens_after_it():
    before = OperatorHarness(Buffering())
    before.process(1)
    snapshot = before.snapshot()
    before.process(2)
    assert restore(snapshot, Buffering(), 1).functions[0].seen == [1]


def test_large_operator_state_goes_to_a_file_and_comes_back():
    before = OperatorHarness(Buffering())
    before.process_all(range(20_000))
    snapshot = before.snapshot()
    assert snapshot.manifest.files()
    assert restore(snapshot, Buffering(), 1).functions[0].seen == list(range(20_000))


class Short(mo.MapFunction, mo.ListCheckpointed):
    def __init__(self):
        self.total = 0
        self.restored = None

    def map(self, value):
        self.total += value
        return self.total

    def snapshot_state(self, checkpoint, timestamp):
        return [self.total]

    def restore_state(self, state):
        self.restored = state
        self.total = sum(state)


def test_list_checkpointed_is_the_short_form():
    before = OperatorHarness(Short(), parallelism=2)
    assert before.process_all([1, 2, 3]) == [1, 2, 4]
    after = restore(before.snapshot(), Short(), 1)
    assert after.functions[0].restored == [4, 2]
    assert after.process(10) == [16]


def test_restore_state_is_not_called_at_the_first_start():
    assert OperatorHarness(Short()).functions[0].restored is None


class Listening(mo.MapFunction, mo.CheckpointListener):
    def __init__(self):
        self.told = []

    def map(self, value):
        return value

    def notify_checkpoint_complete(self, checkpoint):
        self.told.append(checkpoint)


def test_a_listener_is_told_of_complete_checkpoints():
    harness = OperatorHarness(Listening())
    harness.snapshot()
    harness.confirm()
    assert harness.functions[0].told == [1]


class Late(mo.MapFunction, mo.CheckpointedFunction):
    def initialize_state(self, ctx):
        self.store = ctx.operator_state

    def map(self, value):
        self.store.list_state(mo.ListStateDescriptor("late", int))

    def snapshot_state(self, ctx):
        pass


def test_operator_state_is_asked_for_in_initialize_state_and_not_later():
    with pytest.raises(StateRegisteredLate):
        OperatorHarness(Late()).process(1)


class Twice(mo.MapFunction, mo.CheckpointedFunction):
    def initialize_state(self, ctx):
        ctx.operator_state.list_state(mo.ListStateDescriptor("a", int))
        ctx.operator_state.union_list_state(mo.ListStateDescriptor("a", int))

    def snapshot_state(self, ctx):
        pass

    def map(self, value):
        return value


def test_one_name_is_one_kind_of_state():
    with pytest.raises(InvalidArgument, match="split list state already"):
        OperatorHarness(Twice())


class Wrong(Buffering):
    def snapshot_state(self, ctx):
        self.saved.update(["text"])


def test_an_element_of_another_type_is_an_error_that_names_the_state():
    with pytest.raises(StateTypeMismatch, match="operator 'function': a value in state 'seen'"):
        OperatorHarness(Wrong()).snapshot()


class Forgetful(mo.MapFunction):
    def map(self, value):
        return value


def test_restored_operator_state_that_nobody_asks_for_is_an_error_unless_it_is_dropped_by_name():
    before = OperatorHarness(Buffering())
    before.process(1)
    snapshot = before.snapshot()
    with pytest.raises(StateIncompatible, match=r"counts|seen"):
        restore(snapshot, Forgetful(), 1)
    restore(snapshot, Forgetful(), 1, drop_states=["seen", "counts"])


class Raw(mo.KeyedProcessFunction, mo.CheckpointedFunction):
    """Writes a line per key group it owns, and pieces of its own."""

    def initialize_state(self, ctx):
        self.groups = {group: stream.read().decode() for group, stream in ctx.raw_keyed_state}
        self.pieces = [stream.read().decode() for stream in ctx.raw_state]
        self.mine = ctx.key_groups

    def process_element(self, value, ctx):
        self.pieces.append(str(value))

    def snapshot_state(self, ctx):
        for group in self.mine:
            ctx.raw_keyed_state.start_key_group(group).write(f"group {group}".encode())
        for piece in self.pieces:
            ctx.raw_state.start_partition().write(piece.encode())


def raw(parallelism, snapshot=None):
    return OperatorHarness.of(
        lambda s: s.key_by(lambda v: v).process(Raw(), uid="raw"), parallelism=parallelism, snapshot=snapshot
    )


def test_raw_state_comes_back_by_key_group_and_by_piece_after_a_rescale():
    before = raw(2)
    for n in range(6):
        before.process(n)
    for parallelism in (1, 2, 3):
        after = raw(parallelism, before.snapshot())
        for function in after.functions:
            assert function.groups == {group: f"group {group}" for group in function.mine}
        assert sorted(p for f in after.functions for p in f.pieces) == [str(n) for n in range(6)]


def test_raw_state_of_a_foreign_key_group_is_refused():
    class Greedy(Raw):
        def snapshot_state(self, ctx):
            ctx.raw_keyed_state.start_key_group(127)

    harness = OperatorHarness.of(lambda s: s.key_by(lambda v: v).process(Greedy(), uid="raw"), parallelism=2)
    with pytest.raises(InvalidArgument, match="own key groups"):
        harness.snapshot()


# --- broadcast state ----------------------------------------------------------------------------

RULES = mo.MapStateDescriptor("rules", str, int)


class Limit(mo.BroadcastProcessFunction):
    def process_element(self, value, ctx):
        if value >= ctx.get_broadcast_state(RULES).get("limit", 0):
            yield value

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(*value)


def limit(parallelism=1, snapshot=None, function=None):
    return OperatorHarness.of(
        lambda a, b: a.connect(b.broadcast(RULES)).process(function or Limit(), uid="limit"),
        inputs=2,
        parallelism=parallelism,
        snapshot=snapshot,
    )


def test_broadcast_state_is_changed_by_one_side_and_seen_by_the_other_in_every_subtask():
    harness = limit(3)
    assert harness.process_all([1, 2, 3]) == [1, 2, 3]
    harness.process(("limit", 3), side=1)
    assert harness.process_all([1, 2, 3, 4, 2, 5]) == [3, 4, 5]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 2), (3, 2), (2, 5)])
def test_after_a_restore_every_subtask_has_its_copy(before, after):
    old = limit(before)
    old.process(("limit", 10), side=1)
    new = limit(after, old.snapshot())
    assert new.process_all([1, 10] * after * 2) == [10] * after * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.put("a", 1),
        lambda s: s.put_all({"a": 1}),
        lambda s: s.remove("a"),
        lambda s: s.clear(),
        lambda s: s.__setitem__("a", 1),
        lambda s: s.__delitem__("a"),
    ],
)
def test_the_other_side_may_not_change_it(change):
    class Sneaky(Limit):
        def process_element(self, value, ctx):
            change(ctx.get_broadcast_state(RULES))

    with pytest.raises(ReadOnlyState, match="process_broadcast_element"):
        limit(function=Sneaky()).process(1)


class Reset(mo.KeyedBroadcastProcessFunction):
    count = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.count.update(self.count.value() + 1)
        ctx.timer_service().register_event_time_timer(100)
        yield ctx.get_current_key(), self.count.value()

    def process_broadcast_element(self, value, ctx):
        seen = []
        ctx.apply_to_keyed_state(
            mo.ValueStateDescriptor("count", int), lambda key, state: (seen.append(key), state.update(value))
        )
        yield "reset", sorted(seen)

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.get_current_key(), ctx.get_broadcast_state(RULES).get("x")


def test_the_broadcast_side_can_visit_all_keys_and_the_keyed_side_has_timers():
    harness = OperatorHarness.of(
        lambda a, b: a.key_by(lambda v: v).connect(b.broadcast(RULES)).process(Reset(), uid="reset"), inputs=2
    )
    assert harness.process_all(["a", "b", "a"]) == [("a", 1), ("b", 1), ("a", 2)]
    assert harness.process(10, side=1) == [("reset", ["a", "b"])]
    assert harness.process("b") == [("b", 11)]
    assert sorted(harness.watermark(100)) == [("timer", "a", None), ("timer", "b", None)]
