"""Commits on the driver: one at a time, in order, once; and no checkpoint is confirmed before its batches are in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.errors import InvalidTransition
from moorline.protocol.connectors.committing import Commit, CommitBatch, Committing, GiveUpCommit
from moorline.protocol.coordination import ConfirmEverywhere


def batch(checkpoint: int, uid: str = "table", lineage: str = "a") -> CommitBatch:
    return CommitBatch(checkpoint, uid, lineage)


def test_without_batches_a_checkpoint_is_confirmed_at_once():
    assert Committing().published(3, False, []) == [ConfirmEverywhere(3, False)]


def test_a_checkpoint_is_confirmed_when_its_batch_is_committed():
    machine = Committing()
    assert machine.published(3, True, [batch(3)]) == [Commit(batch(3))]
    assert machine.committed(batch(3)) == [ConfirmEverywhere(3, True)]


def test_what_was_restored_comes_first():
    machine = Committing()
    assert machine.restored([batch(2)]) == [Commit(batch(2))]
    assert machine.published(3, False, [batch(2), batch(3)]) == []
    assert machine.committed(batch(2)) == [Commit(batch(3))]
    assert machine.committed(batch(3)) == [ConfirmEverywhere(3, False)]


def test_the_same_number_of_another_lineage_is_another_batch():
    machine = Committing()
    machine.restored([batch(2, lineage="before")])
    machine.committed(batch(2, lineage="before"))
    assert machine.published(2, False, [batch(2)]) == [Commit(batch(2))]


def test_after_a_failure_nothing_is_committed_or_confirmed():
    machine = Committing()
    machine.published(3, False, [batch(3), batch(4)])
    assert machine.failed(batch(3), "no room") == [
        GiveUpCommit("checkpoint 3 of sink 'table' could not be committed: no room")
    ]
    assert machine.published(5, False, [batch(5)]) == []
    assert machine.restored([batch(1)]) == []


def test_the_end_of_a_commit_that_is_not_in_progress_is_refused():
    with pytest.raises(InvalidTransition):
        Committing().committed(batch(1))


@given(st.lists(st.sets(st.sampled_from("tuv")), max_size=8), st.data())
def test_every_batch_is_committed_once_in_order_and_before_its_checkpoint_is_confirmed(sinks, data):
    """``sinks[n]``: those that staged something for checkpoint n+1. Snapshots repeat what is not confirmed."""
    machine, done, running = Committing(), [], []
    unconfirmed: set[CommitBatch] = set()

    def obey(actions):
        for action in actions:
            if isinstance(action, Commit):
                assert not running
                running.append(action.batch)
            else:
                assert isinstance(action, ConfirmEverywhere)
                covered = {b for b in unconfirmed if b.checkpoint <= action.checkpoint}
                assert covered <= set(done)
                unconfirmed.difference_update(covered)

    for number, uids in enumerate(sinks, 1):
        unconfirmed |= {batch(number, uid) for uid in uids}
        obey(machine.published(number, False, sorted(unconfirmed)))
        while running and data.draw(st.booleans()):
            done.append(running.pop())
            obey(machine.committed(done[-1]))
    while running:
        done.append(running.pop())
        obey(machine.committed(done[-1]))
    assert done == sorted(batch(n, uid) for n, uids in enumerate(sinks, 1) for uid in uids)
    assert not unconfirmed
