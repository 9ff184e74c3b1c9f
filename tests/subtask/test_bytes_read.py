"""A restore reads each byte of the snapshot about once, whatever the parallelism; and says how many it has read."""

from __future__ import annotations

import random
from functools import partial

import pytest

import moorline as mo
from moorline.model.config.state import RocksDb, StateConfig
from moorline.storage import segments as snapshots
from moorline.testing import OperatorHarness

#: Small enough for a test. So are the row groups, of which a large state has many more.
KEYS, ROWS_PER_GROUP = 20_000, 200


class Keeps(mo.KeyedProcessFunction):
    kept = mo.ValueState(bytes)

    def process_element(self, value, ctx):
        self.kept.update(value[1])


def harness(parallelism, state, snapshot=None, key_groups=128):
    return OperatorHarness.of(
        lambda s: s.key_by(lambda r: r[0]).process(Keeps(), uid="keeps"),
        parallelism=parallelism,
        max_parallelism=key_groups,
        state=state,
        snapshot=snapshot,
    )


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """Snapshots of the same content by (backend, parallelism); values that cannot be compressed."""
    chance, found = random.Random(1), {}
    records = [(n, chance.randbytes(60)) for n in range(KEYS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "write_rows", partial(snapshots.write_rows, rows_per_group=ROWS_PER_GROUP))
        for backend, parallelism in [("heap", 2), ("heap", 4), ("rocksdb", 2), ("rocksdb", 4)]:
            with harness(parallelism, on(backend, tmp_path_factory.mktemp("state"))) as old:
                old.process_all(records[: KEYS // 2])
                old.snapshot()
                old.confirm()
                old.process_all(records[KEYS // 2 :])
                found[backend, parallelism] = old.snapshot()
    return found


def on(backend, folder):
    return StateConfig(RocksDb(folder=str(folder)) if backend == "rocksdb" else None, incremental=True)


@pytest.mark.parametrize("after", ["heap", "rocksdb"])
@pytest.mark.parametrize(("was", "now"), [(2, 2), (2, 4), (4, 2), (2, 3), (4, 4)])
def test_rows_are_read_about_once_at_any_parallelism(taken, tmp_path, was, now, after):
    snapshot = taken["heap", was]
    with harness(now, on(after, tmp_path), snapshot) as new:
        ratio = new.read_bytes / snapshot.manifest.size
        assert new.state("kept", KEYS - 1) is not None
    assert snapshot.manifest.size > KEYS * 60
    assert 1.0 <= ratio <= 1.1, f"{ratio:.3f}"


def test_rows_are_read_about_once_with_another_number_of_key_groups(taken, tmp_path):
    snapshot = taken["heap", 2]
    with harness(3, on("heap", tmp_path), snapshot, key_groups=500) as new:
        assert 1.0 <= new.read_bytes / snapshot.manifest.size <= 1.1


@pytest.mark.parametrize(("was", "now", "at_most"), [(2, 2, 1.01), (4, 2, 1.01), (4, 4, 1.01), (2, 4, 2.01)])
def test_files_of_rocksdb_are_read_once_by_everybody_who_has_something_in_them(taken, tmp_path, was, now, at_most):
    snapshot = taken["rocksdb", was]
    with harness(now, on("rocksdb", tmp_path), snapshot) as new:
        ratio = new.read_bytes / snapshot.manifest.size
        assert new.state("kept", 0) is not None
    assert 1.0 <= ratio <= at_most, f"{ratio:.3f}"
