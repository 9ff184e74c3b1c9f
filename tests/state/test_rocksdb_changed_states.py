"""A database and rows of states that are declared otherwise today."""

from dataclasses import dataclass

import pytest
from rocksdb_worlds import new_world

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from moorline.errors import StateIncompatible

TEXT = ValueStateDescriptor("text", str)


@pytest.fixture
def world():
    with new_world() as world:
        yield world


@dataclass(frozen=True)
class Old:
    total: int


@dataclass(frozen=True)
class New:
    total: int
    note: str = "none"


@pytest.mark.parametrize("incremental", [True, False], ids=["files", "rows"])
def test_a_field_with_a_default_can_be_added(world, incremental):
    subtask = world.start(
        ValueStateDescriptor("sums", Old), MapStateDescriptor("map", int, Old), incremental=incremental
    )
    for key in range(100):
        subtask.at(key)
        subtask.states[0].update(Old(key)), subtask.states[1].put(key, Old(key))
    descriptors = ValueStateDescriptor("sums", New), MapStateDescriptor("map", float, New)
    again = world.start(*descriptors, restored=subtask.checkpoint(), incremental=incremental)
    assert again.held(0, range(100)) == {n: New(n) for n in range(100)}
    assert again.held(1, range(100)) == {n: {n: New(n)} for n in range(100)}
    once_more = world.start(*descriptors, restored=again.checkpoint())
    assert once_more.held(0, range(100)) == {n: New(n) for n in range(100)}
    once_more.at(5)
    assert [type(k) for k in once_more.states[1].keys()] == [float]  # noqa: SIM118


def test_migrate_makes_todays_values_and_keeps_their_stamps(world):
    subtask = world.start(ValueStateDescriptor("sums", int, ttl="1h"))
    subtask.at("a")
    subtask.states[0].update(5)
    parts = subtask.checkpoint()
    again = world.start(ValueStateDescriptor("sums", str, ttl="1h", migrate=lambda n: f"n={n}"), restored=parts)
    assert again.held(0, "a") == {"a": "n=5"}


def test_a_migration_that_fails_names_the_state_and_leaves_the_checkpoint_alone(world):
    subtask = world.start(ValueStateDescriptor("sums", int))
    subtask.at("a")
    subtask.states[0].update(5)
    parts = subtask.checkpoint()
    with pytest.raises(StateIncompatible, match="sums"):
        world.start(ValueStateDescriptor("sums", str, migrate=lambda n: 1 / 0), restored=parts)
    assert world.start(ValueStateDescriptor("sums", int), restored=parts).held(0, "a") == {"a": 5}


@pytest.mark.parametrize("incremental", [True, False], ids=["files", "rows"])
def test_a_state_of_another_kind_is_refused(world, incremental):
    subtask = world.start(TEXT, incremental=incremental)
    subtask.at("a")
    subtask.states[0].update("x")
    parts = subtask.checkpoint()
    with pytest.raises(StateIncompatible, match="value of str and is now declared as list of str"):
        world.start(ListStateDescriptor("text", str), restored=parts)
    with pytest.raises(StateIncompatible, match="for each window"):
        world.start(windows=[TEXT], restored=parts)


@pytest.mark.parametrize("incremental", [True, False], ids=["files", "rows"])
def test_a_state_that_is_not_declared_any_more_is_dropped_only_if_that_is_allowed(world, incremental):
    subtask = world.start(TEXT, ValueStateDescriptor("other", int), incremental=incremental)
    subtask.at("a")
    subtask.states[0].update("x"), subtask.states[1].update(1)
    parts = subtask.checkpoint()
    with pytest.raises(StateIncompatible, match=r"other.*no such state"):
        world.start(TEXT, restored=parts)
    for allowed in (frozenset({"other"}), None):
        world.options["allow_dropped"] = allowed
        again = world.start(TEXT, restored=parts)
        assert again.held(0, "a") == {"a": "x"}
        world.options["allow_dropped"] = frozenset()
        assert world.start(TEXT, restored=again.checkpoint()).held(0, "a") == {"a": "x"}
