"""One test per sentence about Flink that we promise. The sections are those of ``SEMANTICS.md``.

Where Moorline differs on purpose there is no test here but a decision record: keys hash by our own stable function
(section 1), a channel never ends while a barrier is awaited (section 8).
"""

from __future__ import annotations

import random

import golden
import pytest

import moorline as mo
from moorline.errors import FailureReason
from moorline.model import keys
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from moorline.model.config.run import RunConfig
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import MAX_KEY_GROUPS, default_max_parallelism, owned, owner
from moorline.model.manifest import ElementsHandle, Manifest, OperatorEntry, OperatorHandles, next_checkpoint
from moorline.protocol import coordination as co
from moorline.protocol.alignment import (
    Alignment,
    BarrierArrived,
    Block,
    CheckpointAborted,
    GiveUpCheckpoint,
    TakeSnapshot,
    Unblock,
)
from moorline.protocol.coordination import Coordination
from moorline.protocol.lowering import lower
from moorline.protocol.redistribution import key_groups_of, redistribute
from moorline.protocol.restarts import Failure, RestartAfter, Restarts
from moorline.protocol.restarts import GiveUp as NoMore
from moorline.protocol.retention import superfluous
from moorline.protocol.triggering import StartCheckpoint, Triggering

A, B = SubtaskId(0, 0), SubtaskId(0, 1)


# --- 1 Key groups -----------------------------------------------------------------------------


def test_an_operator_index_is_key_group_times_parallelism_over_max_parallelism():
    """Section 1: ``operatorIndex = keyGroup * parallelism / maxParallelism`` (integer division)."""
    for max_parallelism, parallelism, pairs in golden.ranges():
        for subtask, (first, last) in enumerate(pairs):
            assert owner(first, parallelism, max_parallelism) == first * parallelism // max_parallelism == subtask
            assert owner(last, parallelism, max_parallelism) == subtask


def test_128_key_groups_over_3_subtasks():
    """Section 1: example max 128, p 3: 0-42, 43-85, 86-127."""
    assert [str(owned(i, 3, 128)) for i in range(3)] == ["[0,43)", "[43,86)", "[86,128)"]


@pytest.mark.parametrize(("parallelism", "expected"), [(85, 128), (86, 256), (171, 256), (200, 512), (342, 1024)])
def test_the_default_max_parallelism(parallelism, expected):
    """Section 1: default max = min(max(nextPow2(p + p/2), 128), 32768)."""
    assert default_max_parallelism(parallelism) == expected


def test_max_parallelism_is_from_1_to_32768():
    """Section 1: bounds 1..32768."""
    assert MAX_KEY_GROUPS == 32768
    mo.Job("j", max_parallelism=1), mo.Job("j", max_parallelism=32768)
    for wrong in (0, 32769):
        with pytest.raises(mo.MoorlineError):
            mo.Job("j", max_parallelism=wrong)


def test_null_keys_are_refused():
    """Section 1: null keys are refused."""
    with pytest.raises(keys.NotAKey):
        keys.encode(None)


def graph(parallelism: int, max_parallelism: int | None = None):
    job = mo.Job("j", parallelism=parallelism, max_parallelism=max_parallelism)
    job.source(mo.from_items([]), uid="in", parallelism=1).key_by(abs).reduce(max, uid="op").sink(mo.discard(), uid="o")
    return job.graph()


def snapshot(max_parallelism: int, *elements: list[ElementsHandle]) -> Manifest:
    subtasks = [OperatorHandles("op", [], e) for e in elements] or [OperatorHandles("op")]
    return Manifest("j", 1, 1, 0, [OperatorEntry("op", "op", len(subtasks), max_parallelism, subtasks)])


def test_the_snapshots_max_parallelism_is_adopted_unless_the_user_set_one_or_needs_more():
    """Section 1: max differs: adopt the snapshot's value if the user did not set one. Where Flink then has errors,
    keyed state is dealt out anew (docs/decisions/0030)."""
    assert key_groups_of(snapshot(1024), graph(3)) == 1024
    assert key_groups_of(snapshot(1024), graph(3, max_parallelism=128)) == 128
    assert key_groups_of(snapshot(2), graph(3)) == 128


# --- 2 Operator state redistribution ----------------------------------------------------------


def dealt(parallelism: int, mode: str, *counts: dict[str, int]) -> list[dict[str, list[tuple[int, int, int]]]]:
    elements = [[ElementsHandle(s, mode, n, [b"%d" % t]) for s, n in c.items()] for t, c in enumerate(counts)]
    plan = lower(graph(parallelism))
    found = redistribute(snapshot(128, *elements), plan, "s")
    vertex = next(v.id for v in plan.vertices if "op" in v.operators)
    return [
        {s: [(int(p.handle.inline[0]), p.start, p.stop) for p in parts] for s, parts in restore["op"].elements.items()}
        for restore in (found[vertex, i] for i in range(parallelism))
    ]


def test_even_split_state_stays_where_it_was_at_the_same_parallelism():
    """Section 2: parallelism unchanged: even-split state stays exactly where it was."""
    assert dealt(2, "split", {"s": 5}, {"s": 1}) == [{"s": [(0, 0, 5)]}, {"s": [(1, 0, 1)]}]


def test_five_elements_from_two_to_three():
    """Section 2: golden: 3+2 elements, p 2->3: [0,1], [2 | 0], [1]."""
    assert dealt(3, "split", {"s": 3}, {"s": 2}) == [
        {"s": [(0, 0, 2)]},
        {"s": [(0, 2, 3), (1, 0, 1)]},
        {"s": [(1, 1, 2)]},
    ]


def test_the_next_name_starts_at_the_first_subtask_without_an_extra_element():
    """Section 2: two names of 4 elements to p 3: name a starts at subtask 0, name b at subtask 1."""
    found = dealt(3, "split", {"a": 2, "b": 2}, {"a": 2, "b": 2})
    assert [sum(stop - start for _, start, stop in f["a"]) for f in found] == [2, 1, 1]
    assert [sum(stop - start for _, start, stop in f["b"]) for f in found] == [1, 2, 1]
    assert found[1]["b"][0] == (0, 0, 2)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_union_state_goes_whole_to_every_subtask_in_old_order(parallelism):
    """Section 2: every subtask gets every element of every old subtask, old order."""
    assert dealt(parallelism, "union", {"u": 1}, {"u": 2}) == [{"u": [(0, 0, 1), (1, 0, 2)]}] * parallelism


# --- 7 Coordinator ----------------------------------------------------------------------------


def test_ids_start_at_1_and_go_on_after_the_restored_one():
    """Section 7: ids start at 1 and continue from the restored id + 1."""
    assert next_checkpoint([]) == 1
    assert next_checkpoint([Manifest("j", 1, 41, 0, [])]) == 42


def test_min_pause_counts_from_completion():
    """Section 7: a periodic request inside min-pause is dropped; min pause counts from completion."""
    machine = Triggering(interval_ms=10, min_pause_ms=100, max_concurrent=1, next_id=1, started_ms=0)
    assert machine.time_passed(10) == StartCheckpoint(1, False)
    machine.ended(1, True, 50)
    assert machine.time_passed(149) is None
    assert machine.time_passed(150) == StartCheckpoint(2, False)


def completed(machine: Coordination, checkpoint: int) -> list[co.Action]:
    machine.handle(co.Started(checkpoint, 0))
    for subtask in (A, B):
        machine.handle(co.Acknowledged(subtask, checkpoint, ()))
    return machine.handle(co.Published(checkpoint))


def coordination(tolerable: int = 0) -> Coordination:
    return Coordination(frozenset({A, B}), timeout_ms=600, tolerable=tolerable)


def test_completion_publishes_first_then_notifies_then_drops_lower_ids():
    """Section 7: finalise metadata -> add to store -> drop pending with lower id, notify."""
    machine = coordination()
    machine.handle(co.Started(1, 0)), machine.handle(co.Started(2, 0))
    assert machine.handle(co.Acknowledged(A, 2, ())) == []
    assert [type(a) for a in machine.handle(co.Acknowledged(B, 2, ()))] == [co.Publish]
    after = machine.handle(co.Published(2))
    assert after == [co.ConfirmEverywhere(2, False), co.AbortEverywhere(1, FailureReason.SUBSUMED)]
    assert not machine.pending


def test_retention_removes_from_the_oldest():
    """Section 7: while size > num-retained remove from oldest."""
    assert superfluous([4, 5, 6], retained=1) == [4, 5]


def test_tolerable_failures_are_consecutive_and_a_success_resets_the_counter():
    """Section 7: tolerable failures: consecutive; counter resets at a success."""
    machine = coordination(tolerable=1)
    for checkpoint in (1, 3, 5):
        machine.handle(co.Started(checkpoint, 0))
        actions = machine.handle(co.Declined(A, checkpoint, FailureReason.DECLINED))
        assert not any(isinstance(a, co.FailAttempt) for a in actions)
        completed(machine, checkpoint + 1)


def test_each_checkpoint_is_counted_once():
    """Section 7: each checkpoint id counted once."""
    machine = coordination(tolerable=1)
    machine.handle(co.Started(1, 0))
    machine.handle(co.Declined(A, 1, FailureReason.DECLINED))
    assert machine.handle(co.Declined(B, 1, FailureReason.DECLINED)) == []
    assert machine.failures_in_a_row == 1


def test_what_counts_as_a_failure():
    """Section 7: counted: IO, async failure, declined, expired, finalise failure. Not: subsumed, task closing."""
    counted = {r for r in FailureReason if r.counts}
    assert counted == {
        FailureReason.EXPIRED,
        FailureReason.DECLINED,
        FailureReason.UPLOAD_FAILED,
        FailureReason.PUBLISH_FAILED,
    }


# --- 8 Barriers -------------------------------------------------------------------------------


def aligned(channels: int, *events) -> list[list]:
    machine = Alignment(frozenset(range(channels)))
    return [machine.handle(e) for e in events]


def test_the_first_barrier_of_a_higher_id_starts_alignment_and_blocks_its_channel():
    """Section 8: first barrier of a new higher id starts alignment; a channel whose barrier came is blocked."""
    assert aligned(2, BarrierArrived(0, 1)) == [[Block(0)]]


def test_when_all_channels_have_delivered_snapshot_then_unblock():
    """Section 8: when all open channels delivered, snapshot, then unblock."""
    assert aligned(2, BarrierArrived(0, 1), BarrierArrived(1, 1))[-1] == [TakeSnapshot(1), Unblock((0,))]


def test_a_barrier_with_a_lower_id_or_of_an_ended_checkpoint_is_passed_over():
    """Section 8: barrier with lower id or of an already ended checkpoint: just unblock."""
    assert aligned(1, BarrierArrived(0, 2), BarrierArrived(0, 1), BarrierArrived(0, 2))[1:] == [[], []]


def test_a_higher_id_while_one_is_pending_declines_the_pending_one():
    """Section 8: higher id while one is pending: abort the pending (declined, subsumed)."""
    assert aligned(2, BarrierArrived(0, 1), BarrierArrived(1, 2))[-1] == [GiveUpCheckpoint(1), Unblock((0,)), Block(1)]


def test_a_cancelled_checkpoint_unblocks():
    """Section 8: a cancel marker with id >= current aborts and unblocks. (Ours comes from the driver.)"""
    assert aligned(2, BarrierArrived(0, 1), CheckpointAborted(1))[-1] == [Unblock((0,))]


# --- 10 Restart -------------------------------------------------------------------------------


def test_without_checkpoints_there_is_no_restart():
    """Section 10: no checkpointing -> no restart."""
    assert RunConfig().restart_strategy == NoRestart()
    assert isinstance(Restarts(NoRestart(), random.Random(0)).handle(Failure(0, None, 0)), NoMore)


def test_with_checkpoints_and_nothing_set_the_delay_is_exponential():
    """Section 10: exponential-delay: 1 s, x1.5, cap 1 min, reset after 1 h healthy, jitter 0.1, unlimited."""
    strategy = RunConfig(checkpoints=Checkpoints("memory://x")).restart_strategy
    assert isinstance(strategy, ExponentialDelay)
    assert (strategy.initial_ms, strategy.multiplier, strategy.maximum_ms) == (1000, 1.5, 60_000)
    assert (strategy.reset_after_ms, strategy.jitter, strategy.attempts) == (3_600_000, 0.1, None)


def test_what_the_user_sets_goes_before_the_default():
    """Section 10: and nothing set."""
    config = RunConfig(checkpoints=Checkpoints("memory://x"), restart=FixedDelay())
    assert config.restart_strategy == FixedDelay()


def test_fixed_delay_is_one_attempt_after_one_second():
    """Section 10: fixed-delay: 1 attempt, 1 s."""
    machine = Restarts(FixedDelay(), random.Random(0))
    assert machine.handle(Failure(0, None, 0)) == RestartAfter(1000)
    assert isinstance(machine.handle(Failure(10, None, 0)), NoMore)


def test_failure_rate_is_one_per_minute():
    """Section 10: failure-rate: 1 per 1 min, 1 s."""
    machine = Restarts(FailureRate(), random.Random(0))
    assert machine.handle(Failure(0, None, 0)) == RestartAfter(1000)
    assert machine.handle(Failure(60_000, None, 0)) == RestartAfter(1000)
    assert isinstance(machine.handle(Failure(60_001, None, 0)), NoMore)


def test_the_exponential_delay_starts_anew_after_an_hour_of_health():
    """Section 10: reset after 1 h healthy."""
    machine = Restarts(ExponentialDelay(jitter=0), random.Random(0))
    delays = [machine.handle(Failure(t, None, 0)) for t in (0, 10_000, 20_000, 20_000 + 3_600_000 + 2250)]
    assert delays == [RestartAfter(1000), RestartAfter(1500), RestartAfter(2250), RestartAfter(1000)]
