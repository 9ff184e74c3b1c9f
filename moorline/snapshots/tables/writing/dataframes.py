"""The rows of a Spark DataFrame as files of a savepoint, written by Spark's tasks.

    1  each task adds the key group of every row, and the partition that owns it     (``mapInArrow``)
    2  Spark sends every row to that partition and sorts by key group                (its own shuffle and sort)
    3  each task turns its rows into files and returns their handles                 (``mapInArrow``)

Nothing but handles comes to the driver. A task that Spark runs twice leaves files that no handle names; the writer
removes them before the manifest is written. DataFrames are used by their own methods: nothing of Spark is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol, TypeGuard

import msgspec
import numpy as np
import pyarrow as pa

from moorline.errors import InvalidArgument
from moorline.model.key_groups import owner
from moorline.model.manifest import FileHandle
from moorline.snapshots.tables.writing.rows import Layout, Target, check_unique, cut, make_rows
from moorline.snapshots.tables.writing.values import stored_keys
from moorline.state.heap.rows import TABLE_BYTES, TABLE_ROWS
from moorline.storage.stores.open import open_store

_GROUP, _PART, _HANDLE = "_moorline_key_group", "_moorline_part", "_moorline_handle"


class SparkFrame(Protocol):
    """A DataFrame of Spark."""

    @property
    def columns(self) -> list[str]: ...

    def toArrow(self) -> pa.Table: ...


class PandasFrame(Protocol):
    """A DataFrame of pandas."""

    def to_numpy(self) -> object: ...


#: A table, in any of the forms that a savepoint can be written from.
TableData = pa.Table | pa.RecordBatch | list[dict[str, Any]] | SparkFrame | PandasFrame


def is_dataframe(data: object) -> TypeGuard[SparkFrame]:
    """Is it a DataFrame of Spark?"""
    return hasattr(data, "mapInArrow") and hasattr(data, "sparkSession")


def run_like_us(spark: Any) -> None:
    """On this machine workers are to see what the driver sees; PySpark would take the first python3 of the PATH."""
    context = getattr(spark, "sparkContext", None)
    if context is not None and "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable


def write_dataframe(
    data: Any, layout: Layout, target: Target, url: str, partitions: int | None, order: str | None
) -> list[FileHandle]:
    """Write the rows of ``data`` below ``url``; the handles of the files. ``order``: by which a list is sorted."""
    if url.startswith("memory://"):
        raise InvalidArgument("path", url, "Spark's workers are other processes. Name a folder that all of them see.")
    layout.check(data.columns)
    wanted = data.select(*dict.fromkeys([*layout.columns, *([order] if order else [])]))
    spark = data.sparkSession
    run_like_us(spark)
    count = min(layout.max_parallelism, partitions or int(spark.conf.get("spark.sql.shuffle.partitions")))
    schema = type(wanted.schema)(list(wanted.schema.fields)).add(_GROUP, "integer").add(_PART, "integer")

    def add_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            _, groups = stored_keys([batch[name] for name in layout.key], layout.max_parallelism, layout.uid)
            parts = owner(groups, count, layout.max_parallelism)  # type: ignore[arg-type]
            for name, column in ((_GROUP, groups), (_PART, parts)):
                batch = batch.append_column(name, pa.array(column, pa.int32()))
            yield batch

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store, part = open_store(url), target
        for table in whole_key_groups(batches):
            part = replace(target, subtask=int(table[_PART][0].as_py()))
            rows = make_rows(layout, table)
            check_unique(layout.kind, rows, layout.state)
            encoded = [msgspec.msgpack.encode(part.write(store, piece)) for piece in cut(rows)]
            yield pa.RecordBatch.from_pydict({_HANDLE: pa.array(encoded, pa.binary())})

    grouped = wanted.mapInArrow(add_groups, schema).repartitionById(count, _PART)
    by = [_GROUP, order] if order else [_GROUP]
    written = grouped.sortWithinPartitions(*by).mapInArrow(write, f"{_HANDLE} binary").collect()
    handles = [msgspec.msgpack.decode(bytes(row[0]), type=FileHandle) for row in written]
    return sorted(handles, key=lambda h: (h.first, h.end))


def whole_key_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches that are sorted by key group, as tables of whole key groups and of bounded size."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for batch in batches:
        table = pa.Table.from_batches([batch])
        if not table.num_rows:
            continue
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= TABLE_ROWS or size >= TABLE_BYTES:
            groups = np.concatenate([t[_GROUP].to_numpy() for t in waiting])
            # The last key group may go on in the next batch.
            whole = int(np.searchsorted(groups, groups[-1]))
            if whole:
                joined = pa.concat_tables(waiting)
                yield joined.slice(0, whole)
                rest = joined.slice(whole).combine_chunks()
                waiting, rows, size = [rest], rest.num_rows, rest.nbytes
    if waiting:
        yield pa.concat_tables(waiting)
