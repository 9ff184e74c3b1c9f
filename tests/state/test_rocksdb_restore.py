"""From files to a database again: at another parallelism, from rows, with other types, and from damaged files."""

import random
from dataclasses import dataclass

import pyarrow as pa
import pytest
import rocksdict
from rocksdb_worlds import EVERYTHING, new_world

from moorline.api.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.errors import SnapshotCorrupt, StateIncompatible
from moorline.model import keys
from moorline.model.key_groups import owned, owner
from moorline.model.type_tree.tree import INT
from moorline.state.backend import RestoredFiles
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


# --- other types --------------------------------------------------------------------------------


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


# --- damage -------------------------------------------------------------------------------------


def native_part(world):
    subtask = world.start(TEXT)
    for key in range(2000):
        subtask.at(key)
        subtask.states[0].update(random.randbytes(50).hex())
    (part,) = subtask.checkpoint()
    return part


def restored_with(world, handle, fetch):
    world._mine = EVERYTHING
    backend = world.make_backend("op", MAX_PARALLELISM)
    backend.restore([RestoredFiles(handle, fetch)])
    state = backend.bind(TEXT)
    for key in range(2000):
        backend.prefetch([key])
        backend.current.key = key
        state.value()


@pytest.mark.parametrize("which", ["sst", "MANIFEST", "CURRENT"])
@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
def test_a_damaged_file_is_found_and_named_as_damage(world, which, how):
    part = native_part(world)

    def fetch(folder):
        part.restored(EVERYTHING).fetch(folder)
        (path,) = (p for p in folder.iterdir() if which in p.name)
        data = bytearray(path.read_bytes())
        if how == "missing":
            path.unlink()
        elif how == "cut":
            path.write_bytes(data[: len(data) // 2])
        else:
            data[len(data) // 2] ^= 255
            path.write_bytes(data)

    with pytest.raises(SnapshotCorrupt):
        restored_with(world, part.handle, fetch)


def test_a_database_with_other_states_than_its_manifest_says_is_refused(world, tmp_path):
    part = native_part(world)
    (stored,) = part.handle.states
    for said in (
        [],
        [stored._replace(kind="list")],
        [stored._replace(type=INT)],
        [*part.handle.states, stored._replace(name="more")],
    ):
        with pytest.raises(SnapshotCorrupt, match="the database has the states"):
            list(read_native(part.restored(EVERYTHING).fetch, tmp_path / "scratch", EVERYTHING, expected=said))


def test_a_database_that_is_not_ours_is_refused(world, tmp_path):
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    db = rocksdict.Rdict(str(tmp_path / "foreign"), options)
    db[b"key"] = b"value"
    rocksdict.Checkpoint(db).create_checkpoint(str(tmp_path / "copy"))
    db.close()
    part = native_part(world)

    def fetch(folder):
        for path in (tmp_path / "copy").iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        for file in part.handle.files:
            (folder / file.name).touch()

    with pytest.raises(SnapshotCorrupt):
        restored_with(world, part.handle, fetch)
