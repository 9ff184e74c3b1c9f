"""The RocksDB backend against a plain dict, through checkpoints, failures, restarts and rescaling."""

from itertools import count

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from rocksdb_worlds import scratch
from thoroughness import examples

from moorline.model.key_groups import KeyGroupRange
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.testing.contracts.backend.machines import machines

pytestmark = pytest.mark.slow

SETTINGS = settings(max_examples=examples(6), stateful_step_count=25, deadline=None)


class Factory:
    """Makes backends with next to no room."""

    def __init__(self):
        self.folder, self._numbers, self._made = None, count(), []

    def __call__(self, uid, max_parallelism, moment=None, **options):
        folder, mine = self.folder / f"backend-{next(self._numbers)}", KeyGroupRange(0, max_parallelism)
        options |= {"key_groups": mine, "folder": folder, "memory_budget": 1 << 20}
        self._made.append(RocksDbBackend(uid, max_parallelism, moment, **options))
        return self._made[-1]

    def close(self):
        while self._made:
            self._made.pop().close()


FACTORY = Factory()


@pytest.mark.parametrize("machine", machines(FACTORY), ids=lambda m: m.__name__)
def test_a_state_in_rocksdb_is_what_a_dict_says_it_is(machine):
    with scratch() as FACTORY.folder:
        try:
            run_state_machine_as_test(machine, settings=SETTINGS)
        finally:
            FACTORY.close()
