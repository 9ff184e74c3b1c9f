"""Aggregates of columns of any type, by keys of any type: those of a naive loop, in either form, over every restore."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from column_steps import aggregating
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples
from typed_columns import KEYS, NUMBERS, VALUES, by_name, identity, laid_out, plain

import moorline as mo
from moorline.errors import AggregateTooLarge, InvalidArgument, MoorlineError
from moorline.model import keys as key_encoding
from moorline.model.columns import ColumnBatch, ColumnKey
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.subtask.columns.aggregate import AggregateOperator
from moorline.subtask.columns.sharing import key_groups
from moorline.testing.harness import OperatorHarness

INCREMENTAL = StateConfig(incremental=True)
ROCKSDB = StateConfig(RocksDb(memory="16MB"), incremental=True)
OF_ANY = {
    "n": mo.count(),
    "there": mo.count("v"),
    "least": mo.min("v"),
    "most": mo.max("v"),
    "early": mo.first("v"),
    "late": mo.last("v"),
}
OF_NUMBERS = {**OF_ANY, "total": mo.sum("v"), "mean": mo.avg("v")}


def naive(rows: list[dict[str, Any]], keys: tuple[str, ...], is_number: bool) -> dict[Any, dict[str, Any]]:
    """What Python says of the rows of each key, all of them at once."""
    of_key: dict[Any, list[Any]] = {}
    for row in rows:
        of_key.setdefault(tuple(identity(row[k]) for k in keys), []).append(row["v"])
    made = {}
    for key, values in of_key.items():
        there = [v for v in values if v is not None]
        ordered = [v for v in there if v == v] or there
        result = {
            "n": len(values),
            "there": len(there),
            "least": zero(min(ordered)) if there else None,
            "most": zero(max(ordered)) if there else None,
            "early": there[0] if there else None,
            "late": there[-1] if there else None,
        }
        if is_number:
            total: Any = None if not there else there[0]
            for value in there[1:]:
                total = Context(prec=80).add(total, value) if isinstance(value, Decimal) else total + value
            result |= {"total": total, "mean": float(total) / len(there) if there else None}
        made[key] = {name: plain(value) for name, value in result.items()}
    return made


def zero(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


@st.composite
def cases(draw: Any) -> tuple[pa.Schema, tuple[str, ...], list[list[dict[str, Any]]]]:
    """Columns, the keys among them, and batches of rows."""
    kinds = draw(st.lists(by_name(KEYS), min_size=1, max_size=2))
    of_value = draw(by_name(VALUES))
    names = tuple(f"k{n}" for n in range(len(kinds)))
    null = st.none() if len(kinds) > 1 else st.nothing()  # a null alone is no key
    fields = {name: null | KEYS[kind] for name, kind in zip(names, kinds)} | {"v": st.none() | VALUES[of_value]}
    schema = pa.schema([*zip(names, kinds), ("v", of_value)])
    batches = draw(st.lists(st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=8), min_size=1, max_size=5))
    return schema, names, [as_stored(batch, schema) for batch in batches]


def as_stored(rows: list[dict[str, Any]], schema: pa.Schema) -> list[dict[str, Any]]:
    """As they come out of their columns: floats of 32 bits, moments in a zone."""
    stored: list[dict[str, Any]] = pa.RecordBatch.from_pylist(rows, schema=schema).to_pylist()
    return stored


def outputs(case: Any, restores: list[Any]) -> dict[Any, dict[str, Any]]:
    """The last row of each key. ``restores``: how it goes on after each batch; None goes on as it is."""
    schema, keys, batches = case
    results = OF_NUMBERS if schema.field("v").type in NUMBERS else OF_ANY
    last: dict[Any, dict[str, Any]] = {}
    harness = aggregating(keys, results, schema)
    try:
        for number, batch in enumerate(batches):
            made = harness.process_batch(laid_out(batch, schema))
            for row in made:
                key = tuple(identity(row.pop(k)) for k in keys)
                last[key] = {name: plain(value) for name, value in row.items()}
            if number < len(restores) and restores[number] is not None:
                emit, parallelism, key_group_count, state = restores[number]
                snapshot = harness.snapshot()
                harness.close()
                options = {"parallelism": parallelism, "max_parallelism": key_group_count}
                harness = aggregating(keys, results, schema, emit, state=state, snapshot=snapshot, **options)
    finally:
        harness.close()
    return last


FORMS = st.sampled_from(["changes", "updates"])
RESTORES = st.lists(
    st.none()
    | st.tuples(
        FORMS, st.integers(1, 3), st.sampled_from([None, 32, 300]), st.sampled_from([ON_THE_HEAP, INCREMENTAL])
    ),
    max_size=5,
)


@settings(max_examples=examples(80))
@given(case=cases(), restores=RESTORES)
def test_they_are_what_python_says_over_restores_in_either_form(case: Any, restores: Any) -> None:
    schema, keys, batches = case
    rows = [row for batch in batches for row in batch]
    assert outputs(case, restores) == naive(rows, keys, schema.field("v").type in NUMBERS)


@settings(max_examples=examples(6), deadline=None)
@given(case=cases(), forms=st.tuples(FORMS, FORMS), is_back=st.booleans())
def test_they_go_from_the_heap_to_rocksdb_and_back(case: Any, forms: Any, is_back: bool) -> None:
    schema, keys, batches = case
    restores = [(forms[0], 2, None, ROCKSDB), (forms[1], 1, None, ON_THE_HEAP if is_back else ROCKSDB)]
    rows = [row for batch in batches for row in batch]
    assert outputs(case, restores) == naive(rows, keys, schema.field("v").type in NUMBERS)


@settings(max_examples=examples(60))
@given(case=cases())
def test_rows_are_routed_by_the_group_of_their_key_alone(case: Any) -> None:
    schema, names, batches = case
    for rows in batches:
        groups = key_groups(laid_out(rows, schema).batch, ColumnKey(names), 100).tolist()
        of_rows = [tuple(row[name] for name in names) for row in rows]
        assert groups == [key_encoding.key_group(key if len(key) > 1 else key[0], 100) for key in of_rows]


def test_values_that_a_dictionary_has_and_no_row_are_no_keys() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("v", pa.int64())])
    with aggregating(("k",), {"n": mo.count()}, schema) as harness:
        assert harness.process_batch(laid_out([{"k": "a", "v": 1}], schema)) == [{"k": "a", "n": 1}]
        operator = harness._subtasks[0].operator
        assert isinstance(operator, AggregateOperator)
        assert operator.backend.entries() == 1


def one(arrow: pa.DataType, results: dict[str, Any], values: list[Any], emit: str = "changes") -> dict[str, Any]:
    schema = pa.schema([("user", pa.string()), ("v", arrow)])
    batch = pa.RecordBatch.from_arrays([pa.array(["a"] * len(values)), pa.array(values, arrow)], schema=schema)
    with aggregating(("user",), results, schema, emit) as harness:
        made: dict[str, Any] = harness.process_batch(ColumnBatch(batch))[-1]
        return made


@pytest.mark.parametrize("emit", ["changes", "updates"])
def test_decimals_are_added_without_rounding(emit: str) -> None:
    large = Decimal("123456789012345678901234567890123456.78")
    made = one(pa.decimal128(38, 2), {"total": mo.sum("v")}, [large, Decimal("0.01")], emit)
    assert made["total"] == Decimal("123456789012345678901234567890123456.79")


@pytest.mark.parametrize("emit", ["changes", "updates"])
@pytest.mark.parametrize(
    ("arrow", "results", "values"),
    [
        (pa.decimal128(38, 2), {"total": mo.sum("v")}, [Decimal("9" * 36)] * 2),
        (pa.decimal256(60, 0), {"total": mo.sum("v")}, [Decimal("9" * 50)]),
        (pa.uint64(), {"most": mo.max("v")}, [2**64 - 1]),
    ],
)
def test_what_does_not_fit_is_refused_by_name(arrow: Any, results: Any, values: Any, emit: str) -> None:
    with pytest.raises(MoorlineError if emit == "updates" else AggregateTooLarge, match=r"fit|range"):
        one(arrow, results, values, emit)


def keyed(ddl: str = "user string, v bigint, name string") -> Any:
    return mo.Job("j").source(mo.from_items([{}]), uid="in").with_schema(ddl, uid="columns").key_by("user")


MINUTES = mo.TumblingEventTimeWindows("1min")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        # avg("v") keeps v_sum and v_count: both would add to the same numbers.
        (lambda: keyed().aggregate(v=mo.avg("v"), v_sum=mo.sum("v"), uid="a"), "another name"),
        (lambda: keyed().aggregate(v_count=mo.count(), v=mo.avg("v"), uid="a"), "another name"),
        (lambda: keyed().window(MINUTES).aggregate(v=mo.avg("v"), v_sum=mo.sum("v"), uid="a"), "another name"),
        (lambda: keyed().aggregate(**{"all of it": mo.count()}, uid="a"), "letters and digits"),
        (lambda: keyed().aggregate(**{"from": mo.count()}, uid="a"), "letters and digits"),
        (lambda: keyed().aggregate(n=mo.count(), name=mo.last("name"), uid="a"), "an option"),
        (lambda: keyed().window(MINUTES).aggregate(n=mo.count(), name=mo.last("name"), uid="a"), "an option"),
        (lambda: keyed("user string, `from` string, v bigint").top(1, by="v", uid="a"), "letters and digits"),
        (
            lambda: (
                mo.Job("j")
                .source(mo.from_items([{}]), uid="in")
                .with_schema("window_start bigint", uid="columns")
                .key_by("window_start")
                .window(MINUTES)
                .aggregate(n=mo.count(), uid="a")
            ),
            "bounds of the windows",
        ),
    ],
)
def test_names_that_would_be_lost_are_refused_when_the_job_is_built(build: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        build()


def rows_of(arrow: pa.DataType) -> Any:
    schema = pa.schema([("user", pa.string()), ("at", arrow)])
    return mo.Job("j").source(mo.from_items([{}]), uid="in").with_schema(schema, uid="columns")


def test_nanoseconds_would_be_lost_in_state_and_are_refused() -> None:
    at = rows_of(pa.timestamp("ns")).key_by("user")
    assert at.aggregate(n=mo.count("at"), uid="a").schema.names == ["user", "n"]
    with pytest.raises(InvalidArgument, match="nanoseconds"):
        at.aggregate(late=mo.last("at"), uid="b")
    with pytest.raises(InvalidArgument, match="nanoseconds"):
        at.top(1, by="at", uid="c")


def test_columns_that_arrow_cannot_take_rows_of_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="cast it"):
        rows_of(pa.string_view())


def test_a_harness_of_these_goes_by_columns() -> None:
    with aggregating() as made:
        assert isinstance(made, OperatorHarness)
        assert isinstance(made._subtasks[0].operator, AggregateOperator)


def over_a_change(
    before: Any, after: Any, values: tuple[list[Any], list[Any]], state: StateConfig = ON_THE_HEAP
) -> Any:
    """What comes out after a restore with other results, or a column of another type: each a type and results."""
    snapshot = None
    for (arrow, results), given_values in zip((before, after), values):
        schema = pa.schema([("user", pa.string()), ("v", arrow)])
        rows = [pa.array(["a"] * len(given_values)), pa.array(given_values, arrow)]
        with aggregating(("user",), results, schema, state=state, snapshot=snapshot) as harness:
            made = harness.process_batch(ColumnBatch(pa.RecordBatch.from_arrays(rows, schema=schema)))[-1]
            snapshot = harness.snapshot()
    return made


NUMBER = {"s": mo.sum("v"), "least": mo.min("v"), "mean": mo.avg("v")}


@pytest.mark.parametrize("state", [ON_THE_HEAP, ROCKSDB])
def test_columns_and_results_may_change(state: StateConfig) -> None:
    made = over_a_change((pa.int64(), NUMBER), (pa.float64(), NUMBER), ([2**40, 3], [0.5]), state)
    assert made == {"user": "a", "s": 2**40 + 3.5, "least": 0.5, "mean": (2**40 + 3.5) / 3}
    one_less = over_a_change((pa.int64(), NUMBER), (pa.int64(), {"s": mo.sum("v")}), ([1, 3], [5]), state)
    assert one_less == {"user": "a", "s": 9}
    more = {"most": mo.max("v"), "s": mo.sum("v"), "n": mo.count()}
    assert over_a_change((pa.int64(), {"s": mo.sum("v")}), (pa.int64(), more), ([1, 3], [2]), state) == {
        "user": "a",
        "most": 2,
        "s": 6,
        "n": 1,
    }


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        (pa.int64(), pa.int8(), ([1000], [2])),
        (pa.decimal128(9, 2), pa.decimal128(9, 1), ([Decimal("1.55")], [Decimal("1.5")])),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), ([1], [2])),
        (pa.string(), pa.int64(), (["5"], [5])),
        (pa.int64(), pa.float64(), ([2**60 + 1], [0.5])),
    ],
)
@pytest.mark.parametrize("state", [ON_THE_HEAP, ROCKSDB])
def test_what_a_change_of_type_cannot_keep_is_refused_by_name(
    before: Any, after: Any, values: Any, state: StateConfig
) -> None:
    results = {"most": mo.max("v")}
    with pytest.raises(MoorlineError, match="most"):
        over_a_change((before, results), (after, results), values, state)
