"""PySpark's Python data sources as sources and sinks: their rows once, and what is refused."""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle
import folder_sources
import pyarrow as pa
import pytest
from folder_sources import (
    SCHEMA,
    BatchFolder,
    Folder,
    Numbers,
    OldNumbers,
    SimpleNumbers,
    rows_in,
)
from pyspark.sql.datasource import DataSource, WriterCommitMessage

import moorline as mo
from moorline.api.sinks import CommitterContext, SinkContext
from moorline.api.sources import EnumeratorContext, SourceContext
from moorline.errors import InvalidArgument, RestoreError, SnapshotCorrupt, StorageError
from moorline.testing.contracts.sink import SinkContract
from moorline.testing.contracts.source import SourceContract

ROWS = [{"number": n, "text": f"record {n}"} for n in range(110)]


@pytest.fixture(autouse=True)
def by_value():
    """A worker cannot import a test module."""
    modules = [sys.modules[__name__], folder_sources]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


class Reads(SourceContract):
    @pytest.fixture
    def expected(self):
        return ROWS


class TestTuples(Reads):
    @pytest.fixture
    def source(self):
        return mo.read_spark_source(Numbers, {"rows": "110"})


class TestArrowBatches(Reads):
    @pytest.fixture
    def source(self):
        return mo.read_spark_source(Numbers, {"Rows": "110", "kind": "arrow"})


class TestNamedRows(Reads):
    @pytest.fixture
    def source(self):
        return mo.read_spark_source(Numbers, {"rows": "110", "kind": "row"})


class TestStream(Reads):
    @pytest.fixture
    def source(self):
        return mo.read_spark_source(Numbers, {"rows": "110"}, follow=True)


class TestStreamWithoutLimits(Reads):
    @pytest.fixture
    def source(self):
        return mo.read_spark_source(OldNumbers, {"rows": "110"}, follow=True)


class TestSimpleStream(Reads):
    @pytest.fixture
    def source(self):
        return mo.read_spark_source(SimpleNumbers, {"rows": "110"}, follow=True)


class TestAfterAnother(Reads):
    """What parts announce and report goes through a hybrid source."""

    @pytest.fixture
    def source(self):
        first = mo.read_spark_source(Numbers, {"rows": "60"})
        return mo.hybrid(first, lambda end: mo.read_spark_source(Beyond, {"rows": "110"}, follow=True))


class Beyond(Numbers):
    def streamReader(self, schema):
        reader = super().streamReader(schema)
        return FromSixty(reader.options)


class FromSixty(folder_sources.StreamReader):
    def initialOffset(self):
        return {"number": 60}


class TestRowsIntoAFolder(SinkContract):
    can_roll_back = False

    @pytest.fixture
    def sink(self, tmp_path):
        return mo.write_spark_sink(Folder, {"path": str(tmp_path)}, schema=SCHEMA, ignores_repeated_batches=True)

    @pytest.fixture
    def visible(self, tmp_path):
        return lambda: rows_in(tmp_path)

    def test_a_job_that_begins_anew_commits_under_the_same_numbers(self):
        pytest.skip("a data source of PySpark knows a batch by its number alone")


class TestBatchesIntoAFolder(TestRowsIntoAFolder):
    @pytest.fixture
    def sink(self, tmp_path):
        options, schema = (
            {"path": str(tmp_path), "arrow": "1"},
            pa.schema([("number", pa.int64()), ("text", pa.string())]),
        )
        return mo.write_spark_sink(Folder, options, schema=schema, ignores_repeated_batches=True)


def test_a_writer_for_batches_writes_at_least_once(tmp_path):
    sink = mo.write_spark_sink(BatchFolder, {"path": str(tmp_path)}, schema=SCHEMA)
    sink.check()
    assert sink.guarantee is mo.DeliveryGuarantee.AT_LEAST_ONCE
    writer = sink.open(SinkContext("job", "out", 0, 1, 1))
    writer.write([{"number": 1, "text": "a"}])
    staged = writer.prepare(1)
    committer = sink.open_committer(CommitterContext("job", "out", 1, "ab"))
    for _ in range(2):
        committer.commit("ab", 1, staged)
    assert rows_in(tmp_path) == [{"number": 1, "text": "a"}] * 2
    with pytest.raises(InvalidArgument, match=r"has no streamWriter\(\)"):
        mo.write_spark_sink(BatchFolder, schema=SCHEMA, ignores_repeated_batches=True, options={"path": "x"}).check()


def test_messages_from_a_snapshot_are_of_classes_that_are_known(tmp_path):
    sink = mo.write_spark_sink(Folder, {"path": str(tmp_path)}, schema=SCHEMA)
    committer = sink.open_committer(CommitterContext("job", "out", 1, "ab"))
    for strange in (["os.system", {"x": 1}], "x", [1, {}], ["Written", []]):
        with pytest.raises(StorageError) as caught:
            committer.commit("ab", 1, [strange])
        assert caught.value.can_pass is False
    assert rows_in(tmp_path) == []


def offsets_of(source: mo.Source, **restored: Any) -> mo.SplitEnumerator:
    return source.open_enumerator(EnumeratorContext("job", "source", 1, **restored))


def test_offsets_are_acknowledged_when_a_checkpoint_covers_all_before_them(tmp_path):
    log = tmp_path / "log"
    source = mo.read_spark_source(Numbers, {"rows": "60", "log": str(log)}, follow=True)
    offsets = offsets_of(source)
    first = offsets.discover()
    assert len(first) == 3
    offsets.checkpoint_completed(offsets.snapshot())
    assert log.read_text().split() == ["0"], "the first range has not been read"
    assert offsets.discover() == {}
    offsets.reported(0, 3)
    assert len(offsets.discover()) == 3
    offsets.checkpoint_completed(offsets.snapshot())
    assert log.read_text().split() == ["0", "25"]


def test_a_source_that_plans_other_partitions_after_a_restart_is_refused():
    source = mo.read_spark_source(Numbers, {"rows": "60", "partitions": "4"})
    with pytest.raises(RestoreError, match="had 3 partitions"):
        offsets_of(source, restored=3)
    stream = mo.read_spark_source(Numbers, {"rows": "60"}, follow=True)
    reader = stream.open(SourceContext("source", 0, 1, 1))
    reader.announced(offsets_of(stream).announcement())
    reader.add_splits({"1/7": [{"number": 0}, {"number": 25}, 7, 0]})
    with pytest.raises(RestoreError, match="must plan the same ones"):
        reader.read(10)


@pytest.mark.parametrize("position", ["x", [1, 2, 3, 4], [{}, {}, -1, 0], [{}, {}, 0]])
def test_positions_of_another_source_are_refused(position):
    reader = mo.read_spark_source(Numbers, {"rows": "1"}, follow=True).open(SourceContext("source", 0, 1, 1))
    with pytest.raises(SnapshotCorrupt):
        reader.add_splits({"1/0": position})
    with pytest.raises(SnapshotCorrupt):
        mo.read_spark_source(Numbers, {"rows": "1"}).open(SourceContext("source", 0, 1, 1)).add_splits({0: position})
    with pytest.raises(SnapshotCorrupt):
        offsets_of(mo.read_spark_source(Numbers, {"rows": "1"}, follow=True), restored=position)


class Nothing(DataSource):
    def schema(self):
        return SCHEMA


def test_mistakes_are_refused_before_the_start():
    with pytest.raises(InvalidArgument, match="It has no reader"):
        mo.read_spark_source(Nothing).check()
    with pytest.raises(InvalidArgument, match="It has no simpleStreamReader"):
        mo.read_spark_source(Nothing, follow=True).check()
    with pytest.raises(InvalidArgument, match="It has no writer"):
        mo.write_spark_sink(Nothing, schema=SCHEMA).check()
    with pytest.raises(InvalidArgument, match="Installed Python data sources"):
        mo.read_spark_source("no such thing")
    with pytest.raises(InvalidArgument, match="a class derived from"):
        mo.read_spark_source(dict)
    with pytest.raises(InvalidArgument, match="Give a pyarrow"):
        mo.write_spark_sink(Nothing, schema="n int")


class Secretive(Nothing):
    def streamWriter(self, schema, overwrite):
        return NotAMessage(self.options["path"])


class NotAMessage(folder_sources.FolderWriter):
    def write(self, iterator):
        return "done"


def test_options_are_not_shown_and_messages_are_messages(tmp_path):
    sink = mo.write_spark_sink(Secretive, {"path": str(tmp_path), "password": "hush"}, schema=SCHEMA)
    assert "hush" not in repr(sink) + repr(sink.declared)
    writer = sink.open(SinkContext("job", "out", 0, 1, 1))
    writer.write([{"number": 1, "text": "a"}])
    with pytest.raises(InvalidArgument, match=WriterCommitMessage.__name__):
        writer.prepare(1)


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["batch", "streaming"])
def test_a_data_source_is_read_and_written_on_spark(spark, tmp_path, mode):
    job = mo.Job("numbers", parallelism=2)
    source = mo.read_spark_source(Numbers, {"rows": "500", "ddl": "number bigint, text string"})
    sink = mo.write_spark_sink(Folder, {"path": str(tmp_path)}, schema=SCHEMA, ignores_repeated_batches=True)
    rows = job.source(source, uid="numbers").filter(lambda row: row["number"] % 2 == 0, uid="even")
    rows.sink(sink, uid="folder")
    mo.run(job, spark, mode=mode)
    assert sorted(row["number"] for row in rows_in(tmp_path)) == list(range(0, 500, 2))
