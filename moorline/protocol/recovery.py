"""Which checkpoint an attempt starts from.

The facts are the records of the history, oldest first: claims, manifests, and what could not be read.

    no manifest since the last fresh claim           -> start empty, or from the savepoint that the claim names
    stopped with a savepoint, and none after it      -> that savepoint, whichever are older
    the newest that is whole                         -> restore it
    newer ones that are damaged or were refused      -> restore the next older whole one, and say so loudly
    given up by an earlier attempt                   -> as if it were not there
    all of them damaged                              -> refuse: never start empty in silence over lost state

``driver/restore.py`` asks; ``storage/checkpoints.py`` has read the facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moorline.model.manifest import Claim, Manifest


@dataclass(frozen=True, slots=True)
class Found:
    """One record of the history: an entry, or why it cannot be used."""

    path: str
    entry: Manifest | Claim | None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class StartEmpty:
    #: Unless this is named: the snapshot of another history that this one began with, or that it was stopped with.
    savepoint: str = ""

    def __str__(self) -> str:
        return f"start from {self.savepoint}" if self.savepoint else "start with empty state"


@dataclass(frozen=True, slots=True)
class RestoreFrom:
    manifest: Manifest
    #: What was passed over, newest first: path and reason.
    passed_over: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"restore checkpoint {self.manifest.checkpoint}"


@dataclass(frozen=True, slots=True)
class Refuse:
    """There are checkpoints, and none of them can be used."""

    passed_over: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "refuse to start: every checkpoint is damaged"


Decision = StartEmpty | RestoreFrom | Refuse


def lineage(records: Sequence[Found]) -> list[Found]:
    """The records that belong to the state of the running job: those after the last fresh claim."""
    fresh = [n for n, r in enumerate(records) if isinstance(r.entry, Claim) and r.entry.fresh]
    return list(records[fresh[-1] + 1 :]) if fresh else list(records)


def choose(records: Sequence[Found], refused: dict[int, str]) -> Decision:
    """The decision. ``refused``: checkpoints that turned out to be damaged when they were read, and why."""
    passed_over: list[tuple[str, str]] = []
    given_up = {n for r in records if isinstance(r.entry, Claim) for n in r.entry.given_up}
    ours = lineage(records)
    stops = [r.entry for r in ours if isinstance(r.entry, Claim) and r.entry.stopped_at]
    for record in reversed(ours):
        if isinstance(record.entry, Manifest) and record.entry.checkpoint in given_up:
            continue
        if stops and isinstance(record.entry, Manifest) and record.entry.checkpoint < stops[-1].stopped_at:
            break
        if record.damage is not None:
            passed_over.append((record.path, record.damage))
        elif isinstance(record.entry, Manifest):
            why = refused.get(record.entry.checkpoint)
            if why is None:
                return RestoreFrom(record.entry, tuple(passed_over))
            passed_over.append((record.path, why))
    # A damaged record may have been a mere claim, but nobody can tell any more.
    if passed_over:
        return Refuse(tuple(passed_over))
    fresh = [r.entry for r in records if isinstance(r.entry, Claim) and r.entry.fresh]
    return StartEmpty((stops or fresh)[-1].savepoint if stops or fresh else "")
