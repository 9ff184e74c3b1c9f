"""The test kit that ships: a clock, scripted sources, a harness, a simulator, contract suites."""

from moorline.storage.memory import MemoryStore
from moorline.testing.clock import ManualClock
from moorline.testing.faults import Faults
from moorline.testing.harness import OperatorHarness
from moorline.testing.ledger import CRASH, Ledger, LedgerSink, ScriptedSource
from moorline.testing.simulation import SimulationFailed, SimulationReport, simulate

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
