"""Some states of an operator in the worker, others in outside stores."""

import dataclasses

import pytest
from external_jobs import GROUPS, Job, new_store

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.connectors.memory_state import memory_state
from moorline.errors import InvalidArgument, StateIncompatible
from moorline.state.composite import CompositeBackend
from moorline.state.external.backend import ExternalBackend
from moorline.state.heap.backend import HeapBackend
from moorline.testing.contracts.backend import KeyedBackendContract
from moorline.testing.contracts.backend.storage import write

HERE, TIMES = ValueStateDescriptor("here", int, default=0), "event"


class Mixed(Job):
    """A job whose operator has a state on the heap, and others in two stores."""

    def __init__(self, *stores):
        super().__init__(stores[0])
        self.descriptors = [HERE, *(ValueStateDescriptor(f"in {s.name}", int, default=0, store=s) for s in stores)]

    def start(self, descriptors=None, allow_dropped=frozenset()):
        self.attempt += 1

        def make(store):
            return ExternalBackend(
                "op", 16, store=store, job="job", key_groups=GROUPS, attempt=self.attempt, allow_dropped=allow_dropped
            )

        inner = HeapBackend("op", 16, incremental=True, allow_dropped=allow_dropped)
        self.backend, self.mine = CompositeBackend("op", inner, make, allow_dropped=allow_dropped), GROUPS
        self.backend.restore([p.restored(GROUPS) for p in self.parts])
        self.states = [self.backend.bind(d) for d in descriptors or self.descriptors]
        self.timers = self.backend.timers(TIMES)
        self.backend.check_all_bound()
        return self

    def add(self, *found):
        self.backend.prefetch(iter(found))
        for key in found:
            self.backend.current.key = key
            for state in self.states:
                state.update(state.value() + 1)
            self.timers.register(10, key)
        self.backend.flush()

    def checkpoint(self, **options):
        self.number += 1
        taken = self.backend.snapshot(self.number, self.complete)
        self.parts = write(taken, GROUPS, self.parts, "external")
        taken.done([p.handle for p in self.parts])
        self.complete = self.number
        self.backend.confirmed(self.number)

    def held(self, key):
        self.backend.prefetch([key])
        self.backend.current.key = key
        return [state.value() for state in self.states]


@pytest.fixture
def stores():
    return new_store(), new_store()


def test_each_state_is_where_its_declaration_says(stores):
    mixed = Mixed(*stores).start()
    mixed.add("a", "b")
    mixed.checkpoint()
    assert [len(s.data.documents) for s in stores] == [2, 2]
    for _ in range(40):  # chains of the heap are folded on the way
        mixed.add("a")
        mixed.checkpoint()
    mixed.start()
    assert mixed.held("a") == [41, 41, 41]
    assert mixed.held("b") == [1, 1, 1]
    assert mixed.timers.of_key("a") == [(10, None)]
    assert mixed.backend.entries() == 6
    assert sorted(mixed.backend.keys(mixed.descriptors[1].name)) == ["a", "b"]
    assert sorted(mixed.backend.keys("here")) == ["a", "b"]
    mixed.backend.close()


def test_a_state_cannot_move_between_the_worker_and_stores(stores):
    mixed = Mixed(*stores).start()
    mixed.add("a")
    mixed.checkpoint()
    one, other = stores
    here, first, second = mixed.descriptors
    for moved in (
        [dataclasses.replace(here, store=one), first, second],
        [here, dataclasses.replace(first, store=None), second],
        [here, dataclasses.replace(first, store=other), second],
    ):
        with pytest.raises(StateIncompatible, match="Declare it as it was stored"):
            mixed.start(moved)
    assert mixed.start().held("a") == [1, 1, 1]


def test_a_store_that_is_not_used_any_more_must_be_given_up_by_name(stores):
    mixed = Mixed(*stores).start()
    mixed.add("a")
    mixed.checkpoint()
    here, first, second = mixed.descriptors
    with pytest.raises(StateIncompatible, match="no state is kept there any more"):
        mixed.start([here, first])
    assert mixed.start([here, first], allow_dropped=frozenset({second.name})).held("a") == [1, 1]


def test_one_name_cannot_be_in_two_places(stores):
    backend = Mixed(*stores).start().backend
    with pytest.raises(InvalidArgument, match="kept elsewhere"):
        backend.bind(dataclasses.replace(HERE, store=stores[0]))
    with pytest.raises(InvalidArgument, match="such as mo"):
        backend.bind(ValueStateDescriptor("x", int, store="postgresql://"))
    twin = memory_state(stores[0].name, cache_bytes=0)
    with pytest.raises(InvalidArgument, match="Use the very same one"):
        backend.bind(ValueStateDescriptor("x", int, store=twin))


class TestCompositeBackend(KeyedBackendContract):
    """Without outside stores it is what is inside."""

    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        heap = HeapBackend(uid, max_parallelism, moment, incremental=incremental, key_type=key_type)
        return CompositeBackend(uid, heap, lambda store: pytest.fail("nothing is outside"))
