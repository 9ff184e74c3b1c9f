"""A source that reads files: of a folder here, of a bucket, or of any filesystem that fsspec knows.

Each file is a split. What is read when, and what a position says, depends on where files lie:

    local/reader.py     every subtask lists the folder; files may grow and be renamed
    remote/reader.py    the driver lists the place; files are written once

``formats/`` has the records of a file, ``opened.py`` what a format sees of the place where it lies. Why two ways:
docs/decisions/0037-files-in-buckets.md.
"""

from __future__ import annotations

import glob
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args, overload

import pyarrow as pa

from moorline.api.columns.schemas import schema_of
from moorline.api.sources import ColumnSource, EnumeratorContext, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.connectors import retry
from moorline.connectors.broken import OnError, checked_on_error
from moorline.connectors.files.formats.choosing import Format, format_of
from moorline.connectors.files.identity import shown
from moorline.connectors.files.local.folder import LocalFolder
from moorline.connectors.files.local.paths import local_path
from moorline.connectors.files.local.reader import LocalReader
from moorline.connectors.files.reader import Reading
from moorline.connectors.files.remote.folder import RemoteFolder, remote_folder
from moorline.connectors.files.remote.location import RemoteObject, checked_location, is_remote, is_transient
from moorline.connectors.files.remote.reader import RemoteListing, RemoteReader
from moorline.errors import InvalidArgument, StorageError
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options

log = logging.getLogger("moorline")


@overload
def read_files(
    path: str | os.PathLike[str],
    *,
    schema: str | pa.Schema | type[Any],
    format: Format | None = ...,
    watch: Duration | None = ...,
    pattern: str = ...,
    partitions: bool | pa.Schema = ...,
    on_error: OnError = ...,
    storage_options: Mapping[str, Any] | None = ...,
    patience: float = ...,
) -> ColumnSource: ...
@overload
def read_files(
    path: str | os.PathLike[str],
    *,
    schema: None = ...,
    format: Format | None = ...,
    watch: Duration | None = ...,
    pattern: str = ...,
    partitions: bool | pa.Schema = ...,
    on_error: OnError = ...,
    storage_options: Mapping[str, Any] | None = ...,
    patience: float = ...,
) -> Source: ...
@checks_options()
def read_files(
    path: str | os.PathLike[str],
    *,
    schema: str | pa.Schema | type[Any] | None = None,
    format: Format | None = None,
    watch: Duration | None = None,
    pattern: str = "*",
    partitions: bool | pa.Schema = False,
    on_error: OnError = "fail",
    storage_options: Mapping[str, Any] | None = None,
    patience: float = 60.0,
) -> Source:
    """The records of a file, of all files in a folder and the folders below it, or of the files a glob matches.

    ``format`` is ``"jsonl"`` (any JSON value per line), ``"csv"`` (a dict of texts per row, by the header),
    ``"parquet"`` and ``"orc"`` (a dict per row), ``"avro"`` (a dict per record) or ``"text"`` (the line); without it,
    each file's extension tells. Files on lines may be compressed as a whole (``.gz``, ``.bz2``, ``.xz``, ``.zst``).
    ``pattern`` chooses among the files of a folder by name. With ``watch="10s"`` the source has no end and looks for
    new files, and for new lines in those it knows, that often; a line counts when its line end is there. Files and
    folders that start with ``.`` or ``_`` are left alone: that is how Spark and ``write_files`` keep unfinished output.

    With a ``schema`` (Spark's DDL, a ``pyarrow.Schema``, a dataclass or a ``msgspec.Struct``) the source begins a
    stream of columns, and lines and rows are decoded by the block. Columns are taken by name, what there is beside them
    is left aside, and a line or row that does not fit is broken. In JSON a column that is not there is null.

    ``partitions=True``: folders such as ``day=2026-01-01`` below the path are columns of the records in them, as texts;
    with a ``pyarrow.Schema`` its columns are, as values of its types. Of a column that is in the file too, the folder's
    value counts.

    ``on_error`` says what becomes of a line or row that cannot be decoded: ``"fail"`` the job, ``"skip"`` it, or an
    ``OutputTag``: then a :class:`BrokenRecord` comes out of that side output. Those passed over are counted as
    ``broken_records`` in the job's progress, and the first one is a warning that names its file and position.

    A local path must be there on the driver and on all workers. ``s3://bucket/folder``, ``gs://`` and ``az://`` are
    buckets (``pip install 'moorline[object-store]'``), with the ``storage_options`` of obstore, as for checkpoints;
    other URLs are for fsspec (``pip install 'moorline[fsspec]'``), with options of the filesystem's own. The driver
    lists such a place for all subtasks. Files there do not grow; one that was exchanged is an error. While the place is
    away it is tried again, for ``patience`` seconds.

    A path or pattern that nothing is found under refuses the start; with ``watch`` it is waited for, and a folder that
    is empty is a warning.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("name,age\\nAda,36\\n")
    >>> reader = read_files(folder).open(SourceContext(uid="people", subtask=0, parallelism=1, attempt=1))
    >>> reader.read(10), reader.positions()["a.csv"]["offset"], reader.read(10)
    ([{'name': 'Ada', 'age': '36'}], 16, None)
    """
    options: dict[str, Any] = {
        "format": format,
        "watch": watch,
        "pattern": pattern,
        "partitions": partitions,
        "on_error": on_error,
        "storage_options": storage_options,
        "patience": patience,
    }
    return Files(path, **options) if schema is None else ColumnFiles(path, schema, **options)


class Files(Source):
    """See :func:`read_files`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: Format | None = None,
        watch: Duration | None = None,
        pattern: str = "*",
        partitions: bool | pa.Schema = False,
        on_error: OnError = "fail",
        storage_options: Mapping[str, Any] | None = None,
        patience: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if format is not None and format not in get_args(Format):
            raise InvalidArgument("format", format, f"It is one of {', '.join(get_args(Format))}.")
        if not isinstance(pattern, str) or not pattern:
            raise InvalidArgument("pattern", pattern, 'Give a pattern of file names, such as "*.csv".')
        if patience < 0:
            raise InvalidArgument("patience", patience, "Give it in seconds.")
        self.folder: LocalFolder | RemoteFolder
        if is_remote(path):
            location = checked_location(os.fspath(path), storage_options, "path of read_files()")
            self.folder = remote_folder(location, pattern)
            self.enumerates = True
        elif storage_options:
            raise InvalidArgument("storage_options", sorted(storage_options), "A local folder has none: leave it out.")
        else:
            self.folder = LocalFolder(local_path(path, "path of read_files()"), pattern)
        if not isinstance(partitions, (bool, pa.Schema)) or (format == "text" and partitions is not False):
            advice = "True, or a pyarrow.Schema of the columns that folders say; lines of text have no columns."
            raise InvalidArgument("partitions", partitions, advice)
        self.reading = Reading(format, checked_on_error(on_error), partitions)
        self.watch_ms = None if watch is None else milliseconds(watch, "watch")
        self.is_bounded = watch is None
        self.patience = patience
        self.clock = clock

    def __repr__(self) -> str:
        return f"read_files({self.folder.chosen!r})"

    def check(self) -> None:
        """Are there files, can they be read, and is it known what is in them?"""
        paths = self._paths()
        if not paths and self.watch_ms is not None:
            every = self.watch_ms / 1000
            log.warning("read_files: nothing matches %s so far; it is looked for every %g s", self.folder.chosen, every)
        elif not paths:
            log.warning("read_files: there is no file in %s: the source ends at once", self.folder.chosen)
        for path in paths:
            if self.reading.format is None:
                format_of(path)
            if isinstance(self.folder, LocalFolder) and not os.access(path, os.R_OK):
                raise StorageError(shown(path), "read", "it may not be read by this user", can_pass=False)

    def _paths(self) -> list[str]:
        if isinstance(self.folder, LocalFolder):
            return list(self.local_listing().values())
        return list(map(self.folder.shown, retry.call(self.remote_listing, is_transient, self.patience)))

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader of those files that are this subtask's."""
        if isinstance(self.folder, RemoteFolder):
            watches = self.watch_ms is not None
            return RemoteReader(self.folder, watches, self.patience, self.reading, ctx)
        watch = None if self.watch_ms is None else self.watch_ms / 1000
        return LocalReader(self.local_listing, watch, self.clock, self.reading, ctx)

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        """The lister of a remote place, on the driver."""
        assert isinstance(self.folder, RemoteFolder)
        return RemoteListing(self.folder, self.remote_listing, self.watch_ms, self.patience, ctx)

    def local_listing(self) -> dict[str, str]:
        """The files there are now: id to path, sorted by id."""
        assert isinstance(self.folder, LocalFolder)
        files, folder = self.folder.listing(), self.folder
        if not files and self.watch_ms is None and (glob.has_magic(folder.path) or folder.pattern != "*"):
            raise StorageError(folder.chosen, "read", "no file matches", can_pass=False)
        return files

    def remote_listing(self) -> dict[str, RemoteObject]:
        """The files there are now, by split, sorted. A folder without files is none there."""
        assert isinstance(self.folder, RemoteFolder)
        files = self.folder.listing()
        if not files and self.watch_ms is None:
            raise StorageError(self.folder.chosen, "read", "there is no such file, and none below it", can_pass=False)
        return files


class ColumnFiles(Files, ColumnSource):
    """Files whose records are columns of a schema."""

    def __init__(self, path: str | os.PathLike[str], schema: str | pa.Schema | type[Any], **options: Any) -> None:
        super().__init__(path, **options)
        self.schema = schema_of(schema)
        if self.reading.format == "text":
            raise InvalidArgument("schema", schema, "Lines of text have no columns: leave it out, or give a format.")
        if isinstance(self.reading.partitions, pa.Schema):
            advice = "With schema= give partitions=True: the types of folders' columns are those of the schema."
            raise InvalidArgument("partitions", self.reading.partitions, advice)
        self.reading = replace(self.reading, schema=self.schema)

    def check(self) -> None:
        """Are there files, can they be read, and have they columns?"""
        super().check()
        for path in self._paths() if self.reading.format is None else ():
            if format_of(path) == "text":
                raise InvalidArgument("schema", path, "Lines of text have no columns: choose other files by pattern=.")
