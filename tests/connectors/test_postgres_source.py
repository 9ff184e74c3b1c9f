"""PostgreSQL as a bounded source, on a real server: ranges of keys, pages, mistakes, and servers that are killed."""

from __future__ import annotations

import itertools
import threading
from datetime import datetime, timedelta

import psycopg
import pytest
from services import PASSWORD, free_port, postgres_server  # noqa: F401
from waiting import eventually

import moorline as mo
from moorline.api.sources import EnumeratorContext, SourceContext
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError, UnreadableRecord
from moorline.testing.contracts.source import RunningSource, Snapshot, SourceContract

names = itertools.count(1)


@pytest.fixture
def server(postgres_server):  # noqa: F811
    return postgres_server


def make_table(server, columns, rows=()):
    name = f"source_{next(names)}"
    server.query(f"CREATE TABLE {name} ({columns})")
    if rows:
        values = ", ".join(["%s"] * len(rows[0]))
        with psycopg.connect(server.url) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {name} VALUES ({values})", rows)
    return name


def numbered(server, count=100, step=1):
    rows = [(n * step, f"word {n}") for n in range(count)]
    return make_table(server, "id bigint PRIMARY KEY, word text", rows)


def read_all(source, parallelism=2):
    running = RunningSource(source, parallelism, 1, Snapshot({}))
    found = []
    try:
        while True:
            running.look()
            batches = [reader.read(1000) for reader in running.readers]
            found += [record for batch in batches for record in batch or ()]
            if all(batch is None for batch in batches):
                return found
    finally:
        running.close()


class TestNumbers(SourceContract):
    @pytest.fixture
    def source(self, server):
        return mo.read_postgres(server.url, numbered(server), splits=4, page_rows=10)

    @pytest.fixture
    def expected(self):
        return [{"id": n, "word": f"word {n}"} for n in range(100)]


class TestTextsOfAQuery(SourceContract):
    @pytest.fixture
    def source(self, server):
        query = f"SELECT word AS w, id FROM {numbered(server)} WHERE id %% 2 = 0;".replace("%%", "%")
        return mo.read_postgres(server.url, query=query, key="w", splits=3, page_rows=7)

    @pytest.fixture
    def expected(self):
        return [{"w": f"word {n}", "id": n} for n in range(0, 100, 2)]


class TestKeys:
    @pytest.mark.parametrize(
        "type, keys",
        [
            ("smallint", [-32768, 0, 32767]),
            ("bigint", [-(1 << 63), -1, 0, 1, (1 << 63) - 1]),
            ("text", ["", "a", "b'c", "größe", "100%", "\\"]),
            ("varchar(9)", ["x", "y"]),
            ("timestamp", [datetime(2026, 1, 1) + timedelta(hours=7 * n, microseconds=1) for n in range(20)]),
            ("timestamptz", [f"2026-03-29 0{n}:00:00+00" for n in range(6)]),
            ("date", ["0001-01-01", "2026-11-18", "9999-12-31"]),
            ("uuid", [f"0000000{n}-0000-0000-0000-000000000000" for n in range(8)]),
            ("numeric", ["0.1", "0.11", "-5", "1e20"]),
            ("interval", ["1 day", "1 hour", "2 days"]),
        ],
    )
    @pytest.mark.parametrize("splits", [1, 3, 7])
    def test_every_row_is_in_one_range(self, server, type, keys, splits):
        table = make_table(server, f"k {type} PRIMARY KEY", [(key,) for key in keys])
        found = read_all(mo.read_postgres(server.url, table, splits=splits, page_rows=2))
        there = {key for (key,) in server.query(f"SELECT k FROM {table}")}
        assert {row["k"] for row in found} == there and len(found) == len(keys)

    def test_keys_that_are_not_spread_evenly_are_all_read(self, server):
        table = make_table(server, "id bigint PRIMARY KEY", [(n,) for n in range(50)] + [(10**15,)])
        assert len(read_all(mo.read_postgres(server.url, table, splits=5))) == 51

    def test_texts_are_divided_by_how_many_there_are(self, server):
        table = make_table(server, "k text PRIMARY KEY", [(f"{n:03}",) for n in range(100)])
        source = mo.read_postgres(server.url, table, splits=4)
        ranges = source.open_enumerator(EnumeratorContext("job", "uid", 1)).discover()
        assert ranges == {
            0: [None, "024", False],
            1: ["024", "049", False],
            2: ["049", "074", False],
            3: ["074", "099", False],
        }

    def test_a_table_without_rows_ends_at_once(self, server):
        for type in ("bigint", "text", "timestamp"):
            table = make_table(server, f"k {type} PRIMARY KEY")
            assert read_all(mo.read_postgres(server.url, table)) == []

    def test_moments_without_end_are_read_too(self, server):
        table = make_table(server, "k timestamp PRIMARY KEY, n integer")
        server.query(
            f"INSERT INTO {table} VALUES ('-infinity', 1), ('2026-01-01', 2), ('2027-01-01', 3), ('infinity', 4)"
        )
        found = read_all(mo.read_postgres(server.url, table, columns=["n"], splits=5, page_rows=1))
        assert sorted(row["n"] for row in found) == [1, 2, 3, 4]

    def test_the_settings_of_a_role_do_not_matter(self, server):
        rows = [(f"2026-11-18 0{n}:00:00+00",) for n in range(9)]
        table = make_table(server, "k timestamptz PRIMARY KEY", rows)
        dsn = f"{server.url}?options=-c%20DateStyle%3DGerman%20-c%20TimeZone%3DAsia/Kolkata"
        assert len(read_all(mo.read_postgres(dsn, table, splits=4, page_rows=2))) == 9

    def test_rows_that_are_added_behind_the_last_key_are_not_read(self, server):
        table = numbered(server, 10)
        source = mo.read_postgres(server.url, table, splits=2, page_rows=3)
        running = RunningSource(source, 1, 1, Snapshot({}))
        running.look()
        server.query(f"INSERT INTO {table} VALUES (100, 'late')")
        found = []
        while (batch := running.readers[0].read(100)) is not None:
            running.look()
            found += batch
        running.close()
        assert [row["id"] for row in found] == list(range(10))


class TestColumns:
    def test_only_the_columns_that_were_named_are_read(self, server):
        table = make_table(server, "id integer PRIMARY KEY, a text, b text", [(1, "a", "b")])
        assert read_all(mo.read_postgres(server.url, table, columns=["b"])) == [{"b": "b"}]

    def test_types_that_python_has_not_come_as_text(self, server):
        table = make_table(server, "id integer PRIMARY KEY, at point, n integer", [(1, "(1,2)", 3)])
        assert read_all(mo.read_postgres(server.url, table)) == [{"id": 1, "at": "(1,2)", "n": 3}]

    def test_a_key_that_is_not_the_primary_one(self, server):
        table = make_table(server, "id integer PRIMARY KEY, word text UNIQUE NOT NULL", [(1, "x"), (2, "y")])
        assert len(read_all(mo.read_postgres(server.url, table, key="word", page_rows=1))) == 2

    def test_a_view_can_be_read(self, server):
        table = numbered(server, 20)
        server.query(f"CREATE VIEW {table}_view AS SELECT id, upper(word) AS loud FROM {table} WHERE id < 10")
        found = read_all(mo.read_postgres(server.url, f"{table}_view", key="id", page_rows=3))
        assert sorted(row["loud"] for row in found) == [f"WORD {n}" for n in range(10)]


class TestMistakes:
    def refused(self, server, table=None, **options):
        with pytest.raises(InvalidArgument) as caught:
            mo.read_postgres(server.url, table, **options).check()
        assert PASSWORD not in str(caught.value)
        return str(caught.value)

    def test_what_is_not_there(self, server):
        table = numbered(server, 1)
        assert "There is no such table at" in self.refused(server, "no_such_table")
        assert "has the columns id, word" in self.refused(server, table, key="x")
        assert "has the columns id, word" in self.refused(server, table, columns=["x"])
        assert "syntax error" in self.refused(server, query="SELEC", key="x")
        assert "does not exist" in self.refused(server, query="SELECT * FROM no_such_table", key="x")

    def test_keys_that_do_not_tell_rows_apart(self, server):
        table = numbered(server, 1)
        assert "It has no unique index" in self.refused(server, table, key="word")
        assert "Unique are: id" in self.refused(server, table, key="word")
        keyless = make_table(server, "a integer, b integer, PRIMARY KEY (a, b)")
        assert "There is no primary key of one column" in self.refused(server, keyless)
        empty = make_table(server, "a integer UNIQUE", [(1,), (None,)])
        assert "rows in which it is null" in self.refused(server, empty, key="a")

    def test_a_query_with_a_key_that_is_there_twice_is_an_error_and_no_loss(self, server):
        table = make_table(server, "id integer, word text", [(n // 2, "x") for n in range(20)])
        for page_rows in range(1, 8):
            source = mo.read_postgres(
                server.url, query=f"SELECT * FROM {table}", key="id", splits=1, page_rows=page_rows
            )
            with pytest.raises(StorageError, match="in more than one row"):
                read_all(source)

    @pytest.mark.parametrize(
        "options, cause",
        [
            ({}, "Give one of the two"),
            ({"table": "a", "query": "SELECT 1"}, "Give one of the two"),
            ({"query": "SELECT 1"}, "Name the column of the query"),
            ({"table": "a", "columns": "x"}, "Give a list of names"),
            ({"table": "a", "splits": 0}, "It is at least 1"),
            ({"table": "a", "page_rows": 1.5}, "It is at least 1"),
            ({"table": "a", "patience": -1}, "Give them in seconds"),
            ({"table": "a", "on_error": "ignore"}, "It is 'fail', 'skip', or an OutputTag"),
        ],
    )
    def test_options_that_make_no_sense(self, options, cause):
        with pytest.raises(InvalidArgument) as caught:
            mo.read_postgres("postgresql://localhost/x", **options)
        assert cause in str(caught.value)

    def test_the_password_is_shown_nowhere(self, server):
        wrong = mo.read_postgres(server.url.replace(PASSWORD, "wr0ng-word"), "t")
        away = mo.read_postgres(f"postgresql://me:{PASSWORD}@127.0.0.1:{free_port()}/x", "t", patience=0.1)
        shown = [repr(wrong), repr(vars(wrong)), repr(away)]
        for source in (wrong, away):
            with pytest.raises(StorageError) as caught:
                source.check()
            shown.append(str(caught.value))
        with pytest.raises(StorageError) as caught:
            away.open_enumerator(EnumeratorContext("job", "uid", 1)).discover()
        shown.append(str(caught.value))
        assert not [text for text in shown if PASSWORD in text or "wr0ng-word" in text]

    @pytest.mark.parametrize("position", [None, 7, [], [1, "2", False], ["1", None, False], ["1", "2"], ["1", "2", 3]])
    def test_a_position_that_is_none_is_refused(self, server, position):
        reader = mo.read_postgres(server.url, "t").open(SourceContext("uid", 0, 1, 1))
        with pytest.raises(SnapshotCorrupt):
            reader.add_splits({0: position})
        reader.close()

    def test_a_position_does_not_become_sql(self, server):
        table = numbered(server, 3)
        source = mo.read_postgres(server.url, table)
        reader = source.open(SourceContext("uid", 0, 1, 1))
        reader.add_splits({0: [None, f"1); DROP TABLE {table}; --", False]})
        with pytest.raises(StorageError, match="invalid input syntax"):
            eventually(lambda: reader.read(10), "it fails")
        reader.close()
        assert server.query(f"SELECT count(*) FROM {table}") == [(3,)]


class TestBrokenRows:
    @pytest.fixture
    def table(self, server):
        name = make_table(server, "id integer PRIMARY KEY, day date")
        server.query(f"INSERT INTO {name} VALUES (1, '2026-01-01'), (2, 'infinity'), (3, '0044-03-15 BC'), (4, NULL)")
        return name

    def test_a_row_that_python_cannot_hold_fails_the_job_and_is_named(self, server, table):
        with pytest.raises(UnreadableRecord, match="the row with the key '2' cannot be read"):
            read_all(mo.read_postgres(server.url, table, splits=1))

    def test_such_rows_can_be_skipped_and_are_counted(self, server, table):
        context = SourceContext("uid", 0, 1, 1, notice=lambda kind, text: None)
        source = mo.read_postgres(server.url, table, on_error=mo.OutputTag("broken"), splits=1)
        reader = source.open(context)
        reader.add_splits({0: [None, "4", False]})
        good = eventually(lambda: reader.read(10), "a page")
        assert [row["id"] for row in good] == [1, 4]
        assert context.counters == {"broken_records": 2}
        assert [broken.position for broken in reader.side_outputs["broken"]] == ["2", "3"]
        reader.close()


class TestServerThatGoesAway:
    def test_a_server_that_is_killed_in_the_middle_is_waited_for(self, server):
        table = numbered(server, 1000)
        shown = []
        source = mo.read_postgres(server.url, table, splits=3, page_rows=50)
        context = SourceContext("uid", 0, 1, 1, outage=shown.append)
        reader = source.open(context)
        reader.add_splits(source.open_enumerator(EnumeratorContext("job", "uid", 1)).discover())
        reader.no_more_splits()
        found = list(eventually(lambda: reader.read(20), "the first rows"))
        server.crash()
        while not shown:
            found += reader.read(20)
        positions = reader.positions()
        assert reader.read(20) == [] and reader.positions() == positions
        server.start()
        while (batch := reader.read(2000)) is not None:
            found += batch
        reader.close()
        assert sorted(row["id"] for row in found) == list(range(1000))
        assert shown[-1] is None and not any(PASSWORD in (cause or "") for cause in shown)

    def test_a_server_that_stays_away_fails_the_attempt(self, server):
        table = numbered(server, 10)
        source = mo.read_postgres(server.url, table, patience=0.2)
        source.check()
        reader = source.open(SourceContext("uid", 0, 1, 1))
        reader.add_splits({0: [None, "9", False]})
        server.stop()
        try:
            with pytest.raises(StorageError, match="could not read PostgreSQL table") as caught:
                eventually(lambda: reader.read(10), "it gives up")
        finally:
            server.start()
        reader.close()
        assert caught.value.can_pass is True

    def test_a_page_that_takes_long_does_not_hold_up_the_subtask(self, server):
        table = numbered(server, 10)
        with psycopg.connect(server.url) as connection:
            source = mo.read_postgres(server.url, table)
            source.check()
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            reader = source.open(SourceContext("uid", 0, 1, 1))
            reader.add_splits({0: [None, "9", False]})
            assert [reader.read(10) for _ in range(20)] == 20 * [[]]
            connection.rollback()
            assert len(eventually(lambda: reader.read(10), "the page")) == 10
        reader.close()

    def test_a_reader_that_is_closed_leaves_no_thread_and_no_connection(self, server):
        table = numbered(server, 10)
        with psycopg.connect(server.url) as connection:
            source = mo.read_postgres(server.url, table)
            source.check()
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            reader = source.open(SourceContext("closed", 0, 1, 1))
            reader.add_splits({0: [None, "9", False]})
            waiting = (
                "SELECT 1 FROM pg_stat_activity WHERE application_name = 'moorline closed' AND wait_event = 'relation'"
            )
            eventually(lambda: reader.read(10) or server.query(waiting), "it waits in the middle of a page")
            reader.close()
            assert not [t for t in threading.enumerate() if "watchdog" in t.name or "moorline-pages" in t.name]
