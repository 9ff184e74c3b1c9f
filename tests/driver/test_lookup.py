"""What a snapshot has under a key: from rows, chains and RocksDB's own files, without the job."""

from __future__ import annotations

import dataclasses
from enum import Enum

import pytest

import moorline as mo
from moorline.errors import InvalidArgument, QueryFailed, SnapshotCorrupt, SnapshotNotFound
from moorline.model import keys
from moorline.model.config.state import RocksDb, StateConfig
from moorline.model.manifest import Claim, Manifest
from moorline.snapshots.locate import LocatedSnapshot, jobs_at, look_at
from moorline.snapshots.lookup import look_up
from moorline.storage import entries
from moorline.storage.history import History
from moorline.storage.stores.local import LocalStore
from moorline.testing import OperatorHarness


class Colour(Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Account:
    bank: str
    number: int


class Everything(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)
    account = mo.ValueState(Account)
    colours = mo.ListState(Colour)
    by_account = mo.MapState(Account, int)
    total = mo.ReducingState(int, lambda a, b: a + b)

    def process_element(self, value, ctx):
        number = self.count.value() + 1
        self.count.update(number)
        self.account.update(Account("bank", number))
        self.colours.add(Colour.RED)
        self.by_account.put(Account("bank", number), number)
        self.total.add(10)
        if value == "gone":
            self.count.clear()
        yield number


KEYS = [1, 2.5, "a", b"b", ("a", 1), Colour.RED, Account("x", 1)]


def step(stream: mo.Stream) -> mo.Stream:
    return stream.key_by(lambda n: n).process(Everything(), uid="all")


def harness(state: StateConfig, parallelism: int = 3) -> OperatorHarness:
    return OperatorHarness.of(step, parallelism=parallelism, state=state)


def found(harness: OperatorHarness, state: str, key: object) -> object:
    taken = harness.snapshot()
    return look_up(LocatedSnapshot(taken.store, taken.manifest, False), "all", state, keys.encode(key))


@pytest.fixture(params=["rows", "chains", "rocksdb rows", "rocksdb files"])
def state(request, tmp_path) -> StateConfig:
    rocksdb = RocksDb(memory="8MB", folder=str(tmp_path)) if "rocksdb" in request.param else None
    return StateConfig(rocksdb, request.param in ("chains", "rocksdb files"))


def test_every_kind_of_state_is_found_under_every_kind_of_key(state):
    with harness(state) as job:
        for _ in range(2):
            job.process_all(KEYS)
        for key in KEYS:
            assert found(job, "count", key) == 2
            assert found(job, "account", key) == {"bank": "bank", "number": 2}
            assert found(job, "colours", key) == ["RED", "RED"]
            assert found(job, "by_account", key) == [
                ({"bank": "bank", "number": 1}, 1),
                ({"bank": "bank", "number": 2}, 2),
            ]
            assert found(job, "total", key) == 20
        assert found(job, "count", "nobody") is None


def test_a_chain_of_increments_is_read_as_what_it_amounts_to(state):
    with harness(state) as job:
        for number in range(1, 4):
            job.process_all(["a", "gone", f"new {number}"])
            assert found(job, "count", "a") == number
            assert found(job, "count", "gone") is None
            assert found(job, "total", "gone") == 10 * number
            assert found(job, "count", "new 1") == 1


def test_what_does_not_exist_is_an_error_that_says_what_does(state):
    with harness(state) as job:
        job.process("a")
        taken = job.snapshot()
        snapshot = LocatedSnapshot(taken.store, taken.manifest, False)
        with pytest.raises(QueryFailed, match="those with keyed state are: all"):
            look_up(snapshot, "none", "count", keys.encode("a"))
        with pytest.raises(QueryFailed, match="account, by_account, colours, count, total"):
            look_up(snapshot, "all", "cuont", keys.encode("a"))


def test_a_state_that_is_empty_everywhere_is_nothing_if_it_is_known_to_exist(state):
    with harness(state) as job:
        taken = job.snapshot()
        snapshot = LocatedSnapshot(taken.store, taken.manifest, False)
        assert look_up(snapshot, "all", "count", keys.encode("a"), frozenset(["count"])) is None
        with pytest.raises(QueryFailed, match="has nothing in such a keyed state"):
            look_up(snapshot, "all", "cuont", keys.encode("a"), frozenset(["count"]))


def test_state_that_is_kept_outside_is_asked_for_there():
    class Outside(mo.KeyedProcessFunction):
        count = mo.ValueState(int, store=mo.memory_state("lookup"))

        def process_element(self, value, ctx):
            self.count.update(1)

    with OperatorHarness(Outside(), key=lambda v: v, uid="all") as job:
        job.process("a")
        with pytest.raises(QueryFailed, match=r"kept in the store 'memory\.lookup'"):
            found(job, "count", "a")


def test_only_the_segment_of_the_keys_group_is_read():
    with harness(StateConfig(None, False), parallelism=1) as job:
        job.process_all(range(50_000))
        taken = job.snapshot()
        read: list[int] = []

        class Counting:
            url = "memory://counting"

            def get_range(self, path, offset, size):
                data = taken.store.get_range(path, offset, size)
                read.append(len(data))
                return data

        assert look_up(LocatedSnapshot(Counting(), taken.manifest, False), "all", "count", keys.encode(77)) == 1
        (handle,) = (h for s in taken.manifest.operators[0].subtasks for h in s.keyed if h.state == "count")
        assert 0 < sum(read) < handle.file.size / 2


# --- where snapshots are ------------------------------------------------------------------------


def saved(folder, manifest: Manifest, store, *, as_savepoint: bool) -> None:
    """The harness's snapshot in a folder."""
    target = LocalStore(folder)
    for file in manifest.files():
        target.put(file.path, store.get(file.path))
    if as_savepoint:
        target.put("manifest.json", entries.encode(manifest, "", ""))
    else:
        history = History(target, manifest.job)
        history.claim(True, 1)
        history.publish(manifest)


@pytest.fixture
def taken():
    with harness(StateConfig(None, False)) as job:
        job.process_all(["a", "a", "b"])
        yield job.snapshot()


@pytest.mark.parametrize("form", ["/sp", "file:///sp"])
def test_a_savepoint_can_be_asked_without_a_job(tmp_path, taken, form):
    saved(tmp_path / "sp", taken.manifest, taken.store, as_savepoint=True)
    path = f"{'file://' if form.startswith('file') else ''}{tmp_path}/sp"
    assert mo.query_snapshot(path, "all", "count", "a") == 2
    assert mo.query_snapshot(path, "all", "count", "z") is None
    assert look_at(path).is_savepoint
    with pytest.raises(InvalidArgument, match="No record can have it"):
        mo.query_snapshot(path, "all", "count", ["a"])


def test_checkpoints_can_be_asked_by_job_by_location_and_by_entry(tmp_path, taken):
    saved(tmp_path / "harness", taken.manifest, taken.store, as_savepoint=False)
    for path in (tmp_path, tmp_path / "harness", tmp_path / "harness/history/0000000002.json"):
        assert mo.query_snapshot(str(path), "all", "count", "a") == 2
    (job,) = jobs_at(str(tmp_path))
    assert (job.job, [m.checkpoint for m in job.checkpoints], job.attempts, job.damaged) == ("harness", [1], 1, [])


def test_of_several_jobs_one_has_to_be_named(tmp_path, taken):
    for name in ("one", "two"):
        saved(tmp_path / name, taken.manifest, taken.store, as_savepoint=False)
    with pytest.raises(SnapshotNotFound, match="there are several jobs: one, two"):
        look_at(str(tmp_path))
    assert [job.url.rpartition("/")[2] for job in jobs_at(str(tmp_path))] == ["one", "two"]


def test_a_path_without_a_snapshot_says_what_was_looked_for(tmp_path):
    with pytest.raises(SnapshotNotFound, match=r"neither a manifest\.json"):
        look_at(str(tmp_path))
    store = LocalStore(tmp_path / "job")
    store.put("history/0000000001.json", entries.encode(Claim("job", 1, 1, True), "w", ""))
    with pytest.raises(SnapshotNotFound, match="no complete checkpoint yet"):
        look_at(str(tmp_path / "job"))
    with pytest.raises(SnapshotNotFound, match="it is a claim"):
        look_at(str(tmp_path / "job/history/0000000001.json"))


def test_a_damaged_manifest_or_file_is_never_taken_for_an_answer(tmp_path, taken):
    saved(tmp_path / "sp", taken.manifest, taken.store, as_savepoint=True)
    for file in (tmp_path / "sp").rglob("count-*.parquet"):
        data = bytearray(file.read_bytes())
        data[-9] ^= 1
        file.write_bytes(data)
    with pytest.raises(SnapshotCorrupt, match="checksum"):
        mo.query_snapshot(str(tmp_path / "sp"), "all", "count", "a")
    manifest = tmp_path / "sp/manifest.json"
    manifest.write_text(manifest.read_text().replace('"all"', '"lla"'))
    with pytest.raises(SnapshotCorrupt, match="checksum"):
        mo.query_snapshot(str(tmp_path / "sp"), "all", "count", "a")
