"""State of every kind and backend reads as the same table."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from snapshot_samples import BACKENDS, Model, everything, state_config

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.snapshots.rows import Scratch
from moorline.snapshots.tables import chains
from moorline.snapshots.tables.reader import SnapshotReader
from moorline.snapshots.tables.snapshot import Snapshot
from moorline.state.types import plain
from moorline.testing import OperatorHarness

STATES = ("value", "several", "table", "best", "brief")


def rows(reader: SnapshotReader, state: str, key_groups: KeyGroupRange | None = None) -> set:
    found, places = set(), {}
    for table in reader.keyed("all", state, key_groups):
        for row in table.to_pylist():
            key = row["key"]
            assert keys.key_group(key, 128) == row["key_group"]
            match state:
                case "several":
                    places[key] = places.get(key, -1) + 1
                    found.add((key, places[key], row["value"]["f0"], row["value"]["f1"]))
                case "table":
                    found.add((key, row["map_key"], row["value"]))
                case _:
                    found.add((key, row["value"]))
    return found


@pytest.fixture(params=[(b, p) for b in BACKENDS for p in (1, 3)], ids=lambda v: f"{v[0]}-{v[1]}")
def taken(request, tmp_path):
    """A snapshot after three others, in each of which a few keys changed, and a rescale in between."""
    backend, parallelism = request.param
    config, model, chance = state_config(backend, tmp_path), Model(), random.Random(7)
    harness = everything(parallelism, config)
    for n in range(600):
        harness.process((f"user-{n}", n))
        model.process(f"user-{n}", n)
    for step in range(3):
        snapshot = harness.snapshot()
        harness.confirm()
        if step == 1:
            harness.close()
            harness = everything(2, config, snapshot)
        for _ in range(20):
            change = f"user-{chance.randrange(600)}", chance.choice([-1, chance.randrange(10_000)])
            harness.process(change)
            model.process(*change)
    snapshot = harness.snapshot()
    yield SnapshotReader(snapshot.manifest, snapshot.store), model, backend
    harness.close()


def test_every_kind_of_state_reads_as_the_rows_that_are_left(taken):
    reader, model, _ = taken
    for state in STATES:
        assert rows(reader, state) == model.rows(state), state


def test_ranges_of_key_groups_put_together_are_everything(taken):
    reader, model, _ = taken
    for state in STATES:
        parts = [rows(reader, state, KeyGroupRange(first, first + 16)) for first in range(0, 128, 16)]
        assert set.union(*parts) == model.rows(state)
        assert sum(map(len, parts)) == len(model.rows(state))


def test_timers_are_a_table(taken):
    reader, model, _ = taken
    table = pa.concat_tables(reader.timers("all"))
    assert {(r["key"], r["time"]) for r in table.to_pylist()} == model.timers
    assert set(table["time_domain"].to_pylist()) == {"processing"}
    assert table["window_start"].null_count == len(table)


def test_the_columns_are_known_before_and_are_the_declared_types(taken):
    reader, _, _ = taken
    for state, type_ in {
        "value": pa.int64(),
        "table": pa.float64(),
        "several": pa.struct([("f0", pa.int64()), ("f1", pa.string())]),
        "anything": pa.binary(),
    }.items():
        columns = reader.columns("keyed", "all", state)
        assert columns.field("value").type == type_
        assert columns.field("key").type == pa.string()
        assert all(t.schema.equals(columns) for t in reader.keyed("all", state))
    assert reader.columns("keyed", "all", "brief").names == ["key_group", "key", "value", "last_access", "ttl"]


def test_what_has_no_declared_type_stays_plain_data(taken):
    reader, model, _ = taken
    table = pa.concat_tables(reader.keyed("all", "anything"))
    values = {r["key"]: plain.decode(r["value"]) for r in table.to_pylist()}
    assert values == {k: {"n": f["value"]} for k, f in model.keys.items()}


def test_the_metadata_lists_every_state_without_reading_a_file(taken):
    reader, _, backend = taken
    infos = {i.state: i for i in reader.states}
    assert {"value", "several", "table", "best", "anything", "brief", "timers:processing"} <= set(infos)
    assert (infos["table"].kind, infos["table"].type, infos["table"].table) == ("map", "str to float", "keyed")
    assert (infos["value"].parallelism, infos["value"].max_parallelism) == (2, 128)
    if backend == "rocksdb":
        assert (infos["value"].backend, infos["value"].rows) == ("rocksdb", None)
        assert infos[""].bytes > 0
    if backend == "increments":
        assert infos["value"].increments > 0
    assert reader.metadata().num_rows == len(reader.states)


def test_a_long_chain_is_folded_in_pieces(monkeypatch):
    harness = everything(1, state_config("increments", ""))
    for n in range(300):
        harness.process((n, n))
    harness.snapshot()
    harness.confirm()
    harness.process((3, 1000))
    snapshot = harness.snapshot()
    reader = SnapshotReader(snapshot.manifest, snapshot.store)
    whole = pa.concat_tables(reader.keyed("all", "value"))
    monkeypatch.setattr(chains, "FOLD_ROWS", 50)
    pieces = list(reader.keyed("all", "value"))
    assert len(pieces) > 3
    assert pa.concat_tables(pieces).equals(whole)
    assert {r["key"]: r["value"] for r in whole.to_pylist()} == {**{n: n for n in range(300)}, 3: 1000}


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_are_typed_where_all_are_of_a_type_and_encoded_where_not(backend, tmp_path):
    for given, column in (([1, 2, 3], pa.int64()), (["a", "b"], pa.string()), ([1, "a", (2, "b")], pa.binary())):
        harness = everything(2, state_config(backend, tmp_path))
        for key in given:
            harness.process((key, 1))
        snapshot = harness.snapshot()
        table = Snapshot(SnapshotReader(snapshot.manifest, snapshot.store)).keyed("all", "value")
        assert table.schema.field("key").type == column
        found = [keys.decode(k) if column == pa.binary() else k for k in table["key"].to_pylist()]
        assert sorted(map(str, found)) == sorted(map(str, given))
        harness.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_have_their_bounds_as_columns(backend, tmp_path):
    def build(stream):
        return (
            stream.key_by(lambda r: r[0])
            .window(mo.TumblingEventTimeWindows("10s"))
            .reduce(lambda a, b: (a[0], a[1] + b[1]), uid="sums")
        )

    harness = OperatorHarness.of(build, parallelism=2, state=state_config(backend, tmp_path))
    for timestamp, record in ((1_000, ("a", 1)), (2_000, ("a", 2)), (11_000, ("a", 5)), (3_000, ("b", 7))):
        harness.process(record, timestamp)
    snapshot = harness.snapshot()
    tables = Snapshot(SnapshotReader(snapshot.manifest, snapshot.store))
    shown = {(r["key"], r["window_start"], r["window_end"]): plain.decode(r["value"]) for r in _pylist(tables)}
    assert shown == {("a", 0, 10_000): ("a", 3), ("a", 10_000, 20_000): ("a", 5), ("b", 0, 10_000): ("b", 7)}
    timers = {(r["key"], r["window_start"], r["time"]) for r in tables.timers("sums").to_pylist()}
    assert timers == {("a", 0, 9_999), ("a", 10_000, 19_999), ("b", 0, 9_999)}
    harness.close()


def _pylist(tables: Snapshot) -> list:
    return tables.windows("sums").to_pylist()


# --- without a key ------------------------------------------------------------------------------


class Buffering(mo.MapFunction, mo.CheckpointedFunction):
    """Keeps everything in operator state of each mode, and raw."""

    def initialize_state(self, ctx):
        self.split = ctx.operator_state.list_state(mo.ListStateDescriptor("split", tuple[int, str]))
        self.union = ctx.operator_state.union_list_state(mo.ListStateDescriptor("union", int))
        self.rules = ctx.operator_state.broadcast_state(mo.MapStateDescriptor("rules", str, int))

    def map(self, value):
        self.split.add((value, str(value)))
        self.union.add(value)
        self.rules.put("limit", 9)
        return value

    def snapshot_state(self, ctx):
        ctx.raw_state.start_partition().write(b"piece")
        ctx.raw_keyed_state.start_key_group(ctx.raw_keyed_state._key_groups.first).write(b"group")


def buffered(parallelism: int, values=range(10)) -> tuple[Snapshot, OperatorHarness]:
    harness = OperatorHarness(Buffering(), uid="buffer", parallelism=parallelism)
    harness.process_all(values)
    snapshot = harness.snapshot()
    return Snapshot(SnapshotReader(snapshot.manifest, snapshot.store)), harness


@pytest.mark.parametrize("parallelism", [1, 3])
def test_operator_state_is_a_table_by_subtask(parallelism):
    tables, _ = buffered(parallelism)
    split = tables.operator_state("buffer", "split").to_pylist()
    assert sorted(r["value"]["f0"] for r in split) == list(range(10))
    assert {r["subtask"] for r in split} == set(range(parallelism))
    assert sorted(tables.operator_state("buffer", "union")["value"].to_pylist()) == list(range(10))
    assert tables.broadcast_state("buffer", "rules").to_pylist() == [{"map_key": "limit", "value": 9}]


def test_large_operator_state_comes_from_its_file():
    tables, _ = buffered(1, range(5_000))
    assert any(e.file for o in tables.reader.manifest.operators for s in o.subtasks for e in s.elements)
    assert tables.operator_state("buffer", "split")["position"].to_pylist() == list(range(5_000))


def test_raw_state_is_bytes_by_key_group_and_by_subtask():
    tables, _ = buffered(2)
    found = {(r["key_group"], r["subtask"], r["value"]) for r in tables.raw("buffer").to_pylist()}
    assert found == {(0, None, b"group"), (64, None, b"group"), (None, 0, b"piece"), (None, 1, b"piece")}


# --- asking for what is not there -----------------------------------------------------------------


def test_asking_for_what_is_not_there_says_what_is():
    tables, _ = buffered(1)
    with pytest.raises(InvalidArgument, match="operators 'buffer'"):
        tables.keyed("nobody", "x")
    with pytest.raises(InvalidArgument, match="has 'split', 'union'"):
        tables.operator_state("buffer", "x")
    with pytest.raises(InvalidArgument, match="It is one of metadata, keyed"):
        list(tables.reader.read("nonsense"))


def test_an_operator_without_timers_has_an_empty_table_of_them():
    tables, _ = buffered(1)
    assert tables.timers("buffer").num_rows == 0


def test_a_state_that_is_not_of_windows_is_no_table_of_windows():
    harness = everything(1, state_config("heap", ""))
    harness.process(("a", 1))
    snapshot = harness.snapshot()
    with pytest.raises(InvalidArgument, match="in the table keyed"):
        Snapshot(SnapshotReader(snapshot.manifest, snapshot.store)).windows("all", "value")


def test_handles_that_do_not_concern_a_range_are_not_read():
    harness = everything(4, state_config("heap", ""))
    for n in range(200):
        harness.process((n, n))
    snapshot = harness.snapshot()
    handles = [h for s in snapshot.manifest.operators[0].subtasks for h in s.keyed]
    reader = SnapshotReader(snapshot.manifest, snapshot.store)
    columns = reader.columns("keyed", "all", "value")
    last = [h.file.path for h in handles if h.state == "value" and h.first >= 32]
    snapshot.store.delete(last)
    chain = reader.chain("all", "value")
    found = list(chains.chain_rows(chain, columns, snapshot.store, Scratch(), KeyGroupRange(0, 32)))
    assert sum(t.num_rows for t in found) == sum(keys.key_group(n, 128) < 32 for n in range(200))
