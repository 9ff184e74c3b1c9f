"""Operators are opened from tail to head with their state back; what cannot be is told in words that help."""

from __future__ import annotations

import pytest
from subtask_worlds import World, memory

import moorline as mo
from moorline.errors import (
    KeyedStateWithoutKey,
    SnapshotCorrupt,
    StateIncompatible,
    StateRegisteredLate,
    UnsupportedType,
    UserCodeFailed,
)
from moorline.model.manifest import ElementsHandle
from moorline.model.wire.deployment import ElementsSlice, OperatorRestore
from moorline.model.wire.messages import Acknowledged, Confirm, Running
from moorline.state.types import plain
from moorline.state.types.annotations import stored as stored_type
from moorline.subtask.failure_report import describe_failure


def chain_of(*functions, keyed: bool = True) -> mo.Job:
    """A job whose second vertex is a chain of these functions and a sink."""
    job = mo.Job("chain")
    stream = job.source(mo.from_items([]), uid="source")
    stream = stream.key_by(lambda r: r[0]) if keyed else stream.rebalance()
    for number, function in enumerate(functions):
        stream = stream.map(function, uid=f"map-{number}")
    stream.sink(mo.collect("out"), uid="sink")
    return job


class Noting(mo.MapFunction):
    """Notes what becomes of it."""

    def __init__(self, name: str, notes: list[str], fails: str = "") -> None:
        self.name, self.notes, self.fails = name, notes, fails

    def open(self, runtime_context):
        if self.fails == "open":
            raise RuntimeError("no such server")
        self.notes.append(f"open {self.name}")

    def map(self, value):
        return value

    def close(self):
        self.notes.append(f"close {self.name}")
        if self.fails == "close":
            raise RuntimeError("cannot close")


def world_of(job: mo.Job, notes: list[str], **options) -> World:
    """The functions share one list of notes: they are not pickled on the way to a world in this process."""
    world = World(job, "map-0", **options)
    for operator in world.plan.graph.operators:
        if isinstance(operator.function, Noting):
            operator.function.notes = notes
    return world


def test_functions_are_opened_from_the_tail_and_closed_from_the_head():
    notes: list[str] = []
    world = world_of(chain_of(Noting("a", notes), Noting("b", notes)), notes).start()
    assert world.reports == [Running(pid=42)]
    world.subtask.close()
    assert notes == ["open b", "open a", "close a", "close b"]


def test_a_function_that_cannot_be_closed_keeps_no_other_from_closing(capsys):
    notes: list[str] = []
    world = world_of(chain_of(Noting("a", notes, fails="close"), Noting("b", notes)), notes).start()
    world.subtask.close()
    assert notes[-2:] == ["close a", "close b"]
    assert "cannot close" in capsys.readouterr().err


def test_when_one_cannot_be_opened_those_that_were_are_closed():
    notes: list[str] = []
    world = world_of(chain_of(Noting("a", notes, fails="open"), Noting("b", notes)), notes)
    with pytest.raises(UserCodeFailed, match="no such server") as failed:
        world.start()
    world.subtask.close()
    assert (failed.value.uid, failed.value.name, failed.value.subtask) == ("map-0", "Noting", 0)
    assert "/moorline/subtask/" not in failed.value.traceback
    assert notes == ["open b", "close b"]
    assert world.reports == []


def test_state_asked_for_on_a_stream_without_a_key_is_refused():
    class Asks(mo.MapFunction):
        def open(self, runtime_context):
            runtime_context.get_state(mo.ValueStateDescriptor("seen", int))

        def map(self, value):
            return value

    with pytest.raises(KeyedStateWithoutKey, match="map-0") as refused:
        World(chain_of(Asks(), keyed=False), "map-0").start()
    assert refused.value.states == ("seen",)


def test_state_asked_for_after_open_is_refused():
    class Late(mo.MapFunction):
        def open(self, runtime_context):
            self.context = runtime_context

        def map(self, value):
            return self.context.get_list_state(mo.ListStateDescriptor("late", int))

    world = World(chain_of(Late()), "map-0").start()
    with pytest.raises(StateRegisteredLate):
        world.send([("a", 1)])


def test_a_type_that_cannot_be_stored_is_refused_before_the_first_record():
    class Odd(mo.MapFunction):
        kept = mo.ValueState(type(lambda: None))

        def map(self, value):
            return value

    with pytest.raises(UnsupportedType, match="'kept' of operator 'map-0'"):
        World(chain_of(Odd()), "map-0").start()


class Counting(mo.MapFunction):
    seen = mo.ValueState(int, default=0)

    def map(self, value):
        self.seen.update(self.seen.value() + 1)
        return value[0], self.seen.value()


class Renamed(mo.MapFunction):
    count = mo.ValueState(int, default=0)

    def map(self, value):
        return value


class Retyped(mo.MapFunction):
    seen = mo.ValueState(str)

    def map(self, value):
        return value


class Rekinded(mo.MapFunction):
    seen = mo.ListState(int)

    def map(self, value):
        return value


@pytest.fixture
def stored():
    """A store, and what a subtask of Counting keeps there."""
    store = memory()
    world = World(chain_of(Counting()), "map-0", store=store).start()
    world.send([("a", 1), ("b", 1), ("a", 2)])
    world.barrier(1)
    world.upload()
    (_, acknowledged) = world.reports
    assert isinstance(acknowledged, Acknowledged)
    keyed = next(tuple(h.keyed) for h in acknowledged.operators if h.uid == "map-0")
    return store, OperatorRestore(keyed)


def test_state_comes_back(stored):
    store, restore = stored
    world = World(chain_of(Counting()), "map-0", attempt=2, store=store, restore={"map-0": restore}).start()
    world.send([("a", 3), ("b", 2), ("c", 1)])
    world.subtask.tick()
    progress = world.subtask.progress()
    assert progress.keys == 3
    figures = {f.uid: f for f in progress.operators}["map-0"]
    assert (figures.records_in, figures.records_out, figures.states) == (3, 3, {"seen": 3})
    assert progress.bytes_in > 0
    sink = world.subtask._operators[-1]
    assert sink.results() == ("out", [("a", 3), ("b", 2), ("c", 1)])


@pytest.mark.parametrize(
    ("function", "declared"),
    [(Renamed(), "the operator has no such state"), (Retyped(), "declared as str"), (Rekinded(), "list of int")],
)
def test_state_that_does_not_fit_its_declaration_is_refused(stored, function, declared):
    store, restore = stored
    world = World(chain_of(function), "map-0", attempt=2, store=store, restore={"map-0": restore})
    with pytest.raises(StateIncompatible, match=declared) as refused:
        world.start()
    assert (refused.value.uid, refused.value.state) == ("map-0", "seen")
    assert refused.value.stored.endswith("int")


def test_a_damaged_file_is_named(stored):
    store, restore = stored
    (handle,) = restore.keyed
    data = bytearray(store._files[handle.file.path])
    data[len(data) // 2] ^= 1
    store._files[handle.file.path] = bytes(data)
    world = World(chain_of(Counting()), "map-0", attempt=2, store=store, restore={"map-0": restore})
    with pytest.raises(SnapshotCorrupt) as refused:
        world.start()
    assert refused.value.path == handle.file.path
    failed = describe_failure(refused.value)
    assert (failed.corrupt, failed.can_pass) == (handle.file.path, False)


def elements_of(*encoded: bytes, count: int | None = None, state: str = "writer") -> dict[str, OperatorRestore]:
    count = len(encoded) if count is None else count
    handle = ElementsHandle(state, "split", count, inline=list(encoded))
    return {"sink": OperatorRestore(elements={state: (ElementsSlice(handle, 0, count),)})}


def test_elements_come_back():
    restore = elements_of(plain.encode("before"))
    world = World(chain_of(Counting()), "map-0", restore=restore).start()
    world.send([("a", 1)])
    assert world.subtask._operators[-1].results() == ("out", ["before", ("a", 1)])


@pytest.mark.parametrize(
    "restore",
    [
        elements_of(plain.encode(1), count=2),
        elements_of(b"\xc1"),
        elements_of(b""),
        elements_of(plain.encode("no pair"), state="committables"),
        elements_of(plain.encode([1, 2, 3]), state="committables"),
    ],
    ids=["too few", "no msgpack", "nothing", "no pair", "three"],
)
def test_elements_that_cannot_be_ours_are_refused(restore):
    with pytest.raises(SnapshotCorrupt, match="the manifest"):
        World(chain_of(Counting()), "map-0", restore=restore).start()


def test_state_in_a_store_is_applied_at_the_end_of_a_job_without_checkpoints():
    outside = mo.memory_state("without-checkpoints", on_fresh_start="clear")

    class Outside(mo.MapFunction):
        total = mo.ValueState(int, default=0, store=outside)

        def map(self, value):
            self.total.update(self.total.value() + value[1])
            return self.total.value()

    world = World(chain_of(Outside()), "map-0").start()
    world.send([("a", 1), ("a", 2)])
    assert not outside.data.documents
    world.barrier(1, final=True)
    world.subtask.order(Confirm(checkpoint=1, final=True))
    (content,) = outside.data.documents.values()
    assert stored_type(int, "here").pack(3) in content
