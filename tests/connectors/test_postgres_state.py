"""State in PostgreSQL, on a real server."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import psutil
import psycopg
import pytest
from external_worker import add_one, backend_over, checkpoint
from services import PASSWORD, Proxy, free_port, postgres_server  # noqa: F401
from waiting import PATIENCE, eventually

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from moorline.connectors.postgres.state import postgres_state
from moorline.errors import ExternalStateBehind, InvalidArgument, StorageError
from moorline.model.key_groups import KeyGroupRange
from moorline.state.external.backend import ExternalBackend
from moorline.testing.contracts.external import ExternalStoreContract, change, mark_of, owner
from moorline.testing.contracts.external_runs import ExternalRun

names = itertools.count(1)
WORKER = Path(__file__).parent / "external_worker.py"


@pytest.fixture
def server(postgres_server):  # noqa: F811
    return postgres_server


@pytest.fixture
def store(server):
    return postgres_state(server.url, table=f"state_{next(names)}")


def query(server, text, *parameters):
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(text, parameters)
        return cursor.fetchall() if cursor.description else []


class TestPostgresStore(ExternalStoreContract):
    @pytest.fixture
    def store(self, store):
        return store


class TestWhatPeopleSee:
    def test_keys_and_values_can_be_read_with_sql(self, server, store):
        groups = KeyGroupRange(0, 16)
        backend = ExternalBackend("op", 16, store=store, job="shop", key_groups=groups)
        total = backend.bind(ValueStateDescriptor("total", float))
        items = backend.bind(ListStateDescriptor("items", str))
        pages = backend.bind(MapStateDescriptor("pages", str, int))
        for key in ("ann", ("bob", 2)):
            backend.prefetch([key])
            backend.current.key = key
            total.update(1.5)
            items.update(["a", "größe", "zero\0byte"] if key == "ann" else ["b"])
            pages.put_all({"home": 1})
        assert query(server, f"SELECT 1 FROM {store.table}") == []
        checkpoint(backend, 4, 0)
        backend.confirmed(4)
        select = f"SELECT state, key_text, value_json, checkpoint, attempt FROM {store.table} WHERE job = 'shop'"
        assert sorted(query(server, select), key=str) == [
            ("items", "('bob', 2)", ["b"], 4, 1),
            ("items", "ann", None, 4, 1),  # PostgreSQL has no text with a zero byte
            ("pages", "('bob', 2)", {"home": 1}, 4, 1),
            ("pages", "ann", {"home": 1}, 4, 1),
            ("total", "('bob', 2)", 1.5, 4, 1),
            ("total", "ann", 1.5, 4, 1),
        ]
        backend.close()

    def test_a_readable_form_that_is_refused_does_not_keep_the_state_from_being_stored(self, server, store):
        with TestPostgresStore().session(store, owner()) as session:
            bad = change(b"a", b"1")
            session.apply(1, [change(b"b", b"2"), type(bad)(bad.place, bad.content, bad.key_text, "{not json")])
        assert sorted(query(server, f"SELECT key, value, value_json FROM {store.table}")) == [
            (b"a", b"1", None),
            (b"b", b"2", None),
        ]

    def test_without_the_readable_form_there_are_only_bytes(self, server):
        store = postgres_state(server.url, table=f"state_{next(names)}", readable=False)
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        checkpoint(backend, 1, 0)
        backend.confirmed(1)
        assert query(server, f"SELECT key_text, value_json FROM {store.table}") == [("", None)]
        backend.close()

    def test_rows_that_somebody_else_wrote_are_an_error_with_a_name(self, server, store):
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        checkpoint(backend, 1, 0)
        backend.confirmed(1)
        backend.close()
        query(server, f"UPDATE {store.table} SET value = 'rubbish'")
        again, _ = backend_over(store, 2, checkpoint(backend, 2, 1), restored=2)
        with pytest.raises(StorageError, match="could not read the stored document of 'a' in state 'count'"):
            again.prefetch(["a"])
        again.close()
        query(server, f"UPDATE {store.table}_marks SET types = 'rubbish'")
        with pytest.raises(StorageError, match="is not what was written there"):
            backend_over(store, 3)

    def test_a_name_that_postgresql_does_not_take_is_an_error_with_a_name(self, store):
        with (
            TestPostgresStore().session(store, owner()) as session,
            pytest.raises(StorageError, match="apply checkpoint 1"),
        ):
            session.apply(1, [change(b"a", b"1", state="zero\0byte")])


class TestTables:
    def test_subtasks_that_start_at_once_make_the_tables_once(self, server):
        for _ in range(3):
            store, ready = postgres_state(server.url, table=f"state_{next(names)}"), threading.Barrier(8)

            def start(first, store=store, ready=ready):
                ready.wait()
                with TestPostgresStore().session(store, owner(1, first, first + 1)) as session:
                    session.apply(1, [change(b"k", b"1", first)])

            with ThreadPoolExecutor(8) as pool:
                for done in [pool.submit(start, n) for n in range(8)]:
                    done.result()

    def test_a_table_of_another_kind_is_left_alone(self, server):
        query(server, "CREATE TABLE customers (id integer)")
        with pytest.raises(StorageError, match="was not made by Moorline"):
            backend_over(postgres_state(server.url, table="customers"), 1)
        assert query(server, "SELECT * FROM customers") == []

    def test_a_table_may_be_in_a_schema(self, server):
        query(server, 'CREATE SCHEMA "Other"')
        store = postgres_state(server.url, table="Other.State")
        with TestPostgresStore().session(store, owner()) as session:
            session.apply(1, [change(b"k", b"1")])
        assert query(server, 'SELECT key FROM "Other"."State"') == [(b"k",)]

    @pytest.mark.parametrize("table", ["", "a b", 'x"; DROP TABLE y; --', "a.b.c", "1a", "x" * 51, "größe"])
    def test_names_that_could_be_anything_else_are_refused(self, table):
        with pytest.raises(InvalidArgument, match="table for state"):
            postgres_state("postgresql://localhost/x", table=table)

    def test_no_connection_is_left_behind(self, server, store):
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        backend.close()
        select = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'moorline killed'"
        eventually(lambda: query(server, select) == [(0,)], "the connection is closed")
        assert not [t for t in threading.enumerate() if "watchdog" in t.name]


class TestSecrets:
    def test_the_password_is_not_shown(self, server, store):
        wrong = postgres_state(server.url.replace(PASSWORD, "wr0ng-word"), table="x", patience=0.2)
        away = postgres_state(f"postgresql://me:{PASSWORD}@127.0.0.1:{free_port()}/x", table="x", patience=0.2)
        told = [repr(store), store.where, store.label, repr(wrong)]
        for refused in (wrong, away):
            with pytest.raises(StorageError) as caught:
                backend_over(refused, 1)
            told += [str(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__)]
        for url in (f"mysql://{PASSWORD}@x", f"postgresql://me:{PASSWORD}@host:port/x", PASSWORD):
            with pytest.raises(InvalidArgument) as bad:
                postgres_state(url, table="x")
            told.append(str(bad.value))
        assert not [text for text in told if PASSWORD in text or "wr0ng-word" in text]
        assert f"at 127.0.0.1:{server.port}/postgres" in store.where

    def test_keywords_will_do_for_a_url(self, server):
        url = f"host=127.0.0.1 port={server.port} user=postgres password='{PASSWORD}' dbname=postgres"
        store = postgres_state(url, table=f"state_{next(names)}")
        assert PASSWORD not in store.where
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        backend.close()


class TestFaults:
    @pytest.mark.parametrize("moment", ["before", "during", "after"])
    def test_a_worker_that_is_killed_around_the_transaction_loses_nothing(self, server, store, tmp_path, moment):
        (tmp_path / "store").write_bytes(cloudpickle.dumps(store))
        killed = subprocess.run([sys.executable, str(WORKER), str(tmp_path), moment], timeout=600, check=False)
        assert killed.returncode == -signal.SIGKILL
        seen = query(server, f"SELECT DISTINCT value_json, checkpoint FROM {store.table}")
        assert seen == [(2, 2) if moment == "after" else (1, 1)]
        parts = cloudpickle.loads((tmp_path / "parts-2").read_bytes())
        backend, count = backend_over(store, 2, parts, restored=2)
        assert query(server, f"SELECT DISTINCT value_json, checkpoint FROM {store.table}") == [(2, 2)]
        add_one(backend, count, range(20))
        checkpoint(backend, 3, 2)
        backend.confirmed(3)
        assert query(server, f"SELECT value_json, count(*) FROM {store.table} GROUP BY 1") == [(3, 20)]
        backend.close()

    def test_a_line_that_is_cut_during_the_commit_is_asked_about(self, server):
        proxy = Proxy(server.port)
        url = server.url.replace(str(server.port), str(proxy.port))
        store = postgres_state(url, table=f"state_{next(names)}")
        backend, count = backend_over(store, 1)
        for number in range(1, 6):
            add_one(backend, count, ["a", "b"])
            checkpoint(backend, number, number - 1)
            proxy.cut_after = b"COMMIT"
            backend.confirmed(number)
        assert proxy.cuts == 5
        assert query(server, f"SELECT key_text, value_json, checkpoint FROM {store.table} ORDER BY 1") == [
            ("a", 5, 5),
            ("b", 5, 5),
        ]
        backend.close()
        proxy.close()

    def test_a_server_that_is_restarted_is_waited_for(self, server, store):
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        checkpoint(backend, 1, 0)
        server.stop(signal.SIGQUIT)  # at once, as in a crash
        with ThreadPoolExecutor(1) as pool:
            confirmed = pool.submit(backend.confirmed, 1)
            time.sleep(0.3)
            server.start()
            confirmed.result(PATIENCE)
        add_one(backend, count, ["a", "b"])
        assert count.value() == 1
        checkpoint(backend, 2, 1)
        backend.confirmed(2)
        assert query(server, f"SELECT key_text, value_json FROM {store.table} ORDER BY 1") == [("a", 2), ("b", 1)]
        backend.close()

    def test_a_server_that_stays_away_fails_the_attempt(self, server):
        store = postgres_state(server.url, table=f"state_{next(names)}", patience=0.5)
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        parts = checkpoint(backend, 1, 0)
        server.stop()
        try:
            with pytest.raises(StorageError, match="could not apply checkpoint 1 to PostgreSQL table"):
                backend.confirmed(1)
        finally:
            server.start()
        backend.close()
        again, count = backend_over(store, 2, parts, restored=1)
        assert query(server, f"SELECT key_text, value_json FROM {store.table}") == [("a", 1)]
        again.close()

    def test_a_server_process_that_hangs_is_given_up(self, server):
        store = postgres_state(server.url, table=f"state_{next(names)}", timeout=2.0)
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        ((pid,),) = query(server, "SELECT pid FROM pg_stat_activity WHERE application_name = 'moorline killed'")
        os.kill(pid, signal.SIGSTOP)
        try:
            add_one(backend, count, ["b"])  # while the process stands still: it is not waited for
            assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
        finally:
            os.kill(pid, signal.SIGCONT)
        backend.close()

    def test_a_database_that_was_put_back_to_a_backup_is_noticed(self, server, store):
        backend, count = backend_over(store, 1)
        for number in (1, 2, 3):
            add_one(backend, count, ["a"])
            parts = checkpoint(backend, number, number - 1)
            backend.confirmed(number)
            if number == 1:
                query(server, f"CREATE TABLE backup_{store.table} AS SELECT * FROM {store.table}_marks")
        backend.close()
        query(server, f"DELETE FROM {store.table}_marks")
        query(server, f"INSERT INTO {store.table}_marks SELECT * FROM backup_{store.table}")
        with pytest.raises(ExternalStateBehind) as caught:
            backend_over(store, 2, parts, restored=3)
        assert (caught.value.needed, caught.value.reached) == (2, 1)

    def test_somebody_who_reads_all_the_time_sees_whole_checkpoints_and_never_an_older_one(self, server, store):
        backend, count = backend_over(store, 1)
        complete, seen, stop = [0], [], threading.Event()

        def read():
            with psycopg.connect(server.url, autocommit=True) as connection:
                while not stop.is_set():
                    rows = connection.execute(f"SELECT value_json FROM {store.table}").fetchall()
                    seen.append((sorted(value for (value,) in rows), complete[0]))

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            for number in range(1, 41):
                add_one(backend, count, ["a", "b", "c"])
                checkpoint(backend, number, number - 1)
                complete[0] = number
                backend.confirmed(number)
            stop.set()
            reading.result(PATIENCE)
        for (values, known), (later, _) in itertools.pairwise(seen):
            assert values in ([], 3 * [values[0] if values else 0])
            assert not values or values[0] <= known
            assert values <= later
        assert len({tuple(values) for values, _ in seen}) > 5
        backend.close()

    def test_each_record_counts_once_while_connections_are_cut(self, server, store):
        stop = threading.Event()

        def cut_connections():
            while not stop.wait(0.15):
                kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'moorline%%'"
                query(server, kill)

        with ThreadPoolExecutor(1) as pool:
            cutting = pool.submit(cut_connections)
            try:
                run = ExternalRun(store, 3)
                run.play(60)
                run.finish()
            finally:
                stop.set()
            cutting.result()


def test_a_mark_is_not_taken_from_another_table(server, store):
    other = postgres_state(server.url, table=f"state_{next(names)}")
    with TestPostgresStore().session(store, owner(5)), TestPostgresStore().session(other, owner(1)) as session:
        session.apply(1, [change(b"a", b"1")])
    assert TestPostgresStore().marks(other) == [mark_of(owner(1), 1)]
