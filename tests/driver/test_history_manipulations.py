"""Whatever is done to the files of a history by hand: what is restored never changes in silence.

Each way of spoiling a history is tried on each store, for a job with one retained checkpoint, with three, and for one
that was taken over. The driver then restores the newest checkpoint, or says loudly what it passes over, or refuses; it
never begins empty. And ``fsck`` says that something is wrong, and which checkpoint the driver would choose.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from driver_worlds import World
from real_servers import S3Server, s3_server  # noqa: F401

import moorline as mo
from moorline.errors import HistoryBroken, SnapshotCorrupt
from moorline.model.manifest import Manifest
from moorline.snapshots import inspection
from moorline.snapshots.inspection import Kind, Verdict
from moorline.storage.blobs import BlobStore
from moorline.storage.history import History
from moorline.storage.layout import HEAD, HISTORY, entry_path
from moorline.storage.log import read_history
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store, remember_options

S = mo.JobStatus
UNNAMED = "data/chk-9/count/sum-0-1-c0ffee.parquet"


@pytest.fixture(params=["memory", "local", "fsspec", pytest.param("s3", marks=pytest.mark.server("s3_server"))])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "memory":
        return MemoryStore(uuid.uuid4().hex)
    if request.param == "local":
        return LocalStore(tmp_path / "small")
    if request.param == "fsspec":
        return open_store(f"fsspec+file://{tmp_path}/small")
    server: S3Server = request.getfixturevalue("s3_server")
    url = f"s3://{server.new_bucket()}/small"
    remember_options(url, server.options)
    return open_store(url)


def config(retained: int) -> mo.Checkpoints:
    return mo.Checkpoints("memory://small", interval="1s", timeout="10s", retained=retained)


def one_retained(store: BlobStore) -> None:
    world = World(store=store, checkpoints=config(1)).run()
    for _ in range(3):
        world.complete()


def three_retained(store: BlobStore) -> None:
    world = World(store=store, checkpoints=config(3)).run()
    for _ in range(3):
        world.complete()


def taken_over(store: BlobStore) -> None:
    three_retained(store)
    World(store=store, checkpoints=config(3), restore="latest").run().complete()


JOBS = [one_retained, three_retained, taken_over]
Make = Callable[[BlobStore], None]


@cache
def made(make: Make) -> dict[str, bytes]:
    """The files of a history, which was made in memory once."""
    store = MemoryStore(uuid.uuid4().hex)
    make(store)
    return {blob.path: store.get(blob.path) for blob in store.list()}


class Files:
    """The files of a history: to copy, move and delete, as a person could."""

    def __init__(self, store: BlobStore) -> None:
        self.store = store
        self.paths = [blob.path for blob in store.list(HISTORY)]
        manifests = {r.path for r in History(store, "small").read() if hasattr(r.entry, "checkpoint")}
        self.checkpoints = [path for path in self.paths if path in manifests]
        self.claims = [path for path in self.paths if path not in manifests]
        self.newest, self.oldest = self.checkpoints[-1], self.checkpoints[0]

    def above(self, by: int = 1) -> str:
        return entry_path(int(self.paths[-1][-15:-5]) + by)

    def write(self, path: str, data: bytes) -> None:
        self.store.delete([path])
        self.store.put(path, data)

    def copy(self, source: str, target: str) -> None:
        self.write(target, self.store.get(source))

    def swap(self, one: str, other: str) -> None:
        first, second = self.store.get(one), self.store.get(other)
        self.write(one, second)
        self.write(other, first)

    def move(self, source: str, target: str) -> None:
        self.copy(source, target)
        self.store.delete([source])

    def flip(self, path: str, word: bytes) -> None:
        data = bytearray(self.store.get(path))
        data[data.index(word) + len(word)] ^= 1
        self.write(path, bytes(data))

    def another(self, job: str = "small") -> bytes:
        """The newest entry of a history that lies elsewhere."""
        other = MemoryStore(uuid.uuid4().hex)
        graph = mo.Job(job, parallelism=2)
        graph.source(mo.from_items([1]), uid="numbers").map(lambda n: n, uid="count").sink(mo.collect("out"), uid="out")
        world = World(store=other, checkpoints=config(3), job=graph).run()
        for _ in range(len(self.paths) - 1):
            world.complete()
        return other.get(other.list(HISTORY)[-1].path)


WAYS: dict[str, Callable[[Files], None]] = {
    "the newest deleted": lambda f: f.store.delete([f.newest]),
    "all deleted": lambda f: f.store.delete(f.paths),
    "all checkpoints deleted": lambda f: f.store.delete(f.checkpoints),
    "all claims deleted": lambda f: f.store.delete(f.claims),
    "the oldest deleted": lambda f: f.store.delete([f.oldest]),
    "the two newest deleted": lambda f: f.store.delete(f.checkpoints[-2:]),
    "all but the newest deleted": lambda f: f.store.delete([p for p in f.paths if p != f.newest]),
    "a claim copied over the newest": lambda f: f.copy(f.claims[0], f.newest),
    "the last claim copied over the newest": lambda f: f.copy(f.claims[-1], f.newest),
    "the oldest copied over the newest": lambda f: f.copy(f.paths[1], f.newest) if f.paths[1] != f.newest else None,
    "the one before copied over the newest": lambda f: f.copy(f.paths[-2], f.paths[-1]),
    "the newest copied over a claim": lambda f: f.copy(f.newest, f.claims[0]),
    "the newest copied over the one before": lambda f: f.copy(f.paths[-1], f.paths[-2]),
    "the last two swapped": lambda f: f.swap(f.paths[-2], f.paths[-1]),
    "the first and the last swapped": lambda f: f.swap(f.paths[0], f.paths[-1]),
    "a claim copied on top": lambda f: f.copy(f.claims[0], f.above()),
    "the oldest copied on top": lambda f: f.copy(f.oldest, f.above()),
    "the newest copied on top": lambda f: f.copy(f.newest, f.above()),
    "the oldest copied far above": lambda f: f.copy(f.oldest, f.above(7)),
    "the newest moved up": lambda f: f.move(f.newest, f.above()),
    "the oldest moved to the top": lambda f: f.move(f.oldest, f.above()),
    "a claim moved to the top": lambda f: f.move(f.claims[0], f.above()),
    "the newest cut to nothing": lambda f: f.write(f.newest, b""),
    "the newest cut short": lambda f: f.write(f.newest, f.store.get(f.newest)[:-9]),
    "a bit flipped in the newest": lambda f: f.flip(f.newest, b'"checkpoint": '),
    "a bit flipped in the place of the newest": lambda f: f.flip(f.newest, b'"number": '),
    "a bit flipped in the chain of the newest": lambda f: f.flip(f.newest, b'"after": "'),
    "the newest from another job": lambda f: f.write(f.newest, f.another("other")),
    "the newest from elsewhere": lambda f: f.write(f.newest, f.another()),
    "one from elsewhere on top": lambda f: f.write(f.above(), f.another()),
    "the head deleted, and the newest cut short": lambda f: (
        f.store.delete([b.path for b in f.store.list(HEAD)]),
        f.write(f.newest, b"{"),
    ),
}  # type: ignore[dict-item]


def spoil(store: BlobStore, make: Make, way: Callable[[Files], None]) -> tuple[int, bool]:
    """Make a history and spoil it. Which checkpoint was the newest, and has anything changed?"""
    before = made(make)
    for path, data in before.items():
        store.put(path, data)
    newest = max(m.checkpoint for m in (r.entry for r in read_history(store)) if isinstance(m, Manifest))
    way(Files(store))
    return newest, before != {blob.path: store.get(blob.path) for blob in store.list()}


def assert_nothing_is_silent(store: BlobStore, newest: int, caplog: pytest.LogCaptureFixture) -> None:
    store.put(UNNAMED, b"of an upload that was under way, or of what was lost")
    report = inspection.check(store, 0)
    assert report.verdict in (Verdict.DAMAGED, Verdict.LOST), str(report)
    caplog.clear()
    world = World(store=store, checkpoints=config(3), restore="latest").start()
    restored = world.supervision.restored_from
    if restored:
        assert restored[0] > 0, "it has begun empty"
        assert restored[0] == newest or "CANNOT BE USED" in caplog.text
    else:
        assert world.status is S.FAILED and isinstance(world.supervision.error, HistoryBroken)
        assert any(blob.path == UNNAMED for blob in store.list("data/")), "swept before anything was decided"
        assert report.verdict is Verdict.LOST
    assert report.newest_whole == (restored[0] if restored else None), "fsck and the driver choose alike"


@pytest.mark.parametrize("make", [one_retained, three_retained])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_that_is_done_to_a_history_changes_in_silence_what_is_restored(make, way, caplog):
    store = MemoryStore(uuid.uuid4().hex)
    newest, has_changed = spoil(store, make, WAYS[way])
    if has_changed:
        assert_nothing_is_silent(store, newest, caplog)


@pytest.mark.parametrize("way", WAYS)
def test_nor_does_it_on_any_store(store, way, caplog):
    newest, has_changed = spoil(store, taken_over, WAYS[way])
    assert has_changed
    assert_nothing_is_silent(store, newest, caplog)


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_instead(path: Path) -> None:
    path.rename(path.with_suffix(".kept"))
    path.symlink_to(path.with_suffix(".kept"))


@pytest.mark.parametrize("make", JOBS)
@pytest.mark.parametrize("which", ["newest", "claim"])
@pytest.mark.parametrize("instead", [folder_instead, link_instead])
def test_a_folder_or_a_link_instead_of_an_entry_is_a_missing_entry(instead, which, make, tmp_path, caplog):
    store = LocalStore(tmp_path)
    newest, _ = spoil(
        store,
        make,
        lambda f: instead(tmp_path / (f.newest if which == "newest" else f.claims[0])),
    )
    assert Kind.GAP in {p.kind for p in inspection.check(store, 0).problems}
    assert_nothing_is_silent(store, newest, caplog)


@pytest.mark.parametrize("make", JOBS)
def test_a_history_that_nobody_has_touched_is_sound(make):
    store = MemoryStore(uuid.uuid4().hex)
    newest, _ = spoil(store, make, lambda f: None)
    report = inspection.check(store, 0)
    assert (report.verdict, report.problems) == (Verdict.SOUND, [])
    world = World(store=store, checkpoints=config(3), restore="latest").run()
    assert world.supervision.restored_from == [newest]


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


def test_the_folder_of_a_running_job_is_deleted_and_the_same_driver_does_not_begin_empty(memory):
    world = World(store=memory, checkpoints=config(1), restart=mo.FixedDelay(attempts=5, delay="1s")).run()
    for _ in range(3):
        world.complete()
    memory.delete([blob.path for blob in memory.list()])
    world.supervision.line_lost(1, world.subtasks[0])
    world.end_attempt(error="lost")
    world.pass_time(1_000)
    assert world.status is S.FAILED
    error = world.supervision.error
    assert isinstance(error, HistoryBroken) and isinstance(error, SnapshotCorrupt)
    assert "restore=None" in str(error)
    assert world.supervision.restored_from == [0]


def test_a_job_whose_folder_was_deleted_goes_on_to_its_end(memory):
    world = World(store=memory, checkpoints=config(1)).run()
    world.complete()
    memory.delete([blob.path for blob in memory.list()])
    world.finish()
    assert world.status is S.FINISHED and world.supervision.error is None


def test_a_job_whose_folder_was_deleted_while_it_took_no_checkpoint_can_be_cancelled(memory):
    world = World(store=memory, checkpoints=mo.Checkpoints("memory://small", interval="1s", at_end="delete")).run()
    world.complete()
    memory.delete([blob.path for blob in memory.list()])
    world.supervision.cancel(world.now_ms)
    world.end_attempt(error="cancelled")
    assert world.status is S.CANCELLED


def test_a_copy_of_the_folder_of_an_earlier_day_is_noticed_by_the_data_of_later_attempts(memory):
    world = World(store=memory, checkpoints=config(1)).run()
    earlier = {blob.path: memory.get(blob.path) for blob in memory.list()}
    for _ in range(2):
        world.complete()
    later = World(store=memory, checkpoints=config(1), restore="latest").run()
    memory.put(f"data/chk-3/count/sum-0-{later.deployment.attempt}-c0ffee.parquet", b"rows")
    memory.delete([b.path for b in memory.list() if not b.path.startswith("data/")])
    for path, data in earlier.items():
        memory.put(path, data)
    report = inspection.check(memory, 0)
    assert (report.verdict, [p.kind for p in report.problems]) == (Verdict.LOST, [Kind.UNKNOWN])
    again = World(store=memory, checkpoints=config(1), restore="latest").start()
    assert again.status is S.FAILED and isinstance(again.supervision.error, HistoryBroken)


def test_whoever_says_so_by_name_begins_empty_over_what_was_lost(memory):
    one_retained(memory)
    memory.delete([Files(memory).newest])
    world = World(store=memory, checkpoints=config(1)).run()
    assert world.supervision.restored_from == [0]
    assert world.complete() > 3, "no number is used twice"


def test_a_job_that_crashed_in_its_first_checkpoint_starts_again(memory):
    World(store=memory, checkpoints=config(1)).run()
    memory.put("data/chk-1/count/sum-0-1-c0ffee.parquet", b"half of a checkpoint")
    again = World(store=memory, checkpoints=config(1), restore="latest").run()
    assert again.supervision.restored_from == [0]
    assert not memory.list("data/"), "and what the crash has left is swept"


def test_checkpoints_that_were_deleted_at_the_end_of_a_job_are_not_missed(memory):
    ends = mo.Checkpoints("memory://small", interval="1s", at_end="delete")
    world = World(store=memory, checkpoints=ends).run()
    world.complete()
    world.finish()
    assert inspection.check(memory, 0).verdict is Verdict.SOUND
    again = World(store=memory, checkpoints=ends, restore="latest").run()
    assert again.supervision.restored_from == [0]


@pytest.fixture(autouse=True)
def _loud(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level("INFO", logger="moorline"):
        yield


@pytest.mark.parametrize("which", ["oldest", "claim"])
def test_a_missing_entry_that_is_not_needed_is_told_when_the_job_starts(which, memory, caplog):
    three_retained(memory)
    files = Files(memory)
    gone = files.oldest if which == "oldest" else files.claims[0]
    memory.delete([gone])
    world = World(store=memory, checkpoints=config(3), restore="latest").run()
    assert world.supervision.restored_from == [3]
    (told,) = [r.message for r in caplog.records if r.levelname == "WARNING" and gone in r.message]
    assert "it is missing" in told and "`moorline fsck" in told


def test_an_entry_that_names_impossible_ones_is_damaged_and_ends_no_driver(memory, caplog):
    """The envelope of the newest has no other witness than the head."""
    three_retained(memory)
    files = Files(memory)
    data = memory.get(files.newest)
    assert b'"stays": {"1": ' in data
    files.write(files.newest, data.replace(b'"stays": {"1": ', b'"stays": {"0": '))
    memory.delete([blob.path for blob in memory.list(HEAD)])
    report = inspection.check(memory, 0)
    assert report.verdict is Verdict.DAMAGED
    world = World(store=memory, checkpoints=config(3), restore="latest").run()
    assert world.supervision.restored_from == [2] and "names entries that cannot be below it" in caplog.text
