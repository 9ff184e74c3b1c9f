"""The heap backend keeps the contract of all backends."""

from contextlib import nullcontext

import pytest

from moorline.api.state.descriptors import ListStateDescriptor
from moorline.errors import StateIncompatible
from moorline.model.key_groups import owned
from moorline.model.manifest import NativeHandle, StoredState
from moorline.model.type_tree.tree import INT
from moorline.state.backend import RestoredFiles
from moorline.state.heap.backend import HeapBackend
from moorline.testing.contracts.backend import KeyedBackendContract
from moorline.testing.contracts.backend.base import VALUE, BackendTests, at, snapshot_of


class TestHeapBackend(KeyedBackendContract):
    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        return HeapBackend(uid, max_parallelism, moment, incremental=incremental, key_type=key_type)


class TestCopying:
    """The heap backend beyond the contract: it copies only while a snapshot is pending."""

    def test_nothing_is_copied_without_a_snapshot(self):
        backend = HeapBackend("op", 128)
        state = backend.bind(ListStateDescriptor("list"))
        at(backend, "a")
        inner = [1]
        state.add(inner)
        assert state.get()[0] is inner

    def test_a_value_is_copied_once_per_snapshot_and_key(self):
        backend = HeapBackend("op", 128)
        state = backend.bind(ListStateDescriptor("list"))
        at(backend, "a")
        inner = [1]
        state.add(inner)
        with snapshot_of(backend):
            copy = state.get()[0]
            assert copy is not inner
            assert state.get()[0] is copy
        assert state.get()[0] is copy


class TestRefusals(BackendTests):
    """What the heap backend does not take back."""

    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        return HeapBackend(uid, max_parallelism, moment, incremental=incremental, key_type=key_type)

    def test_files_of_another_backend_are_refused(self):
        handle = NativeHandle(0, 128, backend="rocksdb", states=[StoredState("seen", "value", INT)])
        with pytest.raises(StateIncompatible, match=r"'seen'.*files of the rocksdb backend"):
            HeapBackend("op", 128).restore([RestoredFiles(handle, lambda folder: None)])

    def test_a_state_of_keys_does_not_become_one_of_windows(self):
        subtask = self.subtask(VALUE)
        subtask.at("a")
        subtask.states[0].update(1)
        with pytest.raises(StateIncompatible, match=r"value of int for each key and .* for each window"):
            self.subtask(windows=[VALUE], restored=subtask.checkpoint())

    def test_a_state_of_windows_does_not_become_one_of_keys(self):
        subtask = self.subtask(windows=[VALUE])
        subtask.at("a")
        subtask.windows[0].update(1)
        with pytest.raises(StateIncompatible, match=r"value of int for each window and .* as value of int"):
            self.subtask(VALUE, restored=subtask.checkpoint())

    def test_timers_that_nobody_asks_for_any_more_are_refused(self):
        subtask = self.subtask(timers=["event"])
        subtask.at("a")
        subtask.timers[0].register(10, "a")
        with pytest.raises(StateIncompatible, match="timers:event"):
            self.subtask(VALUE, restored=subtask.checkpoint())

    @pytest.mark.parametrize(
        ("allowed", "is_refused"),
        [(frozenset(), True), (frozenset({"other"}), True), (frozenset({"value"}), False), (None, False)],
        ids=["none", "another", "by name", "any"],
    )
    def test_a_state_is_dropped_only_where_that_is_allowed(self, allowed, is_refused):
        subtask = self.subtask(VALUE)
        subtask.at("a")
        subtask.states[0].update(1)
        backend = HeapBackend("op", 128, allow_dropped=allowed)
        backend.restore([p.restored(owned(0, 1, 128)) for p in subtask.checkpoint()])
        with pytest.raises(StateIncompatible) if is_refused else nullcontext():
            backend.check_all_bound()
