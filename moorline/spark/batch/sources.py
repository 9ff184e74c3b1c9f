"""A DataFrame as the source of a batch job: its partitions are read where Spark has them.

On the driver the source holds the DataFrame; what travels to the workers is the schema alone, and in a worker the
partition's Arrow batches stand in for it. ``spark/batch/program.py`` puts the two together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, get_args

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from moorline.api.sources import Source, SourceContext, SourceReader, SplitId
from moorline.errors import InvalidArgument

Records = Literal["row", "tuple", "dict"]

#: Types whose values are the same in Arrow's Python form and in Spark's.
_PLAIN: tuple[type[DataType], ...] = (
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    StringType,
    DateType,
    DecimalType,
)


class DataFrameSource(Source):
    """See :func:`moorline.from_dataframe`."""

    is_bounded = True
    #: In a worker: the partition that is read.
    batches: Iterator[pa.RecordBatch] | None = None

    def __init__(self, frame: DataFrame, records: Records) -> None:
        if not isinstance(frame, DataFrame) or frame.isStreaming:
            raise InvalidArgument("from_dataframe", frame, "Give a DataFrame that is not a streaming one.")
        if records not in get_args(Records):
            raise InvalidArgument("records", records, f"It is one of {', '.join(get_args(Records))}.")
        self._frame: DataFrame | None = frame
        self.schema, self.records = frame.schema, records

    def frame(self) -> DataFrame:
        assert self._frame is not None
        return self._frame

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frame": None}

    def __repr__(self) -> str:
        return f"from_dataframe({self.schema.simpleString()})"

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader of the partition."""
        assert self.batches is not None
        return _PartitionReader(self, self.batches)


class _PartitionReader(SourceReader):
    def __init__(self, source: DataFrameSource, batches: Iterator[pa.RecordBatch]) -> None:
        self._source, self._batches = source, batches
        self._is_plain = all(isinstance(field.dataType, (*_PLAIN, BinaryType)) for field in source.schema)
        self._names = source.schema.names
        self._pieces: deque[pa.RecordBatch] = deque()

    def read(self, limit: int) -> list[Any] | None:
        while not self._pieces:
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._pieces.extend(batch.slice(start, limit) for start in range(0, batch.num_rows, limit))
        return self._records(self._pieces.popleft())

    def _records(self, piece: pa.RecordBatch) -> list[Any]:
        kind = self._source.records
        if not self._is_plain or not self._names:
            rows = ArrowTableToRowsConversion.convert(pa.Table.from_batches([piece]), self._source.schema)
            if kind == "row":
                return list(rows)
            return [row.asDict(recursive=True) if kind == "dict" else tuple(row) for row in rows]
        columns = [column.to_pylist() for column in piece.columns]
        if kind == "dict":
            names = self._names
            return [dict(zip(names, values)) for values in zip(*columns)]
        if kind == "tuple":
            return list(zip(*columns))
        made = Row(*self._names)
        return [made(*values) for values in zip(*columns)]

    def positions(self) -> dict[SplitId, Any]:
        return {}
