"""The room that the caches of the RocksDB backend take: for what is in them, once, however often it is written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdb_worlds import new_world
from thoroughness import examples

from moorline.api.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from moorline.state.rocksdb.cells import ENTRY_BYTES, GROWTH, SMALL
from moorline.state.types.annotations import stored as stored_type

pack = stored_type(str, "here").pack


@pytest.fixture
def world():
    with new_world() as world:
        yield world


def batch(subtask, keys, access):
    backend = subtask.backend
    backend.prefetch(keys)
    for key in keys:
        backend.current.key = key
        access(key)
    backend.flush()


def test_a_key_that_is_written_in_every_batch_takes_room_once(world):
    subtask = world.start(ValueStateDescriptor("pair", tuple[int, int], (0, 0)))
    (state,) = subtask.states
    for _ in range(50):
        batch(subtask, range(100), lambda key: state.update((state.value()[0] + 1, key)))
    assert subtask.backend._room.taken == 100 * (ENTRY_BYTES + GROWTH * SMALL)


def test_an_entry_of_a_map_that_is_written_again_takes_room_for_its_row_only(world):
    subtask = world.start(MapStateDescriptor("map", int, int))
    (state,) = subtask.states
    for _ in range(50):
        batch(subtask, range(10), lambda key: [state.put(n, key) for n in range(10)])
    assert subtask.backend._room.taken < 5_000 * ENTRY_BYTES / 10


def test_keys_that_fit_into_the_room_are_read_once(world):
    subtask = world.start(ValueStateDescriptor("count", int, 0))
    (state,), backend = subtask.states, subtask.backend
    asked = []
    read = backend.database.store.multi_get
    backend.database.store.multi_get = lambda rows: (asked.extend(rows), read(rows))[1]
    for _ in range(5):
        for first in range(0, 5_000, 1_000):
            batch(subtask, range(first, first + 1_000), lambda key: state.update(state.value() + 1))
    assert backend._room.limit == 2 << 20 and len(asked) == 5_000
    assert asked[1_000:2_000] == sorted(asked[1_000:2_000]), "in the order in which RocksDB has them"
    assert {state.value() for backend.current.key in range(5_000)} == {5}


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 300) | st.none()), max_size=80), max_size=6))
def test_after_a_batch_room_is_taken_for_what_is_in_the_cache_and_for_nothing_else(batches):
    with new_world() as world:
        subtask = world.start(ValueStateDescriptor("text", str))
        (state,), backend, stored = subtask.states, subtask.backend, {}
        for writes in batches:
            sizes = iter(writes)

            def write(key, sizes=sizes):
                size = next(sizes)[1]
                if key % 2:
                    assert state.value() == stored.get(key)
                stored[key] = None if size is None else "x" * size
                state.update(stored[key])

            batch(subtask, [key for key, _ in writes], write)
            kept = backend._states.part("text").rows.cache
            assert all(stored.get(key) == value for key, value in kept.items())
            rows = [0 if value is None else 1 + len(pack(value)) for value in kept.values()]
            assert backend._room.taken == sum(ENTRY_BYTES + GROWTH * max(SMALL, row) for row in rows)


def test_a_large_value_takes_its_room_once_and_gives_it_back_when_it_shrinks(world):
    subtask = world.start(ValueStateDescriptor("text", str))
    (state,), room = subtask.states, subtask.backend._room
    for _ in range(20):
        batch(subtask, ["a", "b"], lambda key: state.update("x" * 10_000))
    assert GROWTH * 20_000 < room.taken < GROWTH * 20_100 + 2 * ENTRY_BYTES
    batch(subtask, ["a"], lambda key: state.update("x"))
    assert GROWTH * 10_000 < room.taken < GROWTH * 10_150 + 2 * ENTRY_BYTES


def test_values_that_grow_within_a_batch_are_written_on_the_way(world):
    world.options["memory_budget"] = 4 << 20
    subtask = world.start(ValueStateDescriptor("text", str))
    (state,), backend = subtask.states, subtask.backend
    batch(subtask, range(5_000), lambda key: state.update("x"))
    backend.prefetch(range(5_000))
    for backend.current.key in range(5_000):
        state.update("x" * 2_000)
        assert backend._room.taken <= 3 * backend._room.limit
    backend.flush()
    assert {len(state.value()) for backend.current.key in range(5_000)} == {2_000}
