"""Snapshots through Spark: SQL over state, pruning, and savepoints that Spark's tasks write."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from waiting import eventually

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.model import keys
from moorline.model.manifest import Manifest
from moorline.snapshots.folders import open_snapshot, write_savepoint
from moorline.snapshots.tables.writing.writer import SnapshotWriter
from moorline.state.types import plain
from moorline.storage.stores.open import open_store
from moorline.testing import OperatorHarness
from moorline.testing.harness import HarnessSnapshot

pytestmark = pytest.mark.spark

COUNT = mo.ValueStateDescriptor("count", int)
BASKET = mo.MapStateDescriptor("basket", str, tuple[int, float])
SEEN = mo.ListStateDescriptor("seen", datetime.datetime)


class Shop(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)
    basket = mo.MapState(str, tuple[int, float])

    def process_element(self, value, ctx):
        yield ctx.current_key, self.count.value(), dict(self.basket.items())


@pytest.fixture(scope="module")
def savepoint(spark, tmp_path_factory):
    """10,000 users, written by Spark's tasks."""
    url = (tmp_path_factory.mktemp("shop") / "sp").as_uri()
    users = spark.range(0, 10_000, 1, 3).select(F.col("id").alias("user"), (F.col("id") % 7).alias("n"))
    goods = users.where("user < 500").selectExpr("user", "concat('g', n) AS good", "n AS pieces", "n * 1.5D AS price")
    writer = mo.SnapshotWriter(url, job="shop")
    writer.keyed("shop", COUNT, users, key="user", value="n", partitions=4)
    writer.keyed("shop", BASKET, goods, key="user", map_key="good", value={"f0": "pieces", "f1": "price"}, partitions=2)
    return writer.write()


def test_tasks_write_a_savepoint_that_a_function_starts_from(savepoint):
    snapshot = HarnessSnapshot(*open_snapshot(savepoint))
    for parallelism in (1, 3):
        with OperatorHarness.restore(
            snapshot, Shop(), key=lambda user: user, uid="shop", parallelism=parallelism
        ) as harness:
            assert harness.process(8) == [(8, 1, {"g1": (1, 1.5)})]
            assert harness.process(9_999) == [(9_999, 9_999 % 7, {})]


def test_files_are_sorted_and_the_key_groups_are_those_of_a_job(savepoint):
    manifest, store = open_snapshot(savepoint)
    handles = [h for h in manifest.operators[0].subtasks[0].keyed if h.state == "count"]
    assert len(handles) == 4
    assert sum(h.rows for h in handles) == 10_000
    for handle in handles:
        table = pq.read_table(Path(store.url.removeprefix("file://")) / handle.file.path)
        rows = list(zip(table["key_group"].to_pylist(), table["key"].to_pylist()))
        assert rows == sorted(rows)
        assert all(keys.key_group(key, 128) == group for group, key in rows)


def test_state_is_a_table_of_spark_sql(spark, savepoint):
    snapshot = mo.read_snapshot(savepoint, spark)
    found = {(r.uid, r.state): r.rows for r in snapshot.metadata().collect()}
    assert found == {("shop", "count"): 10_000, ("shop", "basket"): 500}
    snapshot.keyed("shop", "count").createOrReplaceTempView("counts")
    snapshot.keyed("shop", "basket").createOrReplaceTempView("baskets")
    counted = spark.sql("SELECT value, count(*) AS n FROM counts GROUP BY value ORDER BY value").collect()
    assert [(r.value, r.n) for r in counted] == [(n, len(range(n, 10_000, 7))) for n in range(7)]
    joined = spark.sql("SELECT sum(b.value.f1) AS s FROM baskets b JOIN counts c ON b.key = c.key").first()
    assert joined.s == sum(n % 7 * 1.5 for n in range(500))


def test_a_filter_on_the_key_reads_one_key_group(spark, savepoint):
    counts = mo.read_snapshot(savepoint, spark).keyed("shop", "count")
    one = counts.where("key = 4711")
    assert one.rdd.getNumPartitions() == 1
    row = one.first()
    assert (row.key, row.value, row.key_group) == (4711, 4711 % 7, keys.key_group(4711, 128))
    some = counts.where("key_group >= 10 AND key_group < 12")
    assert {r.key_group for r in some.select("key_group").distinct().collect()} == {10, 11}
    assert some.count() == sum(keys.key_group(n, 128) in (10, 11) for n in range(10_000))
    assert counts.where("key_group > 500").count() == 0
    assert counts.where("key IN (1, 2, 3)").count() == 3


def test_options_do_what_read_snapshot_does(spark, savepoint):
    mo.register(spark)
    read = spark.read.format("moorline")
    assert read.load(savepoint).count() == 2
    assert read.option("uid", "shop").option("state", "basket").load(savepoint).count() == 500
    with pytest.raises(Exception, match="The snapshot has operators 'shop'"):
        read.option("uid", "nobody").option("state", "x").load(savepoint).count()


def test_keys_of_several_types_are_shown_encoded_in_every_task(spark, tmp_path):
    """Each task sees ints only or texts only; the table has room for both."""
    url = tmp_path.as_uri()
    writer = mo.SnapshotWriter(f"{url}/a", job="mixed", max_parallelism=4)
    writer.keyed("op", COUNT, [{"k": n, "v": n} for n in range(20)], key="k", value="v").write()
    writer = mo.SnapshotWriter(f"{url}/b", job="mixed", max_parallelism=4)
    writer.keyed("op", COUNT, [{"k": f"t{n}", "v": n} for n in range(20)], key="k", value="v").write()
    manifest = _joined(f"{url}/a", f"{url}/b", f"{url}/c")
    assert manifest.job == "mixed"
    rows = mo.read_snapshot(f"{url}/c", spark).keyed("op", "count").collect()
    assert sorted(r.value for r in rows if keys.decode(bytes(r.key)) == r.value) == list(range(20))
    assert {keys.decode(bytes(r.key)) for r in rows} == {*range(20), *(f"t{n}" for n in range(20))}
    wanted = keys.encode("t7")
    assert [r.value for r in rows if bytes(r.key) == wanted] == [7]


def _joined(one: str, other: str, target: str) -> Manifest:
    """A savepoint with the ints of one in its lower key groups, and the texts of the other in all: as two subtasks."""
    left, left_store = open_snapshot(one)
    right, right_store = open_snapshot(other)
    store = open_store(target)
    for manifest, source in ((left, left_store), (right, right_store)):
        for file in manifest.files():
            store.put(file.path, source.get(file.path))
    entry, more = left.operators[0], right.operators[0]
    entry.subtasks[0].keyed.extend(more.subtasks[0].keyed)
    write_savepoint(store, left)
    return left


def test_every_type_that_spark_lacks_has_one_that_stands_for_it(spark, tmp_path):
    url = (tmp_path / "sp").as_uri()
    big = (1 << 64) - 1
    writer = mo.SnapshotWriter(url, job="types")
    for name, kind, value in (
        ("unsigned", np.uint64, big),
        ("half", np.float32, 1.5),
        ("length", datetime.timedelta, datetime.timedelta(seconds=3)),
        ("day", datetime.date, datetime.date(2024, 5, 6)),
        ("moment", pa.timestamp("ns"), datetime.datetime(2024, 5, 6, 7)),
        ("many", dict[str, list[int]], [("a", [1, 2])]),
    ):
        given = {"unsigned": pa.uint64(), "many": pa.map_(pa.string(), pa.list_(pa.int64()))}
        table = pa.table({"k": ["x"], "v": pa.array([value], given.get(name))})
        writer.keyed("op", mo.ValueStateDescriptor(name, kind), table, key="k", value="v")
    writer.write()
    snapshot = mo.read_snapshot(url, spark)
    shown = {n: snapshot.keyed("op", n).first().value for n in ("unsigned", "half", "length", "day", "moment")}
    assert int(shown.pop("unsigned")) == big
    assert shown == {
        "half": 1.5,
        "length": datetime.timedelta(seconds=3),
        "day": datetime.date(2024, 5, 6),
        "moment": datetime.datetime(2024, 5, 6, 7),
    }
    many = snapshot.keyed("op", "many").first().value
    assert [(e.key, e.value) for e in many] == [("a", [1, 2])]


def test_a_list_is_sorted_by_the_order_that_is_asked_for(spark, tmp_path):
    url = (tmp_path / "sp").as_uri()
    events = spark.range(0, 300, 1, 2).selectExpr(
        "concat('u', id % 3) AS user", "timestamp_millis(1000 * (300 - id)) AS at"
    )
    mo.SnapshotWriter(url, job="l").keyed("op", SEEN, events, key="user", value="at", order="at", partitions=2).write()
    table = mo.read_snapshot(url).keyed("op", "seen")
    for user in ("u0", "u1", "u2"):
        seen = [r["value"] for r in table.to_pylist() if r["key"] == user]
        assert len(seen) == 100
        assert seen == sorted(seen)


def test_a_dataframe_with_a_key_twice_is_refused_and_leaves_nothing(spark, tmp_path):
    folder = tmp_path / "sp"
    twice = spark.range(0, 10, 1, 2).selectExpr("id % 5 AS k", "id AS v")
    writer = SnapshotWriter(folder.as_uri(), job="x").keyed("op", COUNT, twice, key="k", value="v")
    with pytest.raises(Exception, match="more than once"):
        writer.write()
    assert [p for p in folder.rglob("*") if p.is_file()] == []


def test_a_dataframe_needs_a_folder_that_workers_see(spark):
    writer = SnapshotWriter("memory://nowhere", job="x").keyed("op", COUNT, spark.range(3), key="id", value="id")
    with pytest.raises(InvalidArgument, match="other processes"):
        writer.write()


def test_a_running_job_can_be_looked_into(spark, tmp_path):
    class Sums(mo.KeyedProcessFunction):
        total = mo.ValueState(int, default=0)

        def process_element(self, n, ctx):
            self.total.update(self.total.value() + n)
            yield from ()

    job = mo.Job("looked-into", parallelism=2)
    numbers = job.source(mo.generate(lambda n: n, rate=500, splits=1), uid="numbers", parallelism=1)
    numbers.key_by(lambda n: n % 10).process(Sums(), uid="sums").sink(mo.discard(), uid="out")
    handle = mo.start(
        job, spark, checkpoints=mo.Checkpoints((tmp_path / "chk").as_uri(), interval="300ms", retained=50)
    )
    try:
        eventually(lambda: len(handle.checkpoints) >= 3 or not handle.is_active, "three checkpoints are complete")
        assert handle.is_active, handle.failures
        third = sorted(c.checkpoint for c in handle.checkpoints)[2]
        snapshot = mo.read_snapshot((tmp_path / "chk" / "looked-into").as_uri(), checkpoint=third)
        (position,) = snapshot.operator_state("numbers", "positions")["value"].to_pylist()
        _, read = plain.decode(position)
        totals = snapshot.keyed("sums", "total")
        # Exactly once, seen from outside: the sums are those of the numbers that the source says it has given.
        assert sum(totals["value"].to_pylist()) == sum(range(read))
        frame = mo.read_snapshot((tmp_path / "chk" / "looked-into").as_uri(), spark, checkpoint=third)
        assert frame.keyed("sums", "total").agg(F.sum("value")).first()[0] == sum(range(read))
    finally:
        handle.cancel()
