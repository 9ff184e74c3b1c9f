"""Is this the file that was read before? Asked when a file is opened again, and when a name is new or gone.

A position in a file carries, beside how far it was read, what the file looked like:

    print   a hash of the first and of the last 16 KiB of what was read: the content
    seen    size, time of the last change (ns) and inode, when it was opened last

The print settles whether a file is the same one: it is on every machine and survives a copy. Size, time and inode say
when it is worth a look, and keep two files with the same beginning apart: one that has been given another name has its
old size and time, or its old inode and has grown. Positions of older versions have neither, and are believed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import xxhash

from moorline.connectors.files.opened import Position
from moorline.errors import StorageError

log = logging.getLogger("moorline")

_BLOCK = 16 * 1024
#: Lines that are often as long as a block together.
_SOME = 256
_INODE = (1 << 63) - 1

#: Size, time of the last change, inode.
Seen = list[int]


def shown(path: str) -> str:
    """A path as text that can be printed, whatever bytes are in it.

    >>> shown("caf\\udce9.csv")
    'caf\\\\xe9.csv'
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def seen_of(status: os.stat_result) -> Seen:
    return [status.st_size, status.st_mtime_ns, status.st_ino & _INODE]


class Fingerprint:
    """The print of what was read of a file, which need not be what is in the file by now."""

    def __init__(self, file: int, end: int) -> None:
        """Of the first ``end`` bytes of an open file."""
        size = min(_BLOCK, end)
        self._head = os.pread(file, size, 0)
        self._tail = os.pread(file, size, end - size)

    def add(self, lines: list[bytes]) -> None:
        """These bytes were read next."""
        last = b"".join(lines[-_SOME:])
        if len(last) < _BLOCK:
            last = b"".join(lines)
        if len(self._head) < _BLOCK:
            self._head = (self._head + b"".join(lines))[:_BLOCK]
        self._tail = (self._tail + last)[-_BLOCK:] if len(last) < _BLOCK else last[-_BLOCK:]

    def __str__(self) -> str:
        return xxhash.xxh3_64_hexdigest(self._head + self._tail)


def read_end(position: Position) -> int:
    """The number of bytes of its file that a position's print is about."""
    offset = position.get("offset")
    return int(position["seen"][0] if offset is None else offset)


def has_identity(position: Position | None) -> bool:
    return position is not None and "print" in position and "seen" in position


def is_same(file: int, position: Position) -> bool:
    """Does an open file begin with what was read up to ``position``?"""
    end = read_end(position)
    return os.fstat(file).st_size >= end and str(Fingerprint(file, end)) == position["print"]


def check_same(file: int, path: str, position: Position | None) -> None:
    """Raises StorageError if an open file is not the one that was read before."""
    if position is not None and has_identity(position) and not is_same(file, position):
        raise replaced(path, f"its beginning is not what was read up to byte {read_end(position)}")


def replaced(path: str, cause: str) -> StorageError:
    advice = "was it replaced? Files may only grow at their end; give new content a new name"
    return StorageError(shown(path), "go on reading", f"{cause}; {advice}", can_pass=False)


def is_renamed(path: str, position: Position) -> bool:
    """Is the file at ``path`` the one that a position under another name is about?"""
    if not has_identity(position) or not read_end(position):
        return False
    size, changed, inode = position["seen"]
    try:
        status = os.stat(path)
        now = seen_of(status)
        if now[:2] != [size, changed] and not (now[2] == inode and now[0] > size):
            return False
        with open(path, "rb") as file:
            return is_same(file.fileno(), position)
    except OSError:
        return False


def with_new_names(files: Mapping[str, str], positions: Mapping[Any, Position]) -> dict[Any, Position]:
    """The positions by the names that their files have now.

    ``files``: all there are, by id. Every subtask is given the same positions, so all come to the same answer.
    """
    lost = {s: p for s, p in positions.items() if has_identity(p) and not _is_still(files.get(s), p)}
    free = [s for s in files if s not in positions or s in lost]
    moved: dict[Any, str] = {}
    for split in sorted(lost, key=str):
        new = next((s for s in free if s != split and is_renamed(files[s], lost[split])), None)
        if new is not None:
            log.info("read_files: %s is called %s now", split, new)
            moved[split] = new
            free.remove(new)
    return moved_positions(positions, moved)


def moved_positions(positions: Mapping[Any, Position], moved: Mapping[Any, str]) -> dict[Any, Position]:
    """The positions under their new names: all at once, because names may be passed on from file to file."""
    taken = set(moved.values())
    stay = {split: position for split, position in positions.items() if split not in moved and split not in taken}
    return {**stay, **{new: positions[old] for old, new in moved.items()}}


def _is_still(path: str | None, position: Position) -> bool:
    """Is the file under its old name still the one that was read?"""
    if path is None:
        return False
    try:
        if seen_of(os.stat(path))[:2] == position["seen"][:2]:
            return True
        with open(path, "rb") as file:
            return is_same(file.fileno(), position)
    except FileNotFoundError:
        return False
