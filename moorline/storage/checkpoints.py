"""The history of a job: one log of claims and manifests, which also settles who may write.

    history/0000000041.json   claim       attempt 7
    history/0000000042.json   checkpoint  attempt 7, checkpoint 19
    history/0000000043.json   claim       attempt 8            <- takes over; attempt 7 wanted this number too
    history/0000000044.json   checkpoint  attempt 8, checkpoint 20

**Publishing.** An entry goes to the number above the highest one, by ``put_if_absent``. That is the one step by which
a checkpoint comes into being: before it nothing names its files, after it they are all durable.

**Fencing.** An attempt starts with a claim. Whoever was writing before finds its next number taken, reads the entry
there, sees that it is not its own, and stops (:class:`Fenced`). What it published earlier stands: the claim has a
higher number, so the new attempt has seen it. No clock, no lease and no lock is involved.

**Very late writers.** Retention removes old entries, so a driver that slept through two takeovers could find its
number free again. It cannot tell from the mere presence of higher numbers: they may also belong to an attempt that
took over a moment ago, after our put, and is restoring from our entry right now. Three rules make it tell:

    1  The highest entry is never removed, so numbers only grow.
    2  Each entry carries the digest of the one before it. So if higher numbers exist after our put, the one right
       above ours says whether it came after *us*.
    3  A claim is removed only when everything below it is gone. So if the number right above ours is empty, and it
       did come after us, then our entry is gone as well and there is nothing to spoil.

Hence: in time if nothing is above, or if what is right above came after our bytes; otherwise too late, and we take our
entry back. (A writer that dies before it can do so leaves an entry below all current ones. Recovery prefers higher
numbers and retention removes it in the end, so it matters only if everything newer is damaged.)

Reports facts and performs orders. Which checkpoint to restore is for ``protocol/recovery.py``, which ones to drop for
``protocol/retention.py``. Used by the driver, from one thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from moorline.errors import BlobMissing, Fenced, InvalidTransition, SnapshotCorrupt, StorageError
from moorline.failpoints import failpoint
from moorline.model.ids import Attempt
from moorline.model.manifest import Claim, Entry, Manifest, SnapshotFile, next_checkpoint
from moorline.protocol.housekeeping import Unnamed
from moorline.storage import entries
from moorline.storage.blobs import Blob, BlobStore
from moorline.storage.layout import DATA, HISTORY, attempt_of, check_path, entry_number, entry_path, origin_of


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

    @property
    def attempt(self) -> int:
        return self.entry.attempt if self.entry is not None else 0


def read_history(store: BlobStore) -> list[Record]:
    """What is in a job's folder, whichever job it is: to look at, not to write."""
    reader = History(store, "")
    reader._reads = None
    return reader.read()


class History:
    """The history of ``job`` in ``store``, and our place in it once we have claimed one."""

    def __init__(self, store: BlobStore, job: str) -> None:
        self._store = store
        self._job = job
        #: Whose entries are read; None: anybody's.
        self._reads: str | None = job
        self._writer = uuid.uuid4().hex
        #: What we go on with, if another driver of the same run was here before us; see ``protocol/leadership.py``.
        self.run = ""
        #: Of our lead in that run. A driver that slept between its lead and its claim must not take over.
        self.term = 0
        self._attempt: Attempt | None = None
        #: The highest attempt of other drivers when we first claimed.
        self._known = 0
        #: The last number we wrote, and the digest of what we wrote there.
        self._position = 0
        self._digest = ""

    @property
    def store(self) -> BlobStore:
        """Where it lies."""
        return self._store

    @property
    def writer(self) -> str:
        """Who we are: a random word that all our entries carry."""
        return self._writer

    @property
    def attempt(self) -> Attempt:
        """The attempt we have claimed."""
        if self._attempt is None:
            raise InvalidTransition("history", "no attempt claimed", "an order that needs one", [self._store.url])
        return self._attempt

    # --- looking ------------------------------------------------------------------------------

    def read(self) -> list[Record]:
        """Everything that is there, oldest first. Damage is reported, not raised: other entries may do."""
        while True:
            listed = self._listed()
            try:
                records = [self._record(number, blob) for number, blob in listed]
            except BlobMissing:
                continue
            # A history that changed meanwhile is read again, or we might pair an old listing with new contents.
            if self._listed() == listed:
                return records

    def _listed(self) -> list[tuple[int, Blob]]:
        numbered = ((entry_number(blob.path), blob) for blob in self._store.list(HISTORY))
        return [(number, blob) for number, blob in numbered if number is not None]

    def _record(self, number: int, blob: Blob) -> Record:
        if blob.size > entries.MAX_ENTRY_BYTES:
            return Record(number, blob.path, None, f"{blob.size:,} bytes are more than an entry can have")
        data = self._store.get(blob.path)
        try:
            entry = entries.decode(data, self._reads, number)
            writer, _ = entries.origin(data) or ("", "")
            return Record(number, blob.path, entry, None, entries.digest(data), writer)
        except SnapshotCorrupt as error:
            # If there is a path, it is that of a file which the entry names.
            cause = f"{error.path}: {error.cause}" if error.path else error.cause
            return Record(number, blob.path, None, cause, entries.digest(data))

    # --- writing ------------------------------------------------------------------------------

    def claim(self, fresh: bool, now_ms: int, savepoint: str = "", stopped_at: int = 0) -> Attempt:
        """Take over this job's storage: from here on, what older attempts publish is refused.

        Raises Fenced if a leader of the same run that came after us has claimed already.
        The first claim of a driver takes over from whoever was there, also from one that came between two tries:
        that may have been the one we were started to replace. A later claim only goes on with what is our own: if
        another driver has come since, it is Fenced, or two would take the job from each other for ever.
        A fresh start is one only for the first driver of a run: who comes after it goes on.
        ``savepoint``: what a fresh one starts from, if it does not start empty; or, with its number in ``stopped_at``,
        the savepoint that the job was stopped with.
        """
        while True:
            records = self.read()
            strangers = max((r.attempt for r in records if r.writer != self._writer), default=0)
            # One whose outcome we never learned counts as well.
            has_claimed = self._attempt is not None or any(r.writer == self._writer for r in records)
            if not has_claimed:
                self._known = strangers
            elif strangers > self._known:
                raise self._fenced(records)
            of_this_run = [
                r.entry for r in records if isinstance(r.entry, Claim) and self.run and r.entry.run == self.run
            ]
            if any(claim.term > self.term for claim in of_this_run):
                raise self._fenced(records)
            number, after = (records[-1].seq + 1, records[-1].digest) if records else (1, "")
            attempt = max((r.attempt for r in records), default=0) + 1
            if any(r.damage for r in records):
                # A damaged entry may have been a claim. Its attempt was not above its number, so ours is new.
                attempt = number
            used = next_checkpoint([r.entry for r in records if r.entry is not None])
            is_fresh = fresh and not of_this_run
            origin = savepoint if is_fresh or stopped_at else ""
            claim = self._claim(attempt, now_ms, is_fresh, used, savepoint=origin, stopped_at=stopped_at)
            data = entries.encode(claim, self._writer, after)
            if not self._append(number, data):
                continue
            if self._came_too_late(number, data):
                self._store.delete([entry_path(number)])
                continue
            self._attempt, self._position, self._digest = Attempt(attempt), number, entries.digest(data)
            return self._attempt

    def _claim(
        self, attempt: int, now_ms: int, fresh: bool, used: int, given_up: Iterable[int] = (), **origin: Any
    ) -> Claim:
        return Claim(self._job, attempt, now_ms, fresh, used, [*given_up], run=self.run, term=self.term, **origin)

    def give_up(self, checkpoints: list[int], now_ms: int) -> None:
        """Put on record, durably, that these are never to be restored again."""
        used = next_checkpoint([r.entry for r in self.read() if r.entry is not None])
        self._write(self._claim(self.attempt, now_ms, False, used, checkpoints))

    def publish(self, manifest: Manifest) -> None:
        """Make a checkpoint exist. Its files are durable already.

        Raises Fenced if another attempt has taken over: then it does not exist. After a StorageError it may or may
        not, so its files must be left alone; the next attempt sweeps them if no entry names them.
        """
        if (manifest.attempt, manifest.job) != (self.attempt, self._job):
            ours = f"attempt {self.attempt} of {self._job!r}"
            raise InvalidTransition("history", ours, f"publish for attempt {manifest.attempt} of {manifest.job!r}")
        self._write(manifest)

    def _write(self, entry: Entry) -> None:
        """Put an entry of our attempt at our next number."""
        while True:
            data = entries.encode(entry, self._writer, self._digest)
            if len(data) > entries.MAX_ENTRY_BYTES:
                cause = f"its entry has {len(data):,} bytes, and {entries.MAX_ENTRY_BYTES:,} are the limit"
                raise StorageError(self._store.url, "publish a checkpoint in", cause)
            number = self._position + 1
            if isinstance(entry, Manifest):
                failpoint("publish.before")
            written = self._append(number, data)
            if isinstance(entry, Manifest):
                failpoint("publish.after")
            if written:
                break
            self._pass_over(number)
        if self._came_too_late(number, data):
            self._store.delete([entry_path(number)])
            raise self._fenced(self.read())
        self._position, self._digest = number, entries.digest(data)

    def _append(self, number: int, data: bytes) -> bool:
        """Put ``data`` at a number. False if something else is there.

        After an error the outcome is unknown, so we look, and do not write again: the first write may yet arrive.
        """
        path = entry_path(number)
        unknown: StorageError | None = None
        try:
            if self._store.put_if_absent(path, data):
                return True
        except StorageError as error:
            unknown = error
        try:
            return self._store.get(path) == data
        except BlobMissing:
            if unknown is not None:
                raise unknown from None
            # Taken a moment ago and removed since.
            return False

    def _came_too_late(self, number: int, data: bytes) -> bool:
        """Was the number at which we have just put ``data`` used and freed before? The module says why this tells."""
        above = [n for n, _ in self._listed() if n > number]
        if not above:
            return False
        try:
            following = entries.origin(self._store.get(entry_path(number + 1)))
        except BlobMissing:
            return True
        # If what follows is damaged we leave our entry where it is: taking it back could do harm.
        return following is not None and following[1] != entries.digest(data)

    def _pass_over(self, number: int) -> None:
        """Our number is taken. By an entry of our own whose put seemed to fail? Then it is counted, else we stop."""
        path = entry_path(number)
        try:
            data = self._store.get(path)
        except BlobMissing:
            raise self._fenced(self.read()) from None
        origin = entries.origin(data)
        if origin is not None and origin[0] == self._writer:
            self._position, self._digest = number, entries.digest(data)
            return
        try:
            entry = entries.decode(data, self._job, number)
        except SnapshotCorrupt as error:
            raise StorageError(path, "publish at", f"a damaged entry is there: {error.cause}") from error
        raise Fenced(self._store.url, self.attempt, entry.attempt)

    def _fenced(self, records: list[Record]) -> Fenced:
        # Without an attempt of our own if we never learned that our first claim had succeeded.
        return Fenced(self._store.url, self._attempt or 0, max((r.attempt for r in records), default=0))

    # --- removing -----------------------------------------------------------------------------

    def remove(self, checkpoint_ids: Iterable[int]) -> None:
        """Remove these checkpoints, oldest first, and the claims nobody needs any more.

        The entry goes before its files: a crash in between leaves files that nobody names, which :meth:`sweep` finds.
        The other way round it would leave a checkpoint that cannot be restored. Files that another readable
        checkpoint names stay. If the highest entry is to go, our claim is renewed above it first.
        """
        wanted = set(checkpoint_ids)
        records = self._records_as_owner()
        going = [r for r in records if isinstance(r.entry, Manifest) and r.entry.checkpoint in wanted]
        staying = [r for r in records if r not in going]
        highest = records[-1]
        if highest in going and highest.entry is not None:
            used = next_checkpoint([r.entry for r in records if r.entry is not None])
            self._write(self._claim(self.attempt, highest.entry.created_ms, False, used))
        for number, record in enumerate(going):
            self._store.delete([record.path])
            failpoint("retention.between")
            # What those have in common that go later goes with the last of them: each is whole as long as it is there.
            kept = _named(staying + going[number + 1 :])
            self._store.delete(sorted(_named([record]) - kept))
        for path in _superseded_claims(staying):
            # One call each: the order is what a late writer relies on.
            self._store.delete([path])

    def discard(self, files: Iterable[SnapshotFile]) -> None:
        """Delete files of a checkpoint that was never published and never will be."""
        self._store.delete(check_path(file.path) for file in files)

    def sweep(self, attempt: int) -> int:
        """Delete what attempts before ``attempt`` wrote and no checkpoint names. How many files was that?

        Safe because those attempts are fenced: what they have not published they never will. A damaged entry may
        name files that we would take for garbage, so with one about, nothing is swept.
        """
        if attempt > self.attempt:
            raise InvalidTransition("history", f"attempt {self.attempt}", f"sweep before attempt {attempt}")
        records = self._records_as_owner()
        if any(r.damage for r in records):
            return 0
        named = _named(records)
        garbage = [
            blob.path
            for blob in self._store.list(DATA)
            if (wrote := attempt_of(blob.path)) is not None and wrote < attempt and blob.path not in named
        ]
        self._store.delete(garbage)
        return len(garbage)

    def unnamed(self) -> list[Unnamed]:
        """The data files that no checkpoint names, if this is still ours to look after.

        A damaged entry may name files that we would take for unnamed, so with one about there are none.
        """
        records = self._records_as_owner()
        if any(r.damage for r in records):
            return []
        named = _named(records)
        found = [(blob.path, origin_of(blob.path)) for blob in self._store.list(DATA) if blob.path not in named]
        return [Unnamed(path, *origin) for path, origin in found if origin is not None]

    def drop(self, paths: Iterable[str]) -> None:
        """Delete files that :meth:`unnamed` has just found and nobody needs."""
        self._store.delete(paths)

    def _records_as_owner(self) -> list[Record]:
        """The history, if it is still ours to change. A driver that was taken over deletes nothing."""
        ours, records = self.attempt, self.read()
        if any(r.attempt > ours for r in records):
            raise self._fenced(records)
        for record in records:
            if record.seq > self._position and record.damage:
                raise StorageError(record.path, "remove checkpoints beside", f"it is damaged: {record.damage}")
        return records


def _named(records: list[Record]) -> set[str]:
    """The files that checkpoints name."""
    return {file.path for r in records if isinstance(r.entry, Manifest) for file in r.entry.files()}


def _superseded_claims(records: list[Record]) -> list[str]:
    """Claims that may go, oldest first: older than the newest, with nothing left of their attempt or of earlier ones.

    A fresh claim hides the checkpoints before it, so it stays while there are any; that is the same condition. What is
    damaged may be a checkpoint. Without any checkpoint all claims stay, so that what a very late writer leaves behind
    is never the newest one.
    """
    claims = [r for r in records if isinstance(r.entry, Claim)]
    oldest = min((r.seq for r in records if not isinstance(r.entry, Claim)), default=0)
    return [claim.path for claim, following in pairwise(claims) if following.seq < oldest]
