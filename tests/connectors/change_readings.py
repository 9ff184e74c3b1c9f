"""Readers of a PostgreSQL table's changes, as a subtask has them, and the fixtures that tests of them share."""

from __future__ import annotations

import itertools
import time

import cloudpickle
import pytest
from waiting import eventually

import moorline as mo
from moorline.api.sources import SourceContext
from moorline.state.types import plain

names = itertools.count(1)


@pytest.fixture(name="server")
def server_fixture(postgres_server):
    return postgres_server


@pytest.fixture(name="name")
def name_fixture(server):
    """A name for a table, a slot and a publication, which are gone after the test."""
    name = f"changes_{next(names)}"
    yield name
    is_read = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
    eventually(lambda: not server.query(is_read, name), "the slot is free")
    server.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", name)
    server.query(f"DROP PUBLICATION IF EXISTS {name}; DROP TABLE IF EXISTS {name}")


@pytest.fixture(name="table")
def table_fixture(server, name):
    server.query(f"CREATE TABLE {name} (id integer PRIMARY KEY, word text)")
    return name


def source_of(server, table, **options):
    return mo.read_postgres_changes(server.url, table, **{"slot": table, **options})


def fill(server, table, first, end):
    server.query(f"INSERT INTO {table} SELECT n, 'word ' || n FROM generate_series({first}, {end - 1}) n")


class Reading:
    """A reader, as a subtask has it."""

    def __init__(self, source, position=None, attempt=1, **context):
        self.source = cloudpickle.loads(cloudpickle.dumps(source))
        positions = {} if position is None else {0: plain.decode(plain.encode(position))}
        self.context = SourceContext("uid", 0, 1, attempt, positions, **context)
        self.reader = self.source.open(self.context)

    def read(self, count, limit=1000):
        """So many changes."""
        found = []

        def has_all():
            found.extend(self.reader.read(min(limit, count - len(found))))
            return len(found) >= count

        eventually(has_all, f"{count} changes")
        return found

    def read_nothing(self, seconds=0.3):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.reader.read(100) == []
            time.sleep(0.01)

    @property
    def position(self):
        return self.reader.positions().get(0)

    def checkpoint(self, number, complete=True):
        class Snapshot:
            checkpoint = number

        self.source.snapshot_state(Snapshot())
        position = self.position
        if complete:
            self.reader.notify_checkpoint_complete(number)
        return position

    def close(self):
        self.reader.close()


@pytest.fixture(name="reading")
def reading_fixture():
    """Opens readers, and closes them after the test."""
    opened = []

    def open_reader(*arguments, **options):
        opened.append(Reading(*arguments, **options))
        return opened[-1]

    yield open_reader
    for one in opened:
        one.close()


def short(changes):
    return [(c.kind, c.old, c.new) for c in changes]
