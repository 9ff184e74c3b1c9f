"""Any database of SQLAlchemy as a sink: on SQLite, and on real servers of PostgreSQL and MariaDB."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np
import pytest
import sqlalchemy as sa
from services import PASSWORD, free_port, mariadb_server, postgres_server  # noqa: F401
from sqlalchemy.dialects import mysql
from thoroughness import examples
from waiting import PATIENCE, eventually

import moorline as mo
from moorline.api.sinks import SinkContext
from moorline.connectors.row_tables import UnfitRecord
from moorline.connectors.sql import statements
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError
from moorline.state.types import plain
from moorline.testing.contracts.sink import SinkContract

names = itertools.count(1)
LINE = "ab" * 16


class Place:
    """A database with a table in it."""

    def __init__(self, url):
        self.url, self.name = url, f"sql_{next(names)}"
        self.engine = sa.create_engine(url)
        self.run(f"CREATE TABLE {self.name} (number BIGINT PRIMARY KEY, text VARCHAR(20), amount INTEGER DEFAULT 7)")

    def run(self, statement):
        with self.engine.begin() as connection:
            result = connection.execute(sa.text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []

    def rows(self, columns="number, text"):
        return self.run(f"SELECT {columns} FROM {self.name} ORDER BY 1, 2")

    def sink(self, **options):
        return mo.write_sql(self.url, self.name, **{"key": "number", "marker_table": f"{self.name}_m", **options})


@pytest.fixture
def sqlite(tmp_path):
    place = Place(f"sqlite:///{tmp_path}/db")
    yield place
    place.engine.dispose()


@pytest.fixture
def postgres(postgres_server):  # noqa: F811
    place = Place(postgres_server.url.replace("postgresql:", "postgresql+psycopg:"))
    yield place
    place.engine.dispose()


@pytest.fixture
def mariadb(mariadb_server):  # noqa: F811
    place = Place(mariadb_server.url)
    yield place
    place.engine.dispose()


@pytest.fixture(params=["sqlite", "postgres", "mariadb", "other"])
def place(request, monkeypatch):
    if request.param == "other":
        # As if it were a database that has no word for it.
        monkeypatch.delitem(statements.UPSERTS, "sqlite")
        return request.getfixturevalue("sqlite")
    return request.getfixturevalue(request.param)


def context(subtask=0, attempt=1, lineage=LINE, restored=(), **more):
    return SinkContext("shop", "out", subtask, 2, attempt, restored, lineage, **more)


def staged(sink, records, checkpoint=1, **where):
    writer = sink.open(context(**where))
    writer.write(records)
    return plain.decode(plain.encode(writer.prepare(checkpoint)))


def written(sink, *records, **where):
    sink.check()
    sink.commit(staged(sink, list(records), **where))


class SqlContract(SinkContract):
    can_roll_back = False
    crash_seeds = examples(3)

    @pytest.fixture
    def sink(self, place):
        sink = place.sink()
        sink.check()
        return sink

    @pytest.fixture
    def visible(self, place):
        return lambda: [{"number": n, "text": t} for n, t in place.rows()]


class TestSqlite(SqlContract):
    @pytest.fixture
    def place(self, sqlite):
        return sqlite


class TestSqliteWithoutMarkers(SqlContract):
    @pytest.fixture
    def sink(self, sqlite):
        sink = sqlite.sink(marker_table=None)
        sink.check()
        return sink

    @pytest.fixture
    def place(self, sqlite):
        return sqlite


class TestPostgres(SqlContract):
    @pytest.fixture
    def place(self, postgres):
        return postgres


class TestMariaDb(SqlContract):
    @pytest.fixture
    def place(self, mariadb):
        return mariadb


class TestRows:
    def test_the_last_record_of_a_key_wins(self, place):
        sink = place.sink()
        written(sink, *({"number": n % 3, "text": f"{n}"} for n in range(10)))
        assert place.rows() == [(0, "9"), (1, "7"), (2, "8")]
        sink.commit(staged(sink, [{"number": 1, "text": "new"}, {"number": 5, "text": "other"}], checkpoint=2))
        assert place.rows() == [(0, "9"), (1, "new"), (2, "8"), (5, "other")]

    def test_a_column_that_a_record_lacks_stays_as_it_is_or_gets_its_default(self, place):
        place.run(f"INSERT INTO {place.name} VALUES (1, 'kept', 5), (2, 'kept', 5)")
        records = [{"number": 1, "amount": 6}, {"number": 2, "text": "a"}, {"number": 2, "amount": None}, {"number": 3}]
        written(place.sink(), *records)
        assert place.rows("number, text, amount") == [(1, "kept", 6), (2, "a", None), (3, None, 7)]

    @pytest.mark.parametrize(
        "records, expected",
        [
            ([mo.Delete({"number": 1})], []),
            ([{"number": 1, "text": "new"}, mo.Delete({"number": 1})], []),
            ([mo.Delete({"number": 1}), {"number": 1, "text": "new"}], [(1, "new", 7)]),
            ([mo.Delete({"number": 2, "text": "of no account"})], [(1, "old", 5)]),
        ],
    )
    def test_a_row_is_deleted_by_its_key(self, place, records, expected):
        place.run(f"INSERT INTO {place.name} VALUES (1, 'old', 5)")
        written(place.sink(), *records)
        assert place.rows("number, text, amount") == expected

    def test_a_table_of_keys_alone_can_be_written(self, place):
        place.run(f"CREATE TABLE {place.name}_k (a INTEGER NOT NULL, b VARCHAR(9) NOT NULL, PRIMARY KEY (a, b))")
        sink = mo.write_sql(place.url, f"{place.name}_k", key=["b", "a"], marker_table=f"{place.name}_m")
        written(sink, {"a": 1, "b": "x"}, {"a": 2, "b": "x"}, {"b": "x", "a": 1})
        sink.commit(staged(sink, [{"a": 1, "b": "x"}, mo.Delete({"a": 2, "b": "x"})], checkpoint=2))
        assert place.run(f"SELECT a, b FROM {place.name}_k") == [(1, "x")]

    def test_what_has_names_for_its_parts_is_a_row(self, place):
        @dataclass
        class Plain:
            number: int
            text: str

        written(place.sink(), Plain(1, "a"), {"number": np.int64(2), "text": "b"})
        assert place.rows() == [(1, "a"), (2, "b")]

    @pytest.mark.parametrize("kind, collation", [("sqlite", "NOCASE"), ("mariadb", "utf8mb4_general_ci")])
    def test_keys_that_only_the_database_takes_for_equal_are_taken_in_order(self, request, kind, collation):
        place = request.getfixturevalue(kind)
        place.run(f"CREATE TABLE {place.name}_c (word VARCHAR(9) COLLATE {collation} PRIMARY KEY, n INTEGER)")
        sink = mo.write_sql(place.url, f"{place.name}_c", key="word", marker_table=None)
        written(sink, {"word": "a", "n": 1}, {"word": "A", "n": 2}, {"word": "b", "n": 3}, mo.Delete({"word": "B"}))
        assert place.run(f"SELECT n FROM {place.name}_c") == [(2,)]

    def test_values_come_back_as_they_went_in(self, postgres):
        columns = {
            "d": ("date", date(2026, 1, 2)),
            "t": ("time", time(3, 4)),
            "at": ("timestamp", datetime(2026, 1, 2, 3, 4, 5, 6)),
            "span": ("interval", timedelta(hours=5)),
            "price": ("numeric(9, 2)", Decimal("1.50")),
            "f": ("double precision", 0.5),
            "yes": ("boolean", True),
            "b": ("bytea", b"\x00\xff"),
            "u": ("uuid", UUID(int=7)),
            "j": ("jsonb", {"a": [1, None]}),
            "l": ("integer[]", [1, 2]),
        }
        listed = ", ".join(f"{name} {type}" for name, (type, _) in columns.items())
        postgres.run(f"CREATE TABLE {postgres.name}_v (k integer PRIMARY KEY, {listed})")
        sink = mo.write_sql(postgres.url, f"{postgres.name}_v", key="k", marker_table=f"{postgres.name}_m")
        record = {"k": 1, **{name: value for name, (_, value) in columns.items()}}
        written(sink, record, {**dict.fromkeys(record), "k": 2})
        first, second = postgres.run(f"SELECT * FROM {postgres.name}_v ORDER BY k")
        assert first == tuple(record.values()) and second == (2, *[None] * len(columns))

    @pytest.mark.parametrize(
        "record, cause",
        [
            ({"number": "one"}, "its column 'number': the str 'one' is not for a column of type BIGINT"),
            ({"number": True}, "its column 'number': the bool True is not for"),
            ({"number": None}, "a part of its key is None"),
            ({"text": "x"}, "which is part of the key"),
            ({"number": 1, "txet": "x"}, "the table takes no column 'txet'"),
            ({"number": 1, "text": 21 * "x"}, "longer than 20"),
            ({"number": 1, "text": object()}, "a object cannot be stored"),
            (mo.Delete({"text": "x"}), "it has no 'number', which is part of the key"),
            (7, "a int has no column names"),
        ],
    )
    def test_a_record_that_does_not_fit_is_refused_before_the_checkpoint(self, sqlite, record, cause):
        sink = sqlite.sink()
        sink.check()
        with pytest.raises(UnfitRecord) as caught:
            sink.open(context()).write([record])
        assert cause in str(caught.value) and caught.value.can_pass is False

    def test_a_column_that_is_needed_is_asked_for(self, sqlite):
        sqlite.run(f"CREATE TABLE {sqlite.name}_n (a INTEGER NOT NULL UNIQUE, b TEXT NOT NULL)")
        sink = mo.write_sql(sqlite.url, f"{sqlite.name}_n", key="a", marker_table=None)
        sink.check()
        with pytest.raises(UnfitRecord, match="it has no 'b', which cannot be null"):
            sink.open(context()).write([{"a": 1}])

    def test_a_database_that_speaks_mysql_gets_its_own_words(self):
        table = sa.Table("t", sa.MetaData(), sa.Column("k", sa.Integer, primary_key=True), sa.Column("v", sa.Text))
        put = statements.UPSERTS["mysql"]
        text = str(put(table, ["k"], ["v"]).compile(dialect=mysql.dialect()))
        assert text.endswith("ON DUPLICATE KEY UPDATE v = VALUES(v)")
        assert "ON DUPLICATE KEY UPDATE k = VALUES(k)" in str(put(table, ["k"], []).compile(dialect=mysql.dialect()))


class TestMarkers:
    def test_an_older_commit_does_not_undo_a_newer_one(self, place):
        sink = place.sink()
        sink.check()
        old = staged(sink, [{"number": 1, "text": "old"}], checkpoint=1)
        sink.commit(old)
        sink.commit(staged(sink, [{"number": 1, "text": "new"}], checkpoint=2))
        sink.commit(old)
        assert place.rows() == [(1, "new")]

    def test_without_markers_it_would(self, sqlite):
        """Which is why they are there by default."""
        sink = sqlite.sink(marker_table=None)
        sink.check()
        old = staged(sink, [{"number": 1, "text": "old"}], checkpoint=1)
        sink.commit(old)
        sink.commit(staged(sink, [{"number": 1, "text": "new"}], checkpoint=2))
        sink.commit(old)
        assert sqlite.rows() == [(1, "old")]
        assert [name for name in sa.inspect(sqlite.engine).get_table_names() if name != sqlite.name] == []

    def test_markers_that_are_behind_what_was_committed_are_an_error(self, place):
        sink = place.sink()
        sink.check()
        writer = sink.open(context())
        for checkpoint in (1, 2):
            writer.write([{"number": checkpoint}])
            sink.commit(writer.prepare(checkpoint))
        place.run(f"UPDATE {place.name}_m SET checkpoint = 1")
        writer.write([{"number": 3}])
        committables = writer.prepare(3)
        with pytest.raises(
            StorageError, match="checkpoint 2 of job 'shop', sink 'out', slot 0 was committed"
        ) as caught:
            sink.commit(committables)
        assert caught.value.can_pass is False
        place.sink(on_missing_markers="ignore").commit(committables)
        assert [n for n, _ in place.rows()] == [1, 2, 3]

    def test_markers_of_old_batches_are_removed(self, sqlite):
        sink = sqlite.sink()
        sink.check()
        sink.commit(staged(sink, [{"number": 1}], lineage=""))
        sqlite.run(f"UPDATE {sqlite.name}_m SET committed_at = '2020-01-01 00:00:00.000000'")
        sink.commit(staged(sink, [{"number": 2}]))
        sink.commit(staged(sink, [{"number": 3}], lineage=""))
        assert sqlite.run(f"SELECT count(*) FROM {sqlite.name}_m") == [(2,)]

    @pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
    def test_commits_at_the_same_moment_come_to_an_end_and_count_once(self, request, kind):
        place = request.getfixturevalue(kind)
        place.run(f"CREATE TABLE {place.name}_log (n INTEGER PRIMARY KEY, times INTEGER)")
        sink = place.sink()
        sink.check()
        committables = [staged(sink, [{"number": n, "text": "x"}], n)[0] for n in range(1, 6)]
        begin = threading.Barrier(4)

        def commit():
            committer = sink.open_subtask_committer(context())
            begin.wait(PATIENCE)
            committer.commit(committables)
            committer.close()

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(commit) for _ in range(4)]:
                done.result(PATIENCE)
        assert [n for n, _ in place.rows()] == [1, 2, 3, 4, 5]
        assert place.run(f"SELECT checkpoint FROM {place.name}_m") == [(5,)]


class TestCheck:
    def refused(self, place, table=None, **options):
        with pytest.raises(InvalidArgument) as caught:
            mo.write_sql(place.url, table or place.name, **{"key": "number", "marker_table": None, **options}).check()
        assert PASSWORD not in str(caught.value)
        return str(caught.value)

    def test_what_is_not_there(self, place):
        assert "There is no such table at" in self.refused(place, "no_such_table")
        assert "has the columns number, text, amount" in self.refused(place, key="x")
        assert "has the columns number, text, amount" in self.refused(place, columns=["number", "x"])
        assert "leave out number" in self.refused(place, columns=["text"])

    def test_a_key_without_a_unique_index(self, place):
        assert "rows are unique by number" in self.refused(place, key=["text"])
        place.run(f"CREATE UNIQUE INDEX {place.name}_i ON {place.name} (text, amount)")
        place.sink(key=["amount", "text"]).check()

    def test_a_table_of_markers_that_is_not_one(self, place):
        assert "was not made by Moorline" in self.refused(place, marker_table=place.name)

    def test_checking_leaves_nothing_behind_but_the_table_of_markers(self, place):
        place.sink().check()
        assert place.rows() == [] and place.run(f"SELECT count(*) FROM {place.name}_m") == [(0,)]

    def test_a_role_that_may_not_write(self, postgres):
        postgres.run("CREATE ROLE sql_reader LOGIN PASSWORD 'reader'")
        try:
            postgres.run(f"GRANT SELECT ON {postgres.name} TO sql_reader")
            url = postgres.url.replace(f"postgres:{PASSWORD}", "sql_reader:reader")
            sink = mo.write_sql(url, postgres.name, key="number", marker_table=None)
            with pytest.raises(StorageError, match="permission denied for table") as caught:
                sink.check()
            assert caught.value.can_pass is False
        finally:
            postgres.run("DROP OWNED BY sql_reader")
            postgres.run("DROP ROLE sql_reader")

    def test_a_server_that_refuses_is_quoted_without_the_password(self, postgres):
        wrong = mo.write_sql(postgres.url.replace(PASSWORD, "wr0ng-word"), "t", key="k")
        away = mo.write_sql(f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:{free_port()}/x", "t", key="k")
        shown = [repr(wrong), repr(vars(wrong)), repr(away.target)]
        for sink in (wrong, away):
            with pytest.raises(StorageError) as caught:
                sink.check()
            shown.append(str(caught.value))
        assert "password authentication failed" in shown[3]
        assert not [text for text in shown if PASSWORD in text or "wr0ng-word" in text]

    def test_a_driver_that_is_not_there(self):
        sink = mo.write_sql("oracle+cx_oracle://me:s3cret@host/x", "t", key="k")
        with pytest.raises(InvalidArgument, match="Install its driver") as caught:
            sink.check()
        assert "s3cret" not in str(caught.value)

    @pytest.mark.parametrize(
        "options, cause",
        [
            ({"url": "no url"}, "Give one that SQLAlchemy takes"),
            ({"url": 7}, "Give one that SQLAlchemy takes"),
            ({"table": ""}, "Give the name of a table"),
            ({"key": []}, "Name the columns that tell rows apart"),
            ({"columns": "x"}, "Give a list of names"),
            ({"patience": -1}, "Give it in seconds"),
            ({"on_roll_back": "undo"}, "It is one of fail, repeat"),
            ({"on_missing_markers": "x"}, "It is one of fail, ignore"),
        ],
    )
    def test_options_that_make_no_sense(self, options, cause):
        with pytest.raises(InvalidArgument) as caught:
            mo.write_sql(**{"url": "sqlite://", "table": "t", "key": "k", **options})
        assert cause in str(caught.value)


class TestFaults:
    def test_what_was_not_staged_here_is_refused(self, sqlite):
        sink = sqlite.sink()
        sink.check()
        (good,) = staged(sink, [{"number": 1, "text": "a"}])
        (step,) = good["steps"]
        for bad in (None, {}, {**good, "slot": "x"}, {**good, "steps": [{**step, "rows": [[1]]}]}, {**good, "x": 1}):
            with pytest.raises(SnapshotCorrupt):
                sink.commit([bad])
        hostile = {**step, "columns": ["number", 'text") VALUES (1) --']}
        with pytest.raises(StorageError, match="it has no column"):
            sink.commit([{**good, "steps": [hostile]}])
        assert sqlite.rows() == []

    def test_a_server_that_is_killed_in_the_middle_has_the_rows_once(self, postgres, postgres_server):  # noqa: F811
        sink = postgres.sink()
        sink.check()
        shown = []
        committer = sink.open_subtask_committer(context(outage=shown.append))
        committer.commit(staged(sink, [{"number": 1}]))
        with ThreadPoolExecutor(1) as pool:
            # It waits for the row that another session has.
            with postgres.engine.connect() as other:
                other.execute(sa.text(f"UPDATE {postgres.name} SET amount = 1"))
                committing = pool.submit(committer.commit, staged(sink, [{"number": 1, "text": "x"}, {"number": 2}], 2))
                waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT%%'"
                eventually(lambda: postgres_server.query(waits), "it waits in the middle")
                postgres_server.crash()
                other.invalidate()
            postgres_server.start()
            committing.result(PATIENCE)
        committer.close()
        postgres.engine.dispose()
        assert postgres.rows("number, text, amount") == [(1, "x", 7), (2, None, 7)]
        assert shown[-1] is None and len(shown) > 1

    def test_a_server_that_stays_away_fails_the_attempt(self, postgres):
        away = mo.write_sql(
            f"postgresql+psycopg://me@127.0.0.1:{free_port()}/x", postgres.name, key="number", patience=0.2
        )
        sink = postgres.sink()
        committables = staged(sink, [{"number": 1}])
        with pytest.raises(StorageError, match="could not commit checkpoint 1 to postgresql table") as caught:
            away.commit(committables)
        assert caught.value.can_pass is True
        with pytest.raises(StorageError, match="could not open postgresql table"):
            away.open(context())

    def test_a_column_that_is_gone_is_named(self, postgres):
        sink = postgres.sink()
        sink.check()
        committables = staged(sink, [{"number": 1, "text": "x"}])
        postgres.run(f"ALTER TABLE {postgres.name} DROP COLUMN text")
        with pytest.raises(StorageError, match="it has no column 'text' any more") as caught:
            sink.commit(committables)
        assert caught.value.can_pass is False

    def test_a_row_that_the_table_refuses_is_an_error_in_the_databases_words(self, place):
        sink = place.sink()
        sink.check()
        place.run(f"CREATE UNIQUE INDEX {place.name}_u ON {place.name} (text)")
        with pytest.raises(StorageError, match=r"(?i)unique|duplicate") as caught:
            sink.commit(staged(sink, [{"number": n, "text": "same secret words"} for n in (1, 2)]))
        assert caught.value.can_pass is False and "INSERT" not in str(caught.value)
        assert place.rows() == [], "all rows of a checkpoint or none"
