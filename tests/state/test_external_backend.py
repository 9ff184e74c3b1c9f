"""A backend over an outside store keeps the contract of all backends, and its own promises about the store."""

import dataclasses
import itertools
from functools import partial

import msgspec
import pytest
from external_jobs import GROUPS, Job, new_store

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from moorline.api.state.external import Mark
from moorline.connectors.memory_state import MemoryData, MemoryState
from moorline.errors import (
    StorageError,
)
from moorline.model.key_groups import KeyGroupRange, owned
from moorline.state.backend import CurrentKey, OperatorClock
from moorline.state.external.backend import ExternalBackend
from moorline.state.external.progress import write_progress
from moorline.state.external.table import MAX_LAYERS
from moorline.testing.contracts.backend import KeyedBackendContract
from moorline.testing.contracts.backend.base import ALL, KEYS, VALUE

numbers = itertools.count(1)


# --- the contract of all backends -----------------------------------------------------------------


class World(MemoryState):
    """A store of its own, with a label that all of them have."""

    @property
    def label(self):
        return "world"


class Twin(ExternalBackend):
    """A backend that is restored into a copy of the store, as it was when the snapshot was taken.

    The contract goes on with a backend after it has restored another one from its snapshot, and compares the two.
    """

    worlds: dict[str, MemoryData] = {}

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.store = options["store"]

    def restore(self, restored):
        super().restore(restored)
        for group, progress in self._connection.progress.items():
            world = self.worlds[progress.states[-1]]
            mark = Mark(1, group, group + 1, "earlier", progress.reached, progress.reached)
            self.store.data.marks.setdefault(("job", "op"), {})[1, group] = mark
            self.store.data.documents.update({i: d for i, d in world.documents.items() if i[2].key_group == group})

    def snapshot(self, checkpoint, completed):
        taken = super().snapshot(checkpoint, completed)
        name = f"world {next(numbers)}"
        self.worlds[name] = MemoryData(dict(self.store.data.documents))
        progress, gone, *rest = taken.parts[-1].tables.args
        progress = msgspec.structs.replace(progress, states=[*progress.states, name])
        taken.parts[-1] = dataclasses.replace(taken.parts[-1], tables=partial(write_progress, progress, gone, *rest))
        return taken


class TestExternalBackend(KeyedBackendContract):
    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        groups, store = KeyGroupRange(0, max_parallelism), World(f"contract {next(numbers)}")
        options = {"store": store, "job": "job", "key_groups": groups, "attempt": 2, "key_type": key_type}
        return Twin(uid, max_parallelism, moment, **options)

    # What a snapshot holds is not everything, but what the store does not have yet. So some of the contract reads:

    def test_what_has_not_changed_is_not_written_again(self):
        subtask = self.subtask(VALUE)
        for key in range(1000):
            subtask.at(key)
            subtask.states[0].update(key)
        subtask.checkpoint()
        assert [p.handle.state for p in subtask.checkpoint()] == ["store:world"]

    def test_an_increment_is_as_large_as_the_change(self):
        subtask = self.subtask(VALUE)
        for key in range(1000):
            subtask.at(key)
            subtask.states[0].update(key)
        subtask.checkpoint()
        for key in (5, 7):
            subtask.at(key)
            subtask.states[0].update(0)
        assert [p.handle.rows for p in subtask.checkpoint()] == [2, 128]

    def test_the_chain_goes_on_after_a_restart(self):
        """There is no chain: what was restored has been applied."""
        subtask = self.subtask(VALUE)
        subtask.at("a")
        subtask.states[0].update(1)
        again = self.subtask(VALUE, restored=subtask.checkpoint(), completed=1)
        assert [p.handle.state for p in again.checkpoint()] == ["store:world"]
        assert self.held(again.checkpoint(), VALUE, "a") == {"a": 1}

    @pytest.mark.parametrize("sample", [range(100), [f"k{n}" for n in range(100)], KEYS], ids=["int", "str", "any"])
    def test_state_is_dealt_out_by_key_groups_and_put_together_again(self, sample):
        one = self.subtask(*ALL)
        for key in sample:
            one.at(key)
            self._fill(one.states)
        parts = one.checkpoint()
        for parallelism in (3, 2, 1):
            subtasks = [
                self.subtask(*ALL, restored=parts, completed=1, index=i, parallelism=parallelism)
                for i in range(parallelism)
            ]
            parts = [part for subtask in subtasks for part in subtask.checkpoint()]
        (again,) = subtasks
        assert again.backend.entries() == one.backend.entries() == 5 * len(sample)
        for key in sample:
            again.at(key)
            assert self._shown(again.states) == (1, ["x"], {"k": 1}, 1, 1.0)

    def test_a_snapshot_names_every_state(self, backend):
        for descriptor in ALL:
            backend.bind(descriptor)
        named = [(part.state, part.kind) for part in backend.snapshot(1, 0).parts]
        assert named == [*((d.name, d.kind) for d in ALL), ("store:world", "store")]

    def test_rows_of_a_large_state_come_in_tables_cut_between_key_groups(self):
        pytest.skip("the rows are made by the heap backend's own function, which is tested there")

    @pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
    def test_all_windows_of_a_key_go_where_the_key_goes(self, incremental):
        self.exact_entries = False  # windows of one key are one document
        super().test_all_windows_of_a_key_go_where_the_key_goes(incremental)

    def test_full_snapshots_can_leave_out_what_is_expired(self):
        # What the store has would come back if its removal were left out.
        pytest.skip("this backend has no full snapshots")


# --- what others see ------------------------------------------------------------------------------


@pytest.fixture
def job():
    return Job(new_store()).start()


def test_nothing_is_visible_before_the_checkpoint_is_complete(job):
    job.add("a", "b")
    assert job.visible() == {}
    job.checkpoint(confirm=False)
    assert job.visible() == {}
    job.add("a")
    job.backend.confirmed(1)
    assert job.visible() == {"a": 1, "b": 1}
    job.checkpoint()
    assert job.visible() == {"a": 2, "b": 1}


def test_a_lost_confirmation_is_made_up_for_at_the_next_barrier(job):
    job.add("a")
    job.checkpoint(confirm=False)
    assert job.visible() == {}
    job.add("a")
    job.checkpoint(confirm=False)  # its barrier says that the first is complete
    assert job.visible() == {"a": 1}


def test_a_later_confirmation_covers_a_lost_one(job):
    for _ in range(3):
        job.add("a")
        job.checkpoint(confirm=False, completed=0)
    job.backend.confirmed(3)
    assert job.visible() == {"a": 3}


def test_confirmations_that_come_twice_or_in_the_wrong_order_do_no_harm(job):
    for _ in range(3):
        job.add("a")
        job.checkpoint(confirm=False, completed=0)
    for number in (2, 1, 3, 3, 2, 1):
        job.backend.confirmed(number)
    assert job.visible() == {"a": 3}
    assert job.store.data.round_trips < 8


def test_a_checkpoint_that_was_given_up_is_covered_by_the_next(job):
    job.add("a")
    job.checkpoint(complete=False)
    job.add("b")
    job.checkpoint()
    assert job.visible() == {"a": 1, "b": 1}
    job.start()
    job.add("a", "b")
    job.checkpoint()
    assert job.visible() == {"a": 2, "b": 2}


def test_checkpoints_that_fail_and_fail_are_kept_in_bounds(job):
    for n in range(3 * MAX_LAYERS):
        job.add("a", f"k{n}")
        job.checkpoint(complete=False)
    assert len(job.backend._states.parts["count"].layers) <= MAX_LAYERS
    job.backend.confirmed(2)  # one that nobody can tell apart any more: it waits for a later one
    assert job.visible() == {}
    job.checkpoint()
    assert job.visible() == {"a": 3 * MAX_LAYERS, **{f"k{n}": 1 for n in range(3 * MAX_LAYERS)}}


@pytest.mark.parametrize("confirm", [True, False])
def test_what_is_gone_is_gone_in_the_store_too_also_after_a_restart(job, confirm):
    job.add("a", "b")
    job.checkpoint()
    job.clear("a")
    job.checkpoint(confirm=confirm)
    job.start()
    assert job.visible() == {"b": 1}
    job.add("a")
    job.checkpoint()
    assert job.visible() == {"a": 1, "b": 1}
    assert job.backend.entries() == 2


def test_a_restore_brings_the_store_up_to_the_checkpoint_at_any_parallelism(job):
    found = [f"k{n}" for n in range(50)]
    job.add(*found)
    job.checkpoint(confirm=False)
    assert job.visible() == {}
    parts, store = job.parts, job.store
    seen = 0
    for i in range(3):
        job.start(owned(i, 3, GROUPS.end), parts=parts, attempt=2)
        assert seen < len(job.visible())
        seen = len(job.visible())
    assert seen == 50
    assert {m.reached for m in store.data.marks["job", "op"].values() if m.attempt == 2} == {1}


def test_reading_ahead_is_one_round_trip_for_all_states_of_a_batch():
    descriptors = [ValueStateDescriptor(f"s{n}", int, default=0) for n in range(4)]
    job = Job(new_store(), *descriptors).start()
    before = job.store.data.round_trips
    job.backend.prefetch(range(1000))
    assert job.store.data.round_trips - before == 1
    for key in range(1000):
        job.backend.current.key = key
        for state in job.states:
            state.update(state.value() + 1)
    job.backend.prefetch(range(500, 1500))
    job.backend.prefetch(range(1500))
    assert job.store.data.round_trips - before == 2


def test_a_key_that_nobody_has_announced_is_read_when_it_is_touched(job):
    job.add("a")
    job.checkpoint()
    job.start()
    job.backend.prefetch(["b"])
    job.backend.current.key = "a"
    assert job.states[0].value() == 1
    job.states[0].update(7)
    job.checkpoint()
    assert job.visible() == {"a": 7}


@pytest.mark.parametrize("cache_bytes", [0, 5000, 1 << 20])
def test_the_cache_is_bounded_and_hides_nothing(cache_bytes):
    job = Job(new_store(cache_bytes=cache_bytes)).start()
    for n in range(30):
        job.add(*(f"k{(n * 7 + i) % 100}" for i in range(20)))
        if n % 3 == 0:
            job.checkpoint(confirm=n % 2 == 0)
    job.checkpoint()
    assert sum(job.visible().values()) == 600
    assert job.backend._states.parts["count"]._cached <= cache_bytes


def test_a_store_that_fails_fails_the_attempt_and_drops_nothing(job):
    job.add("a")
    job.checkpoint(confirm=False)

    def fail(step):
        raise ConnectionResetError("gone")

    job.store.data.on_step = fail
    with pytest.raises(StorageError, match="could not apply memory store"):
        job.backend.confirmed(1)
    job.store.data.on_step = lambda step: None
    job.backend.confirmed(1)
    assert job.visible() == {"a": 1}


# --- windows, keys, time to live ------------------------------------------------------------------


def test_windows_of_a_key_are_one_document():
    store = new_store()
    backend, scope = ExternalBackend("op", 16, store=store, job="job", key_groups=GROUPS), CurrentKey()
    total = backend.bind(MapStateDescriptor("total", str, int), scope)
    backend.prefetch(["a"])
    for window in ((0, 10), (10, 20)):
        scope.key = ("a", window)
        total.put("x", window[1])
    backend.snapshot(1, 0)
    backend.confirmed(1)
    assert len(store.data.documents) == 1
    backend.prefetch(["a"])
    scope.key = ("a", (0, 10))
    total.clear()
    backend.snapshot(2, 1)
    backend.confirmed(2)
    scope.key = ("a", (10, 20))
    backend.prefetch(["b"])
    backend.prefetch(["a"])
    assert dict(total.items()) == {"x": 20}


def test_all_keys_are_found_wherever_they_are(job):
    job.add(*range(700))
    job.checkpoint()
    job.add(*range(690, 720))
    job.clear(*range(10))
    assert sorted(job.backend.keys("count")) == list(range(10, 720))
    job.checkpoint()
    job.start()
    seen = []
    for key in job.backend.keys("count"):
        job.backend.current.key = key
        seen.append(key)
        if key % 2:
            job.states[0].clear()
        else:
            job.states[0].update(5)
    assert sorted(seen) == list(range(10, 720))
    job.checkpoint()
    assert job.visible() == dict.fromkeys(range(10, 720, 2), 5)


def test_what_is_over_its_time_leaves_the_store(job):
    moment, seen = OperatorClock(), ValueStateDescriptor("count", int, ttl="1s")
    job = Job(new_store(), seen)
    moment.processing_ms = 10_000
    job.start(moment=moment)
    for key in range(300):
        job.backend.prefetch([key])
        job.backend.current.key = key
        job.states[0].update(key)
    job.checkpoint()
    assert len(job.store.data.documents) == 300
    moment.processing_ms = 20_000
    for n in range(600):
        job.backend.prefetch(["busy"])
        job.backend.current.key = "busy"
        job.states[0].update(n)
    job.checkpoint()
    assert len(job.store.data.documents) == 1


def test_lists_that_only_grow_and_shrink_in_place_are_seen():
    job = Job(new_store(), ListStateDescriptor("seen", object)).start()
    job.backend.prefetch(["a"])
    job.backend.current.key = "a"
    job.states[0].add({"x": [1]})
    job.checkpoint()
    job.backend.prefetch(["a"])
    job.states[0].get()[0]["x"].append(2)
    job.checkpoint()
    job.start()
    job.backend.prefetch(["a"])
    job.backend.current.key = "a"
    assert job.states[0].get() == [{"x": [1, 2]}]
