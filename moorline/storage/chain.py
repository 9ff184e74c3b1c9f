"""The check of a history: does every entry stand where it was written, and is everything there that it says?

Three statements vouch for entries, and each has the number and the digest of what it vouches for:

    the newest entry   names those below it: the ones that stay, and the ones that are being removed
    the head           a small file beside the history, written after each entry: how far the history has come
    the driver         remembers what it wrote last

An entry is only ever removed after a newer one has named it among those that go. So whatever the newest one says that
stays is there, and the newest one is at least as new as the head; anything else is a loss, and is reported as a record
with damage, at its number. What no entry names is *stray*: left there by a writer that came far too late and died
before it could take its entry back, or put there by hand. It is never restored.

Entries of earlier versions name nothing. Of them each has to come after the one below it.

Pure: ``log.py`` reads, and ``snapshots/inspection.py`` reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

from moorline.model.facts import HistoryRecord
from moorline.model.manifest import Claim, Entry, Manifest, next_checkpoint
from moorline.storage.entries import Place
from moorline.storage.layout import entry_path


@dataclass(frozen=True, slots=True)
class Record:
    """One number of the history: an entry, or why there is none to be had."""

    seq: int
    path: str
    entry: Entry | None
    #: What is wrong with it; None if nothing is.
    damage: str | None = None
    #: Of the file's bytes; the next entry carries it.
    digest: str = ""
    #: Which driver wrote it.
    writer: str = ""
    after: str = ""
    place: Place | None = None
    is_missing: bool = False
    #: The digest that it should have, by what vouches for it; empty if that is unknown.
    expected: str = ""

    @property
    def attempt(self) -> int:
        return self.entry.attempt if self.entry is not None else 0

    @property
    def fact(self) -> HistoryRecord:
        """The record as ``protocol/recovery.py`` takes it."""
        return HistoryRecord(self.path, self.entry, self.damage, self.seq, self.writer)


@dataclass(frozen=True, slots=True)
class Statement:
    """A witness of the history: an entry's number and digest, the next checkpoint, and its place if it is known."""

    number: int
    digest: str
    next_checkpoint: int = 1
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class HistoryLook:
    """A history as it was read."""

    #: Oldest first; what is missing is among them, with its damage.
    records: list[Record]
    #: Entries that no other names.
    strays: list[Record]
    #: The number that the history has come to, whether or not the entry there is left.
    highest: int = 0
    #: No checkpoint so far has had this number or a higher one, also none that was lost.
    next_checkpoint: int = 1


def verified(read: Sequence[Record], head: Statement | None, remembered: Statement | None = None) -> HistoryLook:
    """The history with everything in it checked against what vouches for it."""
    records = {r.seq: _in_its_place(r) for r in read}
    statements = [s for s in (head, remembered) if s is not None]
    for statement in statements:
        if statement.number in records:
            cause = "it is not what was written there: another entry has taken its place"
            records[statement.number] = _compared(records[statement.number], statement.digest, cause)
    top = max((r for r in records.values() if r.damage is None), key=lambda r: r.seq, default=None)
    authority = Statement(top.seq, top.digest, place=top.place) if top is not None else None
    for statement in statements:
        if authority is None or statement.number > authority.number:
            # A head has no place: what else is to be there is then said by the newest entry that is left.
            authority = statement if statement.place is not None else authority
            if statement.number not in records:
                lost = f"it is missing, and the history has come as far as number {statement.number}"
                records[statement.number] = _missing(statement.number, statement.digest, lost)
    strays: list[Record] = []
    if authority is not None and authority.place is not None:
        strays = _check_below(records, authority, authority.place)
    elif top is not None:
        _check_neighbours(records)
    ordered = sorted(records.values(), key=lambda r: r.seq)
    highest = max((r.seq for r in [*ordered, *strays]), default=0)
    used = next_checkpoint([r.entry for r in ordered if r.entry is not None])
    return HistoryLook(ordered, strays, highest, max([used, *(s.next_checkpoint for s in statements)]))


def _in_its_place(record: Record) -> Record:
    if record.damage is None and record.place is not None and record.place.number != record.seq:
        return _damaged(record, f"it was written as number {record.place.number} and has been moved or copied here")
    return record


def _check_below(records: dict[int, Record], authority: Statement, place: Place) -> list[Record]:
    """Compare what is there with what ``authority`` names. Returns what it does not name, and takes it out."""
    strays = []
    for number in [n for n in records if n < authority.number]:
        record, expected = records[number], place.digest_of(number)
        if expected is None or (number in place.goes and record.digest != expected):
            strays.append(records.pop(number))
        else:
            cause = f"it is not the entry that number {authority.number} names: another has taken its place"
            records[number] = _compared(record, expected, cause)
    for number, digest in place.stays.items():
        if number not in records:
            records[number] = _missing(number, digest, f"it is missing, and number {authority.number} names it")
    return strays


def _check_neighbours(records: dict[int, Record]) -> None:
    for number in sorted(records):
        record, above = records[number], records.get(number + 1)
        if record.damage is None and above is not None and above.damage is None and above.after != record.digest:
            cause = f"number {number + 1} came after another entry than this one"
            records[number] = _damaged(record, cause)


def _compared(record: Record, expected: str, cause: str) -> Record:
    """The record with the digest that it should have, damaged if it has another."""
    if record.damage is None and expected not in ("", record.digest):
        record = _damaged(record, cause)
    return replace(record, expected=expected or record.expected)


def _damaged(record: Record, cause: str) -> Record:
    return replace(record, entry=None, damage=cause)


def _missing(number: int, expected: str, cause: str) -> Record:
    return Record(number, entry_path(number), None, cause, is_missing=True, expected=expected)


# --- what the next entry says -----------------------------------------------------------------


def next_place(number: int, records: Sequence[Record], going: Iterable[Record]) -> Place:
    """The place of an entry at ``number`` above all of ``records``, when ``going`` is to be removed after it."""
    doomed = {r.seq for r in going}
    was_going = set()
    for record in reversed(records):
        if record.place is not None and record.damage is None:
            was_going = set(record.place.goes)
            break
    # A damaged entry is expected as it should be, so that a repaired one is taken for what it is and nothing else is.
    digests = {r.seq: r.digest if r.damage is None else r.expected for r in records}
    stays = {n: digest for n, digest in digests.items() if n not in doomed and n not in was_going}
    goes = {r.seq: digests[r.seq] for r in records if r.seq not in stays and not r.is_missing}
    return Place(number, stays, goes)


def superseded(records: Sequence[Record], checkpoints: Collection[int]) -> list[Record]:
    """Entries that are not needed once these checkpoints are gone: they themselves, and what says nothing any more.

    Damaged and missing entries of the lineage go with a checkpoint that is newer than they are; those that were given
    up, as soon as there is a newer one.
    """
    manifests = [(r, r.entry) for r in records if isinstance(r.entry, Manifest)]
    claims = [(r, r.entry) for r in records if isinstance(r.entry, Claim)]
    doomed = {r.seq for r, manifest in manifests if manifest.checkpoint in checkpoints}
    newest_doomed = max(doomed, default=0)
    lineage = max((r.seq for r, claim in claims if claim.fresh), default=0)
    given_up = {n for _, claim in claims for n in claim.given_up_entries}
    for r in records:
        if r.damage is not None and r.seq > lineage:
            is_replaced = r.seq in given_up and any(above.seq > r.seq for above, _ in manifests)
            if is_replaced or r.seq < newest_doomed:
                doomed.add(r.seq)
    others = [r for r in records if r.seq not in doomed and not isinstance(r.entry, Claim)]
    needed = _needed_claims(claims, others)
    doomed |= {r.seq for r, _ in claims if r.seq not in needed}
    return [r for r in records if r.seq in doomed]


def _has_stopped(claim: Claim) -> bool:
    return bool(claim.stopped_at) and not claim.ended


def _has_ended_stopped(claim: Claim) -> bool:
    return bool(claim.stopped_at) and bool(claim.ended)


def _needed_claims(claims: Sequence[tuple[Record, Claim]], others: Sequence[Record]) -> set[int]:
    """Claims that still say something, beside checkpoints and damaged entries in ``others``."""
    fresh = [r.seq for r, claim in claims if claim.fresh]
    lineage = fresh[-1] if fresh else 0
    # Where the lineage begins; the newest, of all and of a run with several drivers; of a stop, of a removal of all, of
    # what was given up by number: they say why there is no checkpoint.
    # And the one before the newest: a driver whose claim was taken over before it learned of it finds it there.
    needed = {lineage, *(r.seq for r, _ in claims[-2:]), *(r.seq for r, c in [x for x in claims if x[1].run][-1:])}
    ours = [(r, claim) for r, claim in claims if r.seq > lineage]
    for says_why in (_has_stopped, _has_ended_stopped, attrgetter("emptied"), attrgetter("given_up_entries")):
        needed |= {r.seq for r in [r for r, claim in ours if says_why(claim)][-1:]}
    for number, above in pairwise(fresh):
        # It separates checkpoints of one earlier lineage from those of another.
        if any(r.seq < number for r in others) and any(number < r.seq < above for r in others):
            needed.add(number)
    checkpoints = {r.entry.checkpoint for r in others if isinstance(r.entry, Manifest)}
    numbers = {r.seq for r in others}
    for r, claim in claims:
        if checkpoints.intersection(claim.given_up) or numbers.intersection(claim.given_up_entries):
            needed.add(r.seq)
    return needed
