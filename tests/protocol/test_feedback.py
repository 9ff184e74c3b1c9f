"""What of a loop belongs to a snapshot: told as stories, and against every order in which barriers can come back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorline.protocol.iteration.feedback import (
    BarrierReached,
    BarrierReturned,
    Block,
    CheckpointAborted,
    CloseLog,
    DropLog,
    GiveUpSnapshot,
    Returns,
    SnapshotTaken,
    Unblock,
)


def told(machine: Returns, *events) -> list[str]:
    return [str(action) for event in events for action in machine.handle(event)]


def test_a_log_is_closed_when_the_barrier_has_come_back_on_all_channels():
    returns = Returns(frozenset({0, 1}))
    assert told(returns, SnapshotTaken(1), BarrierReturned(1, 1)) == []
    assert returns.is_logged(0, 1)
    assert not returns.is_logged(1, 1)
    assert told(returns, BarrierReturned(0, 1)) == ["close the log of checkpoint 1"]
    assert not returns.is_logged(0, 1)


def test_a_channel_whose_barrier_is_ahead_of_our_snapshot_waits_for_it():
    returns = Returns(frozenset({0, 1}))
    assert told(returns, BarrierReturned(0, 1), BarrierReached(0, 1)) == ["block channel 0"]
    assert told(returns, SnapshotTaken(1)) == ["unblock channels 0"]
    assert told(returns, BarrierReturned(1, 1)) == ["close the log of checkpoint 1"]


def test_if_all_barriers_were_ahead_there_is_nothing_to_wait_for():
    returns = Returns(frozenset({0}))
    assert told(returns, BarrierReturned(0, 1), SnapshotTaken(1)) == ["close the log of checkpoint 1"]


def test_a_newer_barrier_that_comes_back_first_ends_the_older_checkpoint():
    returns = Returns(frozenset({0, 1}))
    told(returns, SnapshotTaken(1), SnapshotTaken(2), BarrierReturned(0, 1))
    assert told(returns, BarrierReturned(1, 2)) == [
        "drop the log of checkpoint 1",
        "give up checkpoint 1: a newer barrier came back first",
    ]
    assert told(returns, BarrierReturned(0, 2)) == ["close the log of checkpoint 2"]


def test_a_checkpoint_that_somebody_in_the_loop_has_skipped_is_given_up_at_once():
    returns = Returns(frozenset({0}))
    told(returns, BarrierReturned(0, 2))
    assert told(returns, SnapshotTaken(1)) == ["give up checkpoint 1: a newer barrier came back first"]
    assert told(returns, SnapshotTaken(2)) == ["close the log of checkpoint 2"]


def test_an_aborted_checkpoint_has_no_log_and_blocks_nobody():
    returns = Returns(frozenset({0, 1}))
    told(returns, SnapshotTaken(1))
    assert told(returns, CheckpointAborted(1), BarrierReturned(0, 1)) == ["drop the log of checkpoint 1"]
    told(returns, BarrierReturned(0, 2), BarrierReached(0, 2))
    assert told(returns, CheckpointAborted(2)) == ["unblock channels 0"]
    assert told(returns, BarrierReturned(1, 2), BarrierReached(1, 2)) == []


@given(st.data())
def test_every_snapshot_has_one_end_and_in_order_and_none_is_closed_early(data):
    """Barriers come back in order on each channel, some are skipped, snapshots and aborts come at any time."""
    count = data.draw(st.integers(1, 3))
    returns = Returns(frozenset(range(count)))
    coming = {c: sorted(data.draw(st.sets(st.integers(1, 5)))) for c in range(count)}
    reaching: dict[int, list[int]] = {c: [] for c in range(count)}
    snapshots = sorted(data.draw(st.sets(st.integers(1, 5))))
    came: dict[int, set[int]] = {n: set() for n in range(1, 6)}
    taken, blocked, aborted, ended = set(), set(), set(), {}
    while True:
        moves = [("come", c) for c in coming if coming[c]]
        moves += [("reach", c) for c in reaching if reaching[c] and c not in blocked]
        moves += [("take", 0)] if snapshots else []
        moves += [("abort", n) for n in range(1, 6) if n not in aborted and n not in ended]
        moves = [m for m in moves if m[0] != "abort"] or [m for m in moves if blocked]
        if not moves:
            break
        what, which = data.draw(st.sampled_from(moves))
        if what == "come":
            n = coming[which].pop(0)
            came[n].add(which)
            reaching[which].append(n)
            actions = returns.handle(BarrierReturned(which, n))
        elif what == "reach":
            actions = returns.handle(BarrierReached(which, reaching[which].pop(0)))
        elif what == "take":
            n = snapshots.pop(0)
            taken.add(n)
            actions = returns.handle(SnapshotTaken(n))
        else:
            aborted.add(which)
            actions = returns.handle(CheckpointAborted(which))
        for action in actions:
            match action:
                case Block(c):
                    blocked.add(c)
                case Unblock(cs):
                    blocked -= set(cs)
                case CloseLog(n):
                    assert n in taken
                    assert came[n] == set(range(count))
                    assert n not in ended
                    assert n > max(ended, default=0) or all(ended[m] != "closed" for m in ended if m > n)
                    ended[n] = "closed"
                case DropLog(n) | GiveUpSnapshot(n):
                    assert ended.get(n) != "closed"
                    ended[n] = "dropped"
        for n in taken - ended.keys():
            assert any(returns.is_logged(c, n) for c in range(count))
    # Nobody is held for ever, and what came back everywhere was closed, unless it was given up.
    assert not blocked
    for n in taken:
        assert (came[n] == set(range(count))) <= (n in ended)
