"""Python data sources of PySpark for tests: numbers in partitions, a stream of numbers, and folders as sinks."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

SCHEMA = StructType([StructField("number", LongType()), StructField("text", StringType())])


def row(number: int) -> tuple[int, str]:
    return number, f"record {number}"


class Numbers(DataSource):
    """``rows`` numbers in ``partitions`` partitions; a stream of them, of which ``log`` is told what is committed."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> Any:
        return SCHEMA if self.options.get("ddl") is None else self.options["ddl"]

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self.options)


class Reader(DataSourceReader):
    def __init__(self, options: Any) -> None:
        self.rows, self.count = int(options["ROWS"]), int(options.get("partitions", 4))
        self.kind = options.get("kind", "tuple")

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self.count)]

    def read(self, partition: InputPartition) -> Any:
        numbers = range(partition.value, self.rows, self.count)
        if self.kind == "arrow":
            columns = list(zip(*map(row, numbers)))
            yield pa.record_batch({"number": columns[0], "text": columns[1]})
            return
        for number in numbers:
            value, text = row(number)
            yield Row(text=text, number=value) if self.kind == "row" else (value, text)


class StreamReader(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.options = options
        self.rows, self.count = int(options["rows"]), int(options.get("partitions", 3))

    def initialOffset(self) -> dict[str, int]:
        return {"number": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        assert limit == ReadMaxRows(25)
        return {"number": min(start["number"] + limit.max_rows, self.rows)}

    def getDefaultReadLimit(self) -> ReadMaxRows:
        return ReadMaxRows(25)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((n, start["number"], end["number"])) for n in range(self.count)]

    def read(self, partition: InputPartition) -> Any:
        number, start, end = partition.value
        return map(row, range(start + number, end, self.count))

    def commit(self, end: dict[str, int]) -> None:
        if "log" in self.options:
            with open(self.options["log"], "a") as log:
                log.write(f"{end['number']}\n")


class OldNumbers(Numbers):
    """Its stream reader is as it was before there were limits."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return OldStreamReader(self.options)


class OldStreamReader(StreamReader):
    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"number": self.rows}


class SimpleNumbers(DataSource):
    def schema(self) -> StructType:
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return SimpleReader(int(self.options["rows"]))


class SimpleReader(SimpleDataSourceStreamReader):
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def initialOffset(self) -> dict[str, int]:
        return {"number": 0}

    def read(self, start: dict[str, int]) -> Any:
        end = min(start["number"] + 30, self.rows)
        return self.readBetweenOffsets(start, {"number": end}), {"number": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:
        return map(row, range(start["number"], end["number"]))


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    file: str
    rows: int


class Folder(DataSource):
    """A sink into a folder: a file for each batch names the files with its rows, and is made once."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        kind = ArrowFolderWriter if self.options.get("arrow") else FolderWriter
        return kind(self.options["path"])


class FolderWriter(DataSourceStreamWriter):
    def __init__(self, path: str) -> None:
        self.folder = Path(path)

    def write(self, iterator: Any) -> WriterCommitMessage:
        return self.put([row.asDict() for row in iterator])

    def put(self, rows: list[dict[str, Any]]) -> Written:
        name = f"data-{uuid.uuid4().hex}"
        (self.folder / name).write_text(json.dumps(rows))
        return Written(name, len(rows))

    def commit(self, messages: Any, batchId: int) -> None:
        staged = self.folder / f"staged-{uuid.uuid4().hex}"
        staged.write_text(json.dumps([message.file for message in messages]))
        with contextlib.suppress(FileExistsError):
            os.link(staged, self.folder / f"batch-{batchId}")
        staged.unlink()


class ArrowFolderWriter(FolderWriter, DataSourceStreamArrowWriter):
    def write(self, iterator: Any) -> WriterCommitMessage:
        return self.put([row for batch in iterator for row in batch.to_pylist()])


class BatchFolder(DataSource):
    """A sink that has a writer for batches only."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchFolderWriter(self.options["path"])


class BatchFolderWriter(DataSourceWriter):
    def __init__(self, path: str) -> None:
        self.inner = FolderWriter(path)

    def write(self, iterator: Any) -> WriterCommitMessage:
        return self.inner.write(iterator)

    def commit(self, messages: Any) -> None:
        self.inner.commit(messages, uuid.uuid4().int)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    names = [name for batch in folder.glob("batch-*") for name in json.loads(batch.read_text())]
    return [row for name in names for row in json.loads((folder / name).read_text())]
