"""A user's own job under faults, from one seed: :func:`simulate`."""

from moorline.testing.simulation.run import SimulationFailed, SimulationReport, simulate

__all__ = ["SimulationFailed", "SimulationReport", "simulate"]
