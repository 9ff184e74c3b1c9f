"""From files to a database again: at another parallelism, and from rows and to them."""

import pyarrow as pa
import pytest
from rocksdb_worlds import EVERYTHING, new_world

from moorline.api.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.model import keys
from moorline.model.key_groups import owned, owner
from moorline.state.heap.backend import HeapBackend
from moorline.state.rocksdb.checkpoints.export import read_native
from moorline.testing.contracts.backend.base import (
    ALL,
    HOUR,
    KEYS,
    MAX_PARALLELISM,
    BackendTests,
    Basket,
    Colour,
    rows_of,
)
from moorline.testing.contracts.backend.storage import Part

TEXT = ValueStateDescriptor("text", str)
WINDOWED = ListStateDescriptor("windowed", int)
SAMPLE = [*range(200), *(f"k{n}" for n in range(100)), *KEYS[1:-1]]


@pytest.fixture
def world():
    with new_world() as world:
        yield world


class Heap(BackendTests):
    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        return HeapBackend(uid, max_parallelism, moment, incremental=incremental, key_type=key_type)


def fill(tests, subtasks, sample=SAMPLE):
    """A bit of everything under every key, at the subtask that owns it."""
    for n, key in enumerate(sample):
        subtask = subtasks[owner(keys.key_group(key, MAX_PARALLELISM), len(subtasks), MAX_PARALLELISM)]
        subtask.at(key)
        tests._fill(subtask.states)
        tests._change(subtask.states)
        for window in subtask.windows:
            window.add(n)
        for timers in subtask.timers:
            timers.register(n * 7 % 100, key)
            timers.register(n * 3 % 100, key, HOUR)


def everything(subtasks, sample=SAMPLE):
    """What all subtasks hold together, which no two do of one key."""
    found: dict = {}
    for subtask in subtasks:
        for position in range(len(subtask.states)):
            held = subtask.held(position, sample)
            if position == 0:
                held = {k: v for k, v in held.items() if v != 7}  # the default
            assert not held.keys() & found.setdefault(position, {}).keys()
            found[position] |= held
        for position in range(len(subtask.windows)):
            held = subtask.held(position, sample, window=HOUR)
            found.setdefault(("window", position), {}).update(held)
        for position, timers in enumerate(subtask.timers):
            held = {key: set(timers.of_key(key)) for key in sample}
            found.setdefault(("timers", position), {}).update({k: v for k, v in held.items() if v})
    return found


def start(world, parallelism, parts=()):
    return [
        world.start(
            *ALL,
            windows=[WINDOWED],
            timers=["event"],
            restored=parts,
            index=index,
            parallelism=parallelism,
            key_type=tuple[str, Colour],
        )
        for index in range(parallelism)
    ]


def checkpoint(subtasks):
    return [part for subtask in subtasks for part in subtask.checkpoint()]


# --- another parallelism ------------------------------------------------------------------------


@pytest.mark.parametrize("path", [(2, 3, 1), (1, 4, 2), (3, 3), (4, 1, 5)], ids=str)
def test_state_survives_every_change_of_parallelism(world, path):
    subtasks = start(world, path[0])
    fill(world, subtasks)
    before = everything(subtasks)
    assert len(before[0]) == len(SAMPLE)
    for parallelism in path[1:]:
        subtasks = start(world, parallelism, checkpoint(subtasks))
        assert everything(subtasks) == before
    due = 0
    for subtask in subtasks:
        (timers,) = subtask.timers
        times = []
        while (timer := timers.pop_due(1000)) is not None:
            times.append(timer[0])
        assert times == sorted(times)
        due += len(times)
    assert due == sum(map(len, before["timers", 0].values()))


def test_only_the_rows_of_the_own_key_groups_are_copied(world):
    subtasks = [world.start(TEXT, index=i, parallelism=2) for i in range(2)]
    for key in range(2000):
        subtask = subtasks[owner(keys.key_group(key, MAX_PARALLELISM), 2, MAX_PARALLELISM)]
        subtask.at(key)
        subtask.states[0].update("x")
    parts = checkpoint(subtasks)
    for index in range(3):
        mine = owned(index, 3, MAX_PARALLELISM)
        again = world.start(TEXT, restored=parts, index=index, parallelism=3)
        own = [key for key in range(2000) if keys.key_group(key, MAX_PARALLELISM) in mine]
        assert again.backend.entries() == len(own)
        assert sorted(again.backend.keys("text")) == own
        overlapping = [p for p in parts if p.handle.first < mine.end and mine.first < p.handle.end]
        sizes = [sum(f.file.size for f in p.handle.files) for p in overlapping]
        assert again.backend.database.fetched_bytes == sum(sizes)
        common = [len(owned(i, 2, MAX_PARALLELISM) & mine) for i in range(2)]
        other = owned(common.index(min(common)), 2, MAX_PARALLELISM)
        assert again.backend.database.copied_rows == sum(keys.key_group(key, MAX_PARALLELISM) in other for key in own)


def test_old_databases_may_have_numbered_their_states_in_another_order(world):
    one = world.start(TEXT, ListStateDescriptor("list", int), index=0, parallelism=2)
    two = world.start(ListStateDescriptor("list", int), TEXT, index=1, parallelism=2)
    for key in range(50):
        subtask = (one, two)[owner(keys.key_group(key, MAX_PARALLELISM), 2, MAX_PARALLELISM)]
        subtask.at(key)
        text, listed = subtask.states if subtask is one else subtask.states[::-1]
        text.update(str(key)), listed.add(key)
    again = world.start(TEXT, ListStateDescriptor("list", int), restored=checkpoint([one, two]))
    assert again.held(0, range(50)) == {n: str(n) for n in range(50)}
    assert again.held(1, range(50)) == {n: [n] for n in range(50)}


# --- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "chain"])
def test_a_checkpoint_of_the_heap_backend_can_be_gone_on_with(world, incremental):
    heap = Heap()
    before = heap.subtask(*ALL, windows=[WINDOWED], timers=["event"], incremental=incremental)
    fill(heap, [before])
    before.checkpoint()
    for key in SAMPLE[:50]:
        before.at(key)
        for state in before.states:
            state.clear()
        before.windows[0].clear()
    for key in SAMPLE[40:60]:
        before.at(key)
        heap._change(before.states)
        before.timers[0].register(500, key)
        before.windows[0].update([1, 2])
    parts = before.checkpoint()
    again = world.start(*ALL, windows=[WINDOWED], timers=["event"], restored=parts)
    assert everything([again]) == everything([before])


def test_full_snapshots_have_the_rows_that_the_heap_backend_writes(world):
    heap = Heap()
    rocks, other = (
        tests(*ALL, windows=[WINDOWED], timers=["event"], incremental=False) for tests in (world.start, heap.subtask)
    )
    fill(world, [rocks])
    fill(world, [other])
    ours, theirs = rocks.checkpoint(), other.checkpoint()
    assert {p.state for p in ours} == {p.state for p in theirs}
    for part in theirs:
        state = part.state
        mine = next(p for p in ours if p.state == state)
        assert (mine.handle.kind, mine.handle.type) == (part.handle.kind, part.handle.type)
        assert mine.tables[0].schema == part.tables[0].schema
        assert rows_of(ours, state) == rows_of(theirs, state)


def read(part: Part, folder, wanted=EVERYTHING):
    """The rows of a native part, by state."""
    found: dict[str, list[pa.Table]] = {}
    for rows in read_native(part.restored(EVERYTHING).fetch, folder, wanted):
        found.setdefault(rows.state, []).append(rows.table)
    return {state: pa.concat_tables(tables) for state, tables in found.items()}


MANY_TYPES: list[StateDescriptor] = [
    ValueStateDescriptor("basket", Basket),
    ListStateDescriptor("baskets", Basket),
    MapStateDescriptor("by_colour", Colour, tuple[int, float]),
    MapStateDescriptor("by_pair", tuple[int, str], list[str]),
    ValueStateDescriptor("colour", Colour),
    ValueStateDescriptor("anything"),
    ValueStateDescriptor("living", int, ttl="1h"),
    ReducingStateDescriptor("greatest", max, float | None),
]


def test_the_rows_read_from_files_are_those_of_a_full_snapshot(world, tmp_path):
    def filled(incremental):
        subtask = world.start(*ALL, *MANY_TYPES, windows=[WINDOWED], timers=["event"], incremental=incremental)
        for n, key in enumerate(SAMPLE):
            subtask.at(key)
            world._fill(subtask.states[:5])
            basket, baskets, by_colour, by_pair, colour, anything, living, greatest = subtask.states[5:]
            basket.update(Basket("ann", [str(n)])), baskets.add(Basket("bob"))
            by_colour.put(Colour.RED, (n, 0.5)), by_pair.put((n, "x"), ["y"])
            colour.update(Colour.BLUE), anything.update([n, None, "z"]), living.update(n, ttl="2h"), greatest.add(0.5)
            subtask.windows[0].add(n)
            subtask.timers[0].register(n, key, HOUR if n % 2 else None)
        return subtask.checkpoint()

    full, (native,) = filled(False), filled(True)
    found = read(native, tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists()
    assert found.keys() == {p.handle.state for p in full}
    for part in full:
        assert found[part.handle.state].equals(pa.concat_tables(part.tables)), part.handle.state
    some = owned(1, 3, MAX_PARALLELISM)
    groups = read(native, tmp_path / "scratch", some)["value"]["key_group"].to_pylist()
    assert groups and all(group in some for group in groups)


def test_dicts_can_be_read_from_files_too(world, tmp_path):
    descriptors = (
        ValueStateDescriptor("counts", dict[str, list[int]]),
        ValueStateDescriptor("pairs", dict[tuple[int, str], set[int]]),
    )
    full, native = (world.start(*descriptors, incremental=incremental) for incremental in (False, True))
    for subtask in (full, native):
        for key in range(10):
            subtask.at(key)
            subtask.states[0].update({"x": [key], "y": []}), subtask.states[1].update({(key, "x"): {key}})
    found = read(native.checkpoint()[0], tmp_path / "scratch")
    for part in full.checkpoint():
        assert found[part.handle.state].equals(pa.concat_tables(part.tables))
