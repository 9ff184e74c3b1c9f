"""A sink that writes files into a folder, each record exactly once: on a disk, in a bucket, or elsewhere.

formats/contents.py     what is in a file: format, schema, compression
parts.py                which file a record goes into, and when one is cut
part_names.py           how files are called
partition_folders.py    the folders of partitions
place.py                how a file is staged and published: ``local/place.py``, ``remote/place.py``
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from moorline.api.sinks import Sink, SinkCommitter, SinkContext, SinkWriter
from moorline.connectors.files.formats.contents import Compression, SinkFormat, checked_contents
from moorline.connectors.files.local.paths import local_path
from moorline.connectors.files.local.place import LocalPlace
from moorline.connectors.files.part_names import STAGING, checked_committable
from moorline.connectors.files.parts import PartsWriter, Rolling
from moorline.connectors.files.place import SinkPlace
from moorline.connectors.files.remote.location import checked_location, is_remote
from moorline.connectors.files.remote.place import RemotePlace
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options
from moorline.model.sizes import size_in_bytes

__all__ = ["STAGING", "FileSink", "write_files"]


@checks_options()
def write_files(
    path: str | os.PathLike[str],
    *,
    format: SinkFormat = "parquet",
    schema: pa.Schema | Mapping[str, Any] | None = None,
    compression: Compression | None = None,
    partition_by: str | Sequence[str] = (),
    roll_size: str | int | None = None,
    roll_interval: Duration | None = None,
    roll_inactivity: Duration | None = None,
    storage_options: Mapping[str, Any] | None = None,
    patience: float = 60.0,
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

    ``partition_by`` names columns whose values become folders: ``day=2026-01-01/part-….parquet``, as Hive and Spark
    name them. They are not in the files then.

    ``roll_size`` (``"128MB"``) cuts files that have grown to about that size, ``roll_interval`` those that were begun
    so long ago, ``roll_inactivity`` those that no record went to for so long. A checkpoint cuts all of them, so files
    do not grow beyond what comes between two checkpoints.

    A local folder must be reachable under the same path by all workers and by the driver. ``s3://bucket/folder``,
    ``gs://`` and ``az://`` are buckets (``pip install 'moorline[object-store]'``), with the ``storage_options`` of
    obstore, as for checkpoints; other URLs are for fsspec (``pip install 'moorline[fsspec]'``), with options of the
    filesystem's own. While the place is away it is tried again, for ``patience`` seconds.

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
    columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    rolling = Rolling(
        size=_checked_size(roll_size),
        interval=_seconds(roll_interval, "roll_interval"),
        inactivity=_seconds(roll_inactivity, "roll_inactivity"),
    )
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    place: SinkPlace
    if is_remote(path):
        place = RemotePlace(checked_location(os.fspath(path), storage_options, "path of write_files()"), patience)
    elif storage_options:
        raise InvalidArgument("storage_options", sorted(storage_options), "A local folder has none: leave it out.")
    else:
        place = LocalPlace(local_path(path, "path of write_files()"))
    return FileSink(place, columns, rolling, format, schema, compression)


def _checked_size(size: str | int | None) -> int | None:
    if size is None:
        return None
    bytes_ = size_in_bytes(size, "roll_size")
    if bytes_ == 0:
        raise InvalidArgument("roll_size", size, 'Give a size such as "128MB".')
    return bytes_


def _seconds(duration: Duration | None, what: str) -> float | None:
    if duration is None:
        return None
    ms = milliseconds(duration, what)
    if ms == 0:
        raise InvalidArgument(what, duration, 'Give a duration such as "10m".')
    return ms / 1000


class FileSink(Sink):
    """See :func:`write_files`."""

    takes_columns = True

    def __init__(
        self,
        place: SinkPlace,
        partition_by: list[str],
        rolling: Rolling,
        format: SinkFormat,
        schema: pa.Schema | Mapping[str, Any] | None,
        compression: Compression | None,
    ) -> None:
        self.place, self.rolling = place, rolling
        self.commits_in_background = place.is_remote
        self.partition_by, schema = _split_schema(partition_by, schema, format)
        self.contents = checked_contents(format, schema, compression)

    def __repr__(self) -> str:
        return f"write_files({self.place.path!r})"

    def check(self) -> None:
        """Write for a trial."""
        self.place.check()

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that stages its files."""
        return PartsWriter(self.place, self.contents, self.partition_by, self.rolling, ctx)

    def commit(self, committables: list[Any]) -> None:
        """Publish the files. All are checked before the first one is touched."""
        _Committer(self.place, None).commit(committables)

    def open_subtask_committer(self, ctx: SinkContext) -> SinkCommitter:
        """A committer that says if the place is away."""
        return _Committer(self.place, ctx)

    def roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...] = ()) -> None:
        """Remove what this sink staged or published for checkpoints after ``checkpoint``."""
        self.place.roll_back(job, uid, checkpoint, lineages)

    def clean_up(self, job: str, uid: str) -> None:
        """Remove what this sink has staged."""
        self.place.clean_up(job, uid)


class _Committer(SinkCommitter):
    def __init__(self, place: SinkPlace, ctx: SinkContext | None) -> None:
        self._place, self._committer = place, place.committer(ctx)

    def commit(self, committables: list[Any]) -> None:
        self._committer.commit([checked_committable(self._place.path, c) for c in committables])


def _split_schema(columns: list[str], schema: Any, format: str) -> tuple[dict[str, pa.DataType | None], Any]:
    """The columns that become folders, with types if they are given, and the schema of what stays in the files."""
    if not columns:
        return {}, schema
    if not all(isinstance(column, str) and column for column in columns) or len(set(columns)) < len(columns):
        raise InvalidArgument("partition_by", columns, "Give names of columns, each once.")
    if any(column.startswith(".") for column in columns):
        raise InvalidArgument("partition_by", columns, "Readers leave folders alone whose names begin with a dot.")
    if format == "text":
        raise InvalidArgument("partition_by", columns, 'Lines of text have no columns. Write them with format="jsonl".')
    types: dict[str, pa.DataType | None] = dict.fromkeys(columns)
    if isinstance(schema, pa.Schema):
        _check_columns(columns, schema.names)
        types = {column: schema.field(column).type for column in columns}
        schema = pa.schema([field for field in schema if field.name not in columns])
    elif isinstance(schema, Mapping) and isinstance(schema.get("fields"), list):
        names = [field.get("name") for field in schema["fields"] if isinstance(field, Mapping)]
        _check_columns(columns, names)
        schema = {**schema, "fields": [f for f in schema["fields"] if f.get("name") not in columns]}
    return types, schema


def _check_columns(columns: list[str], names: list[Any]) -> None:
    unknown = [column for column in columns if column not in names]
    if unknown:
        raise InvalidArgument("partition_by", unknown, f"The schema has the columns {', '.join(map(str, names))}.")
    if len(set(names)) == len(columns):
        raise InvalidArgument("partition_by", columns, "There must be a column that stays in the files.")
