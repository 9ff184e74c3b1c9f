"""State restored with another number of key groups: every key has what it had, whichever subtask has it now."""

from __future__ import annotations

import pytest
from rekey_worlds import LOWER, VISITS, EveryKind

import moorline as mo
from moorline.errors import MaxParallelismChanged
from moorline.model.config.state import RocksDb, StateConfig
from moorline.testing import OperatorHarness

NAMES = ("visits", "pages", "per_page", "most", "mean")
USERS = [(f"user {n}", "abc"[n % 3], n) for n in range(60)] + VISITS


def harness(parallelism, key_groups, snapshot=None, state=None, key=lambda r: r[0], **options):
    return OperatorHarness.of(
        lambda s: s.key_by(key).process(EveryKind(), uid="every", **options),
        parallelism=parallelism,
        max_parallelism=key_groups,
        snapshot=snapshot,
        state=state or StateConfig(),
    )


def on(backend, tmp_path, incremental=True):
    return StateConfig(RocksDb(folder=str(tmp_path)) if backend == "rocksdb" else None, incremental)


def content(harness, users):
    return {(name, user): harness.state(name, user) for name in NAMES for user in users}


def sum_of(a, b):
    return a[0], a[1] + b[1]


def with_state(state, parallelism=3, key_groups=7):
    """Several checkpoints, so that there are increments."""
    harnessed = harness(parallelism, key_groups, state=state)
    harnessed.process_all(USERS[:40])
    harnessed.snapshot()
    harnessed.confirm()
    harnessed.process_all(USERS[40:])
    return harnessed


@pytest.mark.parametrize("after", ["heap", "rocksdb"])
@pytest.mark.parametrize("before", ["heap", "rocksdb"])
@pytest.mark.parametrize(("parallelism", "key_groups"), [(2, 4), (5, 64), (9, None), (1, 1)])
def test_every_kind_of_state_and_timers_are_dealt_out_anew(tmp_path, before, after, parallelism, key_groups):
    users = sorted({user for user, _, _ in USERS})
    with with_state(on(before, tmp_path)) as old:
        expected, snapshot = content(old, users), old.snapshot()
        fired = sorted(old.watermark(10_000)), sorted(old.advance_clock(10_000))
    with harness(parallelism, key_groups, snapshot, on(after, tmp_path)) as new:
        assert content(new, users) == expected
        # And what it has now goes into snapshots that stand for themselves.
        again = new.snapshot()
        assert (sorted(new.watermark(10_000)), sorted(new.advance_clock(10_000))) == fired
    with harness(2, 7, again, on(before, tmp_path)) as back:
        assert content(back, users) == expected


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_windows_are_dealt_out_anew(tmp_path, backend):
    def windows(parallelism, key_groups, snapshot=None):
        return OperatorHarness.of(
            lambda s: s.key_by(lambda r: r[0]).window(mo.TumblingEventTimeWindows("10ms")).reduce(sum_of),
            parallelism=parallelism,
            max_parallelism=key_groups,
            snapshot=snapshot,
            state=on(backend, tmp_path),
        )

    with windows(2, 4) as old:
        for n in range(100):
            old.process((n % 23, n), timestamp=n % 40)
        snapshot = old.snapshot()
        expected = sorted(old.watermark(1_000))
    with windows(6, 100, snapshot) as new:
        assert sorted(new.watermark(1_000)) == expected


@pytest.mark.parametrize("key_groups", [3, 64])
def test_keys_may_change_at_the_same_time(key_groups):
    old = harness(2, 8)
    old.process_all(VISITS)
    new = harness(3, key_groups, old.snapshot(), key=lambda r: r[0].lower(), rekey=LOWER)
    assert new.state("visits", "ann") == 3
    assert new.state("per_page", "bob") == {"b": 2}


def test_keys_of_classes_are_found_again_without_their_class():
    def by_class(parallelism, key_groups, snapshot=None):
        return OperatorHarness.of(
            lambda s: s.key_by(lambda n: mo.JobStatus.RUNNING if n else mo.JobStatus.FAILED).reduce(max),
            parallelism=parallelism,
            max_parallelism=key_groups,
            snapshot=snapshot,
        )

    old = by_class(2, 4)
    old.process_all([0, 5])
    new = by_class(3, 9, old.snapshot())
    assert new.process(1) == [5]


def test_raw_keyed_state_stays_in_its_key_groups():
    class Raw(mo.KeyedProcessFunction, mo.CheckpointedFunction):
        def initialize_state(self, ctx):
            pass

        def snapshot_state(self, ctx):
            ctx.raw_keyed_state.start_key_group(2).write(b"x")

        def process_element(self, value, ctx):
            pass

    old = OperatorHarness(Raw(), key=str, max_parallelism=4)
    old.process(1)
    with pytest.raises(MaxParallelismChanged, match="raw keyed state cannot be dealt out anew"):
        OperatorHarness.restore(old.snapshot(), Raw(), key=str, max_parallelism=8)
