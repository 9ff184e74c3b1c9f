"""Files read in turn by one subtask: which file next, how far into it, which are done."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from moorline.api.sources import SourceContext, SourceReader, SplitId
from moorline.connectors.broken import BrokenRecords
from moorline.connectors.files.formats import RecordFile, format_of, open_file
from moorline.connectors.files.identity import (
    Seen,
    check_same,
    has_identity,
    is_renamed,
    moved_positions,
    seen_of,
    shown,
    with_new_names,
)
from moorline.connectors.files.lines import is_utf8
from moorline.connectors.files.local import LocalFile
from moorline.errors import StorageError, UnreadableRecord

if TYPE_CHECKING:
    from moorline.connectors.files.source import Files

log = logging.getLogger("moorline")

_DONE = {"done": True}
#: How many files without records one call of read() goes through before it lets the subtask look around.
_FILES_PER_READ = 64
#: How many listings a file is left alone that may be another subtask's, under another name.
_LISTINGS_LEFT_ALONE = 2


def split_id(name: str) -> str:
    """The id of the file with this relative path. A name that is not UTF-8 is written out, behind what no path has.

    >>> split_id("2024/a.csv"), split_id("caf\\udce9.csv")
    ('2024/a.csv', '//caf\\\\xe9.csv')
    """
    if is_utf8(name):
        return name
    return "//" + shown(name.replace("\\", "\\\\"))


class FilesReader(SourceReader):
    def __init__(self, source: Files, ctx: SourceContext) -> None:
        self._source = source
        self._ctx = ctx
        self._broken = BrokenRecords(source.on_error, ctx)
        #: Files with something to read, and the one being read.
        self._queue: deque[tuple[str, str]] = deque()
        self._split = ""
        self._file: RecordFile | None = None
        self._listed = source.clock()
        files = source.listing()
        positions = with_new_names(files, ctx.positions)
        self._positions: dict[SplitId, Any] = {s: p for s, p in positions.items() if ctx.owns(s)}
        #: Of a watched folder: every file that was there when it was listed last, also those of other subtasks.
        self._known: dict[str, Seen] = {}
        #: Those that were there before and are not any more.
        self._absent: dict[str, Seen] = {}
        #: For how many listings a file is to be left alone that may be another subtask's, under another name.
        self._left_alone: dict[str, int] = {}
        if source.watch is not None:
            self._known = _seen(files)
        self._forget_what_is_gone(files)
        self._enqueue(files)

    # --- which files ------------------------------------------------------------------------------

    def _look_for_files(self) -> None:
        """List a watched folder again."""
        files = self._source.listing()
        before, self._known = {**self._absent, **self._known}, _seen(files)
        self._left_alone = {split: left - 1 for split, left in self._left_alone.items() if left > 1}
        self._follow_renames(files, before)
        # A listing that meets a rename half-way may show neither name: what is gone is forgotten by the next one.
        self._absent = {split: seen for split, seen in before.items() if split not in {**self._known, **self._absent}}
        self._forget_what_is_gone(files)
        self._enqueue({split: path for split, path in files.items() if split not in self._left_alone})

    def _follow_renames(self, files: dict[str, str], before: dict[str, Seen]) -> None:
        """Take positions along to new names, and leave alone what may be another subtask's under a new name."""
        old_of = {seen[2]: split for split, seen in before.items() if self._known.get(split, [0, 0, -1])[2] != seen[2]}
        positions, moved = self.positions(), dict[Any, str]()
        for new, seen in self._known.items():
            old = old_of.get(seen[2])
            if old is None or (new in before and before[new][2] == seen[2]):
                continue
            if not self._ctx.owns(old):
                if self._ctx.owns(new):
                    self._left_alone[new] = _LISTINGS_LEFT_ALONE
                continue
            position = positions.get(old)
            if position is None or not is_renamed(files[new], position):
                continue
            if not self._ctx.owns(new):
                cause = f"it is called {new} now, which another subtask reads: only a restart can hand it over"
                raise StorageError(old, "go on reading", cause)
            log.info("read_files: %s is called %s now", old, new)
            moved[old] = new
        self._positions = moved_positions(positions, moved) if moved else self._positions
        if self._file is not None:
            self._split = moved.get(self._split, self._split)

    def _forget_what_is_gone(self, files: dict[str, str]) -> None:
        for split in [s for s in self._positions if s not in files and s not in self._absent]:
            # What is done and gone cannot be found again; what is half read and gone is lost, and that must be said.
            position = self._positions.pop(split)
            if self._source.watch is None and not position.get("done"):
                path = os.path.join(self._source.path, str(split))
                raise StorageError(
                    path, "go on reading", f"it is gone, and was read only up to {position}", can_pass=False
                )

    def _enqueue(self, files: dict[str, str]) -> None:
        """Queue all files to read, but for the one that is being read."""
        current = self._split if self._file is not None else None
        self._queue = deque(
            (split, path)
            for split, path in files.items()
            if self._ctx.owns(split) and split != current and self._has_news(split, path)
        )

    def _has_news(self, split: str, path: str) -> bool:
        position = self._positions.get(split)
        if position is None or self._source.watch is None:
            return position is None or not position.get("done")
        seen = self._known.get(split)
        if seen is None:
            return False  # gone since it was listed
        changed = has_identity(position) and seen != position["seen"]
        if position.get("done"):
            if changed:
                with _naming_file(path), open(path, "rb") as file:
                    check_same(file.fileno(), path, position)
                self._positions[split] = {**position, "seen": seen}
            return False
        # A file without identity was not whole. Not ">": one that has become shorter must be opened, to be reported.
        return changed or not has_identity(position) or ("offset" in position and seen[0] != position["offset"])

    # --- reading ----------------------------------------------------------------------------------

    def read(self, limit: int) -> list[Any] | None:
        records = self._read(limit)
        self.side_outputs = self._broken.take()
        return records

    def _read(self, limit: int) -> list[Any] | None:
        if self._source.watch is not None:
            now = self._source.clock()
            if now - self._listed >= self._source.watch:
                self._listed = now
                self._look_for_files()
        for _ in range(_FILES_PER_READ):
            if self._file is None and not self._open_next():
                return None if self._source.watch is None else []
            if self._file is None:
                continue
            try:
                with _naming_file(self._split):
                    records = self._file.read(limit)
            except UnreadableRecord as error:
                self._give_up_file(error)
                continue
            if records is None:
                self._set_aside(self._file)
            elif records:
                self.split = self._split
                return records
        return []

    def _open_next(self) -> bool:
        """Begin the next file. False if there is none for now."""
        if not self._queue:
            return False
        self._split, path = self._queue.popleft()
        watched = self._source.watch is not None
        try:
            format = self._source.format or format_of(path)
            position = self._positions.get(self._split)
            self._file = open_file(LocalFile(path), format, position, self._broken, final=not watched)
        except FileNotFoundError as error:
            if not watched:
                cause = "it was there when the source started and is gone now"
                raise StorageError(shown(path), "read", cause, can_pass=False) from error
            # Removed, or renamed: the next listing will tell.
        except UnreadableRecord as error:
            self._give_up_file(error)
        except OSError as error:
            raise StorageError.of(shown(path), "read", error) from error
        return True

    def _give_up_file(self, error: UnreadableRecord) -> None:
        """Nothing of a file can be read."""
        if self._broken.fails:
            raise error
        self._broken.add(error.path, error.position, b"", error.cause)
        self.close()
        self._positions[self._split] = dict(_DONE)

    def _set_aside(self, file: RecordFile) -> None:
        position = file.position()
        file.close()
        self._file = None
        if file.is_final:
            position = {**_DONE, **{name: position[name] for name in ("print", "seen") if name in position}}
        self._positions[self._split] = position

    def splits(self) -> Collection[SplitId]:
        current: set[SplitId] = set() if self._file is None else {self._split}
        if self._source.watch is None:
            return current
        return current | {split for split, position in self._positions.items() if not position.get("done")}

    def positions(self) -> dict[SplitId, Any]:
        positions = dict(self._positions)
        if self._file is not None:
            positions[self._split] = self._file.position()
        return positions

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _seen(files: dict[str, str]) -> dict[str, Seen]:
    """The size and time of each file now, without those that are gone already."""
    present: dict[str, Seen] = {}
    for split, path in files.items():
        with contextlib.suppress(FileNotFoundError):
            present[split] = seen_of(os.stat(path))
    return present


@contextlib.contextmanager
def _naming_file(path: str) -> Iterator[None]:
    """Name the file where the file system refuses."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(shown(path), "read", error) from error
