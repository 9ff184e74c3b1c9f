"""Explained state: figures are those that a plain loop over the rows finds, for every backend and kind of state."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshot_samples import BACKENDS, everything, state_config

import moorline as mo
from moorline.errors import InvalidArgument, SnapshotCorrupt
from moorline.http.explained import explanation_to_json
from moorline.model import keys
from moorline.snapshots.explanation.explain import explain
from moorline.snapshots.explanation.sizes import row_bytes
from moorline.snapshots.tables.reader import SnapshotReader
from moorline.storage.history import History
from moorline.storage.stores.local import LocalStore
from moorline.testing import OperatorHarness

# --- the bytes of a row -------------------------------------------------------------------------

LEAVES = [
    (pa.int64(), st.integers(-5, 5)),
    (pa.int32(), st.integers(-5, 5)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.large_binary(), st.binary(max_size=5)),
    (pa.null(), st.none()),
]


def typed(depth: int = 2) -> st.SearchStrategy:
    """Pairs of an Arrow type and a strategy for its values."""
    leaf = st.sampled_from(LEAVES)
    if depth == 0:
        return leaf
    inner = typed(depth - 1)
    lists = inner.map(lambda t: (pa.list_(t[0]), st.lists(maybe(t[1]), max_size=3)))
    fixed = inner.map(lambda t: (pa.list_(t[0], 2), st.lists(maybe(t[1]), min_size=2, max_size=2)))
    structs = st.tuples(inner, inner).map(
        lambda ts: (
            pa.struct([("f0", ts[0][0]), ("f1", ts[1][0])]),
            st.fixed_dictionaries({"f0": maybe(ts[0][1]), "f1": maybe(ts[1][1])}),
        )
    )
    maps = inner.map(
        lambda t: (
            pa.map_(pa.string(), t[0]),
            st.dictionaries(st.text(max_size=3), maybe(t[1]), max_size=3).map(lambda d: list(d.items())),
        )
    )
    return leaf | lists | fixed | structs | maps


def maybe(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | values


def naive(kind: pa.DataType, value: object) -> int:
    """The twin of ``row_bytes``, value by value."""
    if value is None:
        return 0
    if pa.types.is_map(kind):
        return sum(len(k.encode()) + naive(kind.item_type, v) for k, v in value)
    if pa.types.is_struct(kind):
        return sum(naive(kind.field(name).type, v) for name, v in value.items())
    if isinstance(value, list):
        return sum(naive(kind.value_type, v) for v in value)
    if isinstance(value, (str, bytes)):
        return len(value.encode() if isinstance(value, str) else value)
    return 1 if isinstance(value, bool) else kind.bit_width // 8


@settings(max_examples=50)
@given(st.data())
def test_the_bytes_of_a_row_are_those_of_its_values(data):
    kind, values = data.draw(typed())
    rows = data.draw(st.lists(maybe(values), max_size=6))
    array = pa.array(rows, kind)
    cut = data.draw(st.integers(0, len(rows)))
    assert row_bytes(array).tolist() == [naive(kind, row) for row in rows]
    assert row_bytes(array.slice(cut)).tolist() == [naive(kind, row) for row in rows[cut:]]


# --- a whole snapshot ---------------------------------------------------------------------------


def twin(reader: SnapshotReader, state: str) -> tuple[Counter, Counter]:
    """Rows and bytes by key, one row after the other."""
    rows, sizes = Counter(), Counter()
    for table in reader.keyed("all", state):
        for row in table.to_pylist():
            rows[row["key"]] += 1
            sizes[row["key"]] += sum(
                naive(table.schema.field(name).type, value) for name, value in row.items() if name != "key_group"
            )
    return rows, sizes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_figures_are_those_of_a_plain_loop_over_the_rows(backend, parallelism, tmp_path):
    chance = random.Random(11)
    with everything(parallelism, state_config(backend, tmp_path)) as harness:
        for n in range(300):
            harness.process((f"user-{n}", n))
        harness.snapshot()
        harness.confirm()
        for _ in range(200):
            # One key in two has far more than the others.
            harness.process((f"user-{chance.choice([7, chance.randrange(300)])}", chance.choice([-1, 5, 9_999])))
        taken = harness.snapshot()
        found = explain(taken.manifest, taken.store, top=3)
        reader = SnapshotReader(taken.manifest, taken.store)
        for state in ("value", "several", "table", "best", "brief", "timers:processing"):
            rows, sizes = twin(reader, state)
            explained = found.state("all", state)
            assert (explained.rows, explained.keys) == (rows.total(), len(rows)), state
            assert explained.bytes == sizes.total(), state
            best = sorted(sizes.items(), key=lambda item: -item[1])[:3]
            assert [key.bytes for key in explained.largest] == [size for _, size in best], state
            for key in explained.largest:
                assert (key.rows, key.bytes) == (rows[key.key], sizes[key.key])
                assert key.key_group == keys.key_group(key.key, 128)
            groups = Counter()
            for key, size in sizes.items():
                groups[keys.key_group(key, 128)] += size
            assert {g.key_group: g.bytes for g in explained.key_groups} == groups
        assert found.state("all", "several").largest[0].key == "user-7"
        (operator,) = [o for o in found.operators if o.uid == "all"]
        assert operator.bytes == sum(s.bytes for s in found.states if s.uid == "all")
        assert (operator.stored, found.stored) == (taken.manifest.size, taken.manifest.size)
        assert "user-7" in str(found)
        if backend == "increments":
            assert found.state("all", "value").replaced > 0
            assert found.state("all", "value").written < found.state("all", "value").stored


def test_one_operator_alone_can_be_asked_for(tmp_path):
    with everything(1, state_config("heap", tmp_path)) as harness:
        harness.process(("ada", 1))
        taken = harness.snapshot()
        assert {s.uid for s in explain(taken.manifest, taken.store, uid="all").states} == {"all"}
        with pytest.raises(InvalidArgument, match="'all'"):
            explain(taken.manifest, taken.store, uid="alll")
        with pytest.raises(KeyError):
            explain(taken.manifest, taken.store).state("all", "nothing")


# --- growth -------------------------------------------------------------------------------------


class Notes(mo.KeyedProcessFunction):
    notes = mo.MapState(str, str)

    def process_element(self, record, ctx):
        _, entry, text = record
        self.notes.put(entry, text) if text else self.notes.remove(entry)


def test_growth_is_counted_from_the_checkpoint_before(tmp_path):
    with OperatorHarness(Notes(), key=lambda r: r[0], uid="notes") as harness:
        harness.process_all([("ada", "a", "x" * 10), ("bob", "b", "y" * 20)])
        first = harness.snapshot()
        harness.confirm()
        harness.process_all([("ada", "a", ""), ("cyd", "c", "z" * 100), ("cyd", "d", "z" * 100)])
        second = harness.snapshot()
    folder = LocalStore(tmp_path / "job")
    history = History(folder, "harness")
    history.claim(True, 1)
    for taken in (first, second):
        for file in taken.manifest.files():
            folder.put(file.path, taken.store.get(file.path))
        history.publish(taken.manifest)
    url = f"file://{tmp_path}/job"
    found = mo.explain_snapshot(url)
    notes = found.state("notes", "notes")
    assert (found.checkpoint, found.since) == (second.manifest.checkpoint, first.manifest.checkpoint)
    assert (notes.growth.rows, notes.growth.keys) == (1, 0)
    assert notes.growth.bytes == 2 * (3 + 1 + 100) - (3 + 1 + 10)
    assert mo.explain_snapshot(url, growth=False).since is None
    alone = mo.explain_snapshot(f"{url}/history/0000000002.json")
    assert (alone.since, alone.state("notes", "notes").growth) == (None, None)


def test_what_lies_in_the_same_files_is_not_read_for_its_growth(tmp_path):
    with OperatorHarness(Notes(), key=lambda r: r[0], uid="notes") as harness:
        harness.process_all([("ada", "a", "x" * 10)])
        taken = harness.snapshot()
    history = History(LocalStore(tmp_path / "job"), "harness")
    history.claim(True, 1)
    history.publish(taken.manifest)
    history.publish(
        taken.manifest.__class__(
            **{f: getattr(taken.manifest, f) for f in taken.manifest.__struct_fields__}
            | {"checkpoint": taken.manifest.checkpoint + 1}
        )
    )
    for file in taken.manifest.files():
        LocalStore(tmp_path / "job").put(file.path, taken.store.get(file.path))
    notes = mo.explain_snapshot(f"file://{tmp_path}/job").state("notes", "notes")
    assert (notes.rows, notes.growth.rows, notes.growth.bytes, notes.written) == (1, 0, 0, 0)


# --- time to live -------------------------------------------------------------------------------


class Brief(mo.KeyedProcessFunction):
    seen = mo.ValueState(str, ttl="1h")
    plain = mo.ValueState(str)

    def process_element(self, record, ctx):
        _, text, ttl = record
        self.plain.update(text)
        self.seen.update(text, ttl=ttl) if ttl else self.seen.update(text)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_says_what_a_time_to_live_would_remove_now(backend, tmp_path):
    with OperatorHarness.of(
        lambda stream: stream.key_by(lambda r: r[0]).process(Brief(), uid="brief"),
        state=state_config(backend, tmp_path),
    ) as harness:
        first = round(harness.clock.now_ms())
        harness.process_all([("ada", "old", None), ("bob", "older", None), ("cyd", "long", "10h")])
        harness.advance_clock(59_000)
        last = first + 59_000
        harness.process(("bob", "newer", None))
        taken = harness.snapshot()

    def expired(now_ms: int, **options):
        return explain(taken.manifest, taken.store, now_ms=now_ms, **options).state("brief", "seen").expired

    hour = 3_600_000
    lives = {("brief", "seen"): (hour, False)}
    assert (expired(first + hour - 1, lives=lives).rows, expired(first + hour, lives=lives).rows) == (0, 1)
    gone = expired(last + hour, lives=lives)
    assert (gone.rows, gone.undated, gone.now_ms) == (2, 0, last + hour)
    assert gone.bytes == sum(8 + len(key) + len(text) for key, text in (("ada", "old"), ("bob", "newer")))
    # Without the job only what came with a write says how long it lives, unless a length is given.
    assert (expired(first + 11 * hour).rows, expired(first + 11 * hour).undated) == (1, 2)
    assert expired(last + 600_000, ttl_ms=600_000).rows == 2
    # In event time, now is when it was last touched.
    assert expired(first + 11 * hour, lives={("brief", "seen"): (59_000, True)}).rows == 1
    assert explain(taken.manifest, taken.store).state("brief", "plain").expired is None


# --- what others have written -------------------------------------------------------------------


def test_a_damaged_file_is_an_error_and_no_figure(tmp_path):
    with OperatorHarness(Notes(), key=lambda r: r[0], uid="notes") as harness:
        harness.process_all([("ada", "a", "x" * 10)])
        taken = harness.snapshot()
    (file,) = taken.manifest.files()
    data = taken.store.get(file.path)
    taken.store.delete([file.path])
    taken.store.put(file.path, data[:-9] + b"?" + data[-8:])
    with pytest.raises(SnapshotCorrupt):
        explain(taken.manifest, taken.store)


def test_keys_of_any_kind_come_as_queries_take_them():
    def step(stream):
        return stream.key_by(lambda r: r[0]).process(Notes(), uid="notes")

    with OperatorHarness.of(step) as harness:
        harness.process_all([(key, "a", "x" * n) for n, key in enumerate((1, "one", (1, b"\x00")), 1)])
        taken = harness.snapshot()
    content = explanation_to_json(explain(taken.manifest, taken.store))
    (state,) = [s for s in content["states"] if s["state"] == "notes"]
    assert [key["key"] for key in state["largest"]] == [{"tuple": [1, {"bytes": "AA=="}]}, 1, "one"]
