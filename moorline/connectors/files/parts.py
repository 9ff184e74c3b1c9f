"""The files that one subtask writes between two checkpoints: into which one a record goes, and when one is cut.

    open        being written; one for each partition, and no more than 64 at a time
       | large or old enough, not written to for long, or there are too many
    finished    whole, on a disk of this machine
       | barrier
    staged      ``place.py``

A file is cut at every barrier, because it becomes visible with the checkpoint that covers its last record: so none has
records of two checkpoints, and what is cut in between becomes visible together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

import msgspec
import pyarrow as pa

from moorline.api.sinks import SinkContext, SinkWriter
from moorline.connectors.files.formats.contents import FileContents
from moorline.connectors.files.formats.row_files import RowFile
from moorline.connectors.files.local.place import naming
from moorline.connectors.files.part_names import Committable, part_name, staging_folder, unique_word
from moorline.connectors.files.partition_folders import NoPartition, folder_of, without
from moorline.connectors.files.place import SinkPlace, StagingArea
from moorline.connectors.row_tables import UnfitRecord, as_row
from moorline.model.columns import ColumnBatch

#: Files that are open at a time. With more partitions, those that were not written to for longest are cut.
MOST_OPEN = 64


@dataclass(frozen=True)
class Rolling:
    """The limits at which a file is cut, beside at barriers. None: never for that reason."""

    #: Bytes, as far as they have left the format's own buffers.
    size: int | None = None
    #: Seconds since its first record.
    interval: float | None = None
    #: Seconds since its last record.
    inactivity: float | None = None
    clock: Callable[[], float] = time.monotonic


@dataclass
class _Part:
    """One file."""

    #: The folders of its partition, each with a slash behind it.
    partition: str
    unique: str
    path: str
    file: IO[bytes]
    rows: RowFile
    opened: float
    written: float
    size: int = 0


@dataclass
class PartsWriter(SinkWriter):
    """See :class:`SinkWriter`."""

    place: SinkPlace
    contents: FileContents
    #: The columns that files are partitioned by, with their types if they are given.
    partition_by: dict[str, pa.DataType | None]
    rolling: Rolling
    ctx: SinkContext
    #: By partition; the one that was not written to for longest comes first.
    open: dict[str, _Part] = field(default_factory=dict)
    finished: list[_Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._area: StagingArea = self.place.open(self.ctx)
        self._folders: dict[tuple[Any, ...], str] = {}

    def write(self, records: list[Any]) -> None:
        if not records:
            return
        with self._naming():
            if not self.partition_by:
                part = self._part("").rows
                is_taken = part.takes_columns or not isinstance(records, ColumnBatch)
                part.write(records if is_taken else list(records))
            else:
                for partition, rows in self._partitioned(records).items():
                    self._part(partition).rows.write(rows)
            self._roll()

    def prepare(self, checkpoint: int) -> list[Any]:
        with self._naming():
            for partition in list(self.open):
                self._finish(partition)
            staging = staging_folder(self.ctx.job, self.ctx.uid)
            staged = []
            for part in self.finished:
                name = part_name(self.ctx, checkpoint, part.unique, self.contents.extension)
                staged.append((part.path, Committable(f"{staging}/{name}", f"{part.partition}{name}", part.size)))
            self._area.stage(staged)
            self.finished = []
        return [msgspec.to_builtins(file) for _, file in staged]

    def close(self) -> None:
        for part in [*self.open.values(), *self.finished]:
            # Given up: a full disk does not matter any more.
            with suppress(OSError):
                part.file.close()
            self._area.discard(part.path)
        self.open, self.finished = {}, []
        self._area.close()

    # --- which file -------------------------------------------------------------------------------

    def _part(self, partition: str) -> _Part:
        part = self.open.pop(partition, None)
        if part is None:
            if len(self.open) >= MOST_OPEN:
                self._finish(next(iter(self.open)))
            unique = unique_word(self.ctx)
            path, file = self._area.create(unique)
            now = self.rolling.clock()
            part = _Part(partition, unique, path, file, self.contents.open(file, self.place.path), now, now)
        self.open[partition] = part
        part.written = self.rolling.clock()
        return part

    def _partitioned(self, records: list[Any]) -> dict[str, list[Any]]:
        columns = tuple(self.partition_by)
        parts: dict[str, list[Any]] = {}
        for record in records:
            row = record if type(record) is dict else as_row(record)
            if row is None:
                cause = f"a {type(record).__name__} has no columns, and files are partitioned by {', '.join(columns)}"
                raise self._unfit(record, cause)
            try:
                partition = self._partition(tuple(row.get(column) for column in columns))
            except NoPartition as error:
                raise self._unfit(record, str(error)) from None
            parts.setdefault(partition, []).append(without(row, columns))
        return parts

    def _partition(self, values: tuple[Any, ...]) -> str:
        """The folders of these values. 1, 1.0 and True are equal, and are three folders."""
        try:
            known = self._folders.get((values, *map(type, values)))
        except TypeError:
            known = None  # a list, which is refused below
        if known is None:
            columns = self.partition_by.items()
            typed = [_as_type(column, value, type) for (column, type), value in zip(columns, values)]
            known = "".join(f"{folder_of(column, value)}/" for column, value in zip(self.partition_by, typed))
            if len(self._folders) >= 100_000:
                self._folders.clear()
            self._folders[(values, *map(type, values))] = known
        return known

    def _unfit(self, record: Any, cause: str) -> UnfitRecord:
        advice = "Map the records to dicts with values that folders can be named by."
        return UnfitRecord(self.place.path, f"{record!r:.200}", cause, advice)

    # --- when it is cut ---------------------------------------------------------------------------

    def _roll(self) -> None:
        rolling, now = self.rolling, self.rolling.clock()
        sizes = [size for size in (rolling.size, self.place.largest) if size is not None]
        for partition, part in list(self.open.items()):
            is_large = sizes and part.file.tell() >= min(sizes)
            is_old = rolling.interval is not None and now - part.opened >= rolling.interval
            is_idle = rolling.inactivity is not None and now - part.written >= rolling.inactivity
            if is_large or is_old or is_idle:
                self._finish(partition)

    def _finish(self, partition: str) -> None:
        part = self.open.pop(partition)
        # So that it is removed by close(), whatever happens now.
        self.finished.append(part)
        part.rows.finish()
        part.size = self._area.finish(part.path, part.file)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        with naming(self.place.path, "stage files in"):
            yield


def _as_type(column: str, value: Any, type: pa.DataType | None) -> Any:
    """A value as the schema says that it is."""
    if type is None or value is None:
        return value
    try:
        return pa.array([value], type)[0].as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise NoPartition(f"its column {column!r} is not {type}: {error}") from None
