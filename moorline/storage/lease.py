"""The terms of a job's leader as files beside its history.

    leader/0000000017.json    {"number": 17, "holder": "5f0c...", "run": "9ab1...", "ended": "", "host": …, "pid": …}

A term is taken by put_if_absent of its number, and the highest number counts. Whoever takes one removes the lower ones,
so there is usually one file. As with the history, a driver that slept may find its number free again because it was
used and removed: after a put it looks whether there are higher ones, and if so takes its own back.

Asks no more of a store than ``blobs.py`` has. ``protocol/supervision/leadership.py`` decides,
``driver/leadership/election.py`` calls.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress

import msgspec

from moorline.errors import BlobMissing, StorageError
from moorline.protocol.supervision.leadership import Term
from moorline.storage.blobs import BlobStore

FOLDER = "leader/"
_FILE = re.compile(r"leader/([0-9]{10})\.json")
_LARGEST = 64 << 10


class TermFile(msgspec.Struct, frozen=True):
    """What stands in the file. Host and process are for people."""

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
        #: Who leads, for people.
        self.leader = ""

    def look(self) -> Term | None:
        """The highest term that is there."""
        while True:
            numbers = self._numbers()
            if not numbers:
                return None
            try:
                return self._read(numbers[-1])
            except BlobMissing:
                continue  # a higher one has taken its place

    def take(self, term: Term) -> bool:
        """Make this term ours, if its number is free. After a StorageError it may be or not."""
        path, data = _path(term.number), _bytes(term)
        if not self._store.put_if_absent(path, data):
            try:
                # A put of ours that seemed to fail is ours all the same.
                if self._store.get(path) != data:
                    return False
            except BlobMissing:
                return False
        numbers = self._numbers()
        if numbers and numbers[-1] > term.number:
            self._store.delete([path])
            return False
        with suppress(StorageError):
            self._store.delete([_path(n) for n in numbers if n < term.number])
        return True

    renew = take

    def record(self, term: Term) -> None:
        """Put the end of our last term on record, if it is still the last."""
        self.take(term)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _numbers(self) -> list[int]:
        return sorted(int(found[1]) for blob in self._store.list(FOLDER) if (found := _FILE.fullmatch(blob.path)))

    def _read(self, number: int) -> Term:
        data = self._store.get_range(_path(number), 0, _LARGEST)
        try:
            found = msgspec.json.decode(data, type=TermFile)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # Somebody's, but whose cannot be told: it is waited for like any other.
            return Term(number, "?", "")
        self.leader = f"process {found.pid} on {found.host}"
        return Term(number, found.holder, found.run, found.ended)


def _path(number: int) -> str:
    return f"{FOLDER}{number:010d}.json"


def _bytes(term: Term) -> bytes:
    record = TermFile(term.number, term.holder, term.run, term.ended, socket.gethostname(), os.getpid())
    return msgspec.json.encode(record) + b"\n"
