"""``python -m moorline.testing.simulation SEED``: run one seed of the simulator and say what happened."""

from __future__ import annotations

import sys

from moorline.testing.simulation.simulator import Simulation


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    simulation = Simulation(seed).run()
    faults = ", ".join(f"{count} x {name}" for name, count in sorted(simulation.injected.items())) or "none"
    print(f"seed {seed}: exactly once after {simulation.steps} steps")
    print(f"  faults: {faults}")
    tally = simulation.tally
    print(f"  {tally.checkpoints} checkpoints complete, restored from {tally.restored}")


if __name__ == "__main__":
    main()
