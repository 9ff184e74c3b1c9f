"""Savepoints made from tables: a function starts from them, and reading gives what was written."""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshot_samples import BACKENDS, everything, state_config

import moorline as mo
from moorline.errors import InvalidArgument, InvalidKey, SnapshotNotFound, StateTypeMismatch, StorageError
from moorline.model import keys
from moorline.model.manifest import NativeHandle
from moorline.snapshots.folders import open_snapshot
from moorline.snapshots.tables.reader import SnapshotReader
from moorline.storage import segments as snapshots
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store
from moorline.testing import OperatorHarness
from moorline.testing.harness import HarnessSnapshot

COUNT = mo.ValueStateDescriptor("count", int)
TAGS = mo.ListStateDescriptor("tags", str)
BASKET = mo.MapStateDescriptor("basket", str, int)


class Looks(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)
    tags = mo.ListState(str)
    basket = mo.MapState(str, int)

    def process_element(self, key, ctx):
        yield key, self.count.value(), list(self.tags.get()), dict(self.basket.items())


def fresh() -> str:
    return f"memory://{uuid.uuid4().hex}"


def restored(url: str, function, uid: str, parallelism: int = 1, **options) -> OperatorHarness:
    snapshot = HarnessSnapshot(*open_snapshot(url))
    return OperatorHarness.restore(snapshot, function, key=lambda k: k, uid=uid, parallelism=parallelism, **options)


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_a_function_starts_from_tables(parallelism):
    url = fresh()
    writer = mo.SnapshotWriter(url, job="j")
    writer.keyed("op", COUNT, pd.DataFrame({"k": ["a", "b"], "n": [1, 2]}), key="k", value="n")
    writer.keyed("op", Looks.tags, [{"k": "a", "value": t} for t in "xyz"], key="k")
    writer.keyed("op", BASKET, pa.table({"k": ["a"], "g": ["tea"], "n": [4]}), key="k", map_key="g", value="n")
    writer.write()
    with restored(url, Looks(), "op", parallelism) as harness:
        assert harness.process("a") == [("a", 1, ["x", "y", "z"], {"tea": 4})]
        assert harness.process("b") == [("b", 2, [], {})]
        assert harness.process("c") == [("c", 0, [], {})]


class Colour(Enum):
    RED = 1


@dataclass
class Order:
    id: uuid.UUID
    at: datetime.datetime
    price: Decimal | None
    colours: list[Colour]


def test_values_of_a_dataclass_come_from_structs_or_from_a_column_each():
    class Last(mo.KeyedProcessFunction):
        order = mo.ValueState(Order)

        def process_element(self, key, ctx):
            yield self.order.value()

    number, at = uuid.UUID(int=7), datetime.datetime(2024, 5, 6, 7, 8)
    made = Order(number, at, Decimal("1.50"), [Colour.RED])
    fields = {"id": str(number), "at": at, "price": Decimal("1.50"), "colours": ["RED"]}
    columns = {"value": [fields], "k": [1], **{name: [value] for name, value in fields.items()}}
    for value in ("value", {name: name for name in fields}):
        url = fresh()
        writer = mo.SnapshotWriter(url, job="j")
        writer.keyed("op", Last.order, pa.table(columns), key="k", value=value).write()
        with restored(url, Last(), "op") as harness:
            assert harness.process(1) == [made]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"k": [1, -5]}, lambda r: r["k"]),
        ({"k": ["a", "ü"]}, lambda r: r["k"]),
        ({"k": [1.5, 2.0]}, lambda r: r["k"]),
        ({"k": [True, False]}, lambda r: r["k"]),
        ({"k": [b"x", b""]}, lambda r: r["k"]),
        ({"k": [datetime.date(2024, 1, 1), datetime.date(1, 1, 1)]}, lambda r: r["k"]),
        ({"k": ["a", "b"], "l": [1, 2]}, lambda r: (r["k"], r["l"])),
    ],
)
def test_a_key_from_a_table_is_the_key_of_a_record(columns, key):
    url = fresh()
    table = pa.table({**columns, "value": [10, 11]})
    mo.SnapshotWriter(url, job="j").keyed("op", COUNT, table, key=list(columns)).write()
    with restored(url, Looks(), "op", 3) as harness:
        assert [harness.process(key(r))[0][1] for r in table.to_pylist()] == [10, 11]


def test_timers_fire():
    class Alarm(mo.KeyedProcessFunction):
        def process_element(self, key, ctx):
            yield from ()

        def on_timer(self, timestamp, ctx):
            yield ctx.current_key, timestamp

    url = fresh()
    writer = mo.SnapshotWriter(url, job="j")
    writer.timers("op", [{"k": "a", "time": 5}, {"k": "b", "time": 9}], key="k").write()
    assert mo.read_snapshot(url).timers("op")["time_domain"].to_pylist() == ["event", "event"]
    with restored(url, Alarm(), "op", 2) as harness:
        assert harness.watermark(7) == [("a", 5)]
        assert harness.watermark(9) == [("b", 9)]


class Collects(mo.MapFunction, mo.CheckpointedFunction):
    def initialize_state(self, ctx):
        self.split = ctx.operator_state.list_state(mo.ListStateDescriptor("split", tuple[int, str]))
        self.union = ctx.operator_state.union_list_state(mo.ListStateDescriptor("union", int))
        self.rules = ctx.operator_state.broadcast_state(mo.MapStateDescriptor("rules", str, int))

    def snapshot_state(self, ctx):
        pass

    def map(self, value):
        return list(self.split.get()), list(self.union.get()), dict(self.rules.items())


def test_operator_state_is_dealt_out_by_its_mode():
    url = fresh()
    writer = mo.SnapshotWriter(url, job="j")
    elements = [{"value": {"f0": n, "f1": str(n)}} for n in range(4)]
    writer.operator_state("op", mo.ListStateDescriptor("split", tuple[int, str]), elements)
    writer.operator_state("op", mo.ListStateDescriptor("union", int), [{"value": 5}], mode="union")
    writer.broadcast_state("op", mo.MapStateDescriptor("rules", str, int), [{"map_key": "limit", "value": 9}])
    writer.write()
    harness = OperatorHarness.restore(HarnessSnapshot(*open_snapshot(url)), Collects(), uid="op", parallelism=2)
    one, other = harness.process(1)[0], harness.process(2)[0]
    assert one[0] + other[0] == [(n, str(n)) for n in range(4)]
    assert len(one[0]) == len(other[0]) == 2
    assert one[1:] == other[1:] == ([5], {"limit": 9})


def test_large_operator_state_goes_to_a_file():
    url = fresh()
    rows = [{"value": n} for n in range(20_000)]
    mo.SnapshotWriter(url, job="j").operator_state("op", mo.ListStateDescriptor("l", int), rows).write()
    assert open_snapshot(url)[0].files() != []
    assert mo.read_snapshot(url).operator_state("op", "l")["value"].to_pylist() == list(range(20_000))


# --- from another snapshot ------------------------------------------------------------------------


@pytest.fixture(params=[(b, p) for b in BACKENDS for p in (1, 3)], ids=lambda v: f"{v[0]}-{v[1]}")
def taken(request, tmp_path):
    """A reader of a checkpoint, with a chain or native files behind it."""
    backend, parallelism = request.param
    harness = everything(parallelism, state_config(backend, tmp_path))
    for n in range(300):
        harness.process((n, n))
    harness.snapshot()
    harness.confirm()
    for change in ((5, 5_000), (6, -1)):
        harness.process(change)
    snapshot = harness.snapshot()
    yield SnapshotReader(snapshot.manifest, snapshot.store)
    harness.close()


def values(url: str, uid: str = "all", state: str = "value") -> dict:
    return {r["key"]: r["value"] for r in mo.read_snapshot(url).keyed(uid, state).to_pylist()}


def expected(**changes) -> dict:
    found = {n: n for n in range(300) if n != 6} | {5: 5_000}
    return found | {int(k[1:]): v for k, v in changes.items()}


def test_a_checkpoint_becomes_a_savepoint_that_stands_alone(taken, tmp_path):
    url = (tmp_path / "sp").as_uri()
    mo.SnapshotWriter(url).from_reader(taken).write()
    (tmp_path / "sp").rename(tmp_path / "moved")
    url = (tmp_path / "moved").as_uri()
    manifest, store = open_snapshot(url)
    assert manifest.job == "harness"
    handles = [h for s in manifest.operators[0].subtasks for h in s.keyed]
    assert not any(isinstance(h, NativeHandle) or h.increment for h in handles)
    assert {b.path for b in store.list("data/")} == {f.path for f in manifest.files()}
    for file in manifest.files():
        snapshots.verify(store, file)
    assert values(url) == expected()
    for backend in BACKENDS:
        with everything(2, state_config(backend, tmp_path), HarnessSnapshot(manifest, store)) as harness:
            assert harness.state("value", 5) == 5_000
            assert harness.state("several", 7) == [(7, "7")]
            assert harness.state("table", 9) == {"m0": 4.5}


def test_a_state_is_changed_dropped_or_replaced_and_an_operator_renamed(taken):
    url = fresh()

    def doubled(table: pa.Table) -> pa.Table:
        kept = table.filter(pc.less(table["key"], 10))
        return kept.set_column(2, "value", pc.multiply(kept["value"], 2))

    writer = mo.SnapshotWriter(url, job="other").from_reader(taken)
    writer.rename("all", "new").transform("new", "value", doubled).drop("new", "several")
    writer.keyed("new", mo.ReducingStateDescriptor("best", max, int), [{"k": 1, "value": 77}], key="k").write()
    assert values(url, "new") == {k: v * 2 for k, v in expected().items() if k < 10}
    assert values(url, "new", "best") == {1: 77}
    snapshot = mo.read_snapshot(url)
    assert snapshot.job == "other"
    states = set(snapshot.metadata()["state"].to_pylist())
    assert states == {"value", "table", "best", "anything", "brief", "timers:processing"}


def test_a_change_of_rows_that_would_lose_them_is_refused(taken):
    def moved(table: pa.Table) -> pa.Table:
        return table.set_column(1, "key", pc.add(table["key"], 1))

    def stringly(table: pa.Table) -> pa.Table:
        return table.set_column(2, "value", table["value"].cast(pa.string()))

    for function, error in (
        (moved, "does not belong to its key group"),
        (stringly, "should be int64"),
        (lambda table: table.drop_columns(["value"]), "It returns a table with"),
        (lambda table: pa.concat_tables([table, table]), "more than once"),
    ):
        url = fresh()
        writer = mo.SnapshotWriter(url).from_reader(taken).transform("all", "value", function)
        with pytest.raises((InvalidArgument, StateTypeMismatch), match=error):
            writer.write()
        assert open_store(url).list() == []


def test_operator_state_is_kept_where_it_was():
    url, again = fresh(), fresh()
    rows = [{"value": n} for n in range(10)]
    mo.SnapshotWriter(url, job="j").operator_state("op", mo.ListStateDescriptor("l", int), rows).write()
    mo.SnapshotWriter(again).from_snapshot(url).write()
    assert mo.read_snapshot(again).operator_state("op", "l").equals(mo.read_snapshot(url).operator_state("op", "l"))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ([{"k": 1, "value": "x"}], StateTypeMismatch, "state 'count of operator op'"),
        ([{"k": 1, "value": 1.5}], StateTypeMismatch, "does not fit its declared type int"),
        ([{"k": 1, "value": None}, {"k": 2, "value": 1}], StateTypeMismatch, "1 values are null"),
        ([{"k": None, "value": 1}, {"k": 2, "value": 1}], InvalidKey, "None is not a key"),
        ([{"k": 1, "value": 1}, {"k": 1, "value": 2}], InvalidArgument, "more than once"),
        ([{"k": float("nan"), "value": 1}], InvalidKey, "NaN"),
        ([{"other": 1, "value": 1}], InvalidArgument, "The table has other, value"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_and_leaves_nothing(rows, error, said):
    url = fresh()
    with pytest.raises(error, match=said):
        mo.SnapshotWriter(url, job="j").keyed("op", COUNT, rows, key="k").write()
    assert open_store(url).list() == []


def test_a_savepoint_is_never_written_over():
    url = fresh()
    mo.SnapshotWriter(url, job="j").keyed("op", COUNT, [{"k": 1, "value": 1}], key="k").write()
    before = open_store(url).list()
    with pytest.raises(StorageError, match="there is one already"):
        mo.SnapshotWriter(url, job="j").keyed("op", COUNT, [{"k": 1, "value": 2}], key="k").write()
    assert open_store(url).list() == before


def test_orders_that_make_no_sense_say_what_would():
    writer = mo.SnapshotWriter(fresh(), job="j").keyed("op", COUNT, [{"k": 1, "value": 1}], key="k")
    for order, said in (
        (lambda: writer.drop("nobody"), "operators 'op'"),
        (lambda: writer.drop("op", "nothing"), "has 'count'"),
        (lambda: writer.transform("op", "nothing", lambda t: t), "has none"),
        (lambda: writer.keyed("op", BASKET, [{"k": 1, "value": 1}], key="k"), "is a map state"),
        (lambda: writer.keyed("op", "count", [], key="k"), "declaration"),
        (lambda: writer.broadcast_state("op", COUNT, []), "MapStateDescriptor"),
        (lambda: mo.SnapshotWriter("memory://x", max_parallelism=0), "between 1 and"),
        (lambda: mo.SnapshotWriter("memory://x").write(), "whose savepoint"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            order()
    with pytest.raises(SnapshotNotFound, match=r"manifest\.json"):
        writer.from_snapshot("memory://nothing-here")


# --- round trips ----------------------------------------------------------------------------------

KINDS = st.sampled_from(
    [
        (int, st.integers(-(1 << 63), (1 << 63) - 1)),
        (float, st.floats(allow_nan=False)),
        (str, st.text()),
        (bytes, st.binary()),
        (bool, st.booleans()),
        (datetime.date, st.dates()),
        (datetime.datetime, st.datetimes()),
        (object, st.dictionaries(st.just("a"), st.integers(0, 9), min_size=1)),
        (list[int], st.lists(st.integers(-5, 5), min_size=1)),
    ]
)
KEYS = st.one_of(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), unique=True, max_size=30),
    st.lists(st.text(max_size=8), unique=True, max_size=30),
    st.lists(st.binary(max_size=8), unique=True, max_size=30),
)


@given(data=st.data(), given_keys=KEYS, kind=KINDS, max_parallelism=st.integers(1, 300))
def test_what_is_written_is_what_is_read_and_what_a_function_finds(data, given_keys, kind, max_parallelism):
    annotation, strategy = kind
    wanted = {key: data.draw(strategy) for key in given_keys}

    class Finds(mo.KeyedProcessFunction):
        found = mo.ValueState(annotation)

        def process_element(self, key, ctx):
            yield self.found.value()

    url = fresh()
    rows = [{"k": k, "value": v} for k, v in wanted.items()]
    table = pa.Table.from_pylist(rows) if rows else pa.table({"k": pa.array([], pa.int64()), "value": pa.nulls(0)})
    writer = mo.SnapshotWriter(url, job="j", max_parallelism=max_parallelism)
    writer.keyed("op", Finds.found, table, key="k").write()
    if rows:
        shown = mo.read_snapshot(url).keyed("op", "found")
        is_encoded = shown.schema.field("key").type == pa.binary()
        assert {keys.decode(k) if is_encoded else k for k in shown["key"].to_pylist()} == set(wanted)
        groups = shown["key_group"].to_pylist()
        assert groups == sorted(groups)
    with restored(url, Finds(), "op") as harness:
        assert {k: harness.process(k)[0] for k in wanted} == wanted


def test_files_are_parquet_for_everybody(tmp_path):
    url = tmp_path.as_uri()
    mo.SnapshotWriter(url, job="j").keyed("op", COUNT, [{"k": "a", "value": 1}], key="k").write()
    (file,) = tmp_path.glob("data/chk-1/op/count-0-1-*.parquet")
    assert pq.read_table(file).to_pylist() == [{"key_group": keys.key_group("a", 128), "key": "a", "value": 1}]
    assert isinstance(open_store(url), LocalStore)
    assert isinstance(open_store(fresh()), MemoryStore)
