"""Snapshots as Spark tables: the data source ``moorline``.

    mo.register(spark)
    spark.read.format("moorline").option("uid", "count").option("state", "seen").load("file:///data/sp1")

    option       meaning
    path         a savepoint, or the folder of a job's checkpoints; what load() is given
    table        metadata (if there is no uid), keyed (if there is one), windows, timers, operator, broadcast, raw,
                 in_flight
    uid, state   which operator and state
    checkpoint   which of a job's checkpoints; the newest if it is left out

The columns are those of ``snapshots/tables/reader.py``. A Spark task reads a range of key groups, as Arrow batches;
with a filter on ``key_group`` or ``key`` only the segments of those key groups are fetched. Spark evaluates every
filter again, so pruning may be coarse and never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from moorline.errors import InvalidArgument
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, Manifest, OperatorEntry, OperatorHandles
from moorline.model.options import checks_options
from moorline.snapshots.tables.chains import conform
from moorline.snapshots.tables.reader import BY_KEY_GROUP, TABLES, SnapshotReader
from moorline.snapshots.tables.snapshot import Snapshot
from moorline.snapshots.tables.spark_types import for_spark
from moorline.snapshots.tables.splits import splits
from moorline.snapshots.tables.writing.dataframes import run_like_us
from moorline.storage.stores.open import open_store

FORMAT = "moorline"
#: A task hands batches of so many rows to Spark.
BATCH_ROWS = 16_384


@checks_options()
def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("moorline")`` known to a session.

    Spark refuses a data source that can prune unless the session allows pruning, so that is switched on as well.
    """
    run_like_us(spark)
    spark.dataSource.register(MoorlineDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@checks_options()
def read_snapshot(path: str, spark: SparkSession | None = None, checkpoint: int | None = None) -> Snapshot:
    """A savepoint, or the newest (or a given) checkpoint in a job's folder, as tables.

    With a Spark session the tables are DataFrames, read lazily by Spark's tasks; without one they are Arrow tables.

    >>> import moorline as mo
    >>> writer = mo.SnapshotWriter("memory://words", job="words")
    >>> limits = mo.MapStateDescriptor("limits", str, int)
    >>> url = writer.broadcast_state("check", limits, [{"map_key": "card", "value": 100}]).write()
    >>> mo.read_snapshot(url).broadcast_state("check", "limits").to_pylist()
    [{'map_key': 'card', 'value': 100}]
    """
    reader = SnapshotReader.open(path, checkpoint)
    if spark is None:
        return Snapshot(reader)
    register(spark)
    session = spark

    def table(name: str, uid: str, state: str) -> DataFrame:
        options = {"table": name, "uid": uid, "state": state, "checkpoint": str(reader.manifest.checkpoint)}
        return session.read.format(FORMAT).options(**options).load(path)

    return Snapshot(reader, table)


class MoorlineDataSource(DataSource):  # type: ignore[misc]
    """One table of one snapshot. See the module for its options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        wanted = _Wanted.of(self.options)
        columns = wanted.open().columns(wanted.table, wanted.uid, wanted.state)
        return from_arrow_schema(for_spark(columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _TableReader(_Wanted.of(self.options), schema)


@dataclass(frozen=True)
class _Wanted:
    """The options of a read, checked."""

    path: str
    table: str
    uid: str
    state: str
    checkpoint: int | None

    @classmethod
    def of(cls, options: Any) -> _Wanted:
        path, uid, checkpoint = options.get("path"), options.get("uid", ""), options.get("checkpoint")
        if not path:
            raise InvalidArgument("path", path, 'Name a savepoint or a job\'s checkpoints: .load("file:///...").')
        table = options.get("table") or ("keyed" if uid else "metadata")
        if table not in TABLES:
            raise InvalidArgument("table", table, f"It is one of {', '.join(TABLES)}.")
        if checkpoint is not None and not checkpoint.isdecimal():
            raise InvalidArgument("checkpoint", checkpoint, "It is a whole number.")
        state = options.get("state") or ("window-contents" if table == "windows" else "")
        return cls(path, table, uid, state, None if checkpoint is None else int(checkpoint))

    def open(self) -> SnapshotReader:
        return SnapshotReader.open(self.path, self.checkpoint)


class _Part(InputPartition):  # type: ignore[misc]
    """A range of key groups, with as much of the manifest as concerns it."""

    def __init__(self, manifest: Manifest, key_groups: tuple[int, int] | None) -> None:
        super().__init__(key_groups)
        self.manifest = msgspec.msgpack.encode(manifest)


class _TableReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, wanted: _Wanted, schema: StructType) -> None:
        self._wanted, self._schema = wanted, schema
        #: Conditions on the key group, and keys of which one must be met.
        self._bounds: list[tuple[str, int]] = []
        self._keys: list[tuple[Any, ...]] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for condition in filters:
            if self._wanted.table in BY_KEY_GROUP:
                match condition:
                    case EqualTo(("key",), value) if value is not None:
                        self._keys.append((value,))
                    case In(("key",), values) if values and all(v is not None for v in values):
                        self._keys.append(tuple(values))
                    case EqualTo(("key_group",), int(value)):
                        self._bounds += [(">=", value), ("<=", value)]
                    case GreaterThan(("key_group",), int(value)):
                        self._bounds.append((">=", value + 1))
                    case GreaterThanOrEqual(("key_group",), int(value)):
                        self._bounds.append((">=", value))
                    case LessThan(("key_group",), int(value)):
                        self._bounds.append(("<=", value - 1))
                    case LessThanOrEqual(("key_group",), int(value)):
                        self._bounds.append(("<=", value))
            yield condition

    def partitions(self) -> list[InputPartition]:
        wanted, reader = self._wanted, self._wanted.open()
        if wanted.table not in BY_KEY_GROUP:
            return [_Part(_only(reader.manifest, wanted.uid, None, None, wanted.table != "metadata"), None)]
        entry = reader.operator(wanted.uid)
        states = {i.state for i in reader.states if i.uid == wanted.uid and i.table == wanted.table}
        states = states if wanted.table in ("timers", "raw") else {wanted.state}
        handles = [h for s in entry.subtasks for h in s.keyed if _names(h) & states]
        groups = self._groups(entry.max_parallelism)
        parts: list[InputPartition] = [
            _Part(_only(reader.manifest, wanted.uid, states, piece, True), (piece.first, piece.end))
            for piece in splits(handles, groups, entry.max_parallelism)
        ]
        if wanted.table == "raw" and not (self._bounds or self._keys):
            # Raw operator state belongs to no key group; an empty range stands for it.
            parts.append(_Part(_only(reader.manifest, wanted.uid, set(), None, True), (0, 0)))
        # Spark reads an empty list as one partition of everything.
        return parts or [_Part(_only(reader.manifest, wanted.uid, states, None, False), (0, 0))]

    def _groups(self, max_parallelism: int) -> set[int]:
        low = max([0, *(v for sign, v in self._bounds if sign == ">=")])
        high = min([max_parallelism - 1, *(v for sign, v in self._bounds if sign == "<=")])
        groups = set(range(low, high + 1))
        is_encoded = self._schema["key"].dataType.typeName() == "binary" if self._keys else False
        for one_of in self._keys:
            encoded = (bytes(k) if is_encoded else keys.encode(k) for k in one_of)
            groups &= {keys.encoded_key_group(e, max_parallelism) for e in encoded if e}
        return groups

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        wanted = self._wanted
        manifest = msgspec.msgpack.decode(partition.manifest, type=Manifest)
        reader = SnapshotReader(manifest, open_store(wanted.path))
        span = None if partition.value is None else KeyGroupRange(*partition.value)
        columns = to_arrow_schema(self._schema, timezone="UTC")
        for table in _tables(reader, wanted, span):
            # What is in these key groups may be narrower than the whole: all keys texts here, and numbers elsewhere.
            shown = conform(table.cast(for_spark(table.schema), safe=False), columns, wanted.path)
            yield from shown.to_batches(max_chunksize=BATCH_ROWS)


def _tables(reader: SnapshotReader, wanted: _Wanted, span: KeyGroupRange | None) -> Iterator[pa.Table]:
    if span is None or span:
        yield from reader.read(wanted.table, wanted.uid, wanted.state, span)
    elif wanted.table == "raw" and reader.manifest.operators:
        yield from reader.raw(wanted.uid, span)


def _names(handle: KeyedHandle) -> set[str]:
    return {name for name, _, _ in handle.states}


def _only(manifest: Manifest, uid: str, states: set[str] | None, piece: KeyGroupRange | None, is_one: bool) -> Manifest:
    """The part of a manifest that a task needs: of one operator, with the handles of some states in some key groups."""
    if not is_one:
        return manifest

    def keyed(part: OperatorHandles) -> list[KeyedHandle]:
        wanted = [h for h in part.keyed if states is None or _names(h) & states]
        return [h for h in wanted if piece is None or piece & h.key_groups]

    def cut(entry: OperatorEntry) -> OperatorEntry:
        # Of elements, only those that have no key group of their own are read by these tasks.
        parts = [
            OperatorHandles(s.uid, keyed(s), *((s.elements, s.in_flight) if piece is None else ()))
            for s in entry.subtasks
        ]
        return msgspec.structs.replace(entry, subtasks=parts)

    return msgspec.structs.replace(manifest, operators=[cut(o) for o in manifest.operators if o.uid == uid])
