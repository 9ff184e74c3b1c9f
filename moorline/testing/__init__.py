"""The test kit that ships: a clock, scripted sources, a harness, a simulator, contract suites."""

from moorline.storage.stores.memory import MemoryStore
from moorline.testing.clock import ManualClock
from moorline.testing.harness import OperatorHarness
from moorline.testing.simulation import SimulationFailed, SimulationReport, simulate
from moorline.testing.simulation.audit.ledger import CRASH, Ledger, LedgerSink, ScriptedSource
from moorline.testing.simulation.faults import Faults

__all__ = [
    "CRASH",
    "Faults",
    "Ledger",
    "LedgerSink",
    "ManualClock",
    "MemoryStore",
    "OperatorHarness",
    "ScriptedSource",
    "SimulationFailed",
    "SimulationReport",
    "simulate",
]
