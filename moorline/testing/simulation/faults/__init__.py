"""Faults of a simulated world: how likely each is, when it happens, and what it does."""

from moorline.testing.simulation.faults.likelihood import Faults, WorkerDied

__all__ = ["Faults", "WorkerDied"]
