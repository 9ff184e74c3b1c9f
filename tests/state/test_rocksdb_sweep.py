"""Rows that have expired are removed in passing, and no others."""

import pytest
from rocksdb_worlds import new_world

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from moorline.state.backend import OperatorClock
from moorline.state.rocksdb import sweep as rocksdb_sweep


@pytest.fixture
def world():
    with new_world() as world:
        yield world


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_after_one_round_everything_that_was_expired_is_gone(world, kind, monkeypatch):
    monkeypatch.setattr(rocksdb_sweep, "MOST_ROWS", 50)
    moment = OperatorClock()
    moment.processing_ms = 1_000_000
    descriptor = {
        "value": ValueStateDescriptor("state", int, ttl="1s"),
        "list": ListStateDescriptor("state", int, ttl="1s"),
        "map": MapStateDescriptor("state", int, int, ttl="1s"),
    }[kind]
    subtask = world.start(descriptor, moment=moment)
    backend, (state,) = subtask.backend, subtask.states

    def batch(keys):
        backend.prefetch(keys)
        for key in keys:
            backend.current.key = key
            state.update(1) if kind == "value" else state.add(1) if kind == "list" else state.put(1, 1)
        backend.flush()

    batch(range(500))
    moment.processing_ms += 1_000
    rounds = 0
    while backend.entries() > 100:
        # The same keys again and again: nobody asks for the others.
        batch(range(1000, 1100))
        rounds += 1
        assert rounds < 40
    assert sorted(backend.keys("state")) == list(range(1000, 1100))
    assert rounds >= 600 // 50 - 2


def test_a_row_that_was_written_in_the_same_batch_is_not_swept(world):
    moment = OperatorClock()
    moment.processing_ms = 1_000_000
    subtask = world.start(ValueStateDescriptor("state", int, ttl="1s"), moment=moment)
    backend, (state,) = subtask.backend, subtask.states
    for turn in range(5):
        backend.prefetch(range(100))
        for key in range(100):
            backend.current.key = key
            state.update(turn)
        backend.flush()
        moment.processing_ms += 600  # twice as long as the rest between rounds: every batch looks at every row
    assert backend.entries() == 100
