"""A sink that writes files into a folder, each record exactly once.

    <path>/part-<sink>-<checkpoint>-<subtask>-<attempt>-<unique>.parquet       published: readers see these
    <path>/.moorline-staging/<job>-<sink>/open-<subtask>-<attempt>-<unique>    being written
    <path>/.moorline-staging/<job>-<sink>/part-….parquet                       prepared: whole, synced, waiting

``<sink>`` is the uid made safe for file names, followed by a hash of job and uid, so two jobs can write to one
folder. No name is ever used twice. Publishing is one hard link: the file appears whole or not at all, nothing is
ever overwritten, and a second attempt at the same link finds that it was done. The order is

    prepare     write, sync the file, give it its final name in the staging folder, sync that folder
    commit      link every file, sync the folder, only then remove the staged names

so after a crash at any point each file that was promised is found under one name or the other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import xxhash

from moorline.api.sinks import Sink, SinkContext, SinkWriter
from moorline.connectors.files.contents import Compression, SinkFormat, checked_contents
from moorline.connectors.files.paths import local_path, sync_folder
from moorline.connectors.files.rows import RowFile
from moorline.errors import StorageError
from moorline.failpoints import failpoint
from moorline.model.options import checks_options

STAGING = ".moorline-staging"
_BUFFER = 1024 * 1024
_FINAL = re.compile(
    r"part-([A-Za-z0-9_-]{1,48}-[0-9a-f]{16})-([0-9]{10,20})-[0-9]{5,}-[0-9]+-[0-9a-f]{32}(?:\.[a-z]+[0-9]?){1,2}"
)
_FOLDER = re.compile(r"[A-Za-z0-9_-]{1,97}-[0-9a-f]{16}")
#: The file system has no hard links, or none here.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


@checks_options()
def write_files(
    path: str | os.PathLike[str],
    *,
    format: SinkFormat = "parquet",
    schema: pa.Schema | Mapping[str, Any] | None = None,
    compression: Compression | None = None,
) -> Sink:
    """Write the records to files in the folder ``path``, exactly once.

    Each subtask writes a file per checkpoint, and readers see it when the checkpoint is complete. ``format``:

    - ``"parquet"``, ``"orc"``, ``"avro"``, ``"csv"`` take dicts, dataclasses, ``msgspec.Struct`` and namedtuples;
      missing keys become null. Their columns are those of ``schema`` or, without one, follow from the first records of
      each file: give a schema if values can be missing or if the files are to agree with each other. It is a
      ``pyarrow.Schema``; for Avro, an Avro schema as a dict will do too.
    - ``"jsonl"`` takes whatever JSON can express, ``"text"`` texts of one line.

    ``compression`` is by default what suits the format: ``"zstd"`` for Parquet and ORC, ``"deflate"`` for Avro,
    ``"none"`` for the rest, which can be compressed as a whole (``"gzip"`` gives ``.jsonl.gz``).

    The folder must be reachable under the same path by all workers and by the driver.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> sink = write_files(folder, format="jsonl")
    >>> writer = sink.open(SinkContext("job", "out", subtask=0, parallelism=1, attempt=1))
    >>> writer.write([{"word": "to"}, {"word": "be"}])
    >>> staged = writer.prepare(1)
    >>> list(folder.glob("part-*"))
    []
    >>> sink.commit(staged)
    >>> [file.read_text() for file in folder.glob("part-*")]
    ['{"word":"to"}\\n{"word":"be"}\\n']
    """
    return FileSink(path, format=format, schema=schema, compression=compression)


class _Committable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of :meth:`SinkWriter.prepare`, as plain data: it goes through snapshots."""

    #: Relative to the sink's folder.
    staged: str
    #: The name in the sink's folder.
    final: str
    size: int


class FileSink(Sink):
    """See :func:`write_files`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: SinkFormat = "parquet",
        schema: pa.Schema | Mapping[str, Any] | None = None,
        compression: Compression | None = None,
    ) -> None:
        self.path = local_path(path, "path of write_files()")
        self.contents = checked_contents(format, schema, compression)

    def check(self) -> None:
        """Write a file into the staging folder and remove it again."""
        staging = os.path.join(self.path, STAGING)
        trial = os.path.join(staging, f"trial-{uuid4().hex}")
        with _naming(self.path, "stage files in"):
            os.makedirs(staging, exist_ok=True)
            try:
                with open(trial, "xb") as file:
                    file.write(b"x")
                os.unlink(trial)
            finally:
                with contextlib.suppress(OSError):
                    os.rmdir(staging)

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that stages its files below the folder."""
        return _FileWriter(self, ctx)

    def commit(self, committables: list[Any]) -> None:
        """Publish the files. All are checked before the first one is touched."""
        files = [self._checked(committable) for committable in committables]
        if not files:
            return
        failpoint("sink.commit.before")
        with _naming(self.path, "publish files in"):
            for number, file in enumerate(files):
                self._publish(file)
                if number == 0:
                    failpoint("sink.commit.middle")
            sync_folder(self.path)
            for file in files:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.path, file.staged))
        failpoint("sink.commit.after")

    def _checked(self, committable: Any) -> _Committable:
        try:
            file = msgspec.convert(committable, _Committable)
        except msgspec.ValidationError as error:
            raise StorageError(self.path, "publish files in", f"{committable!r:.200} names no file: {error}") from None
        # Names from a snapshot are data, and data must not reach out of the folder.
        top, _, rest = file.staged.partition("/")
        folder, _, name = rest.partition("/")
        safe = top == STAGING and _FOLDER.fullmatch(folder) and name == file.final and _FINAL.fullmatch(name)
        if not safe or file.size < 0:
            raise StorageError(
                self.path, "publish files in", f"{committable!r:.200} is not a file that was staged here"
            )
        return file

    def _publish(self, file: _Committable) -> None:
        staged, final = os.path.join(self.path, file.staged), os.path.join(self.path, file.final)
        try:
            status = os.lstat(staged)
            if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
                cause = f"it was staged with {file.size} bytes and has {status.st_size} now: it was damaged"
                raise StorageError(staged, "publish", cause)
            try:
                os.link(staged, final, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                # As atomic as a link, and names are unique, so nothing can be overwritten.
                os.rename(staged, final)
        except (FileNotFoundError, FileExistsError):
            # Published before, or just now by another attempt.
            self._check_published(file, final)

    def _check_published(self, file: _Committable, final: str) -> None:
        try:
            size = os.lstat(final).st_size
        except FileNotFoundError:
            raise StorageError(
                final,
                "publish",
                f"its {file.size} bytes are lost: it is neither published nor staged as {file.staged}. "
                f"Put it back if it was moved away after it was published",
            ) from None
        if size != file.size:
            raise StorageError(final, "publish", f"it is there with {size} bytes instead of {file.size}")

    def roll_back(self, job: str, uid: str, checkpoint: int) -> None:
        """Remove what this sink staged or published for checkpoints after ``checkpoint``."""
        with _naming(self.path, "roll back"):
            # Staged names first: after that, an attempt that is still alive has nothing to publish any more.
            for folder in (os.path.join(self.path, STAGING, _folder(job, uid)), self.path):
                removed = False
                for name in _names(folder):
                    match = _FINAL.fullmatch(name)
                    if match and match[1] == _tag(job, uid) and int(match[2]) > checkpoint:
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(os.path.join(folder, name))
                        removed = True
                if removed:
                    sync_folder(folder)

    def clean_up(self, job: str, uid: str) -> None:
        """Remove this sink's staging folder, and the common one if no other sink uses it."""
        staging = os.path.join(self.path, STAGING)
        shutil.rmtree(os.path.join(staging, _folder(job, uid)), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(staging)


class _FileWriter(SinkWriter):
    def __init__(self, sink: FileSink, ctx: SinkContext) -> None:
        self._sink = sink
        self._ctx = ctx
        self._folder = os.path.join(sink.path, STAGING, _folder(ctx.job, ctx.uid))
        self._open: tuple[str, Any, RowFile] | None = None
        with _naming(sink.path, "stage files in"):
            os.makedirs(self._folder, exist_ok=True)
            sync_folder(os.path.dirname(self._folder))
            sync_folder(sink.path)
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        # What an older attempt of this subtask did not get to prepare belongs to no checkpoint and never will.
        for name in _names(self._folder):
            match = re.fullmatch(r"open-([0-9]+)-([0-9]+)-[0-9a-f]+", name)
            if match and int(match[1]) == self._ctx.subtask and int(match[2]) < self._ctx.attempt:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder, name))

    def write(self, records: list[Any]) -> None:
        if not records:
            return
        with _naming(self._sink.path, "stage files in"):
            self._rows().write(records)

    def _rows(self) -> RowFile:
        if self._open is None:
            path = os.path.join(self._folder, f"open-{self._ctx.subtask:05}-{self._ctx.attempt}-{uuid4().hex}")
            file = open(path, "xb", buffering=_BUFFER)  # noqa: SIM115  closed by prepare() or close()
            self._open = (path, file, self._sink.contents.open(file, self._sink.path))
        return self._open[2]

    def prepare(self, checkpoint: int) -> list[Any]:
        if self._open is None:
            return []
        path, file, rows = self._open
        ctx = self._ctx
        unique = path.rpartition("-")[2]
        final = f"part-{_tag(ctx.job, ctx.uid)}-{checkpoint:010}-{ctx.subtask:05}-{ctx.attempt}-{unique}"
        final += self._sink.contents.extension
        with _naming(self._sink.path, "stage files in"):
            rows.finish()
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
            file.close()
            os.rename(path, os.path.join(self._folder, final))
            self._open = None
            sync_folder(self._folder)
        staged = f"{STAGING}/{os.path.basename(self._folder)}/{final}"
        return [msgspec.to_builtins(_Committable(staged, final, size))]

    def close(self) -> None:
        if self._open is None:
            return
        path, file, _ = self._open
        self._open = None
        # Given up: neither a full disk nor a folder that is gone matters any more.
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(path)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:48] or "_"


def _hash(job: str, uid: str) -> str:
    return xxhash.xxh3_64_hexdigest(f"{job}\0{uid}".encode("utf-8", "surrogatepass"))


def _tag(job: str, uid: str) -> str:
    """The tag that marks this sink's files among those of others in the same folder."""
    return f"{_safe(uid)}-{_hash(job, uid)}"


def _folder(job: str, uid: str) -> str:
    return f"{_safe(job)}-{_tag(job, uid)}"


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _naming(path: str, operation: str) -> Iterator[None]:
    """Name the path and the operation when the file system refuses."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(path, operation, error) from error
