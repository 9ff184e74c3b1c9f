"""Checks of a simulated job that has ended: its ledger, and its storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from moorline.driver.checkpoints.stats import CheckpointStats
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.manifest import Claim, Manifest
from moorline.protocol.recovery import lineage
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.snapshots import inspection
from moorline.storage.history import History
from moorline.testing.simulation.audit.ledger import Ledger
from moorline.testing.simulation.jobs.counting import LostOrDoubled

if TYPE_CHECKING:
    from moorline.testing.simulation.simulator import Simulation


def audit(world: Simulation) -> None:
    """Raises unless the job has ended well, the ledger is right, and storage is tidy."""
    if world.driver.supervision.status is JobStatus.FAILED and (world.injection.sealed or world.driver.is_poisoned):
        _audit_part(world)
        return
    audit_ending(world)
    for name, check in world.driver.audits.items():
        wrong = check(Ledger.of(name).records())
        if wrong is not None:
            raise LostOrDoubled(f"seed {world.seed}: {name}: {wrong}")
    for name, expected in world.driver.expected.items():
        found = Counter(_hashable(r) for r in Ledger.of(name).records())
        if found != expected:
            raise LostOrDoubled(f"seed {world.seed}: {name}: missing {expected - found}, too many {found - expected}")


def audit_ending(world: Simulation) -> None:
    """Raise unless the job has ended well and storage is tidy."""
    status = world.driver.supervision.status
    if status is not JobStatus.FINISHED:
        raise AssertionError(f"seed {world.seed}: ended as {status}: {world.driver.supervision.error}")
    _audit_files(world)


def audit_full(seed: int, config: Checkpoints | None, completed: Sequence[CheckpointStats]) -> int:
    """The number of checkpoints that are full by ``full_every``. Raises if one of them names a file of another."""
    full = 0
    for before, after in pairwise(completed):
        if config is not None and config.is_full(after.checkpoint, before.checkpoint):
            full += 1
            if after.uploaded != after.size:
                raise AssertionError(f"seed {seed}: {after} is to be whole, and builds on an earlier one")
    return full


def _audit_part(world: Simulation) -> None:
    """A job that could not finish has still done nothing twice."""
    for name, expected in world.driver.expected.items():
        too_many = Counter(_hashable(r) for r in Ledger.of(name).records()) - expected
        if too_many:
            raise LostOrDoubled(f"seed {world.seed}: {name}: too many {too_many}")


def _audit_files(world: Simulation) -> None:
    """Raise unless all files of checkpoints are there, but for those damaged on purpose, and no others."""
    there = {blob.path: blob.size for blob in world.store.list("data/")}
    records = History(world.store, world.job_name).read()
    named = set()
    for record in records:
        for file in record.entry.files() if isinstance(record.entry, Manifest) else ():
            named.add(file.path)
            if there.get(file.path) != file.size and file.path not in world.injection.damaged:
                raise AssertionError(f"seed {world.seed}: {file.path} of {record.entry} is gone")
    if not world.driver.supervision.is_tidy:
        # Storage failed each time, and the driver has said so: what it left is found from outside.
        swept = {left.path for left in inspection.sweep(world.store, now_ms=1 << 60, grace_ms=0)}
        there = {path: size for path, size in there.items() if path not in swept}
    if there.keys() - named:
        raise AssertionError(f"seed {world.seed}: no checkpoint names {sorted(there.keys() - named)}")
    own = lineage([r.fact for r in records])
    given_up = {n for r in records if isinstance(r.entry, Claim) for n in r.entry.given_up}
    kept = {r.entry.checkpoint for r in own if isinstance(r.entry, Manifest)} - given_up
    enough = len(world.driver.supervision.checkpoints) >= world.driver.retained
    too_many = len(kept) > world.driver.retained and world.driver.supervision.is_tidy
    if too_many or (enough and len(kept) < world.driver.retained):
        raise AssertionError(f"seed {world.seed}: {sorted(kept)} are kept instead of {world.driver.retained}")


def _hashable(record: Any) -> Any:
    return tuple(map(_hashable, record)) if isinstance(record, (list, tuple)) else record
