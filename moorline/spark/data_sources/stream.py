"""A stream reader of PySpark as a source: the driver plans ranges of offsets, and their partitions are splits.

    position    [start, end, number of the partition among those of the range, rows that were read of it]
    state       [end of the newest range, number of ranges, offset before which everything has been read]
    report      the number of splits that a reader has read to the end in this attempt

The next range is planned when the one before is read: that is the micro-batch of these readers, and all that a reader
without a read limit can be asked for. After a restart a partition of a range is planned again from the same offsets, as
Spark does it. Offsets are acknowledged (``commit``) when a checkpoint is complete in which all before them is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyspark.sql.datasource import SimpleDataSourceStreamReader

from moorline.api.sources import EnumeratorContext, Positions, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.errors import InvalidArgument, RestoreError, SnapshotCorrupt
from moorline.model.wire import user_code
from moorline.spark.data_sources.declared import Declared, as_rows


class StreamSource(Source[dict[str, Any]]):
    """See :func:`moorline.read_spark_source`."""

    enumerates = True
    is_bounded = False

    def __init__(self, declared: Declared, interval_ms: int) -> None:
        self._declared, self._interval_ms = declared, interval_ms

    def __repr__(self) -> str:
        return f"read_spark_source({self._declared.name!r}, follow=True)"

    def check(self) -> None:
        """Has it a schema and a stream reader?"""
        _stream_reader(self._declared)

    def open(self, ctx: SourceContext) -> SourceReader[dict[str, Any]]:
        """A reader of partitions of ranges."""
        return _RangeReader(self._declared.name)

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        """The one that owns the offsets."""
        return _Offsets(self._declared, self._interval_ms, ctx)


def _stream_reader(declared: Declared) -> tuple[list[str], Any]:
    schema = declared.struct(declared.source())
    reader = declared.find("streamReader", schema)
    return schema.fieldNames(), declared.part("simpleStreamReader", schema) if reader is None else reader


class _Offsets(SplitEnumerator):
    def __init__(self, declared: Declared, interval_ms: int, ctx: EnumeratorContext) -> None:
        self.interval_ms = interval_ms
        names, self._reader = _stream_reader(declared)
        # Before it is used: what it keeps for itself while it plans is no business of those who read.
        self._pickled: bytes = user_code.dumps((names, self._reader))
        match ctx.restored:
            case None:
                self._next = self._done = self._reader.initialOffset()
                self._number = 0
            case [dict(newest), int(number), dict(done)]:
                self._next, self._number, self._done = newest, number, done
            case _:
                raise SnapshotCorrupt("the manifest", f"{ctx.restored!r:.80} are not the offsets of a stream")
        #: Splits that readers have been given in this attempt, and by subtask those that they have read.
        self._given, self._read = len(ctx.positions), dict[int, int]()

    def reported(self, subtask: int, report: Any) -> None:
        self._read[subtask] = report

    def discover(self) -> Positions:
        if self._given > sum(self._read.values()):
            return {}
        start = self._done = self._next
        end = self._latest(start)
        if end == start:
            return {}
        count = (
            1 if isinstance(self._reader, SimpleDataSourceStreamReader) else len(self._reader.partitions(start, end))
        )
        self._next, self._number, self._given = end, self._number + 1, self._given + count
        return {f"{self._number}/{number}": [start, end, number, 0] for number in range(count)}

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self._reader, SimpleDataSourceStreamReader):
            rows, end = self._reader.read(start)
            if end == start and next(iter(rows), None) is not None:
                # Spark refuses it too: the same rows would be read for ever.
                raise InvalidArgument("read()", end, "It returns rows, and the offset from which it was asked to read.")
        elif inspect.signature(self._reader.latestOffset).parameters:
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        else:
            end = self._reader.latestOffset()
        return dict(end)

    def snapshot(self) -> list[Any]:
        return [self._next, self._number, self._done]

    def announcement(self) -> bytes:
        return self._pickled

    def checkpoint_completed(self, state: Any) -> None:
        self._reader.commit(state[2])

    def close(self) -> None:
        if not isinstance(self._reader, SimpleDataSourceStreamReader):
            self._reader.stop()


class _RangeReader(SourceReader[dict[str, Any]]):
    def __init__(self, name: str) -> None:
        self._name = name
        self._plan: tuple[list[str], Any] | None = None
        self._at: dict[Any, list[Any]] = {}
        self._rows: Iterator[dict[str, Any]] | None = None
        self._finished = 0

    def announced(self, announcement: Any) -> None:
        # From our own driver, over the line that the job itself came by.
        self._plan = user_code.loads(announcement)

    def add_splits(self, splits: Positions) -> None:
        for split, position in splits.items():
            match position:
                case [dict(), dict(), int(number), int(rows)] if number >= 0 and rows >= 0:
                    self._at[split] = list(position)
                case _:
                    raise SnapshotCorrupt("the manifest", f"{position!r:.80} is not a position in a range of offsets")

    def splits(self) -> list[int | str]:
        return list(self._at)

    def read(self, limit: int) -> list[dict[str, Any]] | None:
        self.split = split = next(iter(self._at), None)
        if split is None or self._plan is None:
            return []
        start, end, number, done = self._at[split]
        if self._rows is None:
            self._rows = islice(self._open(start, end, number), done, None)
        records = list(islice(self._rows, limit))
        self._at[split][3] += len(records)
        if len(records) < limit:
            del self._at[split]
            self._rows = None
            self._finished += 1
            self.report = self._finished
        return records

    def _open(self, start: Any, end: Any, number: int) -> Iterator[dict[str, Any]]:
        assert self._plan is not None
        names, reader = self._plan
        if isinstance(reader, SimpleDataSourceStreamReader):
            return as_rows(self._name, names, reader.readBetweenOffsets(start, end))
        partitions = list(reader.partitions(start, end))
        if number >= len(partitions):
            raise RestoreError(
                f"{self._name} plans {len(partitions)} partitions from {start} to {end}, and there was one with the "
                f"number {number}: a data source must plan the same ones for the same offsets."
            )
        return as_rows(self._name, names, reader.read(partitions[number]))

    def positions(self) -> Positions:
        return {split: list(position) for split, position in self._at.items()}


def check_interval(interval_ms: int) -> int:
    """The pause between two looks for new offsets."""
    if interval_ms <= 0:
        raise InvalidArgument("interval", interval_ms, "Give it as a duration, such as '1s'.")
    return interval_ms
