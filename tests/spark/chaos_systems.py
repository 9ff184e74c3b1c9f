"""The servers that chaos jobs read and write, filled for them, and brought back when they were killed.

The input is there before a test begins; only rows that are captured as changes come while the job runs. Each cell has
an output of its own.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import redis
import sqlalchemy as sa
from chaos_ends import ENDS, SPLITS, Place
from chaos_flows import EVERY, KINDS, worth
from chaos_job import Cell, marks
from connectors.services import MariaDbServer, PostgresServer, RedisServer
from deltalake import write_deltalake
from kafka_server import KafkaServer
from nats_server import NatsServer
from real_servers import Server
from waiting import eventually

#: Fewer than for files: servers and their clients share two cores with two Sparks.
RECORDS = 40_000
_COLUMNS = "key bigint, count bigint, sum bigint, last bigint"


class System:
    """What a job reads and writes in one test."""

    ends: str

    def __init__(self, folder: Path, source: Any = None, sink: Any = None) -> None:
        self.folder, self._source, self._sink = folder, source, sink
        self.fill(self.place(""))

    @property
    def server(self) -> Server | None:
        """The one that is killed."""
        return self._sink

    def place(self, cell: str) -> Place:
        return Place(self.folder / cell if cell else self.folder / "none", RECORDS, *self.urls)

    @property
    def urls(self) -> tuple[str, str]:
        return self._source.url, self._sink.url

    def cell(self, name: str, plan: str = "", **options: Any) -> Cell:
        """A cell with an output of its own. Failpoints know the number of the server's process."""
        self.make_output(self.place(name))
        points = self.folder / name / "points"
        points.mkdir(parents=True)
        self.note_server(points)
        source, sink = self.urls
        return Cell(name, plan, ends=self.ends, source=source, sink=sink, records=RECORDS, **options)

    def note_server(self, points: Path) -> None:
        if self.server is not None:
            assert self.server.process is not None
            (points / "server.pid").write_text(str(self.server.process.pid))

    def fill(self, place: Place) -> None:
        """Put the input where all cells find it."""

    def make_output(self, place: Place) -> None:
        """Make what a cell writes to, where the sink does not."""

    @contextlib.contextmanager
    def beside(self, cell: Cell) -> Iterator[None]:
        """A server that is killed comes back after a moment, for as long as a cell runs."""
        self.note_server(self.folder / cell.name / "points")
        over = threading.Event()
        thread = threading.Thread(target=self._revive, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _revive(self, over: threading.Event) -> None:
        while not over.wait(0.2):
            server = self.server
            if server is not None and server.process is not None and server.process.poll() is not None:
                # PostgreSQL's other processes take a moment to see that their first one is gone.
                over.wait(1)
                with contextlib.suppress(pytest.fail.Exception):
                    server.start()


def numbers(split: int) -> range:
    return range(split, RECORDS, SPLITS)


class Topics(System):
    ends = "kafka"
    _sink: KafkaServer

    @property
    def urls(self) -> tuple[str, str]:
        return self._sink.brokers, self._sink.brokers

    def fill(self, place: Place) -> None:
        self._sink.new_topic(SPLITS, exact=place.input)
        for split in range(SPLITS):
            self._sink.produce(place.input, map(str, numbers(split)), split)
        # The plain loop is right only if the topic has each record once and in order.
        assert self._sink.values(place.input) == [b"%d" % n for split in range(SPLITS) for n in numbers(split)]

    def make_output(self, place: Place) -> None:
        self._sink.new_topic(2, exact=place.output)


class Changes(System):
    """Half of the rows are there before the first load, and the others come when those have gone through."""

    ends = "postgres"
    _sink: PostgresServer

    @property
    def urls(self) -> tuple[str, str]:
        return self._sink.url, self._sink.url

    def make_output(self, place: Place) -> None:
        self._sink.query(f"CREATE TABLE {place.output}_in (n bigint PRIMARY KEY)")
        self._sink.query(f"INSERT INTO {place.output}_in SELECT generate_series(0, {RECORDS // 2 - 1})")
        self._sink.query(f"CREATE TABLE {place.output} ({_COLUMNS})")

    @contextlib.contextmanager
    def beside(self, cell: Cell) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._feed, args=(cell, over))
        with super().beside(cell):
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()
        self._drop_slots(self.place(cell.name))

    def _feed(self, cell: Cell, over: threading.Event) -> None:
        """Insert what is not there yet, the last part of it when something was killed."""
        place = self.place(cell.name)
        fed = 0 if cell.ends == "join" else RECORDS // 2
        points = place.folder / "points"
        while fed < RECORDS and not over.wait(0.05):
            try:
                if not self.is_ready(place) or (fed >= RECORDS * 5 // 8 and not marks(points)):
                    continue
                self._sink.query(
                    f"INSERT INTO {place.output}_in SELECT generate_series({fed}, {fed + 499}) ON CONFLICT DO NOTHING"
                )
                fed += 500
            except psycopg.Error:
                continue  # it was killed, and the rows may be there

    def is_ready(self, place: Place) -> bool:
        """May more rows come? Those of the first load have gone through, so none of them overtakes another."""
        found = self._sink.query(f"SELECT count(*) FROM {place.output}")[0][0]
        return bool(found >= RECORDS // 2 // EVERY)

    def slots(self, place: Place) -> list[str]:
        return [place.output]

    def _drop_slots(self, place: Place) -> None:
        for slot in self.slots(place):
            there = "FROM pg_replication_slots WHERE slot_name = %s"
            eventually(lambda: (True,) not in self._sink.query(f"SELECT active {there}", slot), "the slot is free")  # noqa: B023
            self._sink.query(f"SELECT pg_drop_replication_slot(slot_name) {there}", slot)


class JoinedChanges(Changes):
    """All rows come when every subtask knows what each kind is worth."""

    ends = "join"

    def make_output(self, place: Place) -> None:
        self._sink.query(f"CREATE TABLE {place.output}_in (n bigint PRIMARY KEY)")
        self._sink.query(f"CREATE TABLE {place.output} ({_COLUMNS})")
        for name in ("kinds", "known"):
            self._sink.query(f"CREATE TABLE {place.output}_{name} (kind bigint PRIMARY KEY, worth bigint)")
        for kind in range(KINDS):
            self._sink.query(f"INSERT INTO {place.output}_kinds VALUES ({kind}, {worth(kind)})")

    def is_ready(self, place: Place) -> bool:
        return self._sink.query(f"SELECT count(*) FROM {place.output}_known")[0][0] == KINDS

    def slots(self, place: Place) -> list[str]:
        return [place.output, f"{place.output}_kinds"]


class Windows(Topics):
    """From a topic to a table, which needs no server."""

    ends = "windows"

    def make_output(self, place: Place) -> None:
        """The sink makes it."""


class Databases(System):
    """From PostgreSQL to MariaDB, which is killed."""

    ends = "sql"
    _source: PostgresServer
    _sink: MariaDbServer

    def fill(self, place: Place) -> None:
        self._source.query(f"CREATE TABLE {place.input} (n bigint PRIMARY KEY)")
        self._source.query(f"INSERT INTO {place.input} SELECT generate_series(0, {RECORDS - 1})")

    def make_output(self, place: Place) -> None:
        columns = "`key` bigint, `count` bigint, `sum` bigint, `last` bigint, PRIMARY KEY (`key`, `count`)"
        engine = sa.create_engine(self._sink.url)
        with engine.begin() as connection:
            connection.execute(sa.text(f"CREATE TABLE {place.output} ({columns})"))
        engine.dispose()


class RedisStreams(System):
    ends = "redis"
    _sink: RedisServer

    @property
    def urls(self) -> tuple[str, str]:
        return self._sink.url, self._sink.url

    def fill(self, place: Place) -> None:
        with redis.Redis.from_url(self._sink.url) as client:
            for split in range(SPLITS):
                pipeline = client.pipeline(transaction=False)
                for n in numbers(split):
                    pipeline.xadd(f"{place.input}:{split}", {"n": n})
                pipeline.execute()


class JetStreams(System):
    ends = "nats"
    _sink: NatsServer

    @property
    def urls(self) -> tuple[str, str]:
        return self._sink.url, self._sink.url

    def fill(self, place: Place) -> None:
        self._sink.api(f"STREAM.CREATE.{place.input}", {"name": place.input, "subjects": [f"{place.input}.>"]})

        async def publish(client: Any) -> None:
            for split in range(SPLITS):
                for n in numbers(split):
                    await client.publish(f"{place.input}.{split}", json.dumps(n).encode())
            await client.flush(60)

        self._sink.run(publish)
        # The plain loop is right only if the stream has each record once; they are stored a moment later.
        stored = lambda: self._sink.api(f"STREAM.INFO.{place.input}")["state"]["messages"]  # noqa: E731
        eventually(lambda: stored() == RECORDS, "all records are stored")

    def make_output(self, place: Place) -> None:
        subjects = [f"{place.output}.>", f"moorline.{place.output}.>"]
        self._sink.api(
            f"STREAM.CREATE.{place.output}", {"name": place.output, "subjects": subjects, "allow_atomic": True}
        )


class Tables(System):
    """From a Delta table of several files to an Iceberg table. There is no server."""

    ends = "tables"

    @property
    def urls(self) -> tuple[str, str]:
        return "", ""

    def fill(self, place: Place) -> None:
        for split in range(SPLITS):
            write_deltalake(str(self.folder / "in"), pa.table({"n": list(numbers(split))}), mode="append")


#: By the name of the fixture of the server, where there is one.
SYSTEMS: dict[str, tuple[type[System], str, str]] = {
    "kafka": (Topics, "", "kafka_server"),
    "postgres": (Changes, "", "postgres_server"),
    "sql": (Databases, "postgres_server", "mariadb_server"),
    "redis": (RedisStreams, "", "redis_server"),
    "nats": (JetStreams, "", "nats_server"),
    "tables": (Tables, "", ""),
    "windows": (Windows, "", "kafka_server"),
    "join": (JoinedChanges, "", "postgres_server"),
}
assert set(SYSTEMS) == set(ENDS) - {"files"}


def system_of(name: str, request: pytest.FixtureRequest, folder: Path) -> System:
    """A system for one test, on servers that all tests share."""
    made, *servers = SYSTEMS[name]
    return made(folder, *(request.getfixturevalue(server) if server else None for server in servers))
