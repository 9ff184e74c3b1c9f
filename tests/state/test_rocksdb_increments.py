"""What a checkpoint of RocksDB uploads, and what it takes from earlier ones."""

import random

import pytest
from rocksdb_worlds import new_world

from moorline.api.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from moorline.state.backend import Files

TEXT = ValueStateDescriptor("text", str)
EVENTS = ListStateDescriptor("events", int)


@pytest.fixture
def world():
    with new_world() as world:
        yield world


def write(subtask, numbers, size=100):
    """One batch: a text under each key."""
    backend, (state, *_) = subtask.backend, subtask.states
    numbers = list(numbers)
    for first in range(0, len(numbers), 1000):
        part = numbers[first : first + 1000]
        backend.prefetch(part)
        for n in part:
            backend.current.key = n
            state.update(random.randbytes(size // 2).hex())
        backend.flush()


def files(snapshot) -> Files:
    (part,) = snapshot.snapshot.parts
    return part


def uploaded(snapshot) -> int:
    return sum(path.stat().st_size for path in files(snapshot).paths.values())


def test_a_change_of_one_percent_uploads_a_small_part(world):
    # With room for all that is written at first: else it is merged, once, between the two checkpoints.
    world.options["memory_budget"] = 128 << 20
    subtask = world.start(TEXT)
    write(subtask, range(50_000))
    first = subtask.begin()
    everything = uploaded(first)
    subtask.complete(first)
    write(subtask, random.sample(range(50_000), 500))
    second = subtask.begin()
    assert uploaded(second) < everything / 20
    assert files(second).known


def test_over_many_checkpoints_the_uploads_stay_in_proportion_to_the_changes(world):
    subtask = world.start(TEXT)
    write(subtask, range(30_000))
    first = subtask.begin()
    everything = uploaded(first)
    subtask.complete(first)
    total = 0
    for _ in range(20):
        write(subtask, random.sample(range(30_000), 300))
        snapshot = subtask.begin()
        total += uploaded(snapshot)
        subtask.complete(snapshot)
    # 20 x 1 % has changed. Compaction writes some of it, and once all of it, again; all of it each time would be 20 x.
    assert total < 3 * everything


def test_files_that_are_not_uploaded_again_are_the_same_to_the_byte(world):
    subtask = world.start(TEXT)
    write(subtask, range(3000))
    first = subtask.begin()
    stored = {name: path.read_bytes() for name, path in files(first).paths.items()}
    subtask.complete(first)
    checked = 0
    for _ in range(8):
        write(subtask, random.sample(range(3000), 200))
        snapshot = subtask.begin()
        part = files(snapshot)
        folder = next(iter(part.paths.values())).parent
        for name, known in part.known.items():
            assert (folder / name).read_bytes() == stored[name]
            assert known.file.size == len(stored[name])
            checked += 1
        stored |= {name: path.read_bytes() for name, path in part.paths.items()}
        subtask.complete(snapshot)
    assert checked


def test_the_checkpoint_after_one_that_was_given_up_uploads_its_files_again(world):
    subtask = world.start(TEXT)
    write(subtask, range(1000))
    subtask.checkpoint()
    write(subtask, range(100))
    given_up = subtask.begin()
    new = {n for n in files(given_up).paths if n.endswith(".sst")}
    subtask.give_up(given_up)  # durable here, but not everywhere: its files are deleted
    write(subtask, range(100, 200))
    after = subtask.begin()
    assert new <= files(after).paths.keys() or not new & files(after).known.keys()
    again = world.start(TEXT, restored=subtask.complete(after))
    assert len(again.held(0, range(1000))) == 1000


def test_the_checkpoint_after_one_that_failed_here_is_complete(world):
    subtask = world.start(TEXT)
    write(subtask, range(500))
    subtask.begin().failed()
    write(subtask, range(500, 600))
    again = world.start(TEXT, restored=subtask.checkpoint())
    assert len(again.held(0, range(600))) == 600


def test_two_checkpoints_in_the_air_build_on_the_same_one(world):
    subtask = world.start(TEXT)
    write(subtask, range(500))
    subtask.checkpoint()
    write(subtask, range(100))
    first = subtask.begin()
    write(subtask, range(100, 200))
    second = subtask.begin()
    assert files(first).known.keys() == files(second).known.keys()
    subtask.complete(first)
    subtask.complete(second)
    again = world.start(TEXT, restored=subtask.checkpoint())
    assert len(again.held(0, range(500))) == 500


def test_nothing_is_uploaded_if_nothing_has_changed(world):
    subtask = world.start(TEXT)
    write(subtask, range(100))
    parts = subtask.checkpoint()
    again = subtask.begin()
    assert again.snapshot.parts == []
    assert again.snapshot.reused == [p.handle for p in parts]
    # And the next one builds on the one that uploaded nothing.
    subtask.complete(again)
    write(subtask, [1])
    assert files(subtask.begin()).known


def test_a_restored_database_goes_on_with_the_files_it_was_opened_with(world):
    subtask = world.start(TEXT)
    write(subtask, range(5000))
    parts = subtask.checkpoint()
    again = world.start(TEXT, restored=parts, completed=subtask.completed)
    write(again, range(10))
    snapshot = again.begin()
    assert set(files(snapshot).known) == {f.name for f in parts[0].handle.files if f.name.endswith(".sst")}
    assert uploaded(snapshot) < 20_000


def test_once_a_checkpoint_of_its_own_is_complete_nobody_promises_the_restored_files(world):
    subtask = world.start(TEXT)
    write(subtask, range(100))
    again = world.start(TEXT, restored=subtask.checkpoint(), completed=1)
    write(again, range(10))
    snapshot = again.begin()
    # It completes, but our thread has not been told yet when the next barrier comes.
    parts = snapshot.write()
    again.parts, again.completed = parts, snapshot.number
    write(again, range(20))
    assert files(again.begin()).known == {}


def test_a_name_with_another_size_is_another_file(world):
    subtask = world.start(TEXT)
    write(subtask, range(100))
    subtask.checkpoint()
    stored = subtask.backend._uploads._stored[1].files
    for name, native in stored.items():
        stored[name] = type(native)(name, type(native.file)(native.file.path, native.file.size + 1, []))
    write(subtask, range(10))
    assert files(subtask.begin()).known == {}


def test_the_folder_of_a_checkpoint_is_removed_when_it_is_durable_or_never_will_be(world):
    subtask = world.start(TEXT)
    write(subtask, range(100))
    for end in ("done", "failed"):
        snapshot = subtask.begin()
        folder = next(iter(files(snapshot).paths.values())).parent
        assert folder.exists()
        getattr(snapshot, end)()
        assert not folder.exists()


def test_closing_removes_everything(world):
    subtask = world.start(TEXT)
    write(subtask, range(100))
    subtask.begin()
    subtask.backend.close()
    assert not subtask.backend.database.folder.exists()


def test_lists_go_on_behind_their_last_element_after_a_restore(world):
    subtask = world.start(EVENTS)
    for n in range(3):
        subtask.at("a")
        subtask.states[0].add(n)
    again = world.start(EVENTS, restored=subtask.checkpoint())
    again.at("a")
    again.states[0].add(3)
    assert again.held(0, "a") == {"a": [0, 1, 2, 3]}
