"""The history of a job as a log: reading it, claiming it, and appending to it.

    history/0000000041.json   claim       attempt 7
    history/0000000042.json   checkpoint  attempt 7, checkpoint 19
    history/0000000043.json   claim       attempt 8            <- takes over; attempt 7 wanted this number too
    history/0000000044.json   checkpoint  attempt 8, checkpoint 20

**Publishing.** An entry goes to the number above the highest one, by creating it (``numbered.py``). That is the one
step by which a checkpoint comes into being: before it nothing names its files, after it they are all durable.

**Fencing.** An attempt starts with a claim. A driver that was writing before finds its next number taken, reads the
entry there, sees that it is not its own, and stops (:class:`Fenced`). What it published earlier stands: the claim has a
higher number, so the new attempt has seen it. No clock, no lease and no lock is involved.

**Accounting.** Each entry names those below it, by number and digest: the ones that stay, and the ones that are being
removed. Its writer has read them, so the newest entry accounts for all of them (``chain.py``). The highest entry is
never removed, and numbers only grow; after each entry the *head* is moved to it, so that an entry that is lost from the
end leaves a trace as well.

**Very late writers.** Old entries are removed, so a driver that slept through two takeovers could find its number free
again. It cannot tell from the mere presence of higher numbers: they may also belong to an attempt that took over a
moment ago, after our put, and is restoring from our entry right now. But the highest entry can tell: the writer of the
first one above ours has found ours there and named it, and all that came later have taken that over for as long as ours
was there. Hence: in time if nothing is above, or if the highest entry names our bytes at our number; otherwise too
late, and we take our entry back. (A writer that dies before it can do so leaves an entry that no other names.)
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from enum import Enum
from typing import Any

from moorline.errors import BlobMissing, Fenced, InvalidTransition, SnapshotCorrupt, StorageError
from moorline.failpoints import failpoint
from moorline.model.ids import Attempt
from moorline.model.manifest import Claim, Entry, Manifest, next_checkpoint
from moorline.storage import entries
from moorline.storage.blobs import Blob, BlobStore
from moorline.storage.chain import HistoryLook, Record, Statement, next_place, superseded, verified
from moorline.storage.layout import HEAD, HISTORY, entry_path, head_of, head_path
from moorline.storage.numbered import NumberedFiles

log = logging.getLogger("moorline")


def look_at_history(store: BlobStore) -> HistoryLook:
    """The history in a folder, whichever job's it is: to look at, not to write."""
    reader = HistoryLog(store, "")
    reader._reads = None
    return reader.look()


def read_history(store: BlobStore) -> list[Record]:
    """The records of :func:`look_at_history`."""
    return look_at_history(store).records


class Standing(Enum):
    """The standing of an entry that we have just put."""

    HIGHEST = "nothing is above it"
    FOLLOWED = "an entry above it counts it in"
    TOO_LATE = "its number was used and freed before"


class HistoryLog:
    """The history of ``job`` in ``store``, and our place in it once we have claimed one."""

    def __init__(self, store: BlobStore, job: str) -> None:
        self._store, self._files = store, NumberedFiles(store, HISTORY)
        self._job = job
        #: The job whose entries are read; None: any.
        self._reads: str | None = job
        self._writer = uuid.uuid4().hex
        #: The run that we go on with, if another driver has led it before; see ``protocol/supervision/leadership.py``.
        self.run = ""
        #: Of our lead in that run. A driver that slept between its lead and its claim must not take over.
        self.term = 0
        #: The process we run in, for those who want to know whether it lives; see ``driver/processes.py``.
        self.process = ""
        self._attempt: Attempt | None = None
        #: The highest attempt of other drivers when we first claimed.
        self._known = 0
        #: The last entry that we wrote, and the history up to it.
        self._last: Statement | None = None
        self._known_records: list[Record] = []
        #: The head that we have put; empty if we have put none.
        self._head_path = ""

    @property
    def store(self) -> BlobStore:
        """The store it lies in."""
        return self._store

    @property
    def writer(self) -> str:
        """Our identity: a random word that all our entries carry."""
        return self._writer

    @property
    def has_claimed(self) -> bool:
        """Have we claimed an attempt?"""
        return self._attempt is not None

    @property
    def attempt(self) -> Attempt:
        """The attempt we have claimed."""
        if self._attempt is None:
            raise InvalidTransition("history", "no attempt claimed", "an order that needs one", [self._store.url])
        return self._attempt

    # --- looking ------------------------------------------------------------------------------

    def read(self) -> list[Record]:
        """Every entry that counts, oldest first. Damage and loss are reported, not raised: other entries may do."""
        return self.look().records

    def look(self) -> HistoryLook:
        """Every entry, and those that no other names."""
        while True:
            # The head first: what it says must be there in a listing that is made later.
            head = self._head()
            listed = self._files.list()
            try:
                records = [self._record(number, blob) for number, blob in listed]
            except BlobMissing:
                continue
            # A history that changed meanwhile is read again, or we might pair an old listing with new contents.
            if self._files.list() == listed:
                return verified(records, head, self._last)

    def _head(self) -> Statement | None:
        heads = [head for blob in self._store.list(HEAD) if (head := head_of(blob.path)) is not None]
        return Statement(*max(heads)) if heads else None

    def _record(self, number: int, blob: Blob) -> Record:
        if blob.size > entries.MAX_ENTRY_BYTES:
            return Record(number, blob.path, None, f"{blob.size:,} bytes are more than an entry can have")
        data = self._store.get(blob.path)
        digest = entries.digest(data)
        try:
            entry = entries.decode(data, self._reads, number)
        except SnapshotCorrupt as error:
            # If there is a path, it is that of a file which the entry names.
            cause = f"{error.path}: {error.cause}" if error.path else error.cause
            return Record(number, blob.path, None, cause, digest)
        origin = entries.origin(data) or entries.Origin()
        return Record(number, blob.path, entry, None, digest, origin.writer, origin.after, origin.place)

    # --- writing ------------------------------------------------------------------------------

    def claim(
        self,
        fresh: bool,
        now_ms: int,
        savepoint: str = "",
        stopped_at: int = 0,
        admit: Callable[[list[Record]], None] = lambda records: None,
    ) -> Attempt:
        """Take over this job's storage: from here on, what older attempts publish is refused.

        Raises Fenced if a leader of the same run that came after us has claimed already.
        The first claim of a driver takes over from any that was there, also from one that came between two tries:
        that may have been the one we were started to replace. A later claim only goes on with what is our own: if
        another driver has come since, it is Fenced, or two would take the job from each other for ever.
        A fresh start is one only for the first driver of a run: who comes after it goes on.
        ``savepoint``: what a fresh one starts from, if it does not start empty; or, with its number in ``stopped_at``,
        the savepoint that the job was stopped with.
        ``admit`` looks at the history before a claim that begins anew, and raises if that must not be.
        """
        while True:
            look = self.look()
            records = look.records
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
            is_fresh = fresh and not of_this_run
            if is_fresh:
                admit(records)
            number = look.highest + 1
            attempt = max((r.attempt for r in records), default=0) + 1
            if any(r.damage for r in records):
                # A damaged entry may have been a claim. Its attempt was not above its number, so ours is new.
                attempt = number
            used = look.next_checkpoint
            origin = savepoint if is_fresh or stopped_at else ""
            claim = self._claim(attempt, now_ms, is_fresh, used, savepoint=origin, stopped_at=stopped_at)
            if not self._put_claim(number, look, claim):
                continue
            self._attempt = Attempt(attempt)
            self._remove_claims()
            return self._attempt

    def _put_claim(self, number: int, look: HistoryLook, claim: Claim) -> bool:
        planned = Record(number, entry_path(number), claim)
        going = [r for r in superseded([*look.records, planned], ()) if isinstance(r.entry, Claim)]
        below = look.records[-1] if look.records and look.records[-1].seq == number - 1 else None
        written, data = self._encoded(number, look.records, going, claim, below.digest if below is not None else "")
        if not self._files.append(number, data, looks_after_error=True):
            return False
        return self._settle(written, data, look.records)

    def _encoded(
        self, number: int, below: list[Record], going: Iterable[Record], entry: Entry, after: str
    ) -> tuple[Record, bytes]:
        place = next_place(number, below, going)
        data = entries.encode(entry, self._writer, after, place)
        return Record(number, entry_path(number), entry, None, entries.digest(data), self._writer, after, place), data

    def _claim(
        self, attempt: int, now_ms: int, fresh: bool, used: int, given_up: Iterable[int] = (), **more: Any
    ) -> Claim:
        return Claim(
            self._job,
            attempt,
            now_ms,
            fresh,
            used,
            [*given_up],
            run=self.run,
            term=self.term,
            process=self.process,
            **more,
        )

    def _remove_claims(self) -> None:
        """Remove the claims that our newest entry names among those that go. If it fails, the next claim does it."""
        assert self._last is not None and self._last.place is not None
        going = [r for r in self._known_records if r.seq in self._last.place.goes and isinstance(r.entry, Claim)]
        try:
            if going:
                self._store.delete([r.path for r in going])
        except StorageError as error:
            log.warning("claims that are not needed could not be deleted yet: %s", error)
        else:
            self._forget(r.seq for r in going)

    def _write(self, entry: Entry, going: Collection[Record] = ()) -> None:
        """Put an entry of our attempt at our next number, after which ``going`` may be removed."""
        while True:
            assert self._last is not None
            number = self._last.number + 1
            record, data = self._encoded(number, self._known_records, going, entry, self._last.digest)
            if len(data) > entries.MAX_ENTRY_BYTES:
                cause = f"its entry has {len(data):,} bytes, and {entries.MAX_ENTRY_BYTES:,} are the limit"
                raise StorageError(self._store.url, "publish a checkpoint in", cause)
            if isinstance(entry, Manifest):
                failpoint("publish.before")
            written = self._files.append(number, data, looks_after_error=True)
            if isinstance(entry, Manifest):
                failpoint("publish.after")
            if written:
                break
            self._pass_over(number)
        if not self._settle(record, data, self._known_records):
            raise self._fenced(self.read())

    def _settle(self, record: Record, data: bytes, below: list[Record]) -> bool:
        """Move the head to an entry that we have just put, and remember it. False: it came too late, and is gone.

        The head goes first, and goes back if there is a higher entry, whose writer has moved it: between a look that
        finds none and the head that follows it, a driver could sleep. It is evidence and no part of publishing: if it
        cannot be moved now, the next entry moves it.
        """
        used = next_checkpoint([r.entry for r in [*below, record] if r.entry is not None])
        path, is_put = head_path(record.seq, record.digest, used), True
        try:
            self._store.put_if_absent(path, b"{}\n")
        except StorageError as error:
            is_put = False
            log.warning("the head of the history could not be moved to number %d yet: %s", record.seq, error)
        standing = self._standing(record.seq, data)
        if standing is Standing.TOO_LATE:
            self._files.remove([record.seq])
        elif standing is Standing.HIGHEST and is_put:
            self._remove_heads_below(path)
        if standing is not Standing.HIGHEST:
            self._remove_heads([path])
        if standing is not Standing.TOO_LATE:
            self._keep(record, below, used)
        return standing is not Standing.TOO_LATE

    def _remove_heads_below(self, path: str) -> None:
        is_first, last, self._head_path = not self._head_path, self._head_path, path
        try:
            # Others may have left theirs there, and it is enough to look once.
            self._remove_heads([b.path for b in self._store.list(HEAD) if b.path < path] if is_first else [last])
        except StorageError as error:
            log.warning("heads of the history that are not needed could not be found yet: %s", error)

    def _remove_heads(self, paths: list[str]) -> None:
        try:
            self._store.delete(paths)
        except StorageError as error:
            log.warning("heads of the history that are not needed could not be deleted yet: %s", error)

    def _keep(self, record: Record, below: list[Record], used: int) -> None:
        self._known_records = [*below, record]
        self._last = Statement(record.seq, record.digest, used, record.place)

    def _forget(self, numbers: Iterable[int]) -> None:
        gone = set(numbers)
        self._known_records = [r for r in self._known_records if r.seq not in gone]

    def _standing(self, number: int, data: bytes) -> Standing:
        """The standing of ``data``, which we have just put at ``number``. The module says why this tells."""
        while True:
            above = [n for n, _ in self._files.list() if n > number]
            if not above:
                return Standing.HIGHEST
            with suppress(BlobMissing):
                origin = entries.origin(self._store.get(entry_path(above[-1])))
                # If the highest is damaged we leave our entry where it is: taking it back could do harm.
                if origin is None or (origin.place is not None and origin.place.number != above[-1]):
                    return Standing.FOLLOWED
                if origin.place is not None:
                    is_late = origin.place.digest_of(number) not in ("", entries.digest(data))
                else:
                    is_late = self._precedes_another(number, data)
                return Standing.TOO_LATE if is_late else Standing.FOLLOWED

    def _precedes_another(self, number: int, data: bytes) -> bool:
        """For entries of earlier versions, which name the one right below them alone."""
        try:
            following = entries.origin(self._store.get(entry_path(number + 1)))
        except BlobMissing:
            return True
        return following is not None and following.after != entries.digest(data)

    def _pass_over(self, number: int) -> None:
        """Our number is taken. By an entry of our own whose put seemed to fail? Then it is counted, else we stop."""
        path = entry_path(number)
        try:
            data = self._store.get(path)
        except BlobMissing:
            raise self._fenced(self.read()) from None
        try:
            entry = entries.decode(data, self._job, number)
        except SnapshotCorrupt as error:
            raise StorageError(path, "publish at", f"a damaged entry is there: {error.cause}") from error
        origin = entries.origin(data)
        if origin is None or origin.writer != self._writer:
            raise Fenced(self._store.url, self.attempt, entry.attempt)
        record = Record(number, path, entry, None, entries.digest(data), origin.writer, origin.after, origin.place)
        used = next_checkpoint([r.entry for r in [*self._known_records, record] if r.entry is not None])
        self._keep(record, self._known_records, used)

    def _fenced(self, records: list[Record]) -> Fenced:
        # Without an attempt of our own if we never learned that our first claim had succeeded.
        return Fenced(self._store.url, self._attempt or 0, max((r.attempt for r in records), default=0))
