"""The choice of the checkpoint that an attempt starts from.

The facts are the records of the history, oldest first: claims, manifests, and what could not be read or is missing.

    no manifest since the last fresh claim           -> start empty, or from the savepoint that the claim names
    ... but checkpoints have been counted since      -> refuse, unless they were removed or given up on purpose
    began again from the savepoint of a stop, and
    none after it                                    -> that savepoint, whichever are older
    ended by a stop with a savepoint, and its final
    checkpoint cannot be used                        -> that savepoint, unless it cannot be used either
    the newest that is whole                         -> restore it
    newer ones that are damaged or were refused      -> restore the next older whole one, and say so loudly
    given up by an earlier attempt or an operator    -> as if it were not there
    all of them damaged                              -> refuse: never start empty in silence over lost state

``driver/restore.py`` asks, and so do ``snapshots/inspection.py`` and all who read the newest checkpoint of a job.
``storage/log.py`` has read the facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from moorline.model.facts import HistoryRecord
from moorline.model.manifest import Claim, Manifest, next_checkpoint

#: Characters of a lineage that it has in common with the others of its history: those of a record's word.
LINE = 16


@dataclass(frozen=True, slots=True)
class StartEmpty:
    """There is no checkpoint to go on from, and none is missed."""

    #: Unless this is named: the snapshot of another history that this one began with, or that it was stopped with.
    savepoint: str = ""
    #: What sinks have committed for later checkpoints is to be taken back; None: there has been none.
    back_to: int | None = None
    #: What was passed over, newest first: path and reason.
    passed_over: tuple[tuple[str, str], ...] = ()
    #: The number of the savepoint, if the job was stopped with it.
    stopped_at: int = 0

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
    """There are or were checkpoints, and none of them can be used."""

    passed_over: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "refuse to start: every checkpoint is damaged"


Decision = StartEmpty | RestoreFrom | Refuse


def lineage(records: Sequence[HistoryRecord]) -> list[HistoryRecord]:
    """The records that belong to the state of the running job: those after the last fresh claim."""
    fresh = [n for n, r in enumerate(records) if isinstance(r.entry, Claim) and r.entry.fresh]
    return list(records[fresh[-1] + 1 :]) if fresh else list(records)


def line(records: Sequence[HistoryRecord]) -> str:
    """The beginnings of the lineages of a history since its last fresh claim; empty if nothing tells.

    So the output of a job can be told from that of another which has the same name and writes to the same place: one
    with a history elsewhere, or an earlier one with this history, before it began anew.
    """
    fresh = [r for r in records if isinstance(r.entry, Claim) and r.entry.fresh]
    if fresh:
        return fresh[-1].word
    named = _named_lineages(records)
    return named[-1] if named else ""


def own_lineages(records: Sequence[HistoryRecord]) -> tuple[str, ...]:
    """The beginnings of lineages whose output may have to be taken back; empty if any may."""
    # One of an earlier version begins otherwise, and is known by its checkpoints.
    return tuple(sorted({line(records), *_named_lineages(records)} - {""}))


def _named_lineages(records: Sequence[HistoryRecord]) -> list[str]:
    ours = [r.entry for r in lineage(records) if isinstance(r.entry, Manifest)]
    return [manifest.lineage[:LINE] for manifest in ours if manifest.lineage]


def choose(records: Sequence[HistoryRecord], refused: dict[int, str]) -> Decision:
    """The decision.

    ``refused``: checkpoints and the savepoint of a stop that turned out to be damaged when they were read, and why.
    """
    passed_over: list[tuple[str, str]] = []
    given_up = {n for r in records if isinstance(r.entry, Claim) for n in r.entry.given_up}
    entries_given_up = {n for r in records if isinstance(r.entry, Claim) for n in r.entry.given_up_entries}
    ours = lineage(records)
    stops = [r.entry for r in ours if isinstance(r.entry, Claim) and r.entry.stopped_at and not r.entry.ended]
    ended = ended_with_a_savepoint(records, ours)
    for record in reversed(ours):
        if isinstance(record.entry, Manifest) and record.entry.checkpoint in given_up:
            continue
        if ended is not None and isinstance(record.entry, Manifest) and record.entry.checkpoint < ended.stopped_at:
            if ended.stopped_at not in refused:
                break
            passed_over.append((ended.savepoint, refused[ended.stopped_at]))
            ended = None
        if stops and isinstance(record.entry, Manifest) and record.entry.checkpoint < stops[-1].stopped_at:
            break
        if record.damage is not None:
            if record.seq not in entries_given_up:
                passed_over.append((record.path, record.damage))
        elif isinstance(record.entry, Manifest):
            why = refused.get(record.entry.checkpoint)
            if why is None:
                return RestoreFrom(record.entry, tuple(passed_over))
            passed_over.append((record.path, why))
    # Everything up to the savepoint of a stop is in it, so nothing is lost.
    if ended is not None:
        if ended.stopped_at not in refused:
            return StartEmpty(ended.savepoint, ended.stopped_at, tuple(passed_over), ended.stopped_at)
        passed_over.append((ended.savepoint, refused[ended.stopped_at]))
    if stops:
        return StartEmpty(stops[-1].savepoint, stops[-1].stopped_at, tuple(passed_over), stops[-1].stopped_at)
    # A damaged record may have been a mere claim, but that cannot be known any more.
    if passed_over:
        return Refuse(tuple(passed_over))
    fresh = [r.entry for r in records if isinstance(r.entry, Claim) and r.entry.fresh]
    savepoint = fresh[-1].savepoint if fresh else ""
    before = _checkpoints_before(records)
    if entries_given_up.intersection(r.seq for r in ours) or _gives_up_entries(ours):
        return StartEmpty(savepoint, back_to=before)
    reached = next_checkpoint([r.entry for r in records if r.entry is not None]) - 1
    if reached > before:
        why = f"the job has completed checkpoint {reached}, and neither it nor any other of this run is left"
        return Refuse((("history", why),))
    return StartEmpty(savepoint)


def ended_with_a_savepoint(records: Sequence[HistoryRecord], ours: Sequence[HistoryRecord]) -> Claim | None:
    """The end of the last run, if it was a stop with a savepoint and no checkpoint was completed since.

    Later the savepoint may be months old, and to go back to it is for people to decide.
    """
    claims = [r.entry for r in ours if isinstance(r.entry, Claim)]
    ended = next((claim for claim in reversed(claims) if claim.stopped_at), None)
    reached = next_checkpoint([r.entry for r in records if r.entry is not None])
    return ended if ended is not None and ended.ended and ended.next_checkpoint == reached else None


def _gives_up_entries(ours: Sequence[HistoryRecord]) -> bool:
    return any(isinstance(r.entry, Claim) and r.entry.given_up_entries for r in ours)


def _checkpoints_before(records: Sequence[HistoryRecord]) -> int:
    """The last checkpoint of earlier lineages, or the last that was removed on purpose: what is later is ours."""
    entries = [r.entry for r in records if r.entry is not None]
    start = max((n for n, entry in enumerate(entries) if isinstance(entry, Claim) and entry.fresh), default=-1)
    claims = [entry for entry in entries[max(start, 0) :] if isinstance(entry, Claim)]
    emptied = [claim for claim in claims if claim.emptied]
    # Earlier versions did not say so. They wrote a second claim for an attempt before they removed the highest entry.
    emptied += [
        second
        for first, second in combinations(claims, 2)
        if first.attempt == second.attempt and not second.given_up and not second.process
    ]
    return next_checkpoint([*entries[: start + 1], *emptied]) - 1


def unneeded_damage(records: Sequence[HistoryRecord], decision: Decision) -> list[HistoryRecord]:
    """The damage that the decision does not depend on, and that no warning has named yet.

    Entries before the last beginning are nobody's concern, nor are those that were given up.
    """
    claims = [(r.seq, r.entry) for r in records if isinstance(r.entry, Claim)]
    begun = max((number for number, claim in claims if claim.fresh), default=0)
    known = {number for _, claim in claims for number in claim.given_up_entries}
    told = {path for path, _ in decision.passed_over}
    damaged = [r for r in records if r.damage is not None and r.seq > begun]
    return [r for r in damaged if r.seq not in known and r.path not in told]
