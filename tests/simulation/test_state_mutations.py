"""The simulator notices when a rule about state is broken: each test breaks one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc
import pytest
from noticing import notices
from thoroughness import examples

from moorline.api.state.states import ValueState
from moorline.api.state.ttl import StateTtlConfig
from moorline.driver.checkpoints.coordinator import AttemptCheckpoints
from moorline.model.keys.identity import KeyIdentities
from moorline.protocol import redistribution
from moorline.protocol.watermarks import Watermarks
from moorline.state.heap.rows import Content
from moorline.state.heap.states import Table
from moorline.state.heap.table import StoredTable
from moorline.state.ttl import rules as stamps
from moorline.storage import history
from moorline.subtask.operators import base as operators
from moorline.subtask.snapshot.taking import Snapshots
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.counting import counting_job
from moorline.testing.simulation.jobs.features import (
    FollowsTheModel,
    broadcast_job,
    operator_state_job,
    timers_job,
    ttl_job,
)
from moorline.testing.simulation.jobs.values import values_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.006, driver_death=0.001, damage=0)


def seed_of(monkeypatch: pytest.MonkeyPatch, job: Callable, incremental: bool = True) -> Callable[[int], object]:
    """Runs a seed, with this job whichever seed it is."""
    monkeypatch.setattr(simulator, "job_of", lambda seed: job)
    monkeypatch.setattr(simulator, "is_incremental", lambda settings: incremental)
    return lambda seed: Simulation(seed, records=200, faults=ROUGH, fault_steps=15_000, rocksdb=0).run()


@pytest.mark.parametrize("job", [counting_job, timers_job, broadcast_job, operator_state_job, ttl_job, values_job])
@pytest.mark.parametrize("incremental", [False, True])
def test_unbroken_rough_runs_lose_and_double_nothing(monkeypatch, job, incremental):
    run = seed_of(monkeypatch, job, incremental)
    for seed in range(examples(1)):
        run(seed)


def test_it_notices_when_a_watermark_runs_ahead_of_the_slowest_channel(monkeypatch):
    def hasty(self):
        time = max(self._times)
        if time <= self.current:
            return None
        self.current = time
        return time

    monkeypatch.setattr(Watermarks, "_announce", hasty)
    assert notices(seed_of(monkeypatch, timers_job))


def test_it_notices_when_timers_are_left_out_of_snapshots(monkeypatch):
    original = Snapshots.begin

    def forgetful(self, barrier, align_ms):
        for operator in self._operators:
            timers = getattr(operator, "_timers", None)
            if timers is not None:
                while timers.event.pop_due(1 << 40) is not None:
                    pass
        return original(self, barrier, align_ms)

    monkeypatch.setattr(Snapshots, "begin", forgetful)
    assert notices(seed_of(monkeypatch, timers_job))


def test_it_notices_when_files_that_are_shared_are_deleted(monkeypatch):
    original = history._named
    monkeypatch.setattr(history, "_named", lambda records: original(records) if len(records) == 1 else set())
    assert notices(seed_of(monkeypatch, counting_job))


def test_it_notices_when_an_increment_builds_on_a_checkpoint_that_was_given_up(monkeypatch):
    # As if every checkpoint before this one had completed.
    monkeypatch.setattr(AttemptCheckpoints, "last_completed", property(lambda self: self._triggering.next_id - 2))
    unreliable = Faults(worker_death=0.001, driver_death=0.0005, damage=0, storage_error=0.04, death_in_upload=0)
    monkeypatch.setattr(f"{__name__}.ROUGH", unreliable)
    assert notices(seed_of(monkeypatch, counting_job))


def test_it_notices_when_increments_forget_what_is_gone(monkeypatch):
    from moorline.storage import segments as snapshots  # noqa: PLC0415

    original = snapshots.write_rows

    def without_gone(store, path, table, *args):
        if "gone" in table.column_names:
            kept = table.filter(pc.invert(table["gone"]))
            table = kept if kept.num_rows else table
        return original(store, path, table, *args)

    monkeypatch.setattr(snapshots, "write_rows", without_gone)
    assert notices(seed_of(monkeypatch, counting_job))


def test_it_notices_when_broadcast_state_is_not_given_back(monkeypatch):
    original = redistribution._elements

    def without_broadcast(entry, parallelism):
        return [
            {s: slices for s, slices in part.items() if slices[0].handle.mode != "broadcast"}
            for part in original(entry, parallelism)
        ]

    monkeypatch.setattr(redistribution, "_elements", without_broadcast)
    assert notices(seed_of(monkeypatch, broadcast_job))


def test_it_notices_when_list_state_goes_to_everybody(monkeypatch):
    original = redistribution._elements

    def union(entry, parallelism):
        parts = original(entry, parallelism)
        everything = {s: slices for part in parts for s, slices in part.items()}
        return [{s: part.get(s, everything[s]) for s in everything} for part in parts]

    monkeypatch.setattr(redistribution, "_elements", union)
    assert notices(seed_of(monkeypatch, operator_state_job))


def test_it_notices_when_state_lives_a_little_too_long(monkeypatch):
    a_little = ValueState(int, ttl=StateTtlConfig("35ms"), name="mortal")
    monkeypatch.setattr(FollowsTheModel, "mortal", a_little)
    assert notices(seed_of(monkeypatch, ttl_job))


def test_it_notices_when_state_in_event_time_expires_by_the_watermark(monkeypatch):
    def by_the_watermark(moment):
        return lambda: (moment.passed, moment.timestamp)

    monkeypatch.setattr(stamps, "_event_times", by_the_watermark)
    assert notices(seed_of(monkeypatch, ttl_job))


def test_it_notices_when_a_record_removes_what_an_older_one_would_still_see(monkeypatch):
    original = stamps.Rules.__init__

    def hasty(self, *args):
        original(self, *args)
        self.removable_at = lambda now: now

    monkeypatch.setattr(stamps.Rules, "__init__", hasty)
    assert notices(seed_of(monkeypatch, ttl_job))


def test_it_notices_when_keys_are_compared_as_python_does(monkeypatch):
    monkeypatch.setattr(KeyIdentities, "of", lambda self, key: key)
    assert notices(seed_of(monkeypatch, ttl_job))


# --- state that is encoded in slices --------------------------------------------------------------


def test_it_notices_when_a_value_changes_between_two_slices_of_a_snapshot(monkeypatch):
    monkeypatch.setattr(Table, "_unshared", lambda self, key, value, deep: value)
    assert notices(seed_of(monkeypatch, timers_job, incremental=False))


def test_it_notices_when_records_that_come_between_two_slices_are_in_the_snapshot(monkeypatch):
    # As if the snapshot looked at the table itself, and not at what it was at the barrier.
    def live(self, expired_at):
        return Content(self.table.entries, None, expired_at)

    monkeypatch.setattr(StoredTable, "everything", live)
    assert notices(seed_of(monkeypatch, counting_job, incremental=False))


# --- records that change --------------------------------------------------------------------------


def test_it_notices_when_a_record_changes_with_the_state_it_came_from(monkeypatch):
    monkeypatch.setattr(operators, "owned_of", None)
    assert notices(seed_of(monkeypatch, values_job))


def test_it_notices_when_two_readers_share_a_record(monkeypatch):
    monkeypatch.setattr(operators, "copies_of", lambda records: records)
    assert notices(seed_of(monkeypatch, values_job))
