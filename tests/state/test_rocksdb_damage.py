"""Files that are damaged, or of another database: found when they are restored, and named."""

import random

import pytest
import rocksdict
from rocksdb_worlds import EVERYTHING, new_world

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.errors import SnapshotCorrupt
from moorline.model.type_tree.tree import INT
from moorline.state.backend import RestoredFiles
from moorline.state.rocksdb.checkpoints.export import read_native
from moorline.testing.contracts.backend.base import MAX_PARALLELISM

TEXT = ValueStateDescriptor("text", str)


@pytest.fixture
def world():
    with new_world() as world:
        yield world


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
