"""A source that reads the files of a folder.

Each file is a split whose id is its path relative to the folder, so the folder can be moved between a savepoint
and the restart. One subtask reads its files one after the other, in the order of their names.

    position            meaning
    (none)              not begun
    {"offset": 120}     the next record of a line format begins there
    {"row": 7}          the next row of a Parquet file; ``formats.py`` has those of the other formats
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

import glob
import logging
import os
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import get_args

from moorline.api.sources import Source, SourceContext, SourceReader
from moorline.connectors.broken import OnError, checked_on_error
from moorline.connectors.files.formats import Format, format_of
from moorline.connectors.files.identity import (
    shown,
)
from moorline.connectors.files.paths import is_hidden, local_path
from moorline.connectors.files.reader import FilesReader, split_id
from moorline.errors import InvalidArgument, StorageError
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options

log = logging.getLogger("moorline")


@checks_options()
def read_files(
    path: str | os.PathLike[str],
    *,
    format: Format | None = None,
    watch: Duration | None = None,
    pattern: str = "*",
    on_error: OnError = "fail",
) -> Source:
    """The records of a file, of all files in a folder and the folders below it, or of the files a glob matches.

    ``format`` is ``"jsonl"`` (any JSON value per line), ``"csv"`` (a dict of texts per row, by the header),
    ``"parquet"`` and ``"orc"`` (a dict per row), ``"avro"`` (a dict per record) or ``"text"`` (the line); without it,
    each file's extension tells. Files on lines may be compressed as a whole (``.gz``, ``.bz2``, ``.xz``, ``.zst``).
    ``pattern`` chooses among the files of a folder by name. With ``watch="10s"`` the source has no end and looks for
    new files, and for new lines in those it knows, that often; a line counts when its line end is there. Files and
    folders that start with ``.`` or ``_`` are left alone: that is how Spark and ``write_files`` keep unfinished output.

    ``on_error`` says what becomes of a line or row that cannot be decoded: ``"fail"`` the job, ``"skip"`` it, or an
    ``OutputTag``: then a :class:`BrokenRecord` comes out of that side output. Those passed over are counted as
    ``broken_records`` in the job's progress, and the first one is a warning that names its file and position.

    The path must be there on the driver and on all workers. A path or pattern that nothing is found under refuses the
    start; with ``watch`` it is waited for, and a folder that is empty is a warning.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("name,age\\nAda,36\\n")
    >>> reader = read_files(folder).open(SourceContext(uid="people", subtask=0, parallelism=1, attempt=1))
    >>> reader.read(10), reader.positions()["a.csv"]["offset"], reader.read(10)
    ([{'name': 'Ada', 'age': '36'}], 16, None)
    """
    return Files(path, format=format, watch=watch, pattern=pattern, on_error=on_error)


class Files(Source):
    """See :func:`read_files`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: Format | None = None,
        watch: Duration | None = None,
        pattern: str = "*",
        on_error: OnError = "fail",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if format is not None and format not in get_args(Format):
            raise InvalidArgument("format", format, f"It is one of {', '.join(get_args(Format))}.")
        if not isinstance(pattern, str) or not pattern:
            raise InvalidArgument("pattern", pattern, 'Give a pattern of file names, such as "*.csv".')
        self.path = local_path(path, "path of read_files()")
        self.format = format
        self.pattern = pattern
        self.on_error = checked_on_error(on_error)
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
                raise StorageError(shown(path), "read", "it may not be read by this user", can_pass=False)

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader of those files that are this subtask's."""
        return FilesReader(self, ctx)

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
            yield split_id(os.path.basename(self.path)), self.path
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
                yield split_id(split), path
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
                yield split_id(os.path.relpath(entry.path, root)), entry.path
