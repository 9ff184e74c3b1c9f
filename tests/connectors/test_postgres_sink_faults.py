"""PostgreSQL as a sink while things go wrong: killed servers, lost answers, zombies, tables that change."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from services import PASSWORD, Proxy, postgres_server  # noqa: F401
from waiting import PATIENCE, eventually

import moorline as mo
from moorline.api.sinks import SinkContext
from moorline.errors import StorageError

names = itertools.count(1)
LINE = "ab" * 16
GATE = itertools.count(1000)


@pytest.fixture
def server(postgres_server):  # noqa: F811
    return postgres_server


@pytest.fixture
def table(server):
    name = f"fault_{next(names)}"
    server.query(f"CREATE TABLE {name} (number bigint PRIMARY KEY, text text)")
    return name


def write(server, table, url=None, **options):
    sink = mo.write_postgres(url or server.url, table, **{"marker_table": f"{table}_markers", **options})
    return sink


def context(subtask=0, attempt=1, outage=lambda cause: None):
    return SinkContext("shop", "out", subtask, 2, attempt, lineage=LINE, outage=outage)


def staged(sink, numbers, checkpoint=1, subtask=0):
    writer = sink.open(context(subtask))
    writer.write([{"number": n, "text": f"{n}"} for n in numbers])
    return writer.prepare(checkpoint)


def numbers(server, table):
    return [n for (n,) in server.query(f"SELECT number FROM {table} ORDER BY 1")]


@contextmanager
def gate(server, table):
    """Inserts stop in the middle of the transaction until this is left."""
    lock = next(GATE)
    server.query(
        f"CREATE FUNCTION {table}_stop() RETURNS trigger LANGUAGE plpgsql AS"
        f" 'BEGIN PERFORM pg_advisory_xact_lock_shared({lock}); RETURN NULL; END'"
    )
    server.query(f"CREATE TRIGGER stop AFTER INSERT ON {table} EXECUTE FUNCTION {table}_stop()")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (lock,))
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
        yield lambda: eventually(lambda: server.query(waiting, lock), "a commit is in the middle")


class TestServerThatGoesAway:
    @pytest.mark.parametrize("mode, key", [("append", None), ("upsert", "number")])
    def test_a_server_that_is_killed_in_the_middle_of_a_commit_has_the_rows_once(self, server, table, mode, key):
        sink = write(server, table, mode=mode, key=key)
        sink.check()
        shown = []
        committer = sink.open_subtask_committer(context(outage=shown.append))
        committer.commit(staged(sink, range(5)))
        with ThreadPoolExecutor(1) as pool:
            with gate(server, table) as is_in_the_middle:
                committing = pool.submit(committer.commit, staged(sink, range(5, 10), checkpoint=2))
                is_in_the_middle()
                server.crash()
            waits = not committing.done()
            server.start()
            committing.result(PATIENCE)
        assert waits, "for the server to come back"
        committer.close()
        assert numbers(server, table) == list(range(10))
        assert shown[-1] is None and any("OperationalError" in cause for cause in shown[:-1])
        assert not any(PASSWORD in (cause or "") for cause in shown)

    def test_a_server_that_stays_away_fails_the_attempt_and_the_next_one_commits(self, server, table):
        sink = write(server, table, patience=0.3)
        sink.check()
        committables = staged(sink, range(3))
        committer = sink.open_subtask_committer(context())
        server.stop()
        try:
            with pytest.raises(StorageError, match="could not commit checkpoint 1 to PostgreSQL table") as caught:
                committer.commit(committables)
        finally:
            server.start()
        committer.close()
        assert caught.value.can_pass is True
        write(server, table).commit(committables)
        assert numbers(server, table) == [0, 1, 2]

    @pytest.mark.parametrize("answer", [b"COPY", b"COMMIT", b"INSERT INTO"])
    def test_a_commit_whose_answer_got_lost_is_asked_about(self, server, table, answer):
        proxy = Proxy(server.port)
        sink = write(server, table, server.url.replace(str(server.port), str(proxy.port)))
        sink.check()
        committer = sink.open_subtask_committer(context())
        for checkpoint in (1, 2, 3):
            committables = staged(sink, range(10 * checkpoint, 10 * checkpoint + 10), checkpoint)
            proxy.cut_after = answer
            committer.commit(committables)
        assert proxy.cuts == 3
        assert numbers(server, table) == list(range(10, 40))
        committer.close()
        proxy.close()

    def test_connections_that_are_cut_all_the_time_lose_and_double_nothing(self, server, table):
        sink = write(server, table)
        sink.check()
        stop = threading.Event()

        def cut_connections():
            kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'moorline%%'"
            while not stop.wait(0.02):
                server.query(kill)

        with ThreadPoolExecutor(3) as pool:
            cutting = pool.submit(cut_connections)
            try:
                writers = [pool.submit(self.commit_all, sink, subtask) for subtask in (0, 1)]
                for writer in writers:
                    writer.result(PATIENCE)
            finally:
                stop.set()
            cutting.result()
        assert numbers(server, table) == list(range(200))

    def commit_all(self, sink, subtask):
        committer = sink.open_subtask_committer(context(subtask))
        for checkpoint in range(1, 11):
            first = 100 * subtask + 10 * (checkpoint - 1)
            committer.commit(staged(sink, range(first, first + 10), checkpoint, subtask))
        committer.close()


class TestTwoAtOnce:
    def test_a_second_commit_waits_for_the_first_and_writes_nothing(self, server, table):
        sink = write(server, table)
        sink.check()
        committables = staged(sink, range(10))
        first, second = (sink.open_subtask_committer(context(attempt=attempt)) for attempt in (1, 2))
        with ThreadPoolExecutor(2) as pool:
            with gate(server, table) as is_in_the_middle:
                one = pool.submit(first.commit, committables)
                is_in_the_middle()
                two = pool.submit(second.commit, committables)
                waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'transactionid'"
                eventually(lambda: server.query(waiting), "the second waits for the marker")
                assert not one.done() and not two.done()
            one.result(PATIENCE), two.result(PATIENCE)
        first.close(), second.close()
        assert numbers(server, table) == list(range(10))

    def test_a_zombie_that_stops_in_the_middle_does_not_hold_up_its_successor(self, server, table):
        sink = write(server, table, timeout=1.0)
        sink.check()
        committables = staged(sink, range(10))
        zombie = sink.open_subtask_committer(context())
        release, is_stopped = threading.Event(), threading.Event()
        # It stops between two commands, as if its machine did.
        pause = lambda *_: (is_stopped.set(), release.wait(PATIENCE))  # noqa: E731
        with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
            patch.setattr("moorline.connectors.postgres.writing.committing.RowTransaction.write", pause)
            stopped = pool.submit(zombie.commit, committables)
            assert is_stopped.wait(PATIENCE)
            patch.undo()
            successor = sink.open_subtask_committer(context(attempt=2))
            successor.commit(committables)
            assert numbers(server, table) == list(range(10))
            release.set()
            stopped.result(PATIENCE)
        zombie.close(), successor.close()
        assert numbers(server, table) == list(range(10))

    def test_subtasks_that_meet_in_the_same_rows_come_to_an_end(self, server, table):
        sink = write(server, table, mode="upsert", key="number")
        sink.check()
        begin = threading.Barrier(4)

        def commit(subtask):
            keys = list(range(400))[:: 1 if subtask % 2 else -1]
            committables = staged(sink, keys, subtask=subtask)
            committer = sink.open_subtask_committer(context(subtask))
            begin.wait(PATIENCE)
            committer.commit(committables)
            committer.close()

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(commit, subtask) for subtask in range(4)]:
                done.result(PATIENCE)
        assert numbers(server, table) == list(range(400))


class TestEnds:
    def test_a_commit_that_waits_for_a_server_ends_when_the_subtask_does(self, server, table):
        sink = write(server, table, patience=600)
        sink.check()
        committables = staged(sink, range(3))
        away = threading.Event()
        committer = sink.open_subtask_committer(context(outage=lambda cause: away.set()))
        server.stop()
        try:
            with ThreadPoolExecutor(1) as pool:
                committing = pool.submit(committer.commit, committables)
                assert away.wait(PATIENCE)
                committer.close()
                with pytest.raises(StorageError):
                    committing.result(PATIENCE)
        finally:
            server.start()

    def test_a_commit_in_the_middle_is_cut_when_the_subtask_ends(self, server, table):
        sink = write(server, table, timeout=300)
        sink.check()
        committer = sink.open_subtask_committer(context())
        with ThreadPoolExecutor(1) as pool, gate(server, table) as is_in_the_middle:
            committing = pool.submit(committer.commit, staged(sink, range(3)))
            is_in_the_middle()
            committer.close()
            with pytest.raises(StorageError):
                committing.result(PATIENCE)
        assert numbers(server, table) == []

    def test_no_connection_and_no_thread_is_left_behind(self, server, table):
        sink = write(server, table)
        sink.check()
        committer = sink.open_subtask_committer(context())
        committer.commit(staged(sink, range(3)))
        committer.close()
        left = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'moorline shop out%%'"
        eventually(lambda: not server.query(left), "the connection is closed")
        assert not [t for t in threading.enumerate() if "watchdog" in t.name]


class TestChangedTables:
    def test_rows_that_were_staged_before_a_column_got_wider_are_written(self, server, table):
        server.query(f"ALTER TABLE {table} ALTER number TYPE integer, ALTER text TYPE varchar(20)")
        for mode, key, first in (("append", None, 0), ("upsert", "number", 10)):
            sink = write(server, table, mode=mode, key=key)
            sink.check()
            committables = staged(sink, range(first, first + 3), checkpoint=first + 1)
            server.query(f"ALTER TABLE {table} ALTER number TYPE bigint, ALTER text TYPE text")
            sink.commit(committables)
            server.query(f"ALTER TABLE {table} ALTER number TYPE integer, ALTER text TYPE varchar(20)")
        assert server.query(f"SELECT number, text FROM {table} ORDER BY 1") == [
            (n, str(n)) for n in (0, 1, 2, 10, 11, 12)
        ]

    def test_a_column_that_is_gone_is_an_error_in_the_servers_words(self, server, table):
        sink = write(server, table)
        sink.check()
        committables = staged(sink, range(3))
        server.query(f"ALTER TABLE {table} DROP COLUMN text")
        with pytest.raises(StorageError, match='column "text" of relation') as caught:
            sink.commit(committables)
        assert caught.value.can_pass is False
        server.query(f"ALTER TABLE {table} ADD COLUMN text text")
        sink.commit(committables)
        assert numbers(server, table) == [0, 1, 2]

    def test_a_row_that_the_table_refuses_is_an_error_in_the_servers_words(self, server, table):
        sink = write(server, table)
        sink.check()
        server.query(f"ALTER TABLE {table} ADD CHECK (number < 2)")
        with pytest.raises(StorageError, match="violates check constraint") as caught:
            sink.commit(staged(sink, range(3)))
        assert caught.value.can_pass is False
        assert numbers(server, table) == [], "all rows of a checkpoint or none"

    def test_a_type_that_is_gone_is_named(self, server):
        name = f"fault_{next(names)}"
        server.query(f"CREATE TYPE kind_{name} AS ENUM ('a'); CREATE TABLE {name} (number kind_{name})")
        sink = write(server, name)
        sink.check()
        writer = sink.open(context())
        writer.write([{"number": "a"}])
        committables = writer.prepare(1)
        server.query(f"ALTER TABLE {name} ALTER number TYPE text; DROP TYPE kind_{name}")
        with pytest.raises(StorageError, match="there is no such type any more"):
            sink.commit(committables)


def test_somebody_who_reads_all_the_time_sees_whole_checkpoints(server, table):
    sink = write(server, table)
    sink.check()
    seen, stop = [], threading.Event()

    def read():
        with psycopg.connect(server.url, autocommit=True) as connection:
            while not stop.is_set():
                seen.append(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
                time.sleep(0)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        committer = sink.open_subtask_committer(context())
        for checkpoint in range(20):
            committer.commit(staged(sink, range(7 * checkpoint, 7 * checkpoint + 7), checkpoint + 1))
        committer.close()
        stop.set()
        reading.result(PATIENCE)
    assert all(count % 7 == 0 for count in seen) and seen == sorted(seen)
    assert len(set(seen)) > 3
