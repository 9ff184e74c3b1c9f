"""Changes of PostgreSQL tables while things go wrong: killed servers, half-dead readers, readers that do not read."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import quote

import psycopg
import pytest
from services import PASSWORD, Proxy, postgres_server  # noqa: F401
from waiting import eventually

import moorline as mo
from moorline.api.sources import SourceContext
from moorline.connectors.postgres.changes.batches import Batches, ChangeBatch
from moorline.connectors.postgres.changes.position import Position
from moorline.errors import StorageError

names = itertools.count(1)


@pytest.fixture
def server(postgres_server):  # noqa: F811
    return postgres_server


@pytest.fixture
def table(server):
    name = f"faults_{next(names)}"
    server.query(f"CREATE TABLE {name} (id integer PRIMARY KEY, word text)")
    yield name
    server.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", name)
    is_read = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
    eventually(lambda: not server.query(is_read, name), "the slot is free")
    server.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", name)
    server.query(f"DROP PUBLICATION IF EXISTS {name}; DROP TABLE {name}")


def fill(server, table, first, end):
    server.query(f"INSERT INTO {table} SELECT n, 'word ' || n FROM generate_series({first}, {end - 1}) n")


@pytest.fixture
def opened():
    readers = []

    def open_reader(source, position=None, attempt=1, **context):
        positions = {} if position is None else {0: position}
        readers.append(source.open(SourceContext("uid", 0, 1, attempt, positions, **context)))
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.close()


def read(reader, count):
    found = []

    def has_all():
        found.extend(reader.read(count - len(found)))
        return len(found) >= count

    eventually(has_all, f"{count} changes")
    return found


def source_of(server, table, url=None, **options):
    source = mo.read_postgres_changes(url or server.url, table, **{"slot": table, **options})
    source.check()
    return source


class TestServerThatGoesAway:
    @pytest.mark.parametrize("snapshot", [True, False], ids=["load", "log"])
    def test_a_server_that_is_killed_in_the_middle_is_waited_for(self, server, table, opened, snapshot):
        shown = []
        source = source_of(server, table, snapshot=snapshot, page_rows=100)
        reader = opened(source, outage=shown.append)
        eventually(lambda: reader.read(1) or reader.positions(), "it follows")
        if snapshot:
            # Begin anew, with rows that were there before the slot was.
            reader.close()
            server.query("SELECT pg_drop_replication_slot(%s)", table)
        fill(server, table, 0, 3000)
        if snapshot:
            reader = opened(source, attempt=2, outage=shown.append)
        found = read(reader, 500)
        server.crash()
        server.start()
        found += read(reader, 3000 - len(found))
        assert sorted(c.new["id"] for c in found) == list(range(3000))
        assert {c.kind for c in found} <= {"read", "insert"}
        fill(server, table, 5000, 5010)
        assert [c.new["id"] for c in read(reader, 10)] == list(range(5000, 5010))
        # Nothing is shown if the server was back before anybody asked for it a second time.
        assert shown[-1:] in ([], [None]) and not any(PASSWORD in (cause or "") for cause in shown)

    def test_a_server_that_stays_away_fails_the_attempt(self, server, table, opened):
        source = source_of(server, table, patience=0.3)
        reader = opened(source)
        eventually(lambda: reader.read(1) or reader.positions(), "it follows")
        positions = reader.positions()
        server.stop()
        try:
            with pytest.raises(StorageError, match="could not read the changes of PostgreSQL tables") as caught:
                eventually(lambda: reader.read(10), "it gives up")
        finally:
            server.start()
        assert caught.value.can_pass is True
        assert reader.positions() == positions

    def test_lines_that_are_cut_lose_and_double_nothing(self, server, table, opened):
        source = source_of(server, table, page_rows=50)
        fill(server, table, 0, 400)
        reader = opened(source)
        stop = threading.Event()

        def cut():
            kill = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'moorline %%uid%%'"
            )
            while not stop.wait(0.15):
                server.query(kill)

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            found = []
            for first in range(1000, 1300, 30):
                fill(server, table, first, first + 30)
                found += read(reader, 40)
        finally:
            stop.set()
            thread.join()
        found += read(reader, 700 - len(found))
        assert sorted(c.new["id"] for c in found) == [*range(400), *range(1000, 1300)]

    def test_a_server_that_does_not_answer_is_given_up(self, server, table, opened):
        shown = []
        source = source_of(server, table, timeout=1.0)
        reader = opened(source, outage=shown.append)
        eventually(lambda: reader.read(1) or reader.positions(), "it follows")
        ((pid,),) = server.query("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", table)
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: reader.read(1) or shown, "it notices")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "the server has sent nothing for 1 s" in shown[0]
        fill(server, table, 0, 5)
        assert len(read(reader, 5)) == 5


READER = """
import sys, time
import moorline as mo
from moorline.api.sources import SourceContext
url, table, attempt = sys.argv[1:]
source = mo.read_postgres_changes(url, table, slot=table)
reader = source.open(SourceContext("uid", 0, 1, int(attempt)))
while not reader.positions():
    reader.read(1)
print("reads", flush=True)
while True:
    reader.read(100)
    time.sleep(0.01)
"""


class TestHalfDeadReaders:
    @pytest.fixture
    def process(self, server, table):
        """Another process that reads the slot."""
        source_of(server, table)
        started = []

        def start(attempt):
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            command = [sys.executable, "-c", READER, server.url, table, str(attempt)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
            started.append(process)
            assert process.stdout.readline() == b"reads\n"
            return process

        yield start
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()

    def test_a_reader_that_was_killed_frees_the_slot(self, server, table, opened, process):
        process(1).kill()
        fill(server, table, 0, 5)
        reader = opened(source_of(server, table), attempt=1)
        assert len(read(reader, 5)) == 5

    def test_a_reader_that_is_half_dead_is_ended_by_a_later_attempt(self, server, table, opened, process):
        zombie = process(1)
        zombie.send_signal(signal.SIGSTOP)
        fill(server, table, 0, 5)
        reader = opened(source_of(server, table), attempt=2)
        assert len(read(reader, 5)) == 5
        zombie.send_signal(signal.SIGCONT)
        fill(server, table, 5, 10)
        assert [c.new["id"] for c in read(reader, 5)] == list(range(5, 10)), "it does not get the slot back"

    def test_another_reader_of_the_same_slot_is_waited_for_and_then_named(self, server, table, opened, process):
        process(7)
        shown = []
        reader = opened(source_of(server, table, patience=1.0), attempt=2, outage=shown.append)
        with pytest.raises(StorageError, match=r"replication slot \"faults_\d+\" is active for PID"):
            eventually(lambda: reader.read(1), "it gives up")
        assert "is active for PID" in shown[0]


class TestReadersThatDoNotRead:
    def test_the_server_is_answered_while_nobody_takes_what_is_there(self, server, table, opened, monkeypatch):
        monkeypatch.setattr("moorline.connectors.postgres.changes.batches.CAPACITY", 10)
        monkeypatch.setattr("moorline.connectors.postgres.changes.follower.REPORT_SECONDS", 0.2)
        shown = []
        url = f"{server.url}?options={quote('-c wal_sender_timeout=4s')}"
        reader = opened(source_of(server, table, url), outage=shown.append)
        eventually(lambda: reader.read(1) or reader.positions(), "it follows")
        pid = server.query("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", table)
        fill(server, table, 0, 2000)
        time.sleep(9)  # twice that and more
        assert server.query("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", table) == pid
        assert [c.new["id"] for c in read(reader, 2000)] == list(range(2000))
        assert shown == []

    def test_what_waits_is_bounded(self, server, table, opened, monkeypatch):
        monkeypatch.setattr("moorline.connectors.postgres.changes.batches.CAPACITY", 100)
        reader = opened(source_of(server, table, snapshot=False))
        eventually(lambda: reader.read(1) or reader.positions(), "it follows")
        fill(server, table, 0, 20_000)
        eventually(lambda: len(reader.batches) >= 100, "something waits")
        time.sleep(0.5)
        assert len(reader.batches) < 100 + 3000
        assert len(read(reader, 20_000)) == 20_000

    def test_places_without_changes_take_no_room(self):
        batches = Batches()
        for lsn in range(100):
            assert batches.put(ChangeBatch(Position("1", lsn)), 1)
        assert batches.take().after.lsn == 99 and batches.take() is None

    def test_a_reader_that_is_closed_leaves_no_thread_and_no_connection(self, server, table, opened):
        fill(server, table, 0, 50_000)
        reader = opened(source_of(server, table))
        read(reader, 10)
        reader.close()
        assert not [t for t in threading.enumerate() if t.name in ("moorline-changes", "moorline-watchdog")]
        left = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'moorline %%uid%%'"
        eventually(lambda: not server.query(left), "connections are closed")

    def test_a_reader_can_be_closed_while_the_slot_is_made(self, server, table, opened):
        """The server waits for transactions that are running, for hours if it must."""
        with psycopg.connect(server.url) as connection:
            connection.execute("SELECT pg_current_xact_id()")
            reader = opened(source_of(server, table))
            waits = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE '%%uid%%' AND wait_event_type = 'Lock'"
            eventually(lambda: reader.read(1) or server.query(waits), "it waits")
            assert reader.positions() == {}
            reader.close()
            assert not [t for t in threading.enumerate() if t.name == "moorline-changes"]


def test_an_answer_that_is_cut_off_in_the_middle_of_a_message_loses_nothing(server, table, opened):
    proxy = Proxy(server.port)
    url = server.url.replace(str(server.port), str(proxy.port))
    source = source_of(server, table, url)
    reader = opened(source)
    fill(server, table, 0, 100)
    found = read(reader, 100)
    for first in range(1000, 1500, 100):
        proxy.cut_after = b"r\0"  # after the next report to the server
        fill(server, table, first, first + 100)
        found += read(reader, 100)
    assert [c.new["id"] for c in found[100:]] == list(range(1000, 1500))
    reader.close()
    proxy.close()
