"""Values on their way into PostgreSQL: each comes back as it went in, and what would not is refused."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from uuid import UUID

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from services import postgres_server  # noqa: F401
from thoroughness import examples

from moorline.connectors.postgres.table import read_shape
from moorline.connectors.postgres.values import NULL, ValueRefused, encoder

names = itertools.count(1)


@pytest.fixture(scope="module")
def connection(postgres_server):  # noqa: F811
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'größer')")
        connection.execute("CREATE DOMAIN short AS varchar(3) NOT NULL CHECK (VALUE <> 'no')")
        yield connection
        connection.execute("DROP DOMAIN short CASCADE; DROP TYPE mood CASCADE")


class Columns:
    """Tables with one column, each of another type."""

    def __init__(self, connection):
        self.connection, self.tables = connection, {}

    def encode(self, type):
        if type not in self.tables:
            name = f"value_{next(names)}"
            self.connection.execute(f"CREATE TABLE {name} (v {type})")
            encode = encoder(read_shape(self.connection, (name,)).columns["v"].type)
            self.tables[type] = name, encode
        return self.tables[type][1]

    def through(self, type, values):
        """The values, written by COPY and read again."""
        encode = self.encode(type)
        name = self.tables[type][0]
        rows = b"".join(b"\0\1" + (NULL if v is None else encode(v)) for v in values)
        with self.connection.transaction(force_rollback=True):
            with self.connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows + b"\xff\xff")
            return [v for (v,) in self.connection.execute(f"SELECT v FROM {name}").fetchall()]


@pytest.fixture(scope="module")
def columns(connection):
    return Columns(connection)


class Color(Enum):
    RED = "red"


class Level(Enum):
    HIGH = 3


EAST = timezone(timedelta(hours=5, minutes=30))
SAME = [
    ("smallint", [0, -32768, 32767]),
    ("integer", [-(1 << 31), (1 << 31) - 1, None]),
    ("bigint", [-(1 << 63), (1 << 63) - 1]),
    ("double precision", [0.1, -0.0, float("inf"), 5e-324]),
    ("real", [0.5, float("-inf")]),
    ("numeric", [Decimal("1.50"), Decimal("0.000000000000000000001"), Decimal("NaN"), Decimal(0)]),
    ("numeric(6, 2)", [Decimal("9999.99"), Decimal("-0.01"), Decimal("NaN")]),
    ("numeric(3, -2)", [Decimal("12300")]),
    ("boolean", [True, False, None]),
    ("text", ["", "größer", "𝄞", "tab\tand\nline", "\\N"]),
    ("varchar(3)", ["", "äöü"]),
    ("short", ["abc"]),
    ("mood", ["sad", "größer"]),
    ("bytea", [b"", b"\x00\xff"]),
    ("date", [date(1, 1, 1), date(2000, 1, 1), date(9999, 12, 31)]),
    ("time", [time(0), time(23, 59, 59, 999999)]),
    ("timestamp", [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1999, 12, 31, 23)]),
    ("timestamp(0)", [datetime(2026, 11, 18, 1, 2, 3)]),
    ("interval", [timedelta(0), timedelta(days=-1, microseconds=1), timedelta(days=999_999)]),
    ("uuid", [UUID(int=0), UUID(int=(1 << 128) - 1)]),
    ("jsonb", [{"a": [1, None, "x"]}, [], "text", 7, True, {"null": "null"}]),
    ("json", [{"a": 1.5}, {"a": "\0"}]),
    ("integer[]", [[], [1, None, 3], [[1, 2], [3, 4]]]),
    ("text[]", [["a", "", "NULL", '"'], [None]]),
    ("numeric(4, 1)[]", [[Decimal("1.5")]]),
    ("varchar(2)[]", [["ab"]]),
]


@pytest.mark.parametrize("type, values", SAME, ids=[type for type, _ in SAME])
def test_values_come_back_as_they_went_in(columns, type, values):
    found = columns.through(type, values)
    assert list(map(repr, found)) == list(map(repr, values))


OTHER = [
    ("double precision", 3, 3.0),
    ("numeric", 0.1, Decimal("0.1")),
    ("numeric", Decimal("-1E+30"), Decimal(-(10**30))),
    ("timestamptz[]", [datetime(2026, 1, 1, tzinfo=UTC)], [datetime(2026, 1, 1, tzinfo=UTC)]),
    ("numeric(6, 2)", 5, Decimal("5.00")),
    ("numeric(6, 2)", Decimal("-0"), Decimal("0.00")),
    ("numeric(6, 2)", Decimal("1.500"), Decimal("1.50")),
    ("char(4)", "ab", "ab  "),
    ("bytea", bytearray(b"x"), b"x"),
    ("bytea", memoryview(b"x"), b"x"),
    ("uuid", "00000000-0000-0000-0000-000000000007", UUID(int=7)),
    ("bigint", np.int32(7), 7),
    ("boolean", np.bool_(True), True),
    ("real", np.float32(0.5), 0.5),
    ("integer[]", (1, np.int64(2)), [1, 2]),
    ("text", Color.RED, "red"),
    ("integer", Level.HIGH, 3),
    ("jsonb", {"at": date(2026, 1, 1), "nested": (1, 2)}, {"at": "2026-01-01", "nested": [1, 2]}),
    ("timestamptz", datetime(2026, 1, 1, 5, 30, tzinfo=EAST), datetime(2026, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize("type, value, expected", OTHER, ids=[f"{t} {n}" for n, (t, _, _) in enumerate(OTHER)])
def test_values_that_mean_the_same_are_taken(columns, type, value, expected):
    (found,) = columns.through(type, [value])
    assert found == expected


REFUSED = [
    ("smallint", 32768, "out of its range"),
    ("integer", True, "not a whole number"),
    ("integer", 1.0, "not a whole number"),
    ("integer", "1", "not a whole number"),
    ("bigint", 1 << 63, "out of its range"),
    ("real", 1e300, "out of its range"),
    ("double precision", (1 << 53) + 1, "more digits than it holds"),
    ("double precision", 1 << 4000, "more digits than it holds"),
    ("double precision", Decimal("0.1"), "not a number"),
    ("numeric(6, 2)", Decimal("1.005"), "more than 2 decimals"),
    ("numeric(6, 2)", Decimal("10000"), "out of its range"),
    ("numeric(6, 2)", Decimal("Infinity"), "out of its range"),
    ("numeric(3, -2)", Decimal("12345"), "decimals"),
    ("numeric", "1", "not a number"),
    ("numeric", Decimal("1E+131072"), "out of its range"),
    ("numeric", Decimal("1E-16384"), "out of its range"),
    ("boolean", 1, "neither True nor False"),
    ("text", 7, "not a text"),
    ("text", b"x", "not a text"),
    ("text", "a\0", "character 0"),
    ("text", "\ud800", "not Unicode"),
    ("varchar(3)", "abcd", "longer than 3"),
    ("char(2)", "abc", "longer than 2"),
    ("short", "abcd", "longer than 3"),
    ("varchar(2)[]", ["abc"], "longer than 2"),
    ("mood", "happy", "none of the labels 'sad', 'größer' of mood"),
    ("mood", 7, "none of the labels"),
    ("bytea", "x", "not bytes"),
    ("date", datetime(2026, 1, 1), "not a date"),
    ("timestamp", date(2026, 1, 1), "not a datetime without a time zone"),
    ("timestamp", datetime(2026, 1, 1, tzinfo=UTC), "not a datetime without a time zone"),
    ("timestamptz", datetime(2026, 1, 1), "not a datetime with a time zone"),
    ("timestamp(3)", datetime(2026, 1, 1, microsecond=1), "finer than its 3 decimals"),
    ("time", time(1, tzinfo=UTC), "not a time without a time zone"),
    ("interval", 7, "not a timedelta"),
    ("uuid", "x", "not a UUID"),
    ("uuid", b"x" * 16, "not a UUID"),
    ("jsonb", {"a": float("nan")}, "JSON cannot express it"),
    ("jsonb", object(), "JSON cannot express it"),
    ("jsonb", {"a": "\0"}, "character 0"),
    ("integer[]", 7, "not a list"),
    ("integer[]", [[1], [1, 2]], "not equally long"),
    ("integer[]", [[1], 2], "some are not"),
    ("integer[]", ["x"], "not a whole number"),
    ("integer[]", [[[[[[[1]]]]]]], "at most 6 dimensions"),
]


@pytest.mark.parametrize("type, value, cause", REFUSED, ids=[f"{t} {n}" for n, (t, _, _) in enumerate(REFUSED)])
def test_values_that_would_not_come_back_are_refused(columns, type, value, cause):
    with pytest.raises(ValueRefused) as caught:
        columns.encode(type)(value)
    assert cause in str(caught.value)


@pytest.mark.parametrize("type", ["point", "inet", "mood[]", "xml", "timetz"])
def test_other_types_have_no_encoder(columns, type):
    assert columns.encode(type) is None


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
ANY = {
    "bigint": st.integers(-(1 << 63), (1 << 63) - 1),
    "double precision": st.floats(allow_nan=False),
    "numeric": st.decimals(allow_infinity=False, allow_nan=False, min_value=-(10**40), max_value=10**40, places=12),
    "text": texts,
    "bytea": st.binary(max_size=40),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    "interval": st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    "time": st.times(),
    "date": st.dates(),
    "text[]": st.lists(st.none() | texts, max_size=5),
    "jsonb": st.dictionaries(texts, st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | texts, max_size=4),
}


@pytest.mark.parametrize("type", ANY)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_any_value_comes_back_as_it_went_in(columns, type, data):
    values = data.draw(st.lists(ANY[type] if type == "jsonb" else st.none() | ANY[type], min_size=1, max_size=30))
    assert columns.through(type, values) == values
