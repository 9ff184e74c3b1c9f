"""The setup of a simulated world: what its seed decides before anything moves."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass

from moorline.model.config.thresholds import Folding, Thresholds
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.loads import Loads


@dataclass(frozen=True)
class Setup:
    """The setup of one world, and the generators for the settings of its drivers."""

    settings: random.Random
    #: For ``full_every``, which was added later: with a generator of its own, a seed tells the same story as before.
    full: random.Random
    #: Some jobs rescale themselves.
    loads: Loads | None
    #: For a real RocksDB on a real disk: slow, so only now and then.
    rocksdb_folder: str | None
    thresholds: Thresholds

    @classmethod
    def of(cls, seed: int, faults: Faults, rocksdb: float) -> Setup:
        """The setup of a seed. The order of the draws is part of its story."""
        settings = random.Random(~seed)
        loads = Loads(random.Random(seed)) if settings.random() < faults.autoscale else None
        uses_rocksdb = settings.random() < rocksdb
        folder = tempfile.mkdtemp(prefix=f"moorline-sim-{seed}-") if uses_rocksdb else None
        return cls(settings, random.Random(f"full-{seed}"), loads, folder, _thresholds(settings))


def _thresholds(settings: random.Random) -> Thresholds:
    """Thresholds that fit tiny tables and frames.

    Chains are as large tables have them, up to a number of increments that are then folded from their files: by the
    usual rule they would be written anew at almost every checkpoint. Sources are held when little has been put aside.
    """
    length = settings.choice([2, 5, 20])
    folding = Folding(growth=None, max_increments=length, max_files=length, copied_entries=0, copied_share=2)
    return Thresholds(put_aside_bytes=settings.choice([300, 3000]), folding=folding)
