"""Windows and steps for whole batches by keys of any type: the rows have them as their columns do, over restores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_any_types import OF_ANY, OF_NUMBERS, cases, naive
from thoroughness import examples
from typed_columns import NUMBERS, identity, laid_out, plain
from window_steps import windowing

import moorline as mo
from moorline.api.columns.streams import KeyedColumnStream
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.subtask.columns.conversion import to_batch
from moorline.testing.harness import OperatorHarness

INCREMENTAL = StateConfig(incremental=True)
ROCKSDB = StateConfig(RocksDb(memory="16MB"), incremental=True)
DAY = mo.TumblingEventTimeWindows("1d")


def in_windows(case: Any, restores: list[Any]) -> dict[Any, dict[str, Any]]:
    """The only window of each key, after restores: whether it goes by columns, at which parallelism, and where."""
    schema, keys, batches = case
    results = OF_NUMBERS if schema.field("v").type in NUMBERS else OF_ANY
    harness = windowing(DAY, keys, results=results, schema=schema)
    try:
        for number, batch in enumerate(batches):
            assert harness.process_batch(laid_out(batch, schema), range(len(batch))) == []
            if number < len(restores) and restores[number] is not None:
                in_columns, parallelism, state = restores[number]
                snapshot = harness.snapshot()
                harness.close()
                options = {"parallelism": parallelism, "snapshot": snapshot, "state": state}
                harness = windowing(DAY, keys, results=results, schema=schema, in_columns=in_columns, **options)
        made = harness.finish()
    finally:
        harness.close()
    out = pa.schema([*map(schema.field, keys)])
    # What comes next may want columns: the keys have to fit into them again.
    to_batch([{k: row[k] for k in keys} for row in made], out, "next")
    found = {}
    for row in made:
        assert {type(row[k]) for k in keys} <= {type(r[k]) for b in batches for r in b for k in keys}
        key = tuple(identity(row.pop(k)) for k in keys)
        assert key not in found
        found[key] = {name: plain(row[name]) for name in results}
    return found


@settings(max_examples=examples(60))
@given(
    case=cases(),
    restores=st.lists(
        st.none() | st.tuples(st.booleans(), st.integers(1, 2), st.sampled_from([ON_THE_HEAP, INCREMENTAL])), max_size=4
    ),
)
def test_windows_are_what_python_says_of_their_rows(case: Any, restores: Any) -> None:
    schema, keys, batches = case
    rows = [row for batch in batches for row in batch]
    assert in_windows(case, restores) == naive(rows, keys, schema.field("v").type in NUMBERS)


@settings(max_examples=examples(4), deadline=None)
@given(case=cases(), is_back=st.booleans())
def test_windows_go_from_the_heap_to_rocksdb_and_back(case: Any, is_back: bool) -> None:
    schema, keys, batches = case
    restores = [(True, 2, ROCKSDB), (True, 1, ON_THE_HEAP if is_back else ROCKSDB)]
    rows = [row for batch in batches for row in batch]
    assert in_windows(case, restores) == naive(rows, keys, schema.field("v").type in NUMBERS)


class Rows(mo.KeyedBatchFunction):
    """The number of rows of each key so far."""

    n = mo.ValueState(int, default=0)

    def process_batch(self, keys: Any, batch: Any, states: Any) -> Any:
        n = states.n.numpy() + keys.counts()
        states.n.update(n)
        made = batch.take(pa.array(keys.last_rows)).append_column("n", pa.array(n))
        assert len(keys.values) == len(np.unique(keys.of_rows)), "each key is there, and has a row"
        return made


STEPS = {
    "process_batches": lambda keyed: keyed.process_batches(Rows(), uid="s"),
    "first": lambda keyed: keyed.deduplicate(uid="s"),
    "last": lambda keyed: keyed.deduplicate(keep="last", uid="s"),
}


def expected(batches: list[list[dict[str, Any]]], keys: tuple[str, ...], step: str) -> list[dict[Any, Any]]:
    made: list[dict[Any, Any]] = []
    seen: dict[Any, int] = {}
    for batch in batches:
        out: dict[Any, Any] = {}
        for row in batch:
            key = tuple(identity(row[k]) for k in keys)
            seen[key] = seen.get(key, 0) + 1
            if step == "process_batches":
                out[key] = seen[key]
            elif step == "last" or seen[key] == 1:
                out[key] = plain(row["v"])
        made.append(out)
    return made


@pytest.mark.parametrize("step", STEPS)
@settings(max_examples=examples(30))
@given(case=cases(), cut=st.integers(0, 5), parallelism=st.integers(1, 3), incremental=st.booleans())
def test_steps_for_whole_batches_have_each_key_once(
    step: str, case: Any, cut: int, parallelism: int, incremental: bool
) -> None:
    schema, keys, batches = case
    state = INCREMENTAL if incremental else ON_THE_HEAP

    def build(stream: Any) -> Any:
        return STEPS[step](KeyedColumnStream(stream._job, stream._origins, schema, keys))

    def fed(harness: OperatorHarness, batch: Any) -> dict[Any, Any]:
        out = harness.process_batch(laid_out(batch, schema))
        made = {tuple(identity(r[k]) for k in keys): r["n"] if "n" in r else plain(r["v"]) for r in out}
        assert len(made) == len(out)
        return made

    with OperatorHarness.of(build, parallelism=2, state=state) as first:
        out = [fed(first, batch) for batch in batches[:cut]]
        snapshot = first.snapshot()
    with OperatorHarness.of(build, parallelism=parallelism, state=state, snapshot=snapshot) as second:
        out += [fed(second, batch) for batch in batches[cut:]]
    assert out == expected(batches, keys, step)
