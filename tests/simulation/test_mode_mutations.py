"""Every consistency mode under faults, and what the simulator notices when a rule of one of them is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from noticing import notices
from thoroughness import examples

from moorline.errors import MoorlineError
from moorline.protocol import redistribution
from moorline.subtask.gate import Gate
from moorline.subtask.snapshot import in_flight
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.counting import LostOrDoubled, counting_job
from moorline.testing.simulation.jobs.features import broadcast_job, timers_job
from moorline.testing.simulation.jobs.modes import at_least_once_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.006, driver_death=0.001, damage=0)
UNALIGNED = {"unaligned": True}


#: Whatever the mode: savepoints are taken, the job is stopped with one and goes on from it, and it is rescaled.
WISHES = Faults(worker_death=0.002, driver_death=0.0005, damage=0, rescale=0.003, savepoint=0.002, stop=0.001)


def run(
    monkeypatch: pytest.MonkeyPatch, job: Callable, mode: dict[str, Any], seeds: int, faults: Faults = ROUGH
) -> tuple[int, Counter[str]]:
    """How many seeds notice something, and what happened in the others."""
    monkeypatch.setattr(simulator, "job_of", lambda seed: job)
    monkeypatch.setattr(simulator, "mode_of", lambda seed, settings: mode)
    broken, seen = 0, Counter()
    for seed in range(seeds):
        try:
            done = Simulation(seed, records=150, faults=faults, fault_steps=10_000, rocksdb=0).run()
        except (LostOrDoubled, AssertionError, MoorlineError):
            broken += 1
        else:
            seen += Counter({wish: done.injected[wish] for wish in ("rescale", "savepoint", "stop with savepoint")})
            seen["in flight"] += len(done.tally.unaligned)
            seen["in flight and restored"] += len(set(done.tally.restored) & set(done.tally.unaligned))
    return broken, seen


def breaks(monkeypatch: pytest.MonkeyPatch, job: Callable, mode: dict[str, Any], faults: Faults = ROUGH) -> bool:
    monkeypatch.setattr(simulator, "job_of", lambda seed: job)
    monkeypatch.setattr(simulator, "mode_of", lambda seed, settings: mode)
    return notices(lambda seed: Simulation(seed, records=150, faults=faults, fault_steps=10_000, rocksdb=0).run())


@pytest.mark.parametrize("job", [counting_job, timers_job, broadcast_job])
@pytest.mark.parametrize("mode", [UNALIGNED, {"aligned_timeout": 0.02}], ids=["unaligned", "timeout"])
def test_unaligned_checkpoints_lose_and_double_nothing(monkeypatch, job, mode):
    broken, seen = run(monkeypatch, job, mode, examples(5))
    assert not broken
    assert seen["in flight and restored"] > 0, "it is not vacuous"


@pytest.mark.parametrize("concurrent", [1, 3])
def test_at_least_once_loses_nothing(monkeypatch, concurrent):
    mode = {"mode": "at_least_once", "max_concurrent": concurrent}
    broken, seen = run(monkeypatch, at_least_once_job, mode, examples(4))
    assert (broken, seen["in flight"]) == (0, 0)


@pytest.mark.parametrize(
    ("job", "mode"),
    [
        (counting_job, {"max_concurrent": 2}),
        (counting_job, {"aligned_timeout": 0.02}),
        (counting_job, UNALIGNED),
        (at_least_once_job, {"mode": "at_least_once", "max_concurrent": 3}),
    ],
    ids=["aligned", "timeout", "unaligned", "at_least_once"],
)
def test_savepoints_stops_and_rescales_disturb_no_mode(monkeypatch, job, mode):
    broken, seen = run(monkeypatch, job, mode, examples(4), WISHES)
    assert not broken
    assert min(seen["rescale"], seen["savepoint"], seen["stop with savepoint"]) > 0, "it is not vacuous"
    if job is counting_job and mode != {"max_concurrent": 2}:
        assert seen["in flight and restored"] > 0


def test_at_least_once_is_not_exactly_once_for_a_job_with_several_channels(monkeypatch):
    assert run(monkeypatch, counting_job, {"mode": "at_least_once"}, 6)[0] > 1


def test_at_least_once_is_exactly_once_where_every_subtask_has_one_channel(monkeypatch):
    monkeypatch.setattr(Simulation, "_parallelism", lambda world: 1)
    assert run(monkeypatch, one_channel_job, {"mode": "at_least_once"}, examples(4))[0] == 0


def one_channel_job(seed, chance, parallelism, records, version=0):
    """Like ``timers_job``: one source, one subtask of each operator."""
    return timers_job(seed, chance, 1, records, version)


@pytest.mark.parametrize("mode", [{}, {"aligned_timeout": 0.02}, UNALIGNED], ids=["aligned", "timeout", "unaligned"])
def test_it_notices_when_nothing_is_held_back(monkeypatch, mode):
    monkeypatch.setattr(Gate, "take", lambda gate, channel, frame: gate._pass(channel, frame))
    assert breaks(monkeypatch, counting_job, mode)


def test_it_notices_when_what_is_in_flight_is_dropped(monkeypatch):
    monkeypatch.setattr(Gate, "in_flight", lambda gate, checkpoint: [])
    assert breaks(monkeypatch, counting_job, UNALIGNED)


def test_it_notices_when_what_was_in_flight_is_not_restored(monkeypatch):
    monkeypatch.setattr(in_flight, "restored", lambda *args: iter(()))
    assert breaks(monkeypatch, counting_job, UNALIGNED)


def test_it_notices_when_restored_records_are_forgotten_by_the_next_checkpoint(monkeypatch):
    original = Gate.in_flight

    def forgetful(gate, checkpoint):
        return [(channel, copy) for channel, copy in original(gate, checkpoint) if channel < gate._channels]

    monkeypatch.setattr(Gate, "in_flight", forgetful)
    assert breaks(monkeypatch, counting_job, UNALIGNED)


def test_it_notices_when_frames_behind_the_barrier_are_taken_for_in_flight(monkeypatch):
    original = Gate.in_flight

    def greedy(gate, checkpoint):
        for held, places in zip(gate._held, gate._places):
            if checkpoint in places:
                places[checkpoint] = held.end
        return original(gate, checkpoint)

    monkeypatch.setattr(Gate, "in_flight", greedy)
    assert breaks(monkeypatch, counting_job, UNALIGNED)


def test_it_notices_when_in_flight_records_go_to_everybody_after_a_rescale(monkeypatch):
    original = redistribution._in_flight

    def unfiltered(*args):
        for share in original(*args):
            yield redistribution.InFlightShare(share.handle)

    monkeypatch.setattr(redistribution, "_in_flight", unfiltered)
    rescaling = Faults(worker_death=0.002, driver_death=0.004, damage=0)
    assert breaks(monkeypatch, counting_job, UNALIGNED, rescaling)
