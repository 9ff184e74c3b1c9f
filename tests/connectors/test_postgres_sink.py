"""PostgreSQL as a sink, on a real server: what it promises, what it writes, and what it refuses."""

from __future__ import annotations

import itertools
from collections import namedtuple
from dataclasses import dataclass
from datetime import datetime

import msgspec
import pytest
from services import PASSWORD, free_port, postgres_server  # noqa: F401
from thoroughness import examples

import moorline as mo
from moorline.api.sinks import SinkContext
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError
from moorline.state.types import plain
from moorline.testing.contracts.sink import SinkContract

names = itertools.count(1)
LINE, OTHER_LINE = "ab" * 16, "cd" * 16


@pytest.fixture
def server(postgres_server):  # noqa: F811
    return postgres_server


@pytest.fixture
def table(server):
    """A table with a key, a text and a number."""
    name = f"sink_{next(names)}"
    server.query(f"CREATE TABLE {name} (number bigint PRIMARY KEY, text text, amount integer DEFAULT 7)")
    return name


def write(server, table, **options):
    """The sink. The tests' jobs are called the same, so each table has markers of its own."""
    return mo.write_postgres(server.url, table, **{"marker_table": f"{table}_markers", **options})


def rows(server, table, columns="number, text"):
    return server.query(f"SELECT {columns} FROM {table} ORDER BY 1, 2")


def context(subtask=0, attempt=1, lineage=LINE, restored=(), job="shop"):
    return SinkContext(job, "out", subtask, 2, attempt, restored, lineage)


def staged(sink, records, checkpoint=1, **where):
    """What a new writer stages for some records, as it comes back from a snapshot."""
    writer = sink.open(context(**where))
    writer.write(records)
    return plain.decode(plain.encode(writer.prepare(checkpoint)))


def written(sink, *records, **where):
    sink.check()
    sink.commit(staged(sink, list(records), **where))


class TestAppend(SinkContract):
    can_roll_back = False

    @pytest.fixture
    def sink(self, server, table):
        sink = write(server, table, columns=["number", "text"])
        sink.check()
        return sink

    @pytest.fixture
    def visible(self, server, table):
        return lambda: [{"number": n, "text": t} for n, t in rows(server, table)]


class TestUpsert(SinkContract):
    can_roll_back = False
    crash_seeds = examples(5)

    @pytest.fixture
    def sink(self, server, table):
        sink = write(server, table, mode="upsert", key="number")
        sink.check()
        return sink

    @pytest.fixture
    def visible(self, server, table):
        return lambda: [{"number": n, "text": t} for n, t in rows(server, table)]


class TestRecords:
    def test_what_has_names_for_its_parts_is_a_row(self, server, table):
        @dataclass
        class Plain:
            number: int
            text: str

        class Typed(msgspec.Struct):
            number: int
            text: str

        Named = namedtuple("Named", "number text")
        written(write(server, table), Plain(1, "a"), Typed(2, "b"), Named(3, "c"), {"number": 4, "text": "d"})
        assert rows(server, table) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]

    def test_a_column_that_a_record_lacks_gets_its_default_and_none_is_null(self, server, table):
        records = [{"number": 1}, {"number": 2, "amount": None}, {"amount": 3, "number": 3}]
        written(write(server, table), *records)
        assert rows(server, table, "number, amount, text") == [(1, 7, None), (2, None, None), (3, 3, None)]

    def test_more_rows_than_fit_into_a_piece_arrive(self, server, table, monkeypatch):
        monkeypatch.setattr("moorline.connectors.postgres.writing.rows.CHUNK_BYTES", 200)
        many = [{"number": n, "text": f"record {n}"} for n in range(500)]
        sink = write(server, table)
        sink.check()
        (committable,) = staged(sink, many)
        assert len(committable["parts"][0]["chunks"]) > 50
        sink.commit([committable])
        assert rows(server, table) == [(n, f"record {n}") for n in range(500)]

    @pytest.mark.parametrize(
        "record, cause",
        [
            ({"number": "one"}, "its column 'number' is bigint: the str 'one' is not a whole number"),
            ({"number": 1 << 63}, "9223372036854775808 is out of its range"),
            ({"number": None}, "its column 'number' is part of the key or NOT NULL"),
            ({"text": "x"}, "it has no 'number', which cannot be null and has no default"),
            ({"number": 1, "txet": "x"}, "the table has no column 'txet'"),
            ({"number": 1, "text": "a\0b"}, "PostgreSQL has no text with the character 0"),
            ({"number": 1, "text": mo.UNCHANGED}, "its column 'text' is UNCHANGED"),
            ({"number": 1, 2: 3}, "the table has no column 2"),
            (7, "a int has no column names"),
        ],
    )
    def test_a_record_that_does_not_fit_is_refused_before_the_checkpoint(self, server, table, record, cause):
        sink = write(server, table)
        sink.check()
        with pytest.raises(UnfitRecord) as caught:
            sink.open(context()).write([record])
        assert cause in str(caught.value)
        assert caught.value.can_pass is False
        assert PASSWORD not in str(caught.value)

    def test_a_writer_asks_the_server_for_the_columns_if_nothing_was_checked(self, server, table):
        sink = write(server, table)
        committables = staged(sink, [{"number": 1}])
        sink.check()
        sink.commit(committables)
        assert rows(server, table) == [(1, None)]


class TestKeys:
    def test_the_last_record_of_a_key_wins(self, server, table):
        sink = write(server, table, mode="upsert", key="number")
        records = [{"number": n % 3, "text": f"{n}"} for n in range(10)]
        written(sink, *records)
        assert rows(server, table) == [(0, "9"), (1, "7"), (2, "8")]
        sink.commit(staged(sink, [{"number": 1, "text": "new"}, {"number": 5, "text": "other"}], checkpoint=2))
        assert rows(server, table) == [(0, "9"), (1, "new"), (2, "8"), (5, "other")]

    def test_a_column_that_a_record_lacks_stays_as_it_is(self, server, table):
        server.query(f"INSERT INTO {table} VALUES (1, 'kept', 5), (2, 'kept', 5)")
        sink = write(server, table, mode="upsert", key=["number"])
        written(sink, {"number": 1, "amount": 6}, {"number": 2, "text": "a"}, {"number": 2, "amount": 9})
        assert rows(server, table, "number, text, amount") == [(1, "kept", 6), (2, "a", 9)]

    @pytest.mark.parametrize(
        "records, expected",
        [
            ([mo.Delete({"number": 1})], []),
            ([mo.Delete({"number": 2, "text": "of no account"})], [(1, "old", 5)]),
            ([{"number": 1, "text": "new"}, mo.Delete({"number": 1})], []),
            # It comes back without what it had before.
            ([mo.Delete({"number": 1}), {"number": 1, "text": "new"}], [(1, "new", 7)]),
            ([mo.Delete({"number": 1}), {"number": 1, "text": "new"}, {"number": 1, "amount": 3}], [(1, "new", 3)]),
        ],
    )
    def test_a_row_is_deleted_by_its_key(self, server, table, records, expected):
        server.query(f"INSERT INTO {table} VALUES (1, 'old', 5)")
        written(write(server, table, mode="upsert", key="number"), *records)
        assert rows(server, table, "number, text, amount") == expected

    def test_a_row_to_be_deleted_has_its_key(self, server, table):
        sink = write(server, table, mode="upsert", key="number")
        sink.check()
        with pytest.raises(UnfitRecord, match="it has no 'number', and is to be deleted by it"):
            sink.open(context()).write([mo.Delete({"text": "x"})])

    def test_keys_of_several_columns_and_types_are_found_again(self, server):
        name = f"sink_{next(names)}"
        columns = "b varchar(9), price numeric(8, 2), a timestamptz(3), n integer"
        server.query(f"CREATE TABLE {name} ({columns}, UNIQUE (a, b, price))")
        key = ["a", "b", "price"]
        sink = write(server, name, mode="upsert", key=key)
        sink.check()
        at = "2026-11-18T12:00:00.125+01:00"
        same = [
            {"a": datetime.fromisoformat(time), "b": "x", "price": price, "n": n}
            for n, (time, price) in enumerate([(at, 1), (at.replace("12:", "11:").replace("+01", "+00"), 1.0)])
        ]
        sink.commit(staged(sink, same))
        assert server.query(f"SELECT b, price::text, n FROM {name}") == [("x", "1.00", 1)]
        sink.commit(staged(sink, [mo.Delete(same[0])], checkpoint=2))
        assert server.query(f"SELECT count(*) FROM {name}") == [(0,)]

    def test_a_table_of_keys_alone_can_be_written(self, server):
        name = f"sink_{next(names)}"
        server.query(f"CREATE TABLE {name} (word text PRIMARY KEY)")
        sink = write(server, name, mode="upsert", key="word")
        written(sink, {"word": "to"}, {"word": "be"}, {"word": "to"})
        sink.commit(staged(sink, [{"word": "be"}, mo.Delete({"word": "to"})], checkpoint=2))
        assert server.query(f"SELECT word FROM {name}") == [("be",)]


def change(kind, old=None, new=None):
    return mo.Change(kind, "public.orders", old, new, 1)


class TestApply:
    @pytest.fixture
    def sink(self, server, table):
        sink = write(server, table, mode="apply", key="number")
        sink.check()
        return sink

    def test_changes_make_a_copy_of_the_table(self, server, table, sink):
        changes = [
            change("read", new={"number": 1, "text": "a", "amount": 1}),
            change("insert", new={"number": 2, "text": "b", "amount": 1}),
            change("insert", new={"number": 3, "text": "c", "amount": 1}),
            change("update", new={"number": 1, "text": "a2", "amount": 1}),
            change("delete", old={"number": 2}),
            change("update", old={"number": 3}, new={"number": 4, "text": "c", "amount": 2}),
        ]
        sink.commit(staged(sink, changes))
        assert rows(server, table, "number, text, amount") == [(1, "a2", 1), (4, "c", 2)]

    def test_a_column_that_was_not_sent_stays_as_it_is(self, server, table, sink):
        server.query(f"INSERT INTO {table} VALUES (1, 'large', 1)")
        sink.commit(staged(sink, [change("update", new={"number": 1, "text": mo.UNCHANGED, "amount": 2})]))
        assert rows(server, table, "number, text, amount") == [(1, "large", 2)]

    def test_a_column_that_was_not_sent_is_taken_from_the_change_before(self, server, table, sink):
        changes = [
            change("insert", new={"number": 1, "text": "large", "amount": 1}),
            change("update", new={"number": 1, "text": mo.UNCHANGED, "amount": 2}),
            change("update", old={"number": 1}, new={"number": 2, "text": "larger", "amount": 2}),
            change("update", new={"number": 2, "text": mo.UNCHANGED, "amount": 3}),
        ]
        sink.commit(staged(sink, changes))
        assert rows(server, table, "number, text, amount") == [(2, "larger", 3)]

    def test_a_row_that_is_not_there_cannot_be_changed_in_part(self, server, table, sink):
        committables = staged(sink, [change("update", new={"number": 1, "text": mo.UNCHANGED, "amount": 2})])
        with pytest.raises(StorageError, match="1 of 1 rows that are to be updated are not there"):
            sink.commit(committables)
        server.query(f"INSERT INTO {table} VALUES (1, 'now it is', 1)")
        sink.commit(committables)
        assert rows(server, table, "number, text, amount") == [(1, "now it is", 2)]

    @pytest.mark.parametrize(
        "record, cause",
        [
            (change("truncate"), "all rows of a table were removed at once"),
            ({"number": 1}, "a dict is no change"),
            (change("update", new={"number": mo.UNCHANGED, "text": "x"}), "'number' of the key is UNCHANGED"),
            (change("delete", old={"text": "x"}), "it has no 'number'"),
        ],
    )
    def test_what_cannot_be_applied_is_refused(self, sink, record, cause):
        with pytest.raises(UnfitRecord) as caught:
            sink.open(context()).write([record])
        assert cause in str(caught.value)


class TestCheck:
    def refused(self, sink):
        with pytest.raises(InvalidArgument) as caught:
            sink.check()
        assert PASSWORD not in str(caught.value)
        return str(caught.value)

    def test_a_table_that_is_not_there(self, server):
        assert "There is no such table at 127.0.0.1" in self.refused(write(server, "no_such_table"))

    def test_columns_that_are_not_there(self, server, table):
        said = self.refused(write(server, table, columns=["number", "txet"]))
        assert "has the columns number, text, amount" in said

    def test_columns_that_leave_out_what_is_needed(self, server, table):
        assert "leave out number" in self.refused(write(server, table, columns=["text"]))

    def test_a_key_without_a_unique_index(self, server, table):
        said = self.refused(write(server, table, mode="upsert", key=["text"]))
        assert "has no unique index on it; rows are unique by number" in said

    def test_a_key_of_values_that_may_be_equal_though_they_differ(self, server):
        name = f"sink_{next(names)}"
        server.query(f"CREATE TABLE {name} (at double precision PRIMARY KEY, c char(4) UNIQUE)")
        for key in ("at", "c"):
            said = self.refused(write(server, name, mode="upsert", key=key))
            assert "values that differ may be equal to PostgreSQL" in said

    def test_a_type_that_cannot_be_written(self, server):
        name = f"sink_{next(names)}"
        server.query(f"CREATE TABLE {name} (n integer, at point)")
        assert "It is point" in self.refused(write(server, name, columns=["n", "at"]))
        sink = write(server, name)
        sink.check()
        with pytest.raises(UnfitRecord, match="its column 'at' is point"):
            sink.open(context()).write([{"n": 1, "at": "(1,2)"}])

    def test_a_column_whose_values_postgresql_makes(self, server):
        name = f"sink_{next(names)}"
        server.query(f"CREATE TABLE {name} (id bigint GENERATED ALWAYS AS IDENTITY, word text)")
        assert "made by PostgreSQL" in self.refused(write(server, name, columns=["id", "word"]))
        sink = write(server, name)
        written(sink, {"word": "to"}, {"word": "be"})
        assert rows(server, name, "id, word") == [(1, "to"), (2, "be")]
        with pytest.raises(UnfitRecord, match="the values of its column 'id' are made by PostgreSQL"):
            sink.open(context()).write([{"id": 1, "word": "x"}])

    def test_a_table_of_markers_that_is_not_one(self, server, table):
        said = self.refused(write(server, table, marker_table=table))
        assert "was not made by Moorline" in said

    def test_a_role_that_may_not_write(self, server, table):
        server.query("CREATE ROLE reader LOGIN PASSWORD 'reader'")
        server.query("CREATE SCHEMA IF NOT EXISTS readers; GRANT ALL ON SCHEMA readers TO reader")
        server.query(f"GRANT SELECT ON {table} TO reader")
        url = server.url.replace(f"postgres:{PASSWORD}", "reader:reader")
        sink = mo.write_postgres(url, table, marker_table="readers.markers")
        with pytest.raises(StorageError, match="permission denied for table") as caught:
            sink.check()
        assert caught.value.can_pass is False
        server.query(f"GRANT INSERT ON {table} TO reader")
        sink.check()
        with pytest.raises(StorageError, match="permission denied for table"):
            mo.write_postgres(url, table, mode="upsert", key="number", marker_table="readers.markers").check()

    def test_checking_leaves_nothing_behind_but_the_table_of_markers(self, server, table):
        marker = f"markers_{next(names)}"
        for mode, key in (("append", None), ("upsert", "number"), ("apply", "number")):
            write(server, table, mode=mode, key=key, marker_table=marker).check()
        assert rows(server, table) == []
        assert server.query(f"SELECT count(*) FROM {marker}") == [(0,)]

    def test_a_server_that_refuses_is_quoted_without_the_password(self, server, table):
        wrong = mo.write_postgres(server.url.replace(PASSWORD, "wr0ng-word"), table)
        away = mo.write_postgres(f"postgresql://me:{PASSWORD}@127.0.0.1:{free_port()}/x", table)
        shown = [repr(wrong), str(vars(away.table)["database"])]
        for sink, can_pass in ((wrong, False), (away, True)):
            with pytest.raises(StorageError) as caught:
                sink.check()
            shown += [str(caught.value), repr(caught.value.__cause__)]
            assert caught.value.can_pass is can_pass
        assert "password authentication failed" in shown[2]
        assert not [text for text in shown if PASSWORD in text or "wr0ng-word" in text]

    @pytest.mark.parametrize(
        "options, cause",
        [
            ({"mode": "insert"}, "It is one of append, upsert, apply"),
            ({"mode": "upsert"}, "Name the columns that tell rows apart"),
            ({"key": "number"}, "Rows are only added: leave it out"),
            ({"columns": "number"}, "Give a list of names"),
            ({"columns": []}, "Give a list of names"),
            ({"patience": -1}, "Give them in seconds"),
            ({"timeout": 0}, "Give them in seconds"),
            ({"on_missing_markers": "x"}, "It is one of fail, ignore"),
            ({"on_roll_back": "undo"}, "It is one of fail, repeat"),
            ({"marker_table": "a.b.c"}, "Give the name of a table"),
        ],
    )
    def test_options_that_make_no_sense(self, options, cause):
        with pytest.raises(InvalidArgument) as caught:
            mo.write_postgres("postgresql://localhost/x", "t", **options)
        assert cause in str(caught.value)

    def test_addresses_and_names_that_are_none(self):
        for dsn in ("mysql://me:s3cret@x", "s3cret", 7):
            with pytest.raises(InvalidArgument) as caught:
                mo.write_postgres(dsn, "t")
            assert "s3cret" not in str(caught.value)
        for table in ("", "a.b.c", ".x", None):
            with pytest.raises(InvalidArgument, match="Give the name of a table"):
                mo.write_postgres("postgresql://localhost/x", table)


class TestMarkers:
    def test_the_markers_say_how_far_each_slot_is(self, server, table):
        marker = f"markers_{next(names)}"
        sink = write(server, table, marker_table=marker)
        sink.check()
        for subtask, checkpoint in ((0, 1), (1, 1), (0, 2)):
            records = [{"number": 10 * subtask + checkpoint}]
            sink.commit(staged(sink, records, checkpoint, subtask=subtask))
        select = f"SELECT job, uid, lineage, slot, checkpoint FROM {marker} ORDER BY slot"
        assert server.query(select) == [("shop", "out", LINE, 0, 2), ("shop", "out", LINE, 1, 1)]

    def test_a_job_that_begins_anew_has_markers_of_its_own(self, server, table):
        sink = write(server, table)
        sink.check()
        for first, lineage in ((1, LINE), (10, OTHER_LINE)):
            sink.commit(staged(sink, [{"number": first}], checkpoint=1, lineage=lineage))
        assert [n for n, _ in rows(server, table)] == [1, 10]

    @pytest.mark.parametrize("loss", ["TRUNCATE {}", "UPDATE {} SET checkpoint = 1", "DELETE FROM {}"])
    def test_markers_that_are_behind_what_was_committed_are_an_error(self, server, table, loss):
        marker = f"markers_{next(names)}"
        sink = write(server, table, marker_table=marker)
        sink.check()
        writer = sink.open(context())
        for checkpoint in (1, 2):
            writer.write([{"number": checkpoint}])
            sink.commit(writer.prepare(checkpoint))
        server.query(loss.format(marker))
        writer.write([{"number": 3}])
        committables = writer.prepare(3)
        with pytest.raises(StorageError) as caught:
            sink.commit(committables)
        assert "checkpoint 2 of job 'shop', sink 'out', slot 0 was committed" in str(caught.value)
        assert caught.value.can_pass is False
        assert [n for n, _ in rows(server, table)] == [1, 2]
        write(server, table, marker_table=marker, on_missing_markers="ignore").commit(committables)
        assert [n for n, _ in rows(server, table)] == [1, 2, 3]

    def test_lost_markers_are_noticed_after_a_restart_at_another_parallelism(self, server, table):
        marker = f"markers_{next(names)}"
        sink = write(server, table, marker_table=marker)
        sink.check()
        states = []
        for subtask in (0, 1):
            writer = sink.open(context(subtask))
            writer.write([{"number": subtask}])
            sink.commit(writer.prepare(1))
            states += plain.decode(plain.encode(writer.snapshot()))
        server.query(f"DELETE FROM {marker} WHERE slot = 1")
        # One subtask alone gets what both have left.
        writer = sink.open(context(0, attempt=2, restored=tuple(states)))
        writer.write([{"number": 7}])
        with pytest.raises(StorageError, match="slot 1 was committed"):
            sink.commit(writer.prepare(2))

    def test_a_savepoint_of_another_job_is_gone_on_from(self, server, table):
        sink = write(server, table)
        sink.check()
        writer = sink.open(context())
        writer.write([{"number": 1}])
        left = writer.prepare(5)
        states = tuple(writer.snapshot())
        sink.commit(left)  # as a start does with what it finds
        again = sink.open(context(job="renamed", lineage=OTHER_LINE, restored=states))
        again.write([{"number": 2}])
        sink.commit(left)
        sink.commit(again.prepare(6))
        assert [n for n, _ in rows(server, table)] == [1, 2]

    def test_a_batch_that_is_run_again_writes_again(self, server, table):
        sink = write(server, table, mode="append")
        sink.check()
        for number in (1, 2):
            sink.commit(staged(sink, [{"number": number}], lineage=""))
        assert [n for n, _ in rows(server, table)] == [1, 2]

    def test_markers_of_old_batches_are_removed(self, server, table):
        marker = f"markers_{next(names)}"
        sink = write(server, table, marker_table=marker)
        sink.check()
        sink.commit(staged(sink, [{"number": 1}], lineage=""))
        server.query(f"UPDATE {marker} SET committed_at = now() - interval '2 days'")
        sink.commit(staged(sink, [{"number": 2}]))
        sink.commit(staged(sink, [{"number": 3}], lineage=""))
        assert server.query(f"SELECT count(*) FROM {marker}") == [(2,)]


class TestHostileCommittables:
    def good(self, sink):
        sink.check()
        (committable,) = staged(sink, [{"number": 1, "text": "a"}])
        return committable

    def test_what_was_not_staged_here_is_refused(self, server, table):
        sink = write(server, table)
        good = self.good(sink)
        (part,) = good["parts"]
        for bad in (
            None,
            7,
            {},
            {**good, "slot": "0"},
            {**good, "more": 1},
            {**good, "parts": [{**part, "kind": "drop"}]},
        ):
            with pytest.raises(SnapshotCorrupt):
                sink.commit([bad])
        with pytest.raises(SnapshotCorrupt):
            sink.commit([{**good, "parts": [{**part, "chunks": [[5, b"not compressed"]]}]}])
        assert rows(server, table) == []

    def test_names_in_a_snapshot_do_not_become_sql(self, server, table):
        sink = write(server, table)
        good = self.good(sink)
        (part,) = good["parts"]
        for types in (["integer); DROP TABLE x; --", "text"], ["integer", f"text) ; DROP TABLE {table} --"]):
            with pytest.raises(StorageError):
                sink.commit([{**good, "parts": [{**part, "types": types}]}])
        with pytest.raises(StorageError):
            sink.commit([{**good, "parts": [{**part, "columns": ["number", 'text") VALUES (1)--']}]}])
        assert rows(server, table) == []
        sink.commit([good])
        assert rows(server, table) == [(1, "a")]
