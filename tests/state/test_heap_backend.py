"""The heap backend keeps the contract of all backends."""

from moorline.api.states import ListStateDescriptor
from moorline.state.heap import HeapBackend
from moorline.testing.backend_contract import KeyedBackendContract
from moorline.testing.backend_contract.base import at, snapshot_of


class TestHeapBackend(KeyedBackendContract):
    def make_backend(self, uid, max_parallelism):
        return HeapBackend(uid, max_parallelism)


class TestCopying:
    """What the heap backend does beyond the contract: it copies only while a snapshot is in the air."""

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
