"""A base that storage has lost while the job runs: the state is still there, so the job need not suffer for it."""

import pytest

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.errors import SnapshotCorrupt
from moorline.model.config.thresholds import Folding
from moorline.model.key_groups import KeyGroupRange
from moorline.state.heap.backend import HeapBackend
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.restore.state import as_stored
from moorline.subtask.snapshot.capture import Captured
from moorline.subtask.snapshot.writer import Writer

GROUPS = KeyGroupRange(0, 16)
COUNT = ValueStateDescriptor("count", int)
#: Two increments at most, and every table is too large to be copied instead.
FOLDING = Folding(growth=None, max_increments=2, copied_entries=-1, copied_share=2)


class Job:
    """One subtask whose checkpoints all complete."""

    def __init__(self):
        self.store, self.notices, self.number, self.handles = MemoryStore(), [], 0, []
        self.backend = HeapBackend("op", GROUPS.end, incremental=True, folding=FOLDING)
        self.count = self.backend.bind(COUNT)

    def checkpoint(self, **changes):
        for key, value in changes.items():
            self.backend.current.key = key
            self.count.update(value)
        self.number += 1
        taken = self.backend.snapshot(self.number, self.number - 1)
        captured = [Captured("op", taken, [], {}, [])]
        notice = lambda uid, kind, text: self.notices.append((uid, kind, text))  # noqa: E731
        (written,) = Writer(self.store, captured, self.number, 0, 1, GROUPS, notice=notice)()
        taken.done(written.keyed)
        self.handles = written.keyed
        return [handle.increment for handle in self.handles]

    def restored(self):
        backend = HeapBackend("op", GROUPS.end)
        backend.restore(list(as_stored(self.handles, GROUPS, self.store)))
        count = backend.bind(COUNT)
        found = {}
        for key in list(backend.keys("count")):
            backend.current.key = key
            found[key] = count.value()
        return found


def test_a_chain_is_folded_when_it_is_long():
    job = Job()
    chains = [job.checkpoint(a=1, b=1), job.checkpoint(a=2), job.checkpoint(a=3), job.checkpoint(a=4)]
    assert chains == [[False], [False, True], [False, True, True], [False]]
    assert job.restored() == {"a": 4, "b": 1}


def test_the_checkpoint_after_one_that_could_not_be_folded_stands_for_itself():
    job = Job()
    job.checkpoint(a=1, b=1)
    job.checkpoint(a=2)
    job.checkpoint(a=3)
    job.store.delete([job.handles[0].file.path])
    assert job.checkpoint(a=4) == [False, True, True, True]  # it is complete, and rests on what is lost
    with pytest.raises(SnapshotCorrupt):
        job.restored()
    ((uid, kind, text),) = job.notices
    assert (uid, kind) == ("op", "chain_lost") and "'count'" in text and "written whole" in text
    assert job.checkpoint(a=5) == [False]
    assert job.restored() == {"a": 5, "b": 1}
    assert job.checkpoint(a=6) == [False, True]
    assert len(job.notices) == 1


def test_a_fold_that_was_never_written_is_not_tried_again():
    job = Job()
    job.checkpoint(a=1, b=1)
    job.checkpoint(a=2)
    job.checkpoint(a=3)
    taken = job.backend.snapshot(4, 3)
    assert not taken.fold  # nothing has changed
    job.backend.current.key = "a"
    job.count.update(2)
    job.number = 4
    taken = job.backend.snapshot(4, 3)
    assert taken.fold
    taken.done(None)
    again = job.backend.snapshot(5, 3)
    assert not again.fold and [part.increment for part in again.parts] == [False]


def test_a_state_of_which_half_has_changed_is_taken_from_memory():
    backend = HeapBackend("op", 16, incremental=True, folding=Folding(copied_entries=-1))
    count = backend.bind(COUNT)
    for backend.current.key in range(100):
        count.update(1)
    store = MemoryStore()
    taken = backend.snapshot(1, 0)
    (written,) = Writer(store, [Captured("op", taken, [], {}, [])], 1, 0, 1, GROUPS)()
    taken.done(written.keyed)
    for backend.current.key in range(51):
        count.update(2)
    taken = backend.snapshot(2, 1)
    assert not taken.fold and [part.increment for part in taken.parts] == [False]
