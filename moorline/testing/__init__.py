"""The test kit that ships: a clock, scripted sources, a harness, a simulator, contract suites."""

from moorline.testing.clock import ManualClock
from moorline.testing.harness import OperatorHarness
from moorline.testing.ledger import CRASH, Ledger, LedgerSink, ScriptedSource

__all__ = ["CRASH", "Ledger", "LedgerSink", "ManualClock", "OperatorHarness", "ScriptedSource"]
