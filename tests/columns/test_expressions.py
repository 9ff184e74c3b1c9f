"""Expressions: each equal to what Python says of one row, checked when the job is built, and exact about mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import moorline as mo
from moorline.api.columns.expressions.tree import evaluate
from moorline.api.columns.streams import ColumnStream
from moorline.errors import InvalidArgument, UserCodeFailed
from moorline.model.columns import ColumnBatch
from moorline.model.wire import user_code
from moorline.testing.harness import OperatorHarness

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("yes", pa.bool_()),
    ]
)
COLS = {name: mo.col(name) for name in SCHEMA.names}
SMALL = st.none() | st.integers(-50, 50)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": SMALL,
            "b": SMALL.filter(lambda n: n != 0),
            "x": st.none() | st.floats(-1e6, 1e6),
            "s": st.none() | st.text("ab/ü1 ", max_size=8),
            "at": st.none() | st.datetimes(datetime(1969, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),
            "yes": st.none() | st.booleans(),
        }
    ),
    max_size=20,
)
DAY = datetime(2024, 2, 29, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kleene_and(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


#: Each expression, the columns that must not be null (None: it deals with nulls itself), and what Python says.
CASES: dict[str, tuple[Any, str | None, Callable[..., Any]]] = {
    "sum": (mo.col("a") + mo.col("b") * 2, "ab", lambda r: r["a"] + r["b"] * 2),
    "reversed": (100 - mo.col("a"), "a", lambda r: 100 - r["a"]),
    "quotient": (mo.col("a") / mo.col("b"), "ab", lambda r: r["a"] / r["b"]),
    "floor": (mo.col("a") // mo.col("b"), "ab", lambda r: r["a"] // r["b"]),
    "rest": (mo.col("a") % mo.col("b"), "ab", lambda r: r["a"] % r["b"]),
    "minus": (-mo.col("a"), "a", lambda r: -r["a"]),
    "abs": (mo.col("a").abs(), "a", lambda r: abs(r["a"])),
    "compared": (mo.col("a") >= mo.col("b"), "ab", lambda r: r["a"] >= r["b"]),
    "of_two_types": (mo.col("a") < mo.col("x"), "ax", lambda r: r["a"] < r["x"]),
    "both": (
        (mo.col("a") > 0) & mo.col("yes"),
        None,
        lambda r: kleene_and(None if r["a"] is None else r["a"] > 0, r["yes"]),
    ),
    "not": (~mo.col("yes"), ["yes"], lambda r: not r["yes"]),
    "between": (mo.col("a").between(-5, 5), "a", lambda r: -5 <= r["a"] <= 5),
    "null": (mo.col("a").is_null(), None, lambda r: r["a"] is None),
    "in": (mo.col("a").is_in([1, 2, 3]), None, lambda r: r["a"] in (1, 2, 3)),
    "filled": (mo.col("a").fill_null(7), None, lambda r: 7 if r["a"] is None else r["a"]),
    "first_there": (
        mo.coalesce(mo.col("a"), mo.col("b"), 0),
        None,
        lambda r: next((v for v in (r["a"], r["b"]) if v is not None), 0),
    ),
    "least": (
        mo.least(mo.col("a"), mo.col("b")),
        None,
        lambda r: min((v for v in (r["a"], r["b"]) if v is not None), default=None),
    ),
    "greatest": (mo.greatest(mo.col("a"), 3), None, lambda r: 3 if r["a"] is None else max(r["a"], 3)),
    "when": (
        mo.when(mo.col("a") > 10).then("large").when(mo.col("a") > 0).then("small").otherwise(None),
        None,
        lambda r: None if r["a"] is None or r["a"] <= 0 else "large" if r["a"] > 10 else "small",
    ),
    "cast": (mo.col("a").cast("string"), "a", lambda r: str(r["a"])),
    "rounded": (mo.col("x").floor(), "x", lambda r: float(math.floor(r["x"]))),
    "upper": (mo.col("s").str.upper(), "s", lambda r: r["s"].upper()),
    "length": (mo.col("s").str.length(), "s", lambda r: len(r["s"])),
    "joined": (mo.col("s") + "-" + mo.col("s"), "s", lambda r: f"{r['s']}-{r['s']}"),
    "contains": (mo.col("s").str.contains("a/"), "s", lambda r: "a/" in r["s"]),
    "begins": (mo.col("s").str.starts_with("a"), "s", lambda r: r["s"].startswith("a")),
    "like": (mo.col("s").str.like("a%"), "s", lambda r: r["s"].startswith("a")),
    "replaced": (mo.col("s").str.replace("/", "."), "s", lambda r: r["s"].replace("/", ".")),
    "slice": (mo.col("s").str.slice(1, 3), "s", lambda r: r["s"][1:3]),
    "part": (
        mo.col("s").str.part("/", 1),
        "s",
        lambda r: r["s"].split("/")[1] if len(r["s"].split("/")) > 1 else None,
    ),
    "digits": (
        mo.col("s").str.extract("(?P<d>1+)"),
        "s",
        lambda r: None if "1" not in r["s"] else "1" * (len(t := r["s"][r["s"].index("1") :]) - len(t.lstrip("1"))),
    ),
    "year": (mo.col("at").dt.year(), ["at"], lambda r: r["at"].year),
    "weekday": (mo.col("at").dt.weekday(), ["at"], lambda r: r["at"].weekday()),
    "date": (mo.col("at").dt.date(), ["at"], lambda r: r["at"].date()),
    "quarter": (
        mo.col("at").dt.truncate("15min"),
        ["at"],
        lambda r: EPOCH + (r["at"] - EPOCH) // timedelta(minutes=15) * timedelta(minutes=15),
    ),
    "text": (mo.col("at").dt.format("%Y-%m-%d"), ["at"], lambda r: r["at"].strftime("%Y-%m-%d")),
    "seconds": (mo.col("at").dt.format("%H:%M:%S"), ["at"], lambda r: r["at"].strftime("%H:%M:%S")),
    "ms": (mo.col("at").dt.epoch_ms(), ["at"], lambda r: (r["at"] - EPOCH) // timedelta(milliseconds=1)),
    "moment": (mo.col("a").as_timestamp_ms(), "a", lambda r: EPOCH + timedelta(milliseconds=r["a"])),
    "later": (mo.col("at") > DAY, ["at"], lambda r: r["at"] > DAY),
    "constant": (mo.lit(5), None, lambda r: 5),
}


@given(rows=ROWS, skipped=st.integers(0, 3))
def test_it_is_what_python_says_of_one_row(rows: list[dict[str, Any]], skipped: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA).slice(skipped)
    for case, (expression, needed, of_row) in CASES.items():
        expected = [None if any(r[n] is None for n in needed or ()) else of_row(r) for r in rows[skipped:]]
        assert evaluate(expression.node, batch).to_pylist() == expected, case


FLOATS = st.floats() | st.sampled_from([0.1, 1.0, -0.0, math.inf, -math.inf, math.nan])


@given(pairs=st.lists(st.tuples(FLOATS, FLOATS.filter(bool)), max_size=20), is_constant=st.booleans())
def test_floats_are_divided_as_python_divides_them(pairs: list[tuple[float, float]], is_constant: bool) -> None:
    """1.0 // 0.1 is 9, though 1.0 / 0.1 is 10."""
    divisors = [pairs[0][1] if is_constant else divisor for _, divisor in pairs]
    numbers = [number for number, _ in pairs]
    batch = pa.RecordBatch.from_pydict({"a": pa.array(numbers, pa.float64()), "b": pa.array(divisors, pa.float64())})
    by: Any = mo.lit(divisors[0]) if is_constant and pairs else mo.col("b")
    for expression, of_row in ((mo.col("a") // by, lambda a, b: a // b), (mo.col("a") % by, lambda a, b: a % b)):
        expected = [repr(of_row(a, b)) for a, b in zip(numbers, divisors)]
        assert list(map(repr, evaluate(expression.node, batch).to_pylist())) == expected, str(expression)


def test_a_null_is_divided_to_null() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1.0, None, 1.0]), "b": pa.array([0.1, 0.1, None])})
    assert evaluate((mo.col("a") // mo.col("b")).node, batch).to_pylist() == [9.0, None, None]
    assert evaluate((mo.lit(1.0) // mo.lit(0.1)).node, batch).to_pylist() == [9.0] * 3


def test_every_expression_travels() -> None:
    batch = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    for expression, _, _ in CASES.values():
        sent = user_code.loads(user_code.dumps(expression.node))
        assert evaluate(sent, batch).type == evaluate(expression.node, batch).type
        assert str(sent) == str(expression.node)


def test_what_occurs_twice_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from moorline.api.columns.expressions import tree  # noqa: PLC0415

    calls: list[int] = []
    add = tree.COMPOUND["add"]
    monkeypatch.setitem(tree.COMPOUND, "add", lambda a, b: calls.append(1) or add(a, b))
    total = mo.col("a") + mo.col("b")
    batch = pa.RecordBatch.from_pylist([{"a": 1, "b": 2}])
    assert [m.to_pylist() for m in tree.evaluate_all([(total * 2).node, (total > 0).node], batch)] == [[6], [True]]
    assert len(calls) == 1


def stream() -> ColumnStream:
    return mo.Job("j").source(mo.from_items([{}]), uid="rows").with_schema(SCHEMA, uid="columns")


def test_the_columns_that_come_out_are_known() -> None:
    rows = stream()
    chosen = rows.select("s", mo.col("a"), (mo.col("a") / 2).alias("half"), n=mo.col("b") + 1)
    assert chosen.schema == pa.schema(
        [("s", pa.string()), ("a", pa.int64()), ("half", pa.float64()), ("n", pa.int64())]
    )
    assert rows.with_columns(a=mo.col("x"), z=mo.lit("z")).schema.names == [*SCHEMA.names, "z"]
    assert rows.with_columns(a=mo.col("x")).schema.field("a").type == pa.float64()
    assert rows.drop("a", "at").schema.names == ["b", "x", "s", "yes"]
    assert rows.rename({"a": "b", "b": "a"}).schema.names == ["b", "a", "x", "s", "at", "yes"]
    assert rows.where(mo.col("a") > 0).schema == SCHEMA


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda r: r.where(mo.col("yess")), "Did you mean 'yes'"),
        (lambda r: r.select("a", "bb"), "The stream has the columns"),
        (lambda r: r.where(mo.col("s") * 2 > 0), r"\(s \* 2\).*not defined for string and int64"),
        (lambda r: r.where(mo.col("a")), "int64 and no boolean"),
        (lambda r: r.where("a > 0"), "filter_batches"),
        (lambda r: r.where(mo.col("a") == None), "is_null"),  # noqa: E711
        (lambda r: r.where(mo.col("a") > 0 and mo.col("b") > 0), "Write & for and"),
        (lambda r: r.where(1 < mo.col("a") < 5), "Write & for and"),
        (lambda r: r.where(mo.col("a").is_in(["x"])), "not defined for int64"),
        (lambda r: r.where(mo.col("a").is_in("x")), "list of constants"),
        (lambda r: r.where(mo.col("a").str.contains("x")), "not defined for int64"),
        (lambda r: r.where(mo.col("s").dt.year() > 2000), "not defined for string"),
        (lambda r: r.where(mo.col("s").str.matches("(")), "no regular expression"),
        (lambda r: r.select(mo.col("a") * 2), "Give it a name"),
        (lambda r: r.select("a", a=mo.col("b")), "Two columns"),
        (lambda r: r.select(n=mo.lit(None, "bigint"), m=mo.lit(object())), "constant"),
        (lambda r: r.select(n=mo.col("a").cast("bigit")), "Did you mean 'bigint'"),
        (lambda r: r.select(n=mo.when(mo.col("a") > 0).then(1).otherwise("x")), "not defined for"),
        (lambda r: r.drop("c"), "The stream has"),
        (lambda r: r.drop(*SCHEMA.names), "No column would be left"),
        (lambda r: r.rename({"a": "b"}), "Two columns"),
        (lambda r: r.map_batches(lambda b: b, uid="m").where(mo.col("a") > 0), "columns are not known"),
        (lambda r: mo.col(""), "name of a column"),
        (lambda r: r.select(n=mo.col("s").str.part("/", -1)), "from 0"),
        # Constants that were meant as something else.
        (lambda r: r.select("a", parallelizm=2), "option 'parallelism' meant.*mo.lit"),
        (lambda r: r.with_columns(udi="x"), "option 'uid' meant"),
        (lambda r: r.select("a", n="s"), r"n=mo\.col\('s'\)"),
        (lambda r: r.with_columns(n="s"), r"n=mo\.lit\('s'\)"),
        (lambda r: mo.coalesce("a", "b"), "A constant is never null"),
        (lambda r: mo.coalesce(mo.col("a"), 0, mo.col("b")), "what comes after it"),
        (lambda r: mo.greatest("a", "b"), "None of these is a column"),
        (lambda r: mo.least(1, 2), "None of these is a column"),
        (lambda r: r.where(mo.col("x") == math.nan), r"is_nan\(\)"),
        (lambda r: r.where(mo.col("x") != math.nan), r"is_nan\(\)"),
        (lambda r: r.select(n=mo.col("at").dt.format("yyyy-MM-dd")), "strftime"),
        (lambda r: r.select(n=mo.col("at").dt.format("%Q")), "There is % before"),
        (lambda r: r.select(n=mo.col("x").round(1.5)), "digits after the point"),
        (lambda r: r.select(n=mo.when(mo.col("a") > 0).then(1)), "otherwise"),
        (lambda r: r.map_batches(lambda a, b: a), "called with 1 argument"),
    ],
)
def test_a_mistake_is_found_when_the_job_is_built(build: Callable[[ColumnStream], Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        build(stream())


def run(build: Callable[[ColumnStream], ColumnStream], rows: list[dict[str, Any]], stamps: Any = None) -> list[Any]:
    def built(incoming: Any) -> Any:
        return build(ColumnStream(incoming._job, incoming._origins, SCHEMA, incoming._partitioning))

    full = [{**dict.fromkeys(SCHEMA.names), **row} for row in rows]
    batch = ColumnBatch(pa.RecordBatch.from_pylist(full, schema=SCHEMA))
    with OperatorHarness.of(built) as by_columns, OperatorHarness.of(built) as by_rows:
        out = by_columns.process_batch(batch, stamps)
        assert by_rows.process_batch(full, stamps) == out, "rows that come one by one are as good"
        assert by_rows.timestamps == by_columns.timestamps
        return [*out, *(by_columns.timestamps if stamps else ())]


def test_rows_stay_whose_condition_is_true_with_their_timestamps() -> None:
    rows = [{"a": 1}, {"a": None}, {"a": -1}, {"a": 2}]
    kept = run(lambda s: s.where(mo.col("a") > 0, uid="w"), rows, [10, 20, 30, 40])
    assert [row["a"] for row in kept[:2]] == [1, 2]
    assert kept[2:] == [10, 40]
    assert run(lambda s: s.where(mo.col("a") > 100, uid="w"), rows) == []


def test_columns_are_computed() -> None:
    made = run(
        lambda s: s.select("a", half=mo.col("a") / 2, day=mo.col("at").dt.date(), uid="s"), [{"a": 5, "at": DAY}]
    )
    assert made == [{"a": 5, "half": 2.5, "day": date(2024, 2, 29)}]


@pytest.mark.parametrize(
    ("expression", "bad"),
    [
        (mo.col("a") * mo.col("a"), {"a": 2**62}),
        (mo.col("b") // mo.col("a"), {"a": 0, "b": 1}),
        (mo.col("s").cast("bigint"), {"s": "five"}),
    ],
)
def test_a_value_that_does_not_fit_fails_the_job_and_is_shown(expression: mo.Expression, bad: dict[str, Any]) -> None:
    rows = [{"a": n + 1, "b": n, "s": str(n)} for n in range(10)]
    rows[6] |= bad
    with pytest.raises(UserCodeFailed) as caught:
        run(lambda s: s.select(n=expression, uid="n"), rows)
    assert caught.value.position == 6
    assert all(f"'{name}': {value!r}" in caught.value.record for name, value in bad.items())


VIENNA = pa.timestamp("us", "Europe/Vienna")
#: Before and after clocks are put forward, in both of the hours that they show twice, and before 1970.
MOMENTS = [
    datetime(2024, 3, 31, 0, 59, 59, 999999, tzinfo=UTC),
    datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 1, 30, tzinfo=UTC),
    datetime(1969, 12, 31, 22, 30, 0, 500, tzinfo=UTC),
    None,
]


def in_vienna(expression: Any) -> list[Any]:
    batch = pa.record_batch({"at": pa.array(MOMENTS, VIENNA)})
    return [
        v.astimezone(UTC).isoformat() if isinstance(v, datetime) else v
        for v in evaluate(expression.node, batch).to_pylist()
    ]


def test_moments_of_hours_that_clocks_show_twice() -> None:
    ms = [None if m is None else (m - EPOCH) // timedelta(milliseconds=1) for m in MOMENTS]
    assert in_vienna(mo.col("at").dt.epoch_ms()) == ms
    hours = [m and m.replace(minute=0, second=0, microsecond=0).isoformat() for m in MOMENTS]
    assert in_vienna(mo.col("at").dt.truncate("1h")) == hours
    days = ["2024-03-30T23", "2024-03-30T23", "2024-10-26T22", "2024-10-26T22", "1969-12-30T23", None]
    assert in_vienna(mo.col("at").dt.truncate("1d")) == [day and f"{day}:00:00+00:00" for day in days]
    # From 2:00 to 3:00 there is no such time on that day: it begins when clocks go on.
    assert in_vienna(mo.col("at").dt.truncate("150min"))[1] == "2024-03-31T01:00:00+00:00"
    shown = ["01:59:59 CET", "03:30:00 CEST", "02:30:00 CEST", "02:30:00 CET", "23:30:00 CET", None]
    assert in_vienna(mo.col("at").dt.format("%H:%M:%S %Z")) == shown


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: mo.col("s").str.replace("", "x"), "replace"),  # Arrow would never come to an end
        (lambda: mo.col("a").is_in(["2"]), "not defined for int64"),
        (lambda: mo.col("s").is_in([2]), "not defined for string"),
        (lambda: mo.col("a").is_in([True]), "not defined for int64"),
        (lambda: mo.col("at").is_in([datetime(2024, 1, 1)]), "timezone"),
        (lambda: mo.col("at") == datetime(2024, 1, 1), "timezone"),
        (lambda: mo.col("a").cast("timestamp"), "as_timestamp_ms"),
        (lambda: mo.col("at").cast("bigint"), "epoch_ms"),
        (lambda: mo.col("at").cast("timestamp_ntz").dt.format("%z"), "no time zone"),
        (lambda: mo.col("s").dt.date(), "only moments"),
    ],
)
def test_what_would_be_something_else_is_refused_when_the_job_is_built(build: Any, message: str) -> None:
    rows = mo.Job("j").source(mo.from_items([{}]), uid="in").with_schema(SCHEMA, uid="columns")
    with pytest.raises(InvalidArgument, match=message):
        rows.select(x=build(), uid="x")


def test_minus_zero_is_zero_and_large_floats_do_not_become_infinities() -> None:
    batch = pa.record_batch({"x": [-0.0, 1.5, None]})
    assert evaluate(mo.col("x").is_in([0.0]).node, batch).to_pylist() == [True, False, False]
    assert evaluate(mo.col("x").cast("float").node, batch).to_pylist() == [-0.0, 1.5, None]
    with pytest.raises(ValueError, match="32 bits"):
        evaluate(mo.col("x").cast("float").node, pa.record_batch({"x": [1e300, float("inf")]}))


def test_columns_of_dictionaries_are_their_values() -> None:
    batch = pa.record_batch({"s": pa.array(["a/b", None, "c"]).dictionary_encode()})
    assert evaluate(mo.col("s").str.part("/", 0).node, batch).to_pylist() == ["a", None, "c"]
    assert evaluate(mo.col("s").is_in(["c"]).node, batch).to_pylist() == [False, False, True]
