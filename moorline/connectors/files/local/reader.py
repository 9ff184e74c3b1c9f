"""Files of a local folder as one subtask sees them: which are new, which have grown, which are called otherwise now.

Each file is a split. Every subtask lists the folder for itself and reads the files that are its own.

    position            meaning
    (none)              not begun
    {"offset": 120}     where the next record begins; ``formats/choosing.py`` has the positions of all formats
    {"done": True}      never read again

Each position also says what the file looked like (``identity.py``), so one whose content was exchanged is an
error, and one that has another name is known again.

Without ``watch`` the files are what the folder holds when the subtask starts, and they must not change. With it
the folder is listed again and again: new files are read, and files of a line format may grow at their end, so
they are never done. A file that is gone from a watched folder is forgotten.

A position goes with a file to its new name. If another subtask owns that name, only a restart can hand it over: all
readers are given all positions then. So the old owner raises, and the new one leaves a file alone for a while that it
has known under a name of another owner.

Event time (``splits``) waits for the file that is being read and for those that may grow, and not for files that have
not been begun: so files that are read to their end should come in the order of their times.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from moorline.api.sources import SourceContext, SplitId
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
from moorline.connectors.files.local.file import LocalFile
from moorline.connectors.files.opened import Position
from moorline.connectors.files.reader import FilesReader, Reading, naming_file
from moorline.errors import StorageError

log = logging.getLogger("moorline")

_DONE = {"done": True}
#: How many listings a file is left alone that may be another subtask's, under another name.
_LISTINGS_LEFT_ALONE = 2


class LocalReader(FilesReader):
    """See :class:`FilesReader`."""

    def __init__(
        self,
        listing: Callable[[], dict[str, str]],
        watch: float | None,
        clock: Callable[[], float],
        reading: Reading,
        ctx: SourceContext,
    ) -> None:
        super().__init__(reading, ctx)
        #: Lists the files there are: id to path.
        self._listing = listing
        #: Seconds between two listings of a watched folder.
        self._watch, self._clock = watch, clock
        self.grows = watch is not None
        self._listed = clock()
        self._files = listing()
        positions = with_new_names(self._files, ctx.positions)
        self._positions = {s: p for s, p in positions.items() if ctx.owns(s)}
        #: Of a watched folder: every file that was there when it was listed last, also those of other subtasks.
        self._known: dict[str, Seen] = {}
        #: Those that were there before and are not any more.
        self._absent: dict[str, Seen] = {}
        #: For how many listings a file is to be left alone that may be another subtask's, under another name.
        self._left_alone: dict[str, int] = {}
        if watch is not None:
            self._known = _seen(self._files)
        self._forget_what_is_gone()
        self._enqueue(self._files)

    # --- which files ------------------------------------------------------------------------------

    def _look_for_files(self) -> None:
        """List a watched folder again."""
        self._files = files = self._listing()
        before, self._known = {**self._absent, **self._known}, _seen(files)
        self._left_alone = {split: left - 1 for split, left in self._left_alone.items() if left > 1}
        self._follow_renames(before)
        # A listing that meets a rename half-way may show neither name: what is gone is forgotten by the next one.
        self._absent = {split: seen for split, seen in before.items() if split not in {**self._known, **self._absent}}
        self._forget_what_is_gone()
        self._enqueue([split for split in files if split not in self._left_alone])

    def _follow_renames(self, before: dict[str, Seen]) -> None:
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
            if position is None or not is_renamed(self._files[new], position):
                continue
            if not self._ctx.owns(new):
                cause = f"it is called {new} now, which another subtask reads: only a restart can hand it over"
                raise StorageError(old, "go on reading", cause)
            log.info("read_files: %s is called %s now", old, new)
            moved[old] = new
        self._positions = moved_positions(positions, moved) if moved else self._positions
        if self._file is not None:
            self._split = moved.get(self._split, self._split)

    def _forget_what_is_gone(self) -> None:
        for split in [s for s in self._positions if s not in self._files and s not in self._absent]:
            # What is done and gone cannot be found again; what is half read and gone is lost, and that must be said.
            position = self._positions.pop(split)
            if not self.grows and not position.get("done"):
                cause = f"it is gone, and was read only up to {position}"
                raise StorageError(str(split), "go on reading", cause, can_pass=False)

    def _enqueue(self, splits: Collection[str]) -> None:
        """Queue all files to read, but for the one that is being read."""
        current = self._split if self._file is not None else None
        self._queue = deque(
            split for split in splits if self._ctx.owns(split) and split != current and self._has_news(split)
        )

    def _has_news(self, split: str) -> bool:
        position = self._positions.get(split)
        if position is None or not self.grows:
            return position is None or not position.get("done")
        seen = self._known.get(split)
        if seen is None:
            return False  # gone since it was listed
        changed = has_identity(position) and seen != position["seen"]
        if position.get("done"):
            if changed:
                path = self._files[split]
                with naming_file(path), open(path, "rb") as file:
                    check_same(file.fileno(), path, position)
                self._positions[split] = {**position, "seen": seen}
            return False
        # A file without identity was not whole. Not ">": one that has become shorter must be opened, to be reported.
        return changed or not has_identity(position) or ("offset" in position and seen[0] != position["offset"])

    # --- reading ----------------------------------------------------------------------------------

    def _read(self, limit: int) -> Sequence[Any] | None:
        if self._watch is not None:
            now = self._clock()
            if now - self._listed >= self._watch:
                self._listed = now
                self._look_for_files()
        return super()._read(limit)

    def _open_split(self, split: str) -> tuple[LocalFile, Position | None]:
        path = self._files[split]
        with naming_file(path):
            return LocalFile(path), self._positions.get(split)

    def _is_gone(self, split: str) -> None:
        if not self.grows:
            cause = "it was there when the source started and is gone now"
            raise StorageError(shown(self._files[split]), "read", cause, can_pass=False)
        # Removed, or renamed: the next listing will tell.

    def _is_done(self, split: str, position: Position) -> None:
        self._positions[split] = {**_DONE, **position}

    def _when_idle(self) -> list[Any] | None:
        return [] if self.grows else None

    def splits(self) -> Collection[SplitId]:
        current = set(super().splits())
        if not self.grows:
            return current
        return current | {split for split, position in self._positions.items() if not position.get("done")}


def _seen(files: dict[str, str]) -> dict[str, Seen]:
    """The size and time of each file now, without those that are gone already."""
    present: dict[str, Seen] = {}
    for split, path in files.items():
        with contextlib.suppress(FileNotFoundError):
            present[split] = seen_of(os.stat(path))
    return present
