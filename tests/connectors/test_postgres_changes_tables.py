"""Tables and publications that change under a reader of their changes: nothing is left out in silence."""

from __future__ import annotations

import psycopg
import pytest
from change_readings import (  # noqa: F401
    fill,
    name_fixture,
    reading_fixture,
    server_fixture,
    short,
    source_of,
    table_fixture,
)
from services import PASSWORD, postgres_server  # noqa: F401
from waiting import eventually

import moorline as mo
from moorline.connectors.postgres.changes import follower
from moorline.errors import InvalidArgument, StorageError


@pytest.fixture(autouse=True)
def short_sighted(monkeypatch):
    """Looks come often."""
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.05)


@pytest.fixture
def more(server, table):
    """Names of further tables, which are gone after the test."""
    names = [f"{table}_{letter}" for letter in "abc"]
    yield names
    for name in names:
        server.query(f"DROP TABLE IF EXISTS {name} CASCADE")


class Followed:
    """A reader that has read what is there, and what becomes of it."""

    def __init__(self, server, reading, source, notices=None, loaded=()):
        self.server, self.reading, self.source = server, reading, source
        self.notices = [] if notices is None else notices
        source.check()
        self.open(None)
        self.found = self.one.read(len(loaded)) if loaded else []
        eventually(lambda: self.one.reader.read(1) or self.is_settled(), "it follows")

    def open(self, position):
        self.one = self.reading(self.source, position, attempt=2, notice=lambda kind, text: self.notices.append(text))

    def is_settled(self):
        position = self.one.position
        return position and position["tables"] and (not position["load"] or position["load"]["table"] is None)

    def restarted(self, tables=None, **options):
        """The same from its position on, maybe with other options."""
        position = self.one.position
        self.one.close()
        if tables is not None:
            self.source = source_of(self.server, tables, **options)
        self.open(position)

    def fails(self, words):
        with pytest.raises(StorageError, match=words) as caught:
            eventually(lambda: self.one.reader.read(100) and False, "it fails")
        assert caught.value.can_pass is False and PASSWORD not in str(caught.value)

    def notices_that(self, words):
        eventually(lambda: self.one.reader.read(100) or any(words in text for text in self.notices), words)


@pytest.fixture
def followed(server, table, reading):
    """A reader of a table with three rows, which it has read."""
    fill(server, table, 0, 3)
    return Followed(server, reading, source_of(server, table), loaded=range(3))


class TestPublications:
    @pytest.mark.parametrize(
        "change, words",
        [
            ("ALTER PUBLICATION {t} SET TABLE {a}", "publication {t} does not have public.{t} any more"),
            ("DROP PUBLICATION {t}", 'publication "?{t}"? (is gone|does not exist)'),
            ("ALTER PUBLICATION {t} SET (publish = 'insert')", "leaves out some kinds of changes now"),
            ("ALTER PUBLICATION {t} SET TABLE {t} (id)", "or what is published of it was changed"),
            ("ALTER PUBLICATION {t} SET TABLE {t} WHERE (id > 7)", "or what is published of it was changed"),
        ],
        ids=["table out", "gone", "kinds", "columns", "rows"],
    )
    def test_what_is_not_published_any_more_ends_the_job(self, server, table, more, followed, change, words):
        server.query(f"CREATE TABLE {more[0]} (id integer PRIMARY KEY)")
        server.query(change.format(t=table, a=more[0]))
        server.query(f"INSERT INTO {table} VALUES (7, 'lost')")
        followed.fails(words.format(t=table))
        # However often it is started.
        followed.restarted()
        followed.fails(words.format(t=table))

    @pytest.mark.parametrize("thing", ["table", "publication"])
    @pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
    def test_what_was_not_published_for_a_moment_ends_the_job(self, server, table, more, followed, is_running, thing):
        if not is_running:
            followed.one.close()
        server.query(f"CREATE TABLE {more[0]} (id integer PRIMARY KEY)")
        with psycopg.connect(server.url) as connection:  # in one transaction, so that no look falls in between
            out = (
                f"DROP PUBLICATION {table}"
                if thing == "publication"
                else f"ALTER PUBLICATION {table} SET TABLE {more[0]}"
            )
            connection.execute(out)
            connection.execute(f"INSERT INTO {table} VALUES (7, 'lost')")
            verb = "CREATE" if thing == "publication" else "ALTER"
            connection.execute(f"{verb} PUBLICATION {table} {'FOR' if verb == 'CREATE' else 'SET'} TABLE {table}")
        if not is_running:
            followed.restarted()
        followed.fails(f"was taken out of publication {table} and put back|publication .* does not exist")

    def test_one_that_was_altered_and_is_as_it_was_is_noticed(self, server, table, followed):
        followed.one.close()
        server.query(f"ALTER PUBLICATION {table} SET (publish = 'insert')")
        server.query(f"DELETE FROM {table} WHERE id = 1")
        server.query(f"ALTER PUBLICATION {table} SET (publish = 'insert, update, delete, truncate')")
        followed.restarted()
        followed.notices_that(f"publication {table} was altered")
        fill(server, table, 10, 11)
        followed.one.read(1)
        followed.notices.clear()
        followed.restarted()
        fill(server, table, 11, 12)
        assert [c.new["id"] for c in followed.one.read(1)] == [11]
        assert followed.notices == [], "it is said once"

    def test_a_table_that_was_left_out_for_a_while_is_loaded_anew(self, server, table, more, reading):
        other = more[0]
        fill(server, table, 0, 2)
        server.query(f"CREATE TABLE {other} (id integer PRIMARY KEY); INSERT INTO {other} VALUES (1), (2)")
        both = Followed(server, reading, source_of(server, [table, other], slot=table), loaded=range(4))
        both.restarted(table)
        server.query(f"INSERT INTO {other} VALUES (3)")
        server.query(f"ALTER PUBLICATION {table} SET TABLE {table}")
        fill(server, table, 5, 6)
        assert [c.new["id"] for c in both.one.read(1)] == [5]
        server.query(f"ALTER PUBLICATION {table} ADD TABLE {other}")
        both.restarted([table, other], slot=table)
        assert {(c.kind, c.table, c.new["id"]) for c in both.one.read(3)} == {
            ("read", f"public.{other}", n) for n in (1, 2, 3)
        }
        both.one.read_nothing()

    @pytest.mark.parametrize("kind", ["ALL TABLES", "TABLES IN SCHEMA public"])
    def test_publications_of_everything_are_read(self, server, table, followed, kind):
        publication = f"{table}_all"
        server.query(f"CREATE PUBLICATION {publication} FOR {kind}")
        try:
            followed.restarted(table, publication=publication)
            followed.fails("was taken out of publication")
            followed.one.close()
        finally:
            server.query(f"DROP PUBLICATION {publication}")


class TestNames:
    def test_a_table_that_is_renamed_is_read_on_and_shown(self, server, table, more, followed):
        server.query(f"ALTER TABLE {table} RENAME TO {more[0]}")
        server.query(f"INSERT INTO {more[0]} VALUES (7, 'x')")
        (change,) = followed.one.read(1)
        assert (change.table, change.new["id"]) == (f"public.{table}", 7)
        followed.notices_that(f"public.{table} is called public.{more[0]} now")
        server.query(f"INSERT INTO {more[0]} VALUES (8, 'y')")
        # With its new name it goes on where it was: nothing is loaded again, and nothing is missing.
        followed.restarted(more[0], slot=table, publication=table)
        (change,) = followed.one.read(1)
        assert (change.kind, change.table, change.new["id"]) == ("insert", f"public.{more[0]}", 8)
        followed.one.read_nothing()

    def test_a_table_that_is_renamed_and_named_back_loses_nothing(self, server, table, more, followed):
        server.query(f"ALTER TABLE {table} RENAME TO {more[0]}")
        server.query(f"INSERT INTO {more[0]} VALUES (7, 'x')")
        server.query(f"ALTER TABLE {more[0]} RENAME TO {table}")
        fill(server, table, 8, 9)
        assert [c.new["id"] for c in followed.one.read(2)] == [7, 8]

    @pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
    def test_another_table_with_its_name_ends_the_job(self, server, table, more, followed, is_running):
        if not is_running:
            followed.one.close()
        server.query(f"CREATE TABLE {more[0]} (LIKE {table} INCLUDING ALL)")
        server.query(f"ALTER PUBLICATION {table} ADD TABLE {more[0]}")
        server.query(
            f"BEGIN; ALTER TABLE {table} RENAME TO {more[1]}; ALTER TABLE {more[0]} RENAME TO {table};"
            f" INSERT INTO {table} VALUES (9, 'other'); COMMIT"
        )
        if not is_running:
            followed.restarted()
        followed.fails(f"public.{table} (is another table now|was dropped and made anew)")

    @pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
    def test_a_table_that_is_made_anew_ends_the_job(self, server, table, followed, is_running):
        if not is_running:
            followed.one.close()
        server.query(f"DROP TABLE {table}")
        server.query(f"CREATE TABLE {table} (id integer PRIMARY KEY, word text)")
        server.query(f"ALTER PUBLICATION {table} ADD TABLE {table}")
        fill(server, table, 9, 10)
        if not is_running:
            followed.restarted()
        followed.fails(f"public.{table} was dropped")

    def test_a_table_that_is_dropped_ends_the_job(self, server, table, followed):
        server.query(f"DROP TABLE {table}")
        followed.fails(f"public.{table} was dropped|There is no such table")

    def test_a_view_is_refused_by_what_it_is(self, server, table):
        server.query(f"CREATE VIEW {table}_v AS SELECT * FROM {table}")
        with pytest.raises(InvalidArgument, match="It is no table, and the log has changes of tables only"):
            source_of(server, f"{table}_v", slot=table).check()
        server.query(f"DROP VIEW {table}_v")


class TestRowsThatAreHidden:
    @pytest.fixture
    def url(self, server, table):
        """Of a role that may read the log and the table, but not all of its rows."""
        role = f"r_{table}"
        server.query(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'follower'; GRANT SELECT ON {table} TO {role}")
        server.query(f"CREATE PUBLICATION {table} FOR TABLE {table}")
        server.query(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON {table} USING (id > 1)")
        fill(server, table, 0, 3)
        yield server.url.replace(f"postgres:{PASSWORD}", f"{role}:follower")
        server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", role)
        server.query(f"DROP OWNED BY {role}; DROP ROLE {role}")

    def test_a_first_load_that_would_lack_them_is_refused(self, table, url):
        with pytest.raises(InvalidArgument, match=f"(?s)public.{table}.*Row security hides rows"):
            mo.read_postgres_changes(url, table, slot=table).check()
        mo.read_postgres_changes(url, table, slot=table, snapshot=False).check()

    def test_row_security_that_begins_later_is_an_error_in_the_server_s_words(self, server, table, url, reading):
        server.query(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        source = mo.read_postgres_changes(url, table, slot=table, page_rows=1)
        source.check()
        server.query(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        one = reading(source)
        with pytest.raises(StorageError, match="row-level security policy") as caught:
            eventually(lambda: one.reader.read(10), "it fails")
        assert caught.value.can_pass is False

    def test_a_table_that_may_not_be_read_is_refused_before_the_start(self, server, table, url):
        server.query(f"REVOKE SELECT ON {table} FROM r_{table}; ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        with pytest.raises(InvalidArgument, match=r"permission denied for table .* GRANT SELECT"):
            mo.read_postgres_changes(url, table, slot=table).check()


class TestInheritance:
    def test_children_have_to_be_named_and_each_row_comes_once(self, server, table, more, reading):
        child = more[0]
        fill(server, table, 0, 2)
        server.query(f"CREATE TABLE {child} (PRIMARY KEY (id)) INHERITS ({table}); INSERT INTO {child} VALUES (5, 'c')")
        with pytest.raises(InvalidArgument, match=f"public.{child} inherit from it"):
            source_of(server, table).check()
        both = Followed(server, reading, source_of(server, [table, child], slot=table), loaded=range(3))
        assert sorted((c.table, c.new["id"]) for c in both.found) == [
            *((f"public.{table}", n) for n in (0, 1)),
            (f"public.{child}", 5),
        ]
        server.query(f"UPDATE {table} SET word = 'new'")
        assert {(c.table, c.new["id"]) for c in both.one.read(3)} == {(c.table, c.new["id"]) for c in both.found}
        server.query(f"CREATE TABLE {more[1]} () INHERITS ({table})")
        both.notices_that(f"partitions of public.{table}, or tables that inherit from it, have come or gone")


class TestPartitions:
    @pytest.fixture
    def table(self, server, name):
        server.query(f"CREATE TABLE {name} (id integer PRIMARY KEY, word text) PARTITION BY RANGE (id)")
        for n in range(2):
            server.query(f"CREATE TABLE {name}_{n} PARTITION OF {name} FOR VALUES FROM ({10 * n}) TO ({10 * n + 10})")
        return name

    def test_the_whole_table_is_emptied(self, server, table, reading):
        fill(server, table, 8, 12)
        all_of_it = Followed(server, reading, source_of(server, table), loaded=range(4))
        server.query(f"UPDATE {table} SET id = 9 + id WHERE id = 9; TRUNCATE {table}")
        found = all_of_it.one.read(3)
        # A row that moves to another partition is deleted and inserted, as in PostgreSQL.
        assert [c.kind for c in found] == ["delete", "insert", "truncate"]
        assert {c.table for c in found} == {f"public.{table}"}

    @pytest.mark.parametrize("change", ["DROP TABLE {t}_1", "ALTER TABLE {t} DETACH PARTITION {t}_1"])
    def test_partitions_that_go_are_shown(self, server, table, reading, change):
        fill(server, table, 8, 12)
        all_of_it = Followed(server, reading, source_of(server, table), loaded=range(4))
        server.query(change.format(t=table))
        all_of_it.notices_that("Rows that did so with them are not in the log")
        fill(server, table, 1, 2)
        assert [c.new["id"] for c in all_of_it.one.read(1)] == [1]
        server.query(f"DROP TABLE IF EXISTS {table}_1")

    def test_a_partition_that_comes_is_read_and_shown(self, server, table, reading):
        # They come every day: that is no change of what rows look like.
        all_of_it = Followed(server, reading, source_of(server, table, on_schema_change="fail"))
        server.query(f"CREATE TABLE {table}_2 PARTITION OF {table} FOR VALUES FROM (20) TO (30)")
        fill(server, table, 25, 26)
        assert [c.new["id"] for c in all_of_it.one.read(1)] == [25]
        all_of_it.notices_that("partitions of")

    def test_a_publication_that_names_partitions_is_refused(self, server, table, reading):
        server.query(f"CREATE PUBLICATION {table} FOR TABLE {table}")
        with pytest.raises(InvalidArgument, match="publish_via_partition_root = true"):
            source_of(server, table).check()

    def test_a_publication_that_names_partitions_from_now_on_ends_the_job(self, server, table, reading):
        all_of_it = Followed(server, reading, source_of(server, table))
        server.query(f"ALTER PUBLICATION {table} SET (publish_via_partition_root = false)")
        fill(server, table, 1, 2)
        all_of_it.fails(f"publication {table} does not have public.{table} any more")


class TestTypesAndKeys:
    @pytest.mark.parametrize(
        "before, change, words",
        [
            ("word text", "ALTER COLUMN word TYPE varchar(20)", "the types of columns of"),
            ("word varchar(10)", "ALTER COLUMN word TYPE varchar(20)", "the types of columns of"),
            ("word text", "RENAME COLUMN word TO name", r"they were \(id, word\) and are \(id, name\)"),
            ("word text", "DROP COLUMN word", r"they were \(id, word\) and are \(id\)"),
            ("word text", "REPLICA IDENTITY FULL", r"the replica identity of .*: of old rows"),
            ("word text", "DROP COLUMN word; ADD COLUMN word text", "columns of public.* are others than they were"),
        ],
        ids=["type", "length", "name", "column", "identity", "remade"],
    )
    def test_changes_of_a_table_are_shown(self, server, name, reading, before, change, words):
        server.query(f"CREATE TABLE {name} (id integer PRIMARY KEY, {before})")
        server.query(f"INSERT INTO {name} VALUES (1, 'a')")
        source = source_of(server, name, on_schema_change="fail")
        one = Followed(server, reading, source, loaded=[1])
        server.query(f"UPDATE {name} SET word = 'b'")
        one.one.read(1)
        for statement in change.split("; "):
            server.query(f"ALTER TABLE {name} {statement}")
        server.query(f"DELETE FROM {name}")
        one.fails(words)

    @pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
    def test_a_key_that_changes_while_the_table_is_loaded_in_its_order(
        self, server, table, reading, is_running, monkeypatch
    ):
        """As numbers 9 is before 10, and as texts after it: a row would be left out."""
        fill(server, table, 0, 100)
        source = source_of(server, table, page_rows=10)
        source.check()
        # It must not be through before the key has changed.
        monkeypatch.setattr("moorline.connectors.postgres.changes.batches.CAPACITY", 5)
        one = reading(source)
        one.read(5, limit=5)
        position = one.position
        if not is_running:
            one.close()
        server.query(f"ALTER TABLE {table} ALTER COLUMN id TYPE text")
        if not is_running:
            one = reading(source, position, attempt=2)
        with pytest.raises(StorageError, match=r"the key of public|operator does not exist"):
            eventually(lambda: one.reader.read(1) and False, "it fails")

    def test_a_key_whose_order_changes_while_the_table_is_loaded(self, server, name, reading):
        server.query(f'CREATE TABLE {name} (id text COLLATE "C" PRIMARY KEY)')
        server.query(f"INSERT INTO {name} SELECT 'k' || n FROM generate_series(1, 50) n")
        source = source_of(server, name, page_rows=10)
        source.check()
        one = reading(source)
        one.read(5, limit=5)
        position = one.position
        one.close()
        server.query(f'ALTER TABLE {name} ALTER COLUMN id TYPE text COLLATE "und-x-icu"')
        two = reading(source, position, attempt=2)
        with pytest.raises(StorageError, match="has changed while it was being loaded in its order"):
            eventually(lambda: two.reader.read(10), "it fails")


class TestLargeValues:
    @pytest.fixture
    def table(self, server, name):
        server.query(f"CREATE TABLE {name} (id integer PRIMARY KEY, large text, n integer)")
        server.query(f"ALTER TABLE {name} ALTER large SET STORAGE EXTERNAL")
        server.query(f"INSERT INTO {name} VALUES (1, repeat('x', 5000), 1)")
        return name

    def test_one_that_was_not_changed_is_marked_also_if_the_key_was(self, server, table, reading):
        one = Followed(server, reading, source_of(server, table), loaded=[1])
        server.query(f"UPDATE {table} SET id = 2; UPDATE {table} SET large = NULL; UPDATE {table} SET n = 3")
        assert short(one.one.read(3)) == [
            ("update", {"id": 1}, {"id": 2, "large": mo.UNCHANGED, "n": 1}),
            ("update", None, {"id": 2, "large": None, "n": 1}),
            ("update", None, {"id": 2, "large": None, "n": 3}),
        ]

    def test_a_key_that_is_large_itself(self, server, name, reading):
        server.query(f"CREATE TABLE {name} (id text PRIMARY KEY, n integer)")
        server.query(f"ALTER TABLE {name} ALTER id SET STORAGE EXTERNAL")
        key = 2500 * "k"
        server.query(f"INSERT INTO {name} VALUES (%s, 1)", key)
        one = Followed(server, reading, source_of(server, name), loaded=[1])
        server.query(f"UPDATE {name} SET n = 2")
        server.query(f"DELETE FROM {name}")
        update, delete = one.one.read(2)
        assert update.new["n"] == 2 and delete.old == {"id": key}
        assert update.new["id"] in (key, mo.UNCHANGED) and (update.old is None or update.old["id"] == key)
        assert update.new["id"] == key or update.old is not None, "the row has a name"


def test_a_slot_that_is_dropped_under_a_running_job_ends_it(server, table, followed):
    def drop():
        server.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", table)
        try:
            server.query("SELECT pg_drop_replication_slot(%s)", table)
        except Exception:  # it is read again already
            return False
        return True

    eventually(drop, "it is dropped")
    followed.fails(f"slot {table} is gone, and with it the changes since")
