"""What a job does with what it finds in an outside store when it starts."""

import pytest
from external_jobs import COUNT, GROUPS, Job, new_store

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.connectors.memory_state import MemoryState, memory_state
from moorline.errors import (
    ExternalStateAhead,
    ExternalStateBehind,
    ExternalStateLeftOver,
    ExternalStateTaken,
    StateIncompatible,
    StorageError,
)
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange, owned
from moorline.state.external.progress import StoreProgress
from moorline.state.heap.backend import HeapBackend
from moorline.testing.contracts.backend.storage import write


@pytest.fixture
def job():
    return Job(new_store()).start()


# --- starts ---------------------------------------------------------------------------------------


def test_a_store_that_is_ahead_of_the_restored_checkpoint_is_refused(job):
    job.add("a")
    old = job.checkpoint()
    job.add("a")
    job.checkpoint()
    with pytest.raises(ExternalStateAhead) as caught:
        job.start(parts=old, complete=1)
    assert (caught.value.restored, caught.value.reached) == (1, 2)
    assert job.visible() == {"a": 2}
    job.start()
    job.add("a")
    job.checkpoint()
    assert job.visible() == {"a": 3}


def stopped(job, *, confirm=True):
    """A stop with a savepoint: its number and parts, and the final checkpoint after it."""
    job.add("a", "b")
    job.checkpoint()
    job.add("a")
    job.clear("b")
    savepoint = job.checkpoint(complete=False)
    number = job.number
    job.checkpoint(confirm=confirm)
    return number, savepoint


@pytest.mark.parametrize("confirm", [True, False])
def test_after_a_stop_the_job_goes_on_from_its_savepoint_or_from_its_final_checkpoint(job, confirm):
    number, savepoint = stopped(job, confirm=confirm)
    final, parts = job.complete, job.parts
    for mine in (GROUPS, KeyGroupRange(0, 8)):
        job.start(mine, parts=savepoint, complete=number)
        job.start(mine, parts=parts, complete=final)
    job.start(parts=savepoint, complete=number)
    assert job.visible() == {"a": 2}
    job.add("a")
    job.checkpoint()
    assert job.visible() == {"a": 3}
    for older, its_number in ((savepoint, number), (parts, final)):
        with pytest.raises(ExternalStateAhead):
            job.start(parts=older, complete=its_number)


class Away(MemoryState):
    """A store that is gone as soon as it has been taken over."""

    def open(self, owner):
        session = super().open(owner)

        def apply(checkpoint, changes):
            raise StorageError(self.where, "apply", "it is away")

        session.apply = apply
        return session


def test_a_subtask_that_dies_half_way_through_its_start_leaves_the_way_back_to_the_savepoint(job):
    number, savepoint = stopped(job)
    store, job.store = job.store, Away(job.store.name)
    with pytest.raises(StorageError, match="it is away"):
        job.start()
    job.store = store
    job.start(parts=savepoint, complete=number)
    assert job.visible() == {"a": 2}


def test_an_operator_that_never_stored_anything_can_go_back_to_the_savepoint_of_a_stop(job):
    savepoint = job.checkpoint(complete=False)
    job.checkpoint()
    job.start()
    job.start(parts=savepoint, complete=1)
    job.add("a")
    job.checkpoint()
    assert job.visible() == {"a": 1}


def test_a_snapshot_of_an_earlier_version_marks_the_store_with_its_own_number(job):
    assert StoreProgress(7, 3, ["count"]).as_of == 7
    assert StoreProgress(7, 3, ["count"], changed=5).as_of == 5


def test_a_store_that_lost_what_the_checkpoint_builds_on_is_refused(job):
    job.add("a")
    job.checkpoint()
    job.checkpoint()
    job.store.forget("job")
    with pytest.raises(ExternalStateBehind) as caught:
        job.start()
    assert (caught.value.needed, caught.value.reached) == (1, 0)


def test_a_store_that_lost_only_what_the_checkpoint_holds_itself_is_mended(job):
    job.add("a")
    job.checkpoint()
    job.store.forget("job")
    job.start()
    assert job.visible() == {"a": 1}


def test_a_fresh_start_over_something_is_refused_unless_configured_otherwise(job):
    job.add("a")
    job.checkpoint()
    job.add("a", "b")
    job.checkpoint()
    name = job.store.name
    with pytest.raises(ExternalStateLeftOver, match='on_fresh_start="clear"') as caught:
        job.start(restored=False)
    assert caught.value.reached == 2
    assert job.visible() == {"a": 2, "b": 1}

    job.store = memory_state(name, on_fresh_start="keep")
    job.start(restored=False)
    job.add("a", "c")
    job.number, job.complete = 0, 0  # the numbers begin again, and are lower than what the store has seen
    job.checkpoint()
    assert job.visible() == {"a": 3, "b": 1, "c": 1}
    job.start()
    job.add("a")
    job.checkpoint()
    assert job.visible() == {"a": 4, "b": 1, "c": 1}

    job.store = memory_state(name, on_fresh_start="clear")
    job.start(restored=False)
    assert job.visible() == {}
    job.add("a")
    job.number, job.complete = 0, 0
    job.checkpoint()
    assert job.visible() == {"a": 1}


def test_every_subtask_of_a_fresh_start_clears_its_own_key_groups(job):
    job.add(*range(100))
    job.checkpoint()
    job.store = memory_state(job.store.name, on_fresh_start="clear")
    job.start(KeyGroupRange(0, 8), restored=False, attempt=5)
    first = job.backend
    assert 0 < len(job.visible()) < 100
    job.start(KeyGroupRange(8, 16), restored=False, attempt=5)
    assert job.visible() == {}
    for backend, keys_of in ((first, 0), (job.backend, 8)):
        key = next(k for k in range(100) if keys.key_group(k, 16) // 8 == keys_of // 8)
        backend.prefetch([key])
        backend.current.key = key
        backend.bind(COUNT).update(1)
        backend.snapshot(1, 0)
        backend.confirmed(1)
    assert len(job.visible()) == 2


def test_a_fresh_start_that_never_came_to_a_checkpoint_leaves_nothing_to_refuse(job):
    job.add("a")
    job.start(restored=False)
    job.add("a")
    job.checkpoint()
    assert job.visible() == {"a": 1}


def test_an_attempt_that_comes_after_its_successor_is_refused_whatever_it_wants(job):
    job.add("a")
    job.checkpoint()
    job.start()
    late = Job(memory_state(job.store.name, on_fresh_start="clear"))
    with pytest.raises(ExternalStateTaken) as caught:
        late.start(restored=False)
    assert (caught.value.ours, caught.value.theirs) == (1, 2)
    assert job.visible() == {"a": 1}


def test_a_run_without_checkpoints_is_always_the_first_attempt(job):
    """Every run is attempt 1 and ends with checkpoint 1."""
    for policy, expected in (("keep", {"a": 1}), ("keep", {"a": 2}), ("clear", {"a": 1})):
        job.store = memory_state(job.store.name, on_fresh_start=policy)
        job.start(restored=False, attempt=1)
        job.add("a")
        job.number = job.complete = 0
        job.checkpoint()
        assert job.visible() == expected


def test_marks_do_not_pile_up(job):
    job.add("a")
    job.checkpoint()
    for n in range(10):
        for i in range(n % 3 + 1):
            job.start(owned(i, n % 3 + 1, GROUPS.end), attempt=n + 2, complete=1, parts=job.parts)
    assert len(job.store.data.marks["job", "op"]) <= 6


def test_a_state_that_changed_its_type_is_refused(job):
    job.add("a")
    job.checkpoint()
    job.checkpoint()
    with pytest.raises(StateIncompatible, match="stored as value of int, in memory store"):
        job.start(descriptors=[ValueStateDescriptor("count", str)])


def test_a_state_may_be_dropped_if_that_is_allowed_and_is_gone_then(job):
    other = ValueStateDescriptor("other", int, default=0)
    job.add("a")
    job.checkpoint()
    job.checkpoint()
    with pytest.raises(StateIncompatible, match="no such state"):
        job.start(descriptors=[other])
    job.start(descriptors=[other], allow_dropped=frozenset({"count"}))
    assert job.visible() == {}
    job.checkpoint()
    job.start(descriptors=[other, COUNT])
    job.backend.prefetch(["a"])
    job.backend.current.key = "a"
    assert job.states[1].value() == 0


def test_a_new_state_in_a_job_that_has_checkpoints_starts_empty(job):
    """The checkpoint knows nothing of the store."""
    new = Job(new_store())
    new.start(complete=7)
    new.add("a")
    new.number, new.complete = 7, 7
    new.checkpoint()
    assert new.visible() == {"a": 1}
    assert new.store.data.marks["job", "op"][1, 0].reached == 8


def test_leftovers_are_refused_too_when_the_checkpoint_knows_nothing_of_the_store(job):
    job.add("a")
    job.checkpoint()
    with pytest.raises(ExternalStateLeftOver):
        job.start(parts=[], complete=1)


def test_state_moves_from_the_heap_into_a_store(job):
    heap = HeapBackend("op", GROUPS.end)
    count = heap.bind(COUNT)
    for key in range(50):
        heap.current.key = key
        count.update(key)
    parts = write(heap.snapshot(3, 0), GROUPS, [], "heap")
    new = Job(new_store()).start(parts=parts, complete=3)
    assert new.visible() == {key: key for key in range(50)}
