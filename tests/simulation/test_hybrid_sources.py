"""Sources one after the other, under faults: each test but the first breaks a rule, and it is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from noticing import notices
from thoroughness import examples

from moorline.connectors.hybrid.enumerator import HybridEnumerator
from moorline.connectors.hybrid.source import _HybridReader
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.connectors import hybrid_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.004, driver_death=0.0015, damage=0.3)
#: By then a job is over that ends at all.
LAST_STEP = 20_000


@pytest.fixture
def run(monkeypatch) -> Callable[[int], Simulation]:
    monkeypatch.setattr(simulator, "job_of", lambda seed: hybrid_job)
    return lambda seed: Simulation(seed, records=60, faults=ROUGH, rocksdb=0).run()


def test_nothing_is_lost_or_doubled(run, monkeypatch):
    restored_in: Counter[int] = Counter()
    original = HybridEnumerator.__init__

    def counted(self, parts, ctx):
        original(self, parts, ctx)
        if ctx.restored is not None:
            restored_in[self._part] += 1

    monkeypatch.setattr(HybridEnumerator, "__init__", counted)
    injected: Counter[str] = Counter()
    for seed in range(examples(6)):
        simulation = run(seed)
        injected.update(simulation.injected)
        assert simulation.steps < LAST_STEP // 2
    # Not vacuous.
    assert injected["driver"] > 5
    assert injected["rescale"] > 1
    assert all(restored_in[part] > 1 for part in range(3)), restored_in


def test_it_notices_when_the_switch_does_not_wait_for_all_readers(run, monkeypatch):
    original = HybridEnumerator.reported

    def hasty(self, subtask, report):
        original(self, subtask, report)
        for other in range(self._ctx.parallelism):
            original(self, other, [report[0], {}, None]) if other not in self._ended else None

    monkeypatch.setattr(HybridEnumerator, "reported", hasty)
    assert notices(run)


def test_it_notices_when_the_switch_is_not_in_checkpoints(run, monkeypatch):
    monkeypatch.setattr(HybridEnumerator, "snapshot", lambda self: [0, None, []])
    monkeypatch.setattr(Simulation, "max_steps", LAST_STEP)  # some never end
    assert notices(run, times=1)


def test_it_notices_when_readers_forget_where_they_were_until_they_know_the_part(run, monkeypatch):
    original = _HybridReader._positions

    def forgetful(self, of):
        return original(self, of) if self._open_part is not None else {}

    monkeypatch.setattr(_HybridReader, "_positions", forgetful)
    assert notices(run)
