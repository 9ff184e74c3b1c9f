"""Whole jobs under faults. A failing seed is the whole bug report: make sim SEED=…"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import pytest
from noticing import notices
from thoroughness import examples

from moorline.driver.attempts.heartbeats import Heartbeats
from moorline.protocol import coordination
from moorline.subtask.gate import Gate
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.counting import counting_job
from moorline.testing.simulation.many_seeds import simulate_chunk
from moorline.testing.simulation.simulator import Simulation

#: The same ones each time; a hundred times as many by ``make simulate``.
SEEDS, CHUNK = 240, 240


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_many_seeds_lose_and_double_nothing(first: int):
    chunk = simulate_chunk(first, first + CHUNK)
    assert not chunk.failures, "\n".join(chunk.failures)
    # Not vacuous: the faults did happen, and were survived from real checkpoints.
    seen = Counter(chunk.seen)
    assert seen["worker"] > CHUNK
    assert seen["driver"] > CHUNK / 4
    assert seen["zombie workers"] > CHUNK / 4
    assert seen["zombie drivers"] > CHUNK / 25
    assert seen["checkpoints"] > CHUNK
    assert seen["full checkpoints"] > CHUNK / 5
    assert seen["final checkpoint of a stop"] > CHUNK / 400
    assert sum(n for fault, n in seen.items() if fault.startswith("damaged")) > CHUNK / 100
    assert seen["runs that restored a checkpoint"] > CHUNK / 3
    assert seen["rescale"] > CHUNK / 4
    assert seen["rescale by itself"] > CHUNK / 60
    assert seen["other key groups"] > CHUNK / 30
    assert seen["restored with records in flight"] > CHUNK / 30
    assert seen["hanging worker"] > CHUNK / 60
    assert seen["worker that hangs at its start"] > CHUNK / 60


def test_the_same_seed_is_the_same_story():
    def story(seed: int) -> tuple[object, ...]:
        s = Simulation(seed).run()
        return s.steps, s.injected, s.tally.checkpoints, s.tally.restored

    for seed in (3, 11, 42):
        assert story(seed) == story(seed)


def test_without_faults_nothing_is_restored():
    calm = Faults(*[0.0] * len(dataclasses.fields(Faults)))
    for seed in range(20):
        simulation = Simulation(seed, faults=calm).run()
        assert not simulation.injected
        assert not simulation.tally.restored


def rough(seed: int) -> None:
    """Longer and rougher than usual: a flaw shows at a restore."""
    faults = Faults(worker_death=0.006, driver_death=0.001, damage=0)
    with pytest.MonkeyPatch.context() as patch:
        # The job that looks at every record; the others have mutations of their own (test_state_mutations.py).
        patch.setattr(simulator, "job_of", lambda seed: counting_job)
        Simulation(seed, records=300, faults=faults, fault_steps=20_000, rocksdb=0).run()


@pytest.mark.slow
def test_rough_runs_lose_and_double_nothing_either():
    for seed in range(examples(4)):
        rough(seed)


def hanging(seed: int) -> None:
    """Nothing goes wrong but that workers stop answering, half of them before their first word."""
    calm = dict.fromkeys((field.name for field in dataclasses.fields(Faults)), 0.0)
    Simulation(seed, faults=Faults(**{**calm, "hang": 0.001, "hang_at_start": 0.05}), rocksdb=0).run()


def test_jobs_whose_workers_stop_answering_come_to_their_end():
    for seed in range(20):
        hanging(seed)


@pytest.mark.slow
def test_it_notices_when_nobody_looks_for_workers_that_have_stopped_answering(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Heartbeats, "overdue", lambda beats, now_ms: None)
    assert notices(hanging)


@pytest.mark.slow
def test_it_notices_when_blocking_is_switched_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Gate, "take", lambda gate, channel, frame: gate._pass(channel, frame))
    assert notices(rough)


@pytest.mark.slow
def test_it_notices_when_the_manifest_is_published_early(monkeypatch: pytest.MonkeyPatch):
    def publish_at_the_first(self, subtask, checkpoint, handles):
        pending = self.pending.get(checkpoint)
        if pending is None or pending.publishing:
            return []
        pending.publishing = True
        parts = dict.fromkeys(self.subtasks, ()) | {subtask: handles}
        return [coordination.Publish(checkpoint, tuple(sorted(parts.items())))]

    monkeypatch.setattr(coordination.Coordination, "_acknowledged", publish_at_the_first)
    assert notices(rough)


@pytest.mark.slow
def test_it_notices_when_a_sink_commits_before_the_checkpoint_is_complete(monkeypatch: pytest.MonkeyPatch):
    from moorline.subtask.operators.sink import SinkOperator  # noqa: PLC0415

    original: Callable[..., None] = SinkOperator.prepare

    def prepare_and_commit(self, checkpoint):
        original(self, checkpoint)
        self.confirmed(checkpoint)

    monkeypatch.setattr(SinkOperator, "prepare", prepare_and_commit)
    assert notices(rough)
