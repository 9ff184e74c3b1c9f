"""A batch reader of PySpark as a source that ends: each of its partitions is a split.

The driver plans the partitions once in an attempt and announces them to all readers, pickled, as Spark itself sends
them. Nothing pickled is part of a snapshot: that has the number of partitions, and of each how many rows were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyspark.sql.datasource import InputPartition

from moorline.api.sources import EnumeratorContext, Positions, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.errors import RestoreError, SnapshotCorrupt
from moorline.model.wire import user_code
from moorline.spark.data_sources.declared import Declared, as_rows


class BatchSource(Source[dict[str, Any]]):
    """See :func:`moorline.read_spark_source`."""

    enumerates = True
    is_bounded = True

    def __init__(self, declared: Declared) -> None:
        self._declared = declared

    def __repr__(self) -> str:
        return f"read_spark_source({self._declared.name!r})"

    def check(self) -> None:
        """Has it a schema and a reader?"""
        self._declared.part("reader", self._declared.struct(self._declared.source()))

    def open(self, ctx: SourceContext) -> SourceReader[dict[str, Any]]:
        """A reader of partitions."""
        return _PartitionReader(self._declared.name)

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        """The planner of partitions."""
        return _Partitions(self._declared, ctx)


class _Partitions(SplitEnumerator):
    def __init__(self, declared: Declared, ctx: EnumeratorContext) -> None:
        schema = declared.struct(declared.source())
        reader = declared.part("reader", schema)
        try:
            partitions = list(reader.partitions())
        except NotImplementedError:  # PySpark's own is one: a reader that does not plan has one partition
            partitions = [InputPartition(None)]
        self._count = len(partitions)
        self._pickled: bytes = user_code.dumps((schema.fieldNames(), reader, partitions))
        self._is_new = ctx.restored is None
        if not self._is_new and ctx.restored != self._count:
            raise RestoreError(
                f"source {ctx.uid!r} had {ctx.restored!r:.20} partitions when the snapshot was taken, and "
                f"{declared.name} plans {self._count} now: which rows have been read cannot be told any more."
            )

    def discover(self) -> Positions | None:
        if not self._is_new:
            return None
        self._is_new = False
        return dict.fromkeys(range(self._count), 0)

    def snapshot(self) -> int:
        return self._count

    def announcement(self) -> bytes:
        return self._pickled


class _PartitionReader(SourceReader[dict[str, Any]]):
    def __init__(self, name: str) -> None:
        self._name = name
        self._plan: tuple[list[str], Any, list[Any]] | None = None
        #: By partition: rows that were read.
        self._at: dict[Any, int] = {}
        self._rows: Iterator[dict[str, Any]] | None = None
        self._has_all = False

    def announced(self, announcement: Any) -> None:
        # From our own driver, over the line that the job itself came by.
        self._plan = user_code.loads(announcement)

    def add_splits(self, splits: Positions) -> None:
        for split, rows in splits.items():
            if not isinstance(rows, int) or rows < 0:
                raise SnapshotCorrupt("the manifest", f"{split!r:.40}: {rows!r:.40} is not a position in a partition")
            self._at[split] = rows

    def no_more_splits(self) -> None:
        self._has_all = True

    def splits(self) -> list[int | str]:
        return list(self._at)

    def read(self, limit: int) -> list[dict[str, Any]] | None:
        self.split = split = next(iter(self._at), None)
        if split is None:
            return None if self._has_all else []
        if self._plan is None:
            return []
        if self._rows is None:
            names, reader, partitions = self._plan
            if not isinstance(split, int) or not 0 <= split < len(partitions):
                raise SnapshotCorrupt("the manifest", f"{split!r:.40} is none of {len(partitions)} partitions")
            rows = as_rows(self._name, names, reader.read(partitions[split]))
            self._rows = islice(rows, self._at[split], None)
        records = list(islice(self._rows, limit))
        self._at[split] += len(records)
        if len(records) < limit:
            del self._at[split]
            self._rows = None
        return records

    def positions(self) -> Positions:
        return dict(self._at)
