"""A subtask with a RocksDB backend, and its checkpoints in memory."""

import os
import tempfile
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from moorline.model.key_groups import KeyGroupRange, owned
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.testing.contracts.backend.base import MAX_PARALLELISM, BackendTests, Subtask

#: RocksDB makes sure that its files reach the disk. Here nobody needs that, and it takes most of the time.
MEMORY_DISK = Path("/dev/shm")


@contextmanager
def scratch():
    """A folder on a disk that is as fast as can be."""
    is_there = MEMORY_DISK.is_dir() and os.access(MEMORY_DISK, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="moorline-", dir=MEMORY_DISK if is_there else None) as folder:
        yield Path(folder)


@contextmanager
def new_world(**options):
    """A world of its own, closed at the end."""
    with scratch() as folder:
        world = World(folder, **options)
        try:
            yield world
        finally:
            world.close()


class World(BackendTests):
    """Makes subtasks whose backends own the key groups of their place."""

    def __init__(self, folder, **options):
        self.folder, self.options, self._numbers = folder, options, count()
        self.made = []

    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=True, key_type=None):
        options = {"key_groups": self._mine, "memory_budget": 16 << 20, **self.options}
        backend = RocksDbBackend(
            uid,
            max_parallelism,
            moment,
            folder=self.folder / f"backend-{next(self._numbers)}",
            incremental=incremental,
            key_type=key_type,
            **options,
        )
        self.made.append(backend)
        return backend

    def start(self, *descriptors, index=0, parallelism=1, **options) -> Subtask:
        """A subtask of an operator, at its place."""
        self._mine = owned(index, parallelism, MAX_PARALLELISM)
        return Subtask(self, *descriptors, index=index, parallelism=parallelism, **options)

    def close(self):
        for backend in self.made:
            backend.close()


EVERYTHING = KeyGroupRange(0, MAX_PARALLELISM)
