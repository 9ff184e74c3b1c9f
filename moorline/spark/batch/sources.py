"""A DataFrame as the source of a batch job: its partitions are read where Spark has them.

On the driver the source holds the DataFrame; what travels to the workers is the schema alone, and in a worker the
partition's Arrow batches stand in for it. ``spark/batch/program.py`` puts the two together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, Row
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.pandas.types import to_arrow_schema
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

from moorline.api.columns.schemas import schema_of
from moorline.api.sources import ColumnSource, Source, SourceContext, SourceReader, SplitId
from moorline.errors import InvalidArgument
from moorline.model.columns import ColumnBatch

Records = Literal["row", "tuple", "dict", "columns"]

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
        self.row_type, self.records = frame.schema, records

    def frame(self) -> DataFrame:
        assert self._frame is not None
        return self._frame

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frame": None}

    def __repr__(self) -> str:
        return f"from_dataframe({self.row_type.simpleString()})"

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader of the partition."""
        assert self.batches is not None
        return _PartitionReader(self, self.batches)


class DataFrameColumns(DataFrameSource, ColumnSource):
    """The same with ``records="columns"``: Spark's own batches, as they come."""

    def __init__(self, frame: DataFrame) -> None:
        super().__init__(frame, "columns")
        try:
            self.schema = schema_of(to_arrow_schema(self.row_type, timezone="UTC"))
        except (InvalidArgument, PySparkTypeError) as error:
            advice = f'{error} Leave this column out, or take the rows one by one: records="dict".'
            raise InvalidArgument("records", "columns", advice) from None

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader of the partition."""
        assert self.batches is not None
        return _BatchReader(self.schema, self.batches)


class _PartitionReader(SourceReader):
    def __init__(self, source: DataFrameSource, batches: Iterator[pa.RecordBatch]) -> None:
        self._source, self._batches = source, batches
        self._is_plain = all(isinstance(field.dataType, (*_PLAIN, BinaryType)) for field in source.row_type)
        self._names = source.row_type.names
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
            rows = ArrowTableToRowsConversion.convert(pa.Table.from_batches([piece]), self._source.row_type)
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


class _BatchReader(SourceReader):
    """Gives each batch of a partition whole: what follows takes batches of any size."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema, self._batches = schema, batches

    def read(self, limit: int) -> Sequence[Any] | None:
        batch = next(self._batches, None)
        return None if batch is None else ColumnBatch(batch.cast(self._schema))

    def positions(self) -> dict[SplitId, Any]:
        return {}
