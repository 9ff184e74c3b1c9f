"""Flink's scenarios for savepoints and rescaling, one per sentence that the docs promise.

``docs/reference/flink-scenarios.md`` lists them.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from whole_jobs import WholeJob, committed

import moorline as mo
from moorline.errors import OperatorNotFound, SnapshotNotFound
from moorline.model.config.state import RocksDb
from moorline.model.manifest import Manifest
from moorline.snapshots.folders import open_snapshot
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store
from moorline.testing.simulation.audit.ledger import Ledger, LedgerSink
from moorline.testing.simulation.jobs.counting import SplitSource

NAMES = (f"scenario-{n}" for n in itertools.count())
COUNT, KEYS = 400, 7


class Count(mo.KeyedProcessFunction):
    """Tells what each key has come to, record by record; and at the end of time once more."""

    seen = mo.ValueState(int, default=0)

    def process_element(self, n, ctx):
        self.seen.update(self.seen.value() + 1)
        ctx.timer_service().register_event_time_timer(1 << 60)
        yield ctx.current_key, self.seen.value()

    def on_timer(self, timestamp, ctx):
        yield ctx.current_key, "in all", self.seen.value()


EXPECTED = Counter((n % KEYS, n // KEYS + 1) for n in range(COUNT)) + Counter(
    (key, "in all", len(range(key, COUNT, KEYS))) for key in range(KEYS)
)


def numbers(count, splits):
    """A source that reads a few records at a time, so that there is something left at every checkpoint."""
    return SplitSource({f"split-{n}": list(range(n, count, splits)) for n in range(splits)})


def counting(ledger, parallelism=2, *, uid="count", name="counting", sink="out", extra=None, max_parallelism=16):
    job = mo.Job(name, parallelism=parallelism, max_parallelism=max_parallelism)
    source = job.source(numbers(COUNT, 4), uid="numbers")
    counted = source.key_by(lambda n: n % KEYS).process(Count(), uid=uid)
    if extra is not None:
        counted = extra(counted)
    counted.sink(LedgerSink(ledger), uid=sink)
    return job


@pytest.fixture
def ledger():
    name = next(NAMES)
    yield name
    Ledger.forget(name)


def audit(ledger):
    assert Counter(committed(ledger)) == EXPECTED


# --- resuming from a savepoint ------------------------------------------------------------------


@pytest.mark.parametrize("after", ["heap", "rocksdb"])
@pytest.mark.parametrize("before", ["heap", "rocksdb"])
@pytest.mark.parametrize(("was", "now"), [(2, 2), (2, 4), (4, 2)])
def test_a_job_resumes_from_a_savepoint_at_the_same_a_higher_and_a_lower_parallelism_on_any_backend(
    ledger, tmp_path, was, now, before, after
):
    def on(backend):
        return RocksDb(folder=str(tmp_path), memory="8MB") if backend == "rocksdb" else "heap"

    savepoint = WholeJob(counting(ledger, was), backend=on(before)).checkpoints(1).stop()
    assert 0 < len(committed(ledger)) < EXPECTED.total()
    WholeJob(counting(ledger, now), restore=savepoint, backend=on(after)).finish()
    audit(ledger)


def test_a_stop_without_drain_fires_no_timers_and_one_with_drain_fires_all_of_them(ledger):
    WholeJob(counting(ledger)).checkpoints(1).stop()
    assert not [r for r in committed(ledger) if "in all" in r]
    Ledger.forget(ledger)
    WholeJob(counting(ledger)).checkpoints(1).stop(drain=True)
    told = {key: number for key, *_, number in (r for r in committed(ledger) if "in all" in r)}
    highest = Counter()
    for key, number in (r for r in committed(ledger) if "in all" not in r):
        highest[key] = max(highest[key], number)
    assert told == highest


def test_a_savepoint_commits_nothing_and_the_job_goes_on(ledger):
    world = WholeJob(counting(ledger), checkpoints=mo.Checkpoints("memory://", interval="1h"))
    world.until(lambda: world.now_ms > 60)
    world.savepoint()
    assert committed(ledger) == []
    world.finish()
    audit(ledger)


def test_recovery_uses_checkpoints_and_never_a_savepoint_of_the_running_job(ledger):
    world = WholeJob(counting(ledger)).checkpoints(2)
    newest = world.supervision.checkpoints[-1].checkpoint
    savepoint = world.savepoint()
    number = open_snapshot(savepoint)[0].checkpoint
    assert number > newest
    world.crash()
    assert world.supervision.restored_from[-1] != number
    world.finish()
    audit(ledger)


def test_two_jobs_start_from_one_savepoint_and_neither_disturbs_the_other(ledger):
    savepoint = WholeJob(counting(ledger)).checkpoints(1).savepoint()
    forks = [next(NAMES), next(NAMES)]
    for fork in forks:
        job = counting(fork, name=fork, sink=f"out-{fork}")
        WholeJob(job, restore=savepoint, allow_non_restored_state=True).finish()
    first, second = (Counter(committed(fork)) for fork in forks)
    assert first == second
    assert {r for r in first if "in all" in r} == {r for r in EXPECTED if "in all" in r}


def test_operators_may_be_added_removed_and_moved_between_savepoint_and_restore(ledger):
    savepoint = WholeJob(counting(ledger)).checkpoints(1).stop()
    changed = counting(ledger, extra=lambda s: s.map(lambda r: r, uid="added").rebalance())
    WholeJob(changed, restore=savepoint).finish()
    audit(ledger)


# --- state that nobody wants, and claim modes ---------------------------------------------------------


def test_state_of_an_operator_that_is_gone_is_an_error_and_is_dropped_only_if_that_is_allowed(ledger):
    savepoint = WholeJob(counting(ledger)).checkpoints(1).stop()
    with pytest.raises(OperatorNotFound, match="allow_non_restored_state"):
        WholeJob(counting(ledger, uid="renamed"), restore=savepoint).finish()
    before = committed(ledger)
    WholeJob(counting(ledger, uid="renamed"), restore=savepoint, allow_non_restored_state=True).finish()
    # Where the source was is kept, what was counted is not.
    after = (Counter(committed(ledger)) - Counter(before)).total() - KEYS
    assert len(before) + after == COUNT
    assert Counter(committed(ledger)) != EXPECTED


def test_a_savepoint_that_is_left_alone_is_not_needed_once_the_first_checkpoint_is_complete(ledger):
    savepoint = WholeJob(counting(ledger)).checkpoints(1).stop()
    store = MemoryStore()
    world = WholeJob(counting(ledger), store, restore=savepoint).checkpoints(1)
    gone = open_store(savepoint)
    assert gone.list(), "nobody has deleted it"
    gone.delete([blob.path for blob in gone.list()])
    world.crash().finish()
    audit(ledger)


def test_a_savepoint_that_is_claimed_is_deleted_when_checkpoints_have_made_it_superfluous(ledger):
    savepoint = WholeJob(counting(ledger)).checkpoints(1).stop()
    checkpoints = mo.Checkpoints("memory://", interval="20ms", retained=2)
    world = WholeJob(counting(ledger), restore=savepoint, restore_mode="claim", checkpoints=checkpoints)
    world.checkpoints(1)
    assert open_store(savepoint).list(), "one checkpoint is not yet as many as are retained"
    world.finish()
    audit(ledger)
    with pytest.raises(SnapshotNotFound):
        open_snapshot(savepoint)


@pytest.mark.parametrize("at_end", ["keep", "delete"])
def test_savepoints_are_never_deleted_by_retention_or_at_the_end(ledger, at_end):
    checkpoints = mo.Checkpoints("memory://", interval="20ms", retained=1, at_end=at_end)
    world = WholeJob(counting(ledger), checkpoints=checkpoints).checkpoints(1)
    savepoint = world.savepoint()
    world.finish()
    manifest, store = open_snapshot(savepoint)
    assert {file.path for file in manifest.files()} <= {blob.path for blob in store.list()}


# --- rescaling ------------------------------------------------------------------------------------


def test_a_running_job_is_rescaled_up_and_down_and_beyond_its_key_groups_are_restored(ledger):
    world = WholeJob(counting(ledger)).checkpoints(1).rescale(4).rescale(3)
    savepoint = world.stop()
    WholeJob(counting(ledger, 20, max_parallelism=64), restore=savepoint).finish()
    audit(ledger)


class Remembers(mo.ProcessFunction, mo.CheckpointedFunction):
    """Keeps the records it has seen in a list that is dealt out, and one that everybody gets."""

    def initialize_state(self, ctx):
        self.split = ctx.operator_state.list_state(mo.ListStateDescriptor("split", int))
        self.union = ctx.operator_state.union_list_state(mo.ListStateDescriptor("union", int))
        self.restored = (list(self.split.get()), list(self.union.get())) if ctx.is_restored else None

    def snapshot_state(self, ctx):
        pass

    def process_element(self, n, ctx):
        if self.restored is not None:
            yield "split", tuple(self.restored[0])
            yield "union", tuple(self.restored[1])
            self.restored = None
            return
        if n < COUNT // 4:
            self.split.add(n)
            self.union.add(n)
        yield "seen", n


@pytest.mark.parametrize(("was", "now"), [(2, 2), (2, 3), (3, 2)])
def test_after_a_rescale_a_split_list_is_dealt_out_evenly_and_a_union_list_is_everybodys(ledger, was, now):
    def remembering(parallelism):
        job = mo.Job("remembering", parallelism=parallelism)
        source = job.source(numbers(4 * COUNT, 6), uid="numbers")
        source.rebalance().process(Remembers(), uid="remembers").sink(LedgerSink(ledger), uid="out")
        return job

    savepoint = WholeJob(remembering(was)).checkpoints(2).stop()
    kept = sorted(n for what, n in committed(ledger) if what == "seen" and n < COUNT // 4)
    WholeJob(remembering(now), restore=savepoint).finish()
    splits = [part for what, part in committed(ledger) if what == "split"]
    unions = [part for what, part in committed(ledger) if what == "union"]
    assert len(splits) == len(unions) == now
    assert sorted(n for part in splits for n in part) == kept
    assert all(sorted(part) == kept for part in unions)
    if was != now:
        assert max(map(len, splits)) - min(map(len, splits)) <= 1


@pytest.mark.parametrize(("was", "now"), [(2, 2), (2, 4), (4, 2)])
def test_after_a_rescale_every_subtask_has_a_copy_of_broadcast_state(ledger, was, now):
    rules = mo.MapStateDescriptor("rules", int, str)

    class Judge(mo.BroadcastProcessFunction):
        def process_element(self, n, ctx):
            yield ctx.get_broadcast_state(rules).get(0)

        def process_broadcast_element(self, rule, ctx):
            ctx.get_broadcast_state(rules).put(*rule)

    def judging(parallelism, told):
        job = mo.Job("judging", parallelism=parallelism)
        told = job.source(mo.from_items(told), uid="rules", parallelism=1).broadcast(rules)
        source = job.source(numbers(20 * COUNT, 8), uid="numbers")
        source.rebalance().connect(told).process(Judge(), uid="judge").sink(LedgerSink(ledger), uid="out")
        return job

    savepoint = WholeJob(judging(was, [(0, "no")])).checkpoints(2).stop()
    before = Counter(committed(ledger))
    WholeJob(judging(now, [(0, "no")]), restore=savepoint).finish()
    after = Counter(committed(ledger)) - before
    assert set(after) == {"no"}, "nobody has to be told again"


# --- checkpoints that end otherwise -----------------------------------------------------------------


def test_a_checkpoint_that_completes_subsumes_the_older_ones(ledger):
    store = MemoryStore()
    WholeJob(counting(ledger), store, checkpoints=mo.Checkpoints("memory://", interval="15ms", retained=2)).finish()
    named = {
        file.path
        for r in History(store, "counting").read()
        if isinstance(r.entry, Manifest)
        for file in r.entry.files()
    }
    assert named <= {blob.path for blob in store.list("data/")}, "and takes nothing with it that the newer ones need"


def test_a_checkpoint_that_takes_too_long_expires_and_the_next_one_covers_it(ledger, caplog):
    settings = mo.Checkpoints("memory://", interval="30ms", timeout="40ms", tolerable_failures=1000)
    world = WholeJob(counting(ledger), checkpoints=settings)
    # Uploads stand still for a while.
    world.until(lambda: any(w.uploads for w in world.attempt.workers.values()))
    stuck = {w.id: w.uploads for w in world.attempt.workers.values()}
    for worker in world.attempt.workers.values():
        worker.uploads = Stuck()
    world.until(lambda: "given up" in caplog.text)
    assert not world.supervision.checkpoints
    for worker in world.attempt.workers.values():
        worker.uploads = stuck[worker.id]
    world.finish()
    audit(ledger)


class Stuck(list):
    """Takes uploads, and shows none of them."""

    def __bool__(self):
        return False
