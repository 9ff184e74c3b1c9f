"""The RocksDB backend keeps the contract of all backends, with full snapshots and with incremental ones."""

import itertools

import numpy as np
import pytest
from rocksdb_worlds import scratch

from moorline.api.state.descriptors import ReducingStateDescriptor
from moorline.model.key_groups import KeyGroupRange
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.state.rocksdb.checkpoints.uploads import StoredFile
from moorline.testing.contracts.backend import KeyedBackendContract
from moorline.testing.contracts.backend.base import at


class RocksDbContract(KeyedBackendContract):
    #: What is expired is removed when a batch is over, by rows and not by keys.
    sweeps_on_access = False
    #: Files have other sizes than rows: see test_rocksdb_increments.py.
    test_an_increment_is_as_large_as_the_change = None
    #: RocksDB may merge all its files at any time, if they are small.
    test_the_chain_goes_on_after_a_restart = None

    def test_a_plain_function_may_have_a_method_called_reduce(self, backend):
        """As in the contract, but with a type: a NumPy number is no plain data, and here it is stored at once."""
        state = backend.bind(ReducingStateDescriptor("max", np.maximum, int))
        at(backend, "a")
        for n in (3, 9, 4):
            state.add(n)
        assert state.get() == 9

    @pytest.fixture(autouse=True)
    def _folders(self):
        with scratch() as folder:
            self._folder, self._numbers, self._made = folder, itertools.count(), []
            yield
            for backend in self._made:
                backend.close()

    def made(self, uid, max_parallelism, moment=None, **options):
        folder = self._folder / f"backend-{next(self._numbers)}"
        everything = KeyGroupRange(0, max_parallelism)
        options.setdefault("memory_budget", 16 << 20)
        backend = RocksDbBackend(uid, max_parallelism, moment, key_groups=everything, folder=folder, **options)
        self._made.append(backend)
        return backend


class TestRocksDbBackend(RocksDbContract):
    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        return self.made(uid, max_parallelism, moment, incremental=incremental, key_type=key_type)


@pytest.mark.slow  # the same contract once more; hundreds of databases
class TestRocksDbBackendWithFilesOnly(RocksDbContract):
    """Full snapshots are checkpoints of RocksDB too, of which all files are new."""

    writes_rows = False

    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        backend = self.made(uid, max_parallelism, moment, incremental=True, key_type=key_type)
        if not incremental:
            backend._uploads.base = lambda completed: StoredFile()
        return backend


@pytest.mark.slow  # the same contract once more; hundreds of databases
class TestRocksDbBackendWithoutRoom(RocksDbContract):
    """The caches hold next to nothing, so everything goes through the database."""

    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        backend = self.made(uid, max_parallelism, moment, incremental=incremental, key_type=key_type)
        backend._room.limit = 1
        return backend
