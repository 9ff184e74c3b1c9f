"""Changes of PostgreSQL tables as a source, on a real server: first load, log, and what the server may forget."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import quote

import cloudpickle
import psycopg
import pytest
from change_readings import (  # noqa: F401
    Reading,
    fill,
    name_fixture,
    reading_fixture,
    server_fixture,
    short,
    source_of,
    table_fixture,
)
from services import PASSWORD, postgres_server  # noqa: F401
from waiting import PATIENCE, eventually

import moorline as mo
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError, UnreadableRecord
from moorline.testing.contracts.source import SourceContract


class ChangesContract(SourceContract):
    patience = PATIENCE

    def assert_same(self, found, expected):
        super().assert_same([(c.kind, c.table, c.new) for c in found], expected)


class TestRowsThatAreThere(ChangesContract):
    @pytest.fixture
    def source(self, server, table):
        fill(server, table, 0, 100)
        source = source_of(server, table, page_rows=16)
        source.check()
        return source

    @pytest.fixture
    def expected(self, table):
        return [("read", f"public.{table}", {"id": n, "word": f"word {n}"}) for n in range(100)]


class TestLog(ChangesContract):
    @pytest.fixture
    def source(self, server, table):
        source = source_of(server, table, snapshot=False)
        source.check()
        server.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", table)
        for first in (0, 1, 30):  # transactions of different sizes
            fill(server, table, first, {0: 1, 1: 30, 30: 100}[first])
        return source

    @pytest.fixture
    def expected(self, table):
        return [("insert", f"public.{table}", {"id": n, "word": f"word {n}"}) for n in range(100)]


class TestBoth(ChangesContract):
    """The rows are in the table and in the log of the slot, which is older: they come out once."""

    @pytest.fixture
    def source(self, server, table):
        source = source_of(server, table, page_rows=10)
        source.check()
        server.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", table)
        for first in range(0, 60, 20):
            fill(server, table, first, first + 20)
        return source

    @pytest.fixture
    def expected(self, table):
        return [("read", f"public.{table}", {"id": n, "word": f"word {n}"}) for n in range(60)]


class TestChanges:
    def test_each_kind_of_change_comes_out_once_and_in_order(self, server, table, reading):
        fill(server, table, 0, 2)
        source = source_of(server, table)
        source.check()
        one = reading(source)
        assert [c.kind for c in one.read(2)] == ["read", "read"]
        server.query(f"INSERT INTO {table} VALUES (7, 'new')")
        server.query(f"UPDATE {table} SET word = 'other' WHERE id = 7; UPDATE {table} SET id = 8 WHERE id = 7")
        server.query(f"DELETE FROM {table} WHERE id = 0")
        server.query(f"TRUNCATE {table}")
        changes = one.read(5)
        assert short(changes) == [
            ("insert", None, {"id": 7, "word": "new"}),
            ("update", None, {"id": 7, "word": "other"}),
            ("update", {"id": 7}, {"id": 8, "word": "other"}),
            ("delete", {"id": 0}, None),
            ("truncate", None, None),
        ]
        assert {c.table for c in changes} == {f"public.{table}"}
        assert [c.lsn for c in changes] == sorted(c.lsn for c in changes)
        assert changes[1].lsn == changes[2].lsn < changes[3].lsn, "the place of the transaction's end"
        assert all(abs((datetime.now(UTC) - c.committed_at).total_seconds()) < 600 for c in changes)
        assert one.reader.timestamps == [] or len(one.reader.timestamps) <= 5
        one.read_nothing()

    def test_old_rows_are_whole_where_the_table_says_so(self, server, table, reading):
        server.query(f"ALTER TABLE {table} REPLICA IDENTITY FULL; INSERT INTO {table} VALUES (1, 'a')")
        source = source_of(server, table, snapshot=False)
        source.check()
        one = reading(source)
        eventually(lambda: one.reader.read(1) or one.position, "it follows")
        server.query(f"UPDATE {table} SET word = 'b'")
        server.query(f"DELETE FROM {table}")
        before, after = {"id": 1, "word": "a"}, {"id": 1, "word": "b"}
        assert short(one.read(2)) == [("update", before, after), ("delete", after, None)]

    @pytest.mark.parametrize("identity, expected", [("DEFAULT", mo.UNCHANGED), ("FULL", 2000 * "xy")])
    def test_a_large_value_that_was_not_changed_is_marked_or_known(self, server, table, reading, identity, expected):
        server.query(f"ALTER TABLE {table} ALTER word SET STORAGE EXTERNAL, ADD n integer, REPLICA IDENTITY {identity}")
        server.query(f"INSERT INTO {table} VALUES (1, repeat('xy', 2000), 1)")
        source = source_of(server, table)
        source.check()
        one = reading(source)
        assert one.read(1)[0].new["word"] == 2000 * "xy"
        server.query(f"UPDATE {table} SET n = 2")
        (change,) = one.read(1)
        assert change.new == {"id": 1, "word": expected, "n": 2}
        (sent,) = cloudpickle.loads(cloudpickle.dumps([change]))
        assert sent.new["word"] is mo.UNCHANGED or identity == "FULL"

    def test_values_are_the_same_from_the_table_and_from_the_log(self, server, name, reading):
        server.query(
            f"CREATE DOMAIN d_{name} AS numeric(6, 2); CREATE TYPE e_{name} AS ENUM ('sad', 'glad');"
            f" CREATE TABLE {name} (id uuid PRIMARY KEY, n smallint, f double precision, d d_{name}, e e_{name},"
            " b bytea, at timestamptz, day date, span interval, j jsonb, list integer[], words text[], yes boolean,"
            " p point)"
        )
        values = (
            "7, 0.1, 1.5, 'sad', '\\x00ff', '2026-11-18 12:00+02', '2026-01-02', '1 day 2 hours', '{\"a\": [1, null]}',"
            " '{1,NULL}', '{\"a b\",NULL}', true, '(1,2)'"
        )
        server.query(f"INSERT INTO {name} VALUES ('00000000-0000-0000-0000-000000000001', {values})")
        settings = ("DateStyle=German", "TimeZone=Asia/Kolkata", "bytea_output=escape", "IntervalStyle=iso_8601")
        options = quote(" ".join(f"-c {setting}" for setting in settings))
        source = mo.read_postgres_changes(f"{server.url}?options={options}", name, slot=name)
        source.check()
        one = reading(source)
        (loaded,) = one.read(1)
        server.query(f"INSERT INTO {name} VALUES ('00000000-0000-0000-0000-000000000002', {values})")
        (logged,) = one.read(1)
        first, second = ({k: v for k, v in c.new.items() if k != "id"} for c in (loaded, logged))
        assert first == second
        assert first["d"] == Decimal("1.50") and first["e"] == "sad" and first["b"] == b"\x00\xff"
        assert first["at"] == datetime(2026, 11, 18, 10, tzinfo=UTC)
        assert first["j"] == {"a": [1, None]} and first["list"] == [1, None] and first["words"] == ["a b", None]
        assert first["p"] == "(1,2)" and first["yes"] is True

    def test_other_tables_of_the_publication_are_passed_over(self, server, table, reading):
        server.query(f"CREATE TABLE {table}_other (id integer PRIMARY KEY)")
        server.query(f"CREATE PUBLICATION {table} FOR TABLE {table}, {table}_other")
        source = source_of(server, table)
        source.check()
        one = reading(source)
        server.query(f"INSERT INTO {table}_other VALUES (1); TRUNCATE {table}_other, {table}")
        server.query(f"INSERT INTO {table} VALUES (1)")
        assert [c.kind for c in one.read(1)] in (["read"], ["insert"])
        server.query(f"INSERT INTO {table}_other VALUES (2); INSERT INTO {table} VALUES (2)")
        assert [c.new["id"] for c in one.read(1)] == [2]
        server.query(f"DROP TABLE {table}_other")

    def test_several_tables_come_out_of_one_slot(self, server, table, reading):
        server.query(f"CREATE TABLE {table}_b (a text, b integer, PRIMARY KEY (b, a))")
        fill(server, table, 0, 10)
        server.query(f"INSERT INTO {table}_b SELECT 'x' || n, n %% 3 FROM generate_series(1, 10) n")
        source = mo.read_postgres_changes(server.url, [table, f"{table}_b"], slot=table, page_rows=4)
        source.check()
        one = reading(source)
        loaded = one.read(20)
        assert [c.table for c in loaded] == 10 * [f"public.{table}"] + 10 * [f"public.{table}_b"]
        server.query(f"BEGIN; DELETE FROM {table}_b WHERE a = 'x1'; DELETE FROM {table} WHERE id = 1; COMMIT")
        assert short(one.read(2)) == [("delete", {"a": "x1", "b": 1}, None), ("delete", {"id": 1}, None)]
        one.close()
        server.query(f"DROP TABLE {table}_b")

    def test_a_partitioned_table_is_read_as_one(self, server, name, reading):
        server.query(f"CREATE TABLE {name} (id integer PRIMARY KEY, word text) PARTITION BY RANGE (id)")
        for n in range(2):
            create = f"CREATE TABLE {name}_{n} PARTITION OF {name} FOR VALUES FROM ({10 * n}) TO ({10 * n + 10})"
            server.query(create)
        server.query(f"INSERT INTO {name} VALUES (1, 'a'), (11, 'b')")
        source = source_of(server, name)
        source.check()
        one = reading(source)
        assert [c.new["id"] for c in one.read(2)] == [1, 11]
        server.query(f"INSERT INTO {name} VALUES (12, 'c')")
        assert [c.table for c in one.read(1)] == [f"public.{name}"]

    def test_a_transaction_that_is_large_is_read_in_pieces(self, server, table, reading):
        source = source_of(server, table, snapshot=False)
        source.check()
        one = reading(source)
        eventually(lambda: one.reader.read(1) or one.position, "it follows")
        fill(server, table, 0, 5000)
        first = one.read(1234, limit=100)
        position = one.position
        assert position["transaction"][1] == 1234
        one.close()
        two = reading(source, position, attempt=2)
        rest = two.read(5000 - 1234)
        assert [c.new["id"] for c in first + rest] == list(range(5000))
        two.read_nothing()
        assert two.position["transaction"] is None


class TestFirstLoad:
    @pytest.mark.parametrize("seed", range(6))
    def test_rows_that_change_while_they_are_loaded_come_out_right(self, server, name, reading, seed):
        """Each row has a version that counts its changes: what is missing, doubled or too early shows at once."""
        chance = random.Random(seed)
        type, key = chance.choice([("integer", lambda n: n), ("text", lambda n: f"Key {n:x} {n}")])
        server.query(f"CREATE TABLE {name} (k {type} PRIMARY KEY, version integer NOT NULL)")
        with psycopg.connect(server.url) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {name} VALUES (%s, 1)", [(key(n),) for n in range(0, 300, 2)])
        source = source_of(server, name, page_rows=chance.choice([7, 40, 150]))
        source.check()
        stop = threading.Event()

        def write(seed):
            own = random.Random(seed)
            with psycopg.connect(server.url, autocommit=True) as connection:
                while not stop.wait(0.005):
                    self.change_rows(connection, name, key, own)

        threads = [threading.Thread(target=write, args=(10 * seed + n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        rows, attempt = {}, 1
        try:
            one = reading(source)
            for _ in range(5):
                # A crash: what was read after the checkpoint is read again.
                for change in one.read(chance.randrange(40, 120), limit=chance.choice([3, 50])):
                    self.apply(rows, change)
                position, copy = one.position, dict(rows)
                one.read(chance.randrange(1, 60))
                one.close()
                rows, attempt = copy, attempt + 1
                one = reading(source, position, attempt)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

        def is_the_same():
            for change in one.reader.read(1000):
                self.apply(rows, change)
            return rows == dict(server.query(f"SELECT k, version FROM {name}"))

        eventually(is_the_same, "the rows are those of the table")
        one.read_nothing(0.2)
        assert one.position["load"]["done"] == [f"public.{name}"]

    def change_rows(self, connection, name, key, chance):
        place, other = key(chance.randrange(300)), key(chance.randrange(300))
        statement = chance.choice(
            [
                f"INSERT INTO {name} VALUES (%(a)s, 1) ON CONFLICT (k) DO UPDATE SET version = {name}.version + 1",
                f"UPDATE {name} SET version = version + 1 WHERE k = %(a)s",
                f"DELETE FROM {name} WHERE k = %(a)s",
                f"UPDATE {name} SET k = %(b)s, version = version + 1 WHERE k = %(a)s",
            ]
        )
        try:
            connection.execute(statement, {"a": place, "b": other})
        except psycopg.errors.UniqueViolation:
            return

    def apply(self, rows, change):
        old = change.old["k"] if change.old else change.new["k"] if change.new else None
        match change.kind:
            case "read" | "insert":
                assert change.new["k"] not in rows, change
                rows[change.new["k"]] = change.new["version"]
            case "update":
                assert rows.pop(old) + 1 == change.new["version"], change
                assert change.new["k"] not in rows, change
                rows[change.new["k"]] = change.new["version"]
            case "delete":
                del rows[old]

    def test_a_transaction_that_others_cannot_see_yet_is_waited_for(self, server, table, reading):
        """With a synchronous standby it is in the log long before it is visible."""
        fill(server, table, 0, 10)
        source = source_of(server, table, page_rows=5)
        source.check()
        server.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", table)
        server.query("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        server.query("SELECT pg_reload_conf()")
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        with psycopg.connect(server.url) as connection:
            connection.execute(f"UPDATE {table} SET word = 'changed' WHERE id = 9")
            committing = threading.Thread(target=connection.commit)
            committing.start()
            try:
                eventually(lambda: server.query(waits), "it waits for the standby")
                one = reading(source)
                found = one.read(5)
                one.read_nothing(0.5)
                assert server.query(waits)
            finally:
                server.query("ALTER SYSTEM RESET synchronous_standby_names")
                server.query("SELECT pg_reload_conf()")
                committing.join()
            found += one.read(5)
        assert [c.new["word"] for c in found] == [*(f"word {n}" for n in range(9)), "changed"]
        one.read_nothing()

    def test_a_table_that_is_truncated_while_it_is_loaded_is_loaded_anew(self, server, table, reading):
        fill(server, table, 0, 50)
        source = source_of(server, table, page_rows=10)
        source.check()
        one = reading(source)
        rows = {c.new["id"] for c in one.read(15, limit=5)}
        server.query(f"BEGIN; TRUNCATE {table}; INSERT INTO {table} VALUES (3, 'x'), (99, 'y'); COMMIT")

        def is_the_same():
            for change in one.reader.read(7):
                if change.kind == "truncate":
                    rows.clear()
                else:
                    assert change.new["id"] not in rows
                    rows.add(change.new["id"])
            return rows == {3, 99}

        eventually(is_the_same, "what was there after it")
        one.read_nothing()

    def test_a_table_that_is_added_is_loaded_while_the_others_go_on(self, server, table, reading):
        fill(server, table, 0, 3)
        source = source_of(server, table)
        source.check()
        one = reading(source)
        one.read(3)
        eventually(lambda: one.reader.read(1) or one.position["load"]["done"], "it is loaded")
        position = one.position
        one.close()
        server.query(f"CREATE TABLE {table}_more (id integer PRIMARY KEY); INSERT INTO {table}_more VALUES (1), (2)")
        server.query(f"INSERT INTO {table} VALUES (77, 'x')")
        with pytest.raises(InvalidArgument, match="ADD TABLE"):
            mo.read_postgres_changes(server.url, [table, f"{table}_more"], slot=table).check()
        server.query(f"ALTER PUBLICATION {table} ADD TABLE {table}_more")
        wider = mo.read_postgres_changes(server.url, [table, f"{table}_more"], slot=table)
        wider.check()
        two = reading(wider, position, attempt=2)
        found = {(c.kind, c.table.removeprefix("public."), c.new["id"]) for c in two.read(3)}
        assert found == {("insert", table, 77), ("read", f"{table}_more", 1), ("read", f"{table}_more", 2)}
        two.close()
        server.query(f"DROP TABLE {table}_more")

    def test_a_load_that_has_not_ended_cannot_be_left_out_later(self, server, table, reading):
        fill(server, table, 0, 50)
        source = source_of(server, table, page_rows=10)
        source.check()
        one = reading(source)
        one.read(5, limit=5)
        position = one.position
        one.close()
        two = reading(source_of(server, table, snapshot=False), position, attempt=2)
        with pytest.raises(StorageError, match="has not ended"):
            eventually(lambda: two.reader.read(10), "it fails")


class TestWhatTheServerMayForget:
    def confirmed(self, server, table):
        select = "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        return int(server.query(select, table)[0][0])

    def follow(self, server, table, reading, **options):
        source = source_of(server, table, snapshot=False, **options)
        source.check()
        one = reading(source)
        eventually(lambda: one.reader.read(1) or one.position, "it follows")
        return source, one

    def test_nothing_is_confirmed_before_a_checkpoint_is_complete(self, server, table, reading):
        _, one = self.follow(server, table, reading, retained=1)
        before = self.confirmed(server, table)
        fill(server, table, 0, 10)
        one.read(10)
        one.checkpoint(1, complete=False)
        time.sleep(0.5)
        assert self.confirmed(server, table) == before

    def test_the_place_of_a_complete_checkpoint_is_confirmed_and_no_more(self, server, table, reading):
        _, one = self.follow(server, table, reading, retained=1)
        fill(server, table, 0, 10)
        one.read(10)
        position = one.checkpoint(1)
        fill(server, table, 10, 20)
        one.read(10)
        eventually(lambda: self.confirmed(server, table) == position["lsn"], "it is confirmed")

    def test_as_many_checkpoints_as_are_retained_can_be_gone_back_to(self, server, table, reading):
        source, one = self.follow(server, table, reading, retained=3)
        positions = []
        for number in range(1, 7):
            fill(server, table, 10 * number, 10 * number + 10)
            one.read(10)
            # The last change may come before the end of its transaction: such a position still begins before it.
            eventually(lambda: one.reader.read(1) or not one.position.get("transaction"), "the transaction has ended")
            positions.append(one.checkpoint(number))
        eventually(lambda: self.confirmed(server, table) == positions[3]["lsn"], "the third last one is confirmed")
        one.close()
        two = reading(source, positions[3], attempt=2)
        assert [c.new["id"] for c in two.read(20)] == list(range(50, 70))
        two.close()
        three = reading(source, positions[2], attempt=3)
        with pytest.raises(StorageError) as caught:
            eventually(lambda: three.reader.read(10), "it fails")
        gap = positions[3]["lsn"] - positions[2]["lsn"]
        assert f"the changes in {gap} bytes of log between them are gone" in str(caught.value)
        assert caught.value.can_pass is False

    def test_a_checkpoint_that_was_never_complete_is_not_counted(self, server, table, reading):
        _, one = self.follow(server, table, reading, retained=2)
        fill(server, table, 0, 5)
        one.read(5)
        first = one.checkpoint(1)
        for number in (2, 3, 4):
            fill(server, table, 10 * number, 10 * number + 5)
            one.read(5)
            one.checkpoint(number, complete=False)
        one.checkpoint(5)
        eventually(lambda: self.confirmed(server, table) == first["lsn"], "the first one is confirmed")

    def test_the_log_of_other_tables_does_not_pile_up(self, server, table, reading):
        _, one = self.follow(server, table, reading, retained=1)
        server.query(f"CREATE TABLE {table}_loud (n integer)")
        before = one.position["lsn"]
        server.query(f"INSERT INTO {table}_loud SELECT generate_series(1, 1000); DROP TABLE {table}_loud")
        eventually(lambda: one.reader.read(1) or one.position["lsn"] > before + 10_000, "the place moves")
        position = one.checkpoint(1)
        eventually(lambda: self.confirmed(server, table) == position["lsn"], "it is confirmed")

    def test_what_is_not_read_and_what_is_kept_is_counted(self, server, table, reading):
        _, one = self.follow(server, table, reading)
        fill(server, table, 0, 5000)
        eventually(lambda: one.reader.read(1) and one.context.counters["log_bytes_behind"] > 10_000, "it is behind")
        assert one.context.counters["log_bytes_kept"] >= one.context.counters["log_bytes_behind"]
        one.read(4990)
        while one.reader.read(100):
            pass
        eventually(lambda: one.reader.read(1) == [] and one.context.counters["log_bytes_behind"] == 0, "it is not")


class TestRefusals:
    def going_on(self, server, table, reading, change, **options):
        fill(server, table, 0, 3)
        source = source_of(server, table, **options)
        source.check()
        one = reading(source)
        one.read(3)
        position = change(one.position)
        one.close()
        two = reading(source, position, attempt=2)
        with pytest.raises(StorageError) as caught:
            eventually(lambda: two.reader.read(10), "it fails")
        assert caught.value.can_pass is False and PASSWORD not in str(caught.value)
        return str(caught.value)

    def test_a_slot_that_is_gone(self, server, table, reading):
        fill(server, table, 0, 3)
        source = source_of(server, table)
        source.check()
        one = reading(source)
        one.read(3)
        position = one.position
        one.close()
        is_read = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
        eventually(lambda: not server.query(is_read, table), "it is free")
        server.query("SELECT pg_drop_replication_slot(%s)", table)
        two = reading(source, position, attempt=2)
        with pytest.raises(StorageError, match="is gone, and with it the changes since"):
            eventually(lambda: two.reader.read(10), "it fails")

    def test_another_database_cluster(self, server, table, reading):
        said = self.going_on(server, table, reading, lambda position: {**position, "system": "123"})
        assert "the position is from the database cluster 123" in said

    def test_a_server_that_is_behind(self, server, table, reading):
        said = self.going_on(server, table, reading, lambda position: {**position, "lsn": 1 << 60})
        assert "it has gone back to a backup" in said

    def test_a_transaction_that_is_not_where_it_was(self, server, table, reading):
        fill(server, table, 0, 3)
        source = source_of(server, table)
        source.check()
        one = reading(source)
        one.read(3)
        position = {**one.position, "transaction": [one.position["lsn"] + 8, 2]}
        one.close()
        fill(server, table, 10, 13)
        two = reading(source, position, attempt=2)
        with pytest.raises(StorageError, match="was read in part, and the log goes on with"):
            eventually(lambda: two.reader.read(10), "it fails")

    @pytest.mark.parametrize("bad", [7, [], {}, {"system": 1, "lsn": 2}, {"system": "1", "lsn": "x"}])
    def test_a_position_that_is_none(self, server, table, bad):
        with pytest.raises(SnapshotCorrupt):
            Reading(source_of(server, table), bad)

    def test_columns_that_change_are_noticed(self, server, table, reading):
        notices = []
        source = source_of(server, table)
        source.check()
        one = reading(source, notice=lambda kind, text: notices.append(text))
        fill(server, table, 0, 1)
        one.read(1)
        server.query(f"INSERT INTO {table} VALUES (5, 'a')")
        one.read(1)
        server.query(f"ALTER TABLE {table} ADD COLUMN more integer DEFAULT 3; INSERT INTO {table} VALUES (6, 'b', 4)")
        assert short(one.read(1)) == [("insert", None, {"id": 6, "word": "b", "more": 4})]
        one.reader.read(1)
        assert notices == [f"the columns of public.{table} have changed: they were (id, word) and are (id, word, more)"]

    def test_columns_that_change_are_an_error_if_that_was_asked_for_also_after_a_restart(self, server, table, reading):
        source = source_of(server, table, on_schema_change="fail")
        source.check()
        one = reading(source)
        eventually(lambda: one.reader.read(1) or one.position, "it follows")
        server.query(f"INSERT INTO {table} VALUES (5, 'a')")
        one.read(1)
        position = one.position
        one.close()
        server.query(f"ALTER TABLE {table} ALTER word TYPE varchar(20); INSERT INTO {table} VALUES (6, 'b')")
        two = reading(source, position, attempt=2)
        with pytest.raises(StorageError, match="the types of columns of public"):
            eventually(lambda: two.reader.read(10), "it fails")

    def test_a_value_that_python_cannot_hold(self, server, table, reading):
        server.query(f"ALTER TABLE {table} ADD COLUMN day date; INSERT INTO {table} VALUES (1, 'a', 'infinity')")
        source = source_of(server, table)
        source.check()
        one = reading(source)
        with pytest.raises(UnreadableRecord, match="its column 'day' is 'infinity'"):
            eventually(lambda: one.reader.read(10), "it fails")
        one.close()
        server.query(f"INSERT INTO {table} VALUES (2, 'b', '2026-01-01')")
        tag = mo.OutputTag("broken")
        two = reading(source_of(server, table, on_error=tag), attempt=2, notice=lambda kind, text: None)
        found, broken = [], []
        while len(found) + len(broken) < 2:
            found += two.reader.read(10)
            broken += (two.reader.side_outputs or {}).get("broken", [])
        assert [c.new["id"] for c in found] == [2]
        assert broken[0].origin == f"public.{table}" and two.context.counters["broken_records"] == 1


class TestCheck:
    def refused(self, server, tables, **options):
        with pytest.raises(InvalidArgument) as caught:
            mo.read_postgres_changes(server.url, tables, **{"slot": "check_slot", **options}).check()
        assert PASSWORD not in str(caught.value)
        assert server.query("SELECT 1 FROM pg_publication WHERE pubname = 'check_slot'") == []
        return str(caught.value)

    def test_a_table_that_is_not_there(self, server):
        assert "There is no such table" in self.refused(server, "no_such_table")

    def test_a_table_whose_rows_have_no_name(self, server, name):
        server.query(f"CREATE TABLE {name} (n integer)")
        assert "It has no replica identity" in self.refused(server, name)
        server.query(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        assert "no primary key to load it by" in self.refused(server, name)
        source_of(server, name, snapshot=False).check()

    def test_a_publication_that_lacks_something(self, server, table):
        server.query(f"CREATE TABLE {table}_b (id integer PRIMARY KEY); CREATE PUBLICATION {table} FOR TABLE {table}_b")
        assert f"It has public.{table}_b" in self.refused(server, table, publication=table)
        server.query(f"ALTER PUBLICATION {table} SET TABLE {table} WHERE (id > 3)")
        assert "It has a filter" in self.refused(server, table, publication=table)
        source_of(server, table, snapshot=False).check()
        server.query(f"ALTER PUBLICATION {table} SET TABLE {table}; ALTER PUBLICATION {table} SET (publish = 'insert')")
        assert "leaves out some kinds of changes" in self.refused(server, table, publication=table)
        server.query(f"DROP TABLE {table}_b")

    def test_a_slot_of_another_kind(self, server, table):
        server.query("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", table)
        with pytest.raises(InvalidArgument, match="for test_decoding of database postgres"):
            source_of(server, table).check()

    def test_a_role_that_may_not_read_the_log(self, server, table, reading):
        server.query("CREATE ROLE follower LOGIN PASSWORD 'follower'")
        try:
            url = server.url.replace(f"postgres:{PASSWORD}", "follower:follower")
            source = mo.read_postgres_changes(url, table, slot=table)
            with pytest.raises(InvalidArgument, match="ALTER ROLE … REPLICATION"):
                source.check()
            server.query(f"ALTER ROLE follower REPLICATION; ALTER TABLE {table} OWNER TO follower")
            server.query("GRANT CREATE ON DATABASE postgres TO follower")
            source.check()
            fill(server, table, 0, 2)
            one = reading(source)
            assert len(one.read(2)) == 2, "it needs no more than that"
            one.close()
        finally:
            server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'follower'")
            server.query("REASSIGN OWNED BY follower TO postgres; DROP OWNED BY follower; DROP ROLE follower")

    @pytest.mark.parametrize(
        "options, cause",
        [
            ({"tables": []}, "Name each table once"),
            ({"tables": ["a", "a"]}, "Name each table once"),
            ({"slot": "Bad-Name"}, "Use small letters"),
            ({"slot": ""}, "Use small letters"),
            ({"publication": ""}, "Give a name"),
            ({"retained": 0}, "It is at least 1"),
            ({"page_rows": 0}, "It is at least 1"),
            ({"on_schema_change": "x"}, 'It is "notice" or "fail"'),
            ({"patience": -1}, "Give them in seconds"),
            ({"on_error": "x"}, "It is 'fail', 'skip', or an OutputTag"),
        ],
    )
    def test_options_that_make_no_sense(self, options, cause):
        with pytest.raises(InvalidArgument) as caught:
            mo.read_postgres_changes("postgresql://localhost/x", **{"tables": ["a"], "slot": "s", **options})
        assert cause in str(caught.value)

    def test_the_password_is_shown_nowhere(self, server):
        wrong = mo.read_postgres_changes(server.url.replace(PASSWORD, "wr0ng-word"), "t", slot="s")
        shown = [repr(wrong), repr(vars(wrong))]
        with pytest.raises(StorageError) as caught:
            wrong.check()
        shown.append(str(caught.value))
        assert not [text for text in shown if PASSWORD in text or "wr0ng-word" in text]
