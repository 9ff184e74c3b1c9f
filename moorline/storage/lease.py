"""The terms of a job's leader as files beside its history.

    leader/0000000017.json    {"number": 17, "holder": "5f0c...", "run": "9ab1...", "ended": "", "host": …, "pid": …}

A term is taken by creating its number (``numbered.py``), and the highest number counts. The driver that takes one
removes the lower ones, so there is usually one file. A driver that finds a higher number after it has taken its own
came too late, and takes its own back.

Asks no more of a store than ``blobs.py`` has. ``protocol/supervision/leadership.py`` decides,
``driver/leadership/election.py`` calls.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import msgspec

from moorline.errors import BlobMissing, StorageError
from moorline.model.facts import Term
from moorline.storage.blobs import BlobStore
from moorline.storage.layout import LEADER
from moorline.storage.numbered import NumberedFiles

_LARGEST = 64 << 10


class TermFile(msgspec.Struct, frozen=True):
    """The contents of a file. Host and process are for people."""

    number: int
    holder: str
    run: str
    ended: str = ""
    host: str = ""
    pid: int = 0


class LeaseFiles:
    """The lease of the job whose folder ``store`` is."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._files = NumberedFiles(store, LEADER)
        #: The leader, for people.
        self.leader = ""

    def look(self) -> Term | None:
        """The highest term that is there."""
        while True:
            terms = self._files.list()
            if not terms:
                return None
            try:
                return self._read(terms[-1][0])
            except BlobMissing:
                continue  # a higher one has taken its place

    def take(self, term: Term) -> bool:
        """Make this term ours, if its number is free. After a StorageError it may be or not."""
        # An unknown outcome is the machine's to deal with: it asks for the same number again.
        if not self._files.append(term.number, _bytes(term), looks_after_error=False):
            return False
        numbers = [number for number, _ in self._files.list()]
        if numbers and numbers[-1] > term.number:
            self._files.remove([term.number])
            return False
        with suppress(StorageError):
            self._files.remove(n for n in numbers if n < term.number)
        return True

    renew = take

    def record(self, term: Term) -> None:
        """Put the end of our last term on record, if it is still the last."""
        self.take(term)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _read(self, number: int) -> Term:
        data = self._store.get_range(self._files.path(number), 0, _LARGEST)
        try:
            term = msgspec.json.decode(data, type=TermFile)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # Its holder is unknown: it is waited for like any other.
            return Term(number, "?", "")
        self.leader = f"process {term.pid} on {term.host}"
        return Term(number, term.holder, term.run, term.ended)


def _bytes(term: Term) -> bytes:
    record = TermFile(term.number, term.holder, term.run, term.ended, socket.gethostname(), os.getpid())
    return msgspec.json.encode(record) + b"\n"
