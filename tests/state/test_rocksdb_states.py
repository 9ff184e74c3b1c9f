"""What the RocksDB backend does beyond the contract: values, large maps and lists, odd map keys."""

from datetime import timedelta
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdb_worlds import new_world
from thoroughness import examples

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from moorline.errors import StateTypeMismatch
from moorline.state.rocksdb.maps import MapKeys
from moorline.state.types.leaf import LEAVES, PLAIN
from moorline.testing.contracts.backend.base import Basket


class Colour(Enum):
    RED = 1
    BLUE = 2


@pytest.fixture
def world():
    with new_world() as world:
        yield world


# --- values -------------------------------------------------------------------------------------


def test_what_is_read_is_a_copy_until_it_is_written_back(world):
    subtask = world.start(ValueStateDescriptor("basket", Basket))
    (state,) = subtask.states
    subtask.at("a")
    basket = Basket("ann")
    state.update(basket)
    basket.items.append("after the update")
    state.value().items.append("without an update")
    assert state.value() == Basket("ann")
    basket = state.value()
    basket.items.append("x")
    state.update(basket)
    subtask.at("a")
    assert state.value() == Basket("ann", ["x"])


def test_a_value_that_does_not_fit_is_refused_at_the_end_of_the_batch_at_the_latest(world):
    subtask = world.start(ValueStateDescriptor("count", int))
    subtask.at("a")
    with pytest.raises(StateTypeMismatch, match=r"'count'.*int"):
        subtask.states[0].update("many")
        subtask.backend.flush()


def test_an_element_or_entry_that_does_not_fit_is_refused_too(world):
    subtask = world.start(ListStateDescriptor("list", int), MapStateDescriptor("map", str, int))
    listed, mapped = subtask.states
    subtask.at("a")
    with pytest.raises(StateTypeMismatch, match="'list'"):
        listed.add("x")
    mapped.put("k", "v")
    with pytest.raises(StateTypeMismatch, match="'map'"):
        subtask.backend.flush()


def test_a_map_key_that_does_not_fit_is_refused(world):
    subtask = world.start(MapStateDescriptor("map", int, int))
    subtask.at("a")
    for key in ("x", True, 1 << 70):
        with pytest.raises(StateTypeMismatch, match="'map'"):
            subtask.states[0].get(key)


def test_reading_ahead_stops_where_nobody_reads_and_starts_again_when_somebody_does(world):
    subtask = world.start(ValueStateDescriptor("count", int))
    backend, (state,) = subtask.backend, subtask.states
    cells = backend._states.parts["count"].rows
    for first in range(0, 4000, 1000):
        batch = range(first, first + 1000)
        backend.prefetch(batch)
        for key in batch:
            backend.current.key = key
            state.update(key)
        backend.flush()
    assert cells.ahead.left_out > 0
    backend._relieve(), backend._relieve()
    for _ in range(2):
        backend.prefetch(range(1000))
        for key in range(1000):
            backend.current.key = key
            assert state.value() == key
        backend.flush()
    assert cells.ahead.left_out == 0


# --- large lists and maps -----------------------------------------------------------------------


def test_an_access_to_a_large_map_touches_one_entry(world):
    subtask = world.start(MapStateDescriptor("map", int, str))
    (state,) = subtask.states
    subtask.at("a")
    for n in range(30_000):
        state.put(n, "x" * 50)
    subtask.backend._relieve()
    maps = subtask.backend._states.parts["map"].rows
    state.put(5, "y")
    assert (state.get(5), state.get(29_999), state.contains(30_000)) == ("y", "x" * 50, False)
    assert len(maps._entries["a"].cells) == 3
    assert sum(1 for _ in state) == len(state) == 30_000


@pytest.mark.parametrize("size", [3, 64, 65, 1000])
def test_clearing_removes_what_was_written_and_what_was_not(world, size):
    listed, mapped = ListStateDescriptor("list", int), MapStateDescriptor("map", int, int)
    subtask = world.start(listed, mapped)
    for key in "abc":
        subtask.at(key)
        for n in range(size):
            subtask.states[0].add(n), subtask.states[1].put(n, n)
    subtask.at("b")
    subtask.states[0].add(-1), subtask.states[1].put(-1, -1)
    for state in subtask.states:
        state.clear()
    assert subtask.held(0, "b") == subtask.held(1, "b") == {}
    subtask.at("b")
    for state in subtask.states:
        state.clear()
    subtask.states[0].add(7), subtask.states[1].put(7, 7)
    assert list(subtask.states[0].get()) == [7]
    assert dict(subtask.states[1].items()) == {7: 7}
    again = world.start(listed, mapped, restored=subtask.checkpoint())
    assert again.held(0, "b") == {"b": [7]}
    assert again.held(1, "b") == {"b": {7: 7}}
    for key in "ac":
        assert again.held(0, key) == {key: list(range(size))}
        assert again.held(1, key) == {key: {n: n for n in range(size)}}


def test_a_batch_that_writes_more_than_there_is_room_for_is_written_on_the_way(world):
    world.options["memory_budget"] = 1 << 20
    subtask = world.start(ListStateDescriptor("list", str), MapStateDescriptor("map", int, str))
    subtask.at("a")
    for n in range(5000):
        subtask.states[0].add(f"{n}" * 20), subtask.states[1].put(n, f"{n}" * 20)
        assert subtask.backend._room.taken <= 2 * subtask.backend._room.limit
    assert len(subtask.states[0].get()) == len(subtask.states[1]) == 5000


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_the_keys_of_a_large_state_are_counted_by_a_sample_however_many_rows_they_have(world, kind):
    descriptor = {
        "value": ValueStateDescriptor("state", int),
        "list": ListStateDescriptor("state", int),
        "map": MapStateDescriptor("state", int, int),
    }[kind]
    subtask = world.start(descriptor)
    backend, (state,) = subtask.backend, subtask.states
    for turn in range(5):
        for first in range(0, 20_000, 1_000):
            backend.prefetch(range(first, first + 1_000))
            for key in range(first, first + 1_000):
                backend.current.key = key
                state.update(turn) if kind == "value" else state.add(turn) if kind == "list" else state.put(turn, 1)
            backend.flush()
    assert backend.database.store.estimated_rows() > 1.5 * 20_000, "rows and their versions, not keys"
    assert 0.8 * 20_000 < backend.entries() < 1.2 * 20_000


# --- map keys -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key_type", "keys"),
    [
        (bool, [True, False]),
        (float, [1.0, 1.5, float("inf"), 1e300]),
        (Colour, [Colour.RED, Colour.BLUE]),
        (Decimal, [Decimal("1.5"), Decimal("1"), Decimal("0.1"), Decimal("1E+400"), Decimal("-0.1"), Decimal("NaN")]),
        (timedelta, [timedelta(1), timedelta(microseconds=-1)]),
        (frozenset[int], [frozenset(), frozenset({1, 2})]),
        (tuple[int, str], [(1, ""), (1, "\0"), (2, "")]),
        (object, [1, "1", b"1", (1, "x"), 2.5]),
        (int | None, [None, 0]),
    ],
    ids=str,
)
def test_map_keys_of_every_type_come_back_as_they_were(world, key_type, keys):
    descriptor = MapStateDescriptor("map", key_type, int)
    subtask = world.start(descriptor)
    subtask.at("a")
    for n, key in enumerate(keys):
        subtask.states[0].put(key, n)
    again = world.start(descriptor, restored=subtask.checkpoint())
    again.at("a")
    found = dict(again.states[0].items())
    assert sorted(map(repr, found)) == sorted(map(repr, keys))
    for n, key in enumerate(keys):
        assert again.states[0].get(key) == n or key != key


@pytest.mark.parametrize(
    ("key_type", "one", "same"),
    [
        (PLAIN, 1, True),
        (PLAIN, 1, 1.0),
        (LEAVES[Decimal], Decimal("1.50"), Decimal("1.5")),
        (LEAVES[Decimal], Decimal("0.10"), Decimal("0.1")),
        (LEAVES[Decimal], Decimal("0"), Decimal("-0.00")),
        (LEAVES[Decimal], Decimal("1E+400"), Decimal("10E+399")),
    ],
)
def test_map_keys_that_are_equal_in_python_are_one_key(key_type, one, same):
    assert one == same
    assert MapKeys(key_type, "map").row(one) == MapKeys(key_type, "map").row(same)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_are_one_map_key_exactly_if_they_are_equal(one, other):
    keys = MapKeys(LEAVES[Decimal], "map")
    assert (keys.row(one) == keys.row(other)) == (one == other)


# --- against dicts ------------------------------------------------------------------------------

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "clear", "add", "replace", "update", "flush", "relieve", "read"]),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(max_examples=examples(60), deadline=None)
@given(operations=OPERATIONS)
def test_states_are_what_dicts_would_be(operations):
    descriptors = (
        ValueStateDescriptor("value", int),
        ValueStateDescriptor("mutable", list[int]),
        ListStateDescriptor("list", int),
        MapStateDescriptor("map", int, int),
    )
    with new_world(memory_budget=1 << 20) as world:
        subtask = world.start(*descriptors)
        value, mutable, listed, mapped = subtask.states
        model: dict = {key: [None, None, [], {}] for key in range(3)}
        for n, (operation, key, number) in enumerate(operations):
            subtask.backend.current.key = key
            was = model[key]
            match operation:
                case "put":
                    mapped.put(number, n)
                    was[3][number] = n
                case "remove":
                    mapped.remove(number)
                    was[3].pop(number, None)
                case "clear":
                    for state in subtask.states:
                        state.clear()
                    model[key] = [None, None, [], {}]
                case "add":
                    listed.add(n)
                    was[2].append(n)
                case "replace":
                    listed.update([n] * number)
                    was[2] = [n] * number
                case "update":
                    value.update(n), mutable.update([n, number])
                    was[0], was[1] = n, [n, number]
                case "flush":
                    subtask.at(key)
                case "relieve":
                    subtask.backend._relieve()
                case "read":
                    found = [value.value(), mutable.value(), listed.get(), dict(mapped.items())]
                    assert found == was
                    assert (mapped.get(number), len(mapped), mapped.is_empty()) == (
                        was[3].get(number),
                        len(was[3]),
                        not was[3],
                    )
        again = world.start(*descriptors, restored=subtask.checkpoint())
        for key, was in model.items():
            again.at(key)
            value, mutable, listed, mapped = again.states
            assert [value.value(), mutable.value(), listed.get(), dict(mapped.items())] == was
