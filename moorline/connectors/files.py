"""A source that reads the files of a folder.

Each file is a split whose id is its path relative to the folder, so the folder can be moved between a savepoint
and the restart. One subtask reads its files one after the other, in the order of their names.

    position            meaning
    (none)              not begun
    {"offset": 120}     the next record of a line format begins there
    {"row": 7}          the next row of a Parquet file
    {"done": True}      never looked at again

Without ``watch`` the files are what the folder holds when the subtask starts, and they must not change. With it
the folder is listed again and again: new files are read, and files of a line format may grow at their end, so
they are never done. A file that is gone from a watched folder is forgotten.

Event time (``splits``) waits for the file that is being read and for those that may grow, and not for files that have
not been begun: so files that are read to their end should come in the order of their times.
"""

from __future__ import annotations

import glob
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatchcase
from typing import Any, get_args

from moorline.api.sources import Source, SourceContext, SourceReader, SplitId
from moorline.connectors.formats import Format, RecordFile, format_of, open_file
from moorline.connectors.paths import is_hidden, local_path
from moorline.errors import InvalidArgument, StorageError
from moorline.model.durations import Duration, milliseconds

log = logging.getLogger("moorline")

_DONE = {"done": True}
#: How many files without records one call of read() goes through before it lets the subtask look around.
_FILES_PER_READ = 64


def read_files(
    path: str | os.PathLike[str],
    *,
    format: Format | None = None,
    watch: Duration | None = None,
    pattern: str = "*",
) -> Source:
    """The records of a file, of all files in a folder and the folders below it, or of the files a glob matches.

    ``format`` is ``"jsonl"`` (any JSON value per line), ``"csv"`` (a dict of texts per row, by the header),
    ``"parquet"`` (a dict per row) or ``"text"`` (the line); without it, each file's extension tells. ``pattern``
    chooses among the files of a folder by name. With ``watch="10s"`` the source has no end and looks for new files,
    and for new lines in those it knows, that often; a line counts when its line end is there. Files and folders
    that start with ``.`` or ``_`` are left alone: that is how Spark and ``write_files`` keep unfinished output.

    The path must be there on the driver and on all workers. A path or pattern that nothing is found under refuses the
    start; with ``watch`` it is waited for, and a folder that is empty is a warning.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("name,age\\nAda,36\\n")
    >>> reader = read_files(folder).open(SourceContext(uid="people", subtask=0, parallelism=1, attempt=1))
    >>> reader.read(10), reader.positions(), reader.read(10)
    ([{'name': 'Ada', 'age': '36'}], {'a.csv': {'offset': 16}}, None)
    """
    return Files(path, format=format, watch=watch, pattern=pattern)


class Files(Source):
    """See :func:`read_files`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: Format | None = None,
        watch: Duration | None = None,
        pattern: str = "*",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if format is not None and format not in get_args(Format):
            raise InvalidArgument("format", format, f"It is one of {', '.join(get_args(Format))}.")
        if not isinstance(pattern, str) or not pattern:
            raise InvalidArgument("pattern", pattern, 'Give a pattern of file names, such as "*.csv".')
        self.path = local_path(path, "path of read_files()")
        self.format = format
        self.pattern = pattern
        self.watch = None if watch is None else milliseconds(watch, "watch") / 1000
        self.is_bounded = watch is None
        self.clock = clock
        #: What is looked for, for people.
        self._chosen = self.path if pattern == "*" else os.path.join(self.path, pattern)

    def check(self) -> None:
        """Are there files, can they be read, and is it known what is in them?"""
        files = self.listing()
        if not files and self.watch is not None:
            log.warning("read_files: nothing matches %s so far; it is looked for every %g s", self._chosen, self.watch)
        elif not files:
            log.warning("read_files: there is no file in %s: the source ends at once", self._chosen)
        for path in files.values():
            if self.format is None:
                format_of(path)
            if not os.access(path, os.R_OK):
                raise StorageError(path, "read", "it may not be read by this user", can_pass=False)

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader of those files that are this subtask's."""
        return _FilesReader(self, ctx)

    def listing(self) -> dict[str, str]:
        """The files there are now: id to path, sorted by id."""
        try:
            files = dict(sorted(self._list()))
        except OSError as error:
            raise StorageError.of(self.path, "list", error) from error
        if not files and self.watch is None and (glob.has_magic(self.path) or self.pattern != "*"):
            raise StorageError(self._chosen, "read", "no file matches", can_pass=False)
        return files

    def _list(self) -> Iterator[tuple[str, str]]:
        if os.path.isfile(self.path):
            yield os.path.basename(self.path), self.path
        elif os.path.isdir(self.path):
            yield from self._walk(self.path, self.path)
        elif glob.has_magic(self.path):
            yield from self._matches()
        else:
            raise StorageError(self.path, "list", "there is no such file or folder", can_pass=False)

    def _matches(self) -> Iterator[tuple[str, str]]:
        root = self.path
        while glob.has_magic(root):
            root = os.path.dirname(root)
        if not os.path.isdir(root):
            raise StorageError(root, "list", "there is no such folder", can_pass=False)
        for path in sorted(glob.glob(self.path, recursive=True)):
            split = os.path.relpath(path, root)
            if any(is_hidden(part) for part in split.split(os.sep)):
                continue
            if os.path.isfile(path):
                yield split, path
            else:
                yield from self._walk(path, root)

    def _walk(self, folder: str, root: str) -> Iterator[tuple[str, str]]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            if folder == root:
                raise
            return  # removed since its parent was listed
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(entry.path, root)
            elif fnmatchcase(entry.name, self.pattern) and entry.is_file():
                yield os.path.relpath(entry.path, root), entry.path


class _FilesReader(SourceReader):
    def __init__(self, source: Files, ctx: SourceContext) -> None:
        self._source = source
        self._ctx = ctx
        self._positions: dict[SplitId, Any] = {s: p for s, p in ctx.positions.items() if ctx.owns(s)}
        #: Files with something to read, and the one being read.
        self._queue: deque[tuple[str, str]] = deque()
        self._split = ""
        self._file: RecordFile | None = None
        self._listed = source.clock()
        self._look_for_files()

    def _look_for_files(self) -> None:
        files = {split: path for split, path in self._source.listing().items() if self._ctx.owns(split)}
        for split in [split for split in self._positions if split not in files]:
            # What is done and gone cannot be found again; what is half read and gone is lost, and that must be told.
            if self._source.watch is None and self._positions[split] != _DONE:
                path = os.path.join(self._source.path, str(split))
                raise StorageError(
                    path, "go on reading", f"it is gone, and was read only up to {self._positions[split]}"
                )
            del self._positions[split]
        self._queue.extend((split, path) for split, path in files.items() if self._has_news(split, path))

    def _has_news(self, split: str, path: str) -> bool:
        position = self._positions.get(split)
        if position is None or "offset" not in position or self._source.watch is None:
            return position != _DONE
        try:
            # Not ">": a file that has become shorter must be opened, to be told about.
            return os.stat(path).st_size != int(position["offset"])
        except FileNotFoundError:
            return False

    def read(self, limit: int) -> list[Any] | None:
        for _ in range(_FILES_PER_READ):
            if self._file is None and not self._open_next():
                return None if self._source.watch is None else []
            if self._file is not None:
                try:
                    records = self._file.read(limit)
                except OSError as error:
                    raise StorageError.of(self._split, "read", error) from error
                if records is None:
                    self._set_aside(self._file)
                elif records:
                    self.split = self._split
                    return records
        return []

    def _open_next(self) -> bool:
        """Begin the next file. False if there is none for now."""
        if not self._queue and self._source.watch is not None:
            now = self._source.clock()
            if now - self._listed < self._source.watch:
                return False
            self._listed = now
            self._look_for_files()
        if not self._queue:
            return False
        self._split, path = self._queue.popleft()
        watched = self._source.watch is not None
        try:
            format = self._source.format or format_of(path)
            self._file = open_file(path, format, self._positions.get(self._split), final=not watched)
        except FileNotFoundError as error:
            if not watched:
                raise StorageError(path, "read", "it was there when the source started and is gone now") from error
            self._positions.pop(self._split, None)
        except OSError as error:
            raise StorageError.of(path, "read", error) from error
        return True

    def _set_aside(self, file: RecordFile) -> None:
        file.close()
        self._file = None
        if file.is_final:
            self._positions[self._split] = dict(_DONE)
        else:
            self._positions[self._split] = file.position()

    def splits(self) -> Collection[SplitId]:
        current: set[SplitId] = set() if self._file is None else {self._split}
        if self._source.watch is None:
            return current
        return current | {split for split, position in self._positions.items() if position != _DONE}

    def positions(self) -> dict[SplitId, Any]:
        positions = dict(self._positions)
        if self._file is not None:
            positions[self._split] = self._file.position()
        return positions

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
