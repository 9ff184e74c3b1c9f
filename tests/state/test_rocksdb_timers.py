"""Timers in RocksDB: those of a set, in order, with only the first of them in memory."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdb_worlds import new_world
from thoroughness import examples


@pytest.fixture
def world():
    with new_world() as world:
        yield world


TIMERS = st.lists(
    st.tuples(
        st.sampled_from(["register", "register", "delete", "pop", "next", "of_key", "flush"]),
        st.integers(0, 12),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([None, None, (0, 5)]),
    ),
    max_size=60,
)


@settings(max_examples=examples(150), deadline=None)
@given(operations=TIMERS)
def test_timers_are_what_a_set_would_be_however_small_the_head(operations):
    with pytest.MonkeyPatch.context() as patch, new_world(memory_budget=1 << 20) as world:
        patch.setattr("moorline.state.rocksdb.timers.HEAD", 2)
        subtask = world.start(timers=["event"])
        (timers,) = subtask.timers
        model: set = set()
        for operation, time, key, namespace in operations:
            match operation:
                case "register":
                    timers.register(time, key, namespace)
                    model.add((time, key, namespace))
                case "delete":
                    timers.delete(time, key, namespace)
                    model.discard((time, key, namespace))
                case "pop":
                    found = timers.pop_due(time)
                    due = [timer for timer in model if timer[0] <= time]
                    assert (found is None) == (not due)
                    if found is not None:
                        assert found in model and found[0] == min(t for t, _, _ in due)
                        model.remove(found)
                case "next":
                    assert timers.next_time() == min((t for t, _, _ in model), default=None)
                case "of_key":
                    found = timers.of_key(key)
                    assert [t for t, _ in found] == sorted(t for t, _ in found)
                    assert set(found) == {(t, n) for t, k, n in model if k == key}
                case "flush":
                    subtask.at(key)
        again = world.start(timers=["event"], restored=subtask.checkpoint())
        left = set()
        while (timer := again.timers[0].pop_due(100)) is not None:
            left.add(timer)
        assert left == model


def test_more_timers_than_the_head_holds_fire_in_order(world):
    subtask = world.start(timers=["event"])
    (timers,) = subtask.timers
    numbers = list(range(20_000))
    random.Random(3).shuffle(numbers)
    for n in numbers:
        timers.register(n, f"k{n % 50}")
    assert len(timers._head) <= 4 * 4096 + 1
    fired = []
    while (timer := timers.pop_due(1 << 40)) is not None:
        fired.append(timer[0])
    assert fired == list(range(20_000))
    assert timers.next_time() is None
    subtask.backend.flush()
    assert subtask.backend.database.store.get(b"") is None


def test_a_timer_that_comes_and_goes_in_a_batch_writes_nothing(world):
    subtask = world.start(timers=["event"])
    (timers,) = subtask.timers
    assert timers.next_time() is None
    timers.register(5, "a")
    timers.delete(5, "a")
    assert timers._waiting == {}
