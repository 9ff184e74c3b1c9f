"""Each record goes to the owner of its key, in order, soon, and with a chaser behind it."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

import moorline as mo
from moorline.errors import InvalidKey, RecordTooLarge, UserCodeFailed
from moorline.model import keys
from moorline.model.graph import Plan
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import owner
from moorline.model.wire import elements
from moorline.model.wire.elements import BARRIER, BATCH, END, Barrier, FrameHead
from moorline.protocol.flushing import BUSY_MS, CALM_MS
from moorline.protocol.lowering import lower, relay_slot
from moorline.subtask import output
from moorline.subtask.call_costs import FEW_RECORDS
from moorline.subtask.links import FRAME_BYTES, HashOutput, LinkOutput, link_output
from moorline.subtask.output import Output
from moorline.testing import ManualClock

ATTEMPT, FLUSH_MS = 7, 4


def identity(record):
    return record


def plan_of(parallelism: int, key=identity, *, senders: int = 1, max_parallelism: int = 128) -> Plan:
    """One source, one keyed operator."""
    job = mo.Job("output", max_parallelism=max_parallelism)
    source = job.source(mo.from_items([]), uid="source", parallelism=senders)
    source.key_by(key).map(identity, uid="keyed", parallelism=parallelism).sink(mo.discard(), parallelism=parallelism)
    return lower(job.graph())


class World:
    """The sending end of the first link of a plan, under a clock that is told what time it is."""

    def __init__(self, plan: Plan, sender: int = 0) -> None:
        self.clock = ManualClock(1_000)
        self.output = Output(ATTEMPT, FLUSH_MS, self.clock.now_ms)
        self.rows: list[tuple[int, bytes]] = []
        self.link: LinkOutput = link_output(plan, plan.links[0], SubtaskId(0, sender), self.output, ATTEMPT)

    def take(self, is_idle: bool = True) -> list[tuple[int, bytes]]:
        rows = self.output.take(is_idle)
        self.rows += rows
        return rows

    def drain(self) -> None:
        """Go on as the task's loop does with nothing to do, until there is nothing left to wait for."""
        while (wait_ms := self.output.wait_ms()) is not None:
            self.clock.advance(max(1, round(wait_ms)))
            self.take()

    def received(self) -> dict[int, list]:
        """The records each receiver got, in order."""
        found: dict[int, list] = {}
        for _, frame in self.rows:
            if frame and frame[0] == BATCH:
                for _, records, _ in elements.unpack_batch(frame):
                    found.setdefault(elements.head(frame).slot, []).extend(records)
        return found


def routed(plan: Plan, records: list, *, by_batch: int = 50) -> dict[int, list]:
    world = World(plan)
    for start in range(0, len(records), by_batch):
        world.link.process(records[start : start + by_batch])
    world.drain()
    return world.received()


def by_owner(records: list, parallelism: int, max_parallelism: int) -> dict[int, list]:
    found: dict[int, list] = {}
    for record in records:
        group = keys.key_group(record, max_parallelism)
        found.setdefault(owner(group, parallelism, max_parallelism), []).append(record)
    return found


any_int = st.one_of(st.integers(-100, 100), st.integers(-(1 << 63), (1 << 63) - 1))
any_key = st.one_of(
    any_int,
    st.integers(1 << 63, 1 << 90),
    st.booleans(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.floats(allow_nan=False),
    st.dates(date(2000, 1, 1)),
    st.uuids(),
    st.tuples(any_int, st.text(max_size=3)),
)


@given(st.lists(any_int, max_size=80), st.integers(1, 12), st.sampled_from([16, 128, 32_768]))
def test_ints_go_to_the_owner_of_their_key_group(records, parallelism, max_parallelism):
    plan = plan_of(parallelism, max_parallelism=max_parallelism)
    assert routed(plan, records) == by_owner(records, parallelism, max_parallelism)


@given(st.lists(st.text(), max_size=80), st.integers(1, 12), st.sampled_from([16, 128, 32_768]))
def test_texts_go_to_the_owner_of_their_key_group(records, parallelism, max_parallelism):
    plan = plan_of(parallelism, max_parallelism=max_parallelism)
    assert routed(plan, records) == by_owner(records, parallelism, max_parallelism)


@given(st.lists(any_key, max_size=80), st.integers(1, 12))
def test_keys_of_any_kind_go_to_the_owner_of_their_key_group(records, parallelism):
    assert routed(plan_of(parallelism), records, by_batch=7) == by_owner(records, parallelism, 128)


@given(
    st.one_of(st.lists(any_int, min_size=1, max_size=200), st.lists(st.text(max_size=300), min_size=1, max_size=50)),
    st.integers(1, 12),
)
def test_whole_batches_and_single_records_are_routed_alike(records, parallelism):
    plan = plan_of(parallelism)
    slow = World(plan)
    assert isinstance(slow.link, HashOutput)
    slow.link._by_batch = False
    slow.link.process(records)
    slow.drain()
    assert routed(plan, records, by_batch=len(records)) == slow.received()


def test_a_batch_of_another_kind_among_ints_is_routed_all_the_same():
    plan = plan_of(4)
    records = [1, 2, 3, True, 1 << 70, "4", 5, 6, 7]
    for by_batch in (1, 3, 9):
        assert routed(plan, records, by_batch=by_batch) == by_owner(records, 4, 128)


@pytest.mark.parametrize("key", [None, [1], {"a": 1}, (1, [2]), float("nan"), object()])
def test_what_is_no_key_is_refused_with_the_record(key):
    plan = plan_of(2, key=lambda r: r[0])
    with pytest.raises(InvalidKey) as refused:
        World(plan).link.process([(1, "good"), (key, "the bad one"), (2, "good")])
    assert refused.value.uid == "keyed"
    assert "the bad one" in refused.value.record


def test_a_text_that_is_no_unicode_is_refused_among_others_that_are():
    with pytest.raises(InvalidKey, match="not valid Unicode") as refused:
        World(plan_of(2)).link.process(["good", "\ud800", "good too"])
    assert "ud800" in refused.value.record


def test_an_error_of_the_key_selector_is_the_users():
    plan = plan_of(2, key=lambda r: 10 // r)
    with pytest.raises(UserCodeFailed, match="ZeroDivisionError") as failed:
        World(plan).link.process([5, 0, 2])
    assert failed.value.uid == "keyed"


def test_an_error_of_the_key_selector_names_the_record_it_failed_on():
    plan = plan_of(2, key=lambda r: 10 // r)
    with pytest.raises(UserCodeFailed) as failed:
        World(plan).link.process([5, 0, 2])
    assert failed.value.record == "0"


def test_rebalance_deals_out_in_turn_across_batches():
    job = mo.Job("turns")
    job.source(mo.from_items([])).rebalance().sink(mo.discard(), parallelism=3)
    world = World(lower(job.graph()))
    for start, stop in ((0, 4), (4, 5), (5, 12), (12, 12), (12, 13)):
        world.link.process(list(range(start, stop)))
    world.drain()
    assert world.received() == {0: [0, 3, 6, 9, 12], 1: [1, 4, 7, 10], 2: [2, 5, 8, 11]}


def test_forward_stays_in_its_lane():
    job = mo.Job("lanes", parallelism=3)
    first, second = job.source(mo.from_items([])), job.source(mo.from_items([]))
    first.union(second).sink(mo.discard())
    plan = lower(job.graph())
    world = World(plan, sender=2)
    world.link.process([1, 2, 3])
    world.drain()
    assert world.received() == {2: [1, 2, 3]}


def test_a_frame_for_a_later_stage_takes_the_same_way_every_time():
    job = mo.Job("far", parallelism=2)
    far = job.source(mo.from_items([]), uid="far", parallelism=3)
    near = far.key_by(identity).map(identity, uid="near", parallelism=5)
    far.map(identity, uid="side", parallelism=3).union(near).key_by(identity).map(identity, uid="join").sink(
        mo.discard()
    )
    plan = lower(job.graph())
    stage = {v.id: v.stage for v in plan.vertices}
    (link,) = (n for n in plan.links if stage[n.target] - stage[n.source] > 1)
    sender = SubtaskId(link.source, 1)
    output = Output(ATTEMPT, FLUSH_MS, lambda: 1_000.0)
    sending = link_output(plan, link, sender, output, ATTEMPT)
    sending.process(list(range(100)))
    output.broadcast(Barrier(3, 0))
    _, here = plan.slot(sender)
    rows = [(slot, elements.head(frame)) for slot, frame in output.take(True) if frame]
    assert len(rows) == 4
    for slot, head in rows:
        assert head.stage == stage[link.target]
        assert slot == relay_slot(here, head.slot, plan.widths[plan.slot(sender)[0] + 1])


def test_a_barrier_follows_all_that_came_before_it_on_every_channel():
    plan = plan_of(3, senders=2)
    world = World(plan, sender=1)
    world.link.process(list(range(1_000)))
    world.output.broadcast(Barrier(5, 123, final=True))
    world.link.process([1, 2, 3])
    world.output.end()
    world.drain()
    for receiver in range(3):
        frames = [f for _, f in world.rows if f and elements.head(f).slot == receiver]
        kinds = [f[0] for f in frames]
        assert kinds.count(BARRIER) == kinds.count(END) == 1
        assert kinds[-1] == END
        at = kinds.index(BARRIER)
        assert elements.unpack_barrier(frames[at]) == Barrier(5, 123, final=True)
        before = [r for f in frames[:at] for _, part, _ in elements.unpack_batch(f) for r in part]
        assert before == by_owner(list(range(1_000)), 3, 128)[receiver]
        assert elements.head(frames[at]) == FrameHead(BARRIER, ATTEMPT, 1, receiver, 0, 1)
    assert world.output.records_out == 1_003


def test_a_record_waits_for_company_no_longer_than_the_flush_interval():
    world = World(plan_of(1))
    assert world.output.wait_ms() is None
    assert world.take() == []
    world.link.process([1])
    assert world.output.wait_ms() == 0, "the last flush was long ago"
    assert world.received() == {}
    world.take(is_idle=True)
    assert world.received() == {0: [1]}

    world.link.process([2])
    world.clock.advance("1ms")
    assert world.take(is_idle=True) == []
    assert world.output.wait_ms() == FLUSH_MS - 1
    world.clock.advance("3ms")
    world.take(is_idle=True)
    assert world.received() == {0: [1, 2]}
    assert world.output.wait_ms() is None


def waited_ms(world: World) -> int:
    """How long a record waits in a subtask that has other work all the time from now on."""
    sent = len(world.received().get(0, ()))
    world.link.process(["waits"])
    began = world.clock.now_ms()
    while len(world.received().get(0, ())) == sent:
        world.clock.advance("1ms")
        world.take(is_idle=False)
    return world.clock.now_ms() - began


def test_a_subtask_that_is_never_idle_lets_records_wait_longer_but_not_for_ever():
    world = World(plan_of(1))
    for _ in range(CALM_MS // FLUSH_MS + 1):
        world.clock.advance(f"{FLUSH_MS}ms")
        world.link.process([1])
        world.take(is_idle=False)
    waited_ms(world)
    assert waited_ms(world) == BUSY_MS


def test_a_subtask_that_was_idle_just_now_lets_records_wait_no_longer_because_it_is_busy():
    world = World(plan_of(1))
    world.take(is_idle=True)
    world.clock.advance(f"{CALM_MS // 2}ms")
    assert waited_ms(world) <= FLUSH_MS
    assert waited_ms(world) == FLUSH_MS


def test_full_frames_leave_at_once_and_are_of_a_bounded_size():
    world = World(plan_of(1))
    world.take()
    record = "x" * 1_000
    for _ in range(40):
        world.link.process([f"{record}{n}" for n in range(256)])
        world.take(is_idle=False)
    frames = [frame for _, frame in world.rows if frame]
    assert sum(map(len, frames)) > 9 << 20
    assert max(map(len, frames)) < 3 * FRAME_BYTES


@pytest.mark.parametrize("size", [4 << 10, 64 << 10])
def test_frames_are_of_a_bounded_size_whatever_the_size_of_records_and_batches(size):
    world = World(plan_of(1))
    world.link.process([n.to_bytes(size, "big") for n in range(2_048)])  # all different, or pickle would notice
    world.drain()
    assert max(len(frame) for _, frame in world.rows) < 4 * FRAME_BYTES


@pytest.mark.parametrize("count", [1, 255, 256, 257, 1_000, 1_030])
def test_records_are_pickled_in_small_parts_of_the_same_size(count):
    world = World(plan_of(1))
    world.link.process(list(range(2 * FEW_RECORDS)))  # the size of a record is known from then on
    world.drain()
    world.rows.clear()
    world.link.process(list(range(count)))
    world.drain()
    sizes = [len(r) for _, f in world.rows if f and f[0] == BATCH for _, r, _ in elements.unpack_batch(f)]
    assert len(sizes) == -(-count // FEW_RECORDS)
    assert sum(sizes) == count and max(sizes) <= FEW_RECORDS
    assert max(sizes) - min(sizes) <= 1


steps = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.integers(1, 600)),
        st.tuples(st.just("time"), st.integers(1, 30)),
        st.tuples(st.just("take"), st.booleans()),
        st.tuples(st.just("barrier"), st.just(0)),
        st.tuples(st.just("pass on"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 4))
def test_whoever_was_sent_a_frame_is_sent_an_empty_row_after_it_before_the_subtask_rests(found, parallelism):
    world = World(plan_of(parallelism))
    sent = checkpoint = 0
    passed_on = Counter()
    for step, number in found:
        match step:
            case "records":
                world.link.process(list(range(sent, sent + number)))
                sent += number
            case "time":
                world.clock.advance(number)
            case "take":
                world.take(is_idle=number)
            case "barrier":
                checkpoint += 1
                world.output.broadcast(Barrier(checkpoint, 0))
            case "pass on":
                frame = elements.HEAD.pack(BATCH, ATTEMPT, 9, 0, 0, 0)
                world.output.pass_on(number % parallelism, frame)
                passed_on[number % parallelism] += 1
    world.drain()
    last_row: dict[int, bytes] = {}
    for slot, frame in world.rows:
        last_row[slot] = frame
    assert set(last_row.values()) <= {b""}, "a frame that nothing follows is stuck in Spark"
    ours = [f for _, f in world.rows if f and elements.head(f).stage == 1]
    assert {f[0] for f in ours} <= {BATCH, BARRIER}
    arrived = sorted(r for f in ours if f[0] == BATCH for _, part, _ in elements.unpack_batch(f) for r in part)
    assert arrived == list(range(sent))
    assert Counter(s for s, f in world.rows if f and elements.head(f).stage == 9) == passed_on


def test_the_rest_needs_no_chaser_because_the_end_carries_it():
    world = World(plan_of(2))
    world.link.process(list(range(10)))
    world.output.end()
    rows = world.output.take_rest()
    assert all(frame for _, frame in rows)
    world.rows += rows
    assert sorted(r for records in world.received().values() for r in records) == list(range(10))
    assert world.output.take_rest() == []


def test_a_record_above_the_limit_is_refused_where_it_is_emitted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output, "MOST_BYTES", 1000)
    world = World(plan_of(2))
    world.link.process([b"x" * 900])
    with pytest.raises(RecordTooLarge, match=r"a record has 1,0\d\d bytes .* and 1,000 are the limit"):
        world.link.process([b"x" * 1000])
        world.drain()
