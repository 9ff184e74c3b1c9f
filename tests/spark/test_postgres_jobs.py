"""Changes of PostgreSQL tables, joined with a broadcast table, back into PostgreSQL, on real Spark.

A worker and then the server are killed with -9, and the job is rescaled, while rows change. What is in the tables then
is what a plain loop over the same statements makes.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from connectors.services import PostgresServer, postgres_server  # noqa: F401
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark

#: Cents of an order are worth so much.
RATES = {"EUR": 100, "USD": 93, "SEK": 9}
ORDERS = 120
TABLES = """
CREATE TABLE rates (currency text PRIMARY KEY, rate integer);
CREATE TABLE orders (id integer PRIMARY KEY, currency text, cents integer, version integer);
CREATE TABLE priced (id integer PRIMARY KEY, euros integer);
CREATE TABLE journal (id integer, version integer, euros integer);
CREATE TABLE known_rates (currency text PRIMARY KEY, rate integer)"""


def pricing(url: str) -> mo.Job:
    """All that travels to workers is made here: they do not find this module."""
    #: By currency, in every subtask.
    known = mo.MapStateDescriptor("rates", str, int)

    class Price(mo.KeyedBroadcastProcessFunction):
        #: The versions of an order so far: it counts what the database counts.
        versions = mo.ValueState(int, default=0)

        def process_broadcast_element(self, change, ctx):
            ctx.get_broadcast_state(known).put(change.new["currency"], change.new["rate"])

        def process_element(self, change, ctx):
            if change.new is None:
                yield mo.Delete({"id": change.old["id"]})
            else:
                order, rates = change.new, ctx.get_broadcast_state(known)
                self.versions.update(self.versions.value() + 1)
                euros = order["cents"] * rates.get(order["currency"]) // 100
                yield {"id": order["id"], "version": self.versions.value(), "euros": euros}

    def current(row):
        return row if isinstance(row, mo.Delete) else {"id": row["id"], "euros": row["euros"]}

    job = mo.Job("pricing", parallelism=2, max_parallelism=16)
    rates = job.source(mo.read_postgres_changes(url, "rates", slot="rates"), uid="rates")
    # What is in this table is known to every subtask: the same checkpoint has both.
    rates.sink(mo.write_postgres(url, "known_rates", mode="apply", key="currency"), uid="known", parallelism=1)
    orders = job.source(mo.read_postgres_changes(url, "orders", slot="orders", page_rows=20), uid="orders")
    by_order = orders.key_by(lambda change: (change.new or change.old)["id"])
    priced = by_order.connect(rates.broadcast(known)).process(Price(), uid="price")
    priced.map(current, uid="current").sink(mo.write_postgres(url, "priced", mode="upsert", key="id"), uid="priced")
    changes = priced.filter(lambda row: not isinstance(row, mo.Delete), uid="changes")
    changes.sink(mo.write_postgres(url, "journal"), uid="journal")
    return job


class Shop:
    """Changes orders at random, and knows what a plain loop makes of that."""

    def __init__(self, url: str) -> None:
        self.url, self.chance = url, random.Random(11)
        self.orders: dict[int, tuple[int, int]] = {}
        #: What a plain loop has written.
        self.journal: list[tuple[int, int, int]] = []

    def trade(self, count: int) -> None:
        chance = self.chance
        with psycopg.connect(self.url) as connection:
            for _ in range(count):
                key, currency, cents = chance.randrange(ORDERS), chance.choice(list(RATES)), chance.randrange(10_000)
                if key in self.orders and chance.random() < 0.2:
                    connection.execute("DELETE FROM orders WHERE id = %s", (key,))
                    # It goes on counting, so that each change is another one.
                    self.orders[key] = (self.orders[key][0], -1)
                else:
                    version = self.orders.get(key, (0, -1))[0] + 1
                    connection.execute(
                        "INSERT INTO orders VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET"
                        " currency = excluded.currency, cents = excluded.cents, version = excluded.version",
                        (key, currency, cents, version),
                    )
                    self.orders[key] = (version, cents * RATES[currency] // 100)
                    self.journal.append((key, version, self.orders[key][1]))
                if chance.random() < 0.3:
                    connection.commit()

    @property
    def priced(self) -> list[tuple[int, int]]:
        return sorted((key, euros) for key, (_, euros) in self.orders.items() if euros >= 0)


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:  # noqa: F811
    """A database of its own, which is gone after the test."""
    postgres_server.query("CREATE DATABASE shop")
    url = postgres_server.url.removesuffix("postgres") + "shop"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLES)
    yield url
    is_read = "SELECT 1 FROM pg_replication_slots WHERE database = 'shop' AND active"
    eventually(lambda: not postgres_server.query(is_read), "the slots are free")
    postgres_server.query(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = 'shop'"
    )
    postgres_server.query("DROP DATABASE shop WITH (FORCE)")


def test_changes_are_joined_and_written_once_whatever_is_killed(spark, postgres_server, url, tmp_path):  # noqa: F811
    shop = Shop(url)
    handle = mo.start(
        pricing(url),
        spark,
        checkpoints=mo.Checkpoints(str(tmp_path / "chk"), interval="300ms", timeout="60s", retained=2),
        restart=mo.FixedDelay(attempts=10, delay="100ms"),
    )

    def query(text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute(text).fetchall()

    def until(condition: Callable[[], Any], what: str) -> None:
        eventually(lambda: not handle.is_active or condition(), what)
        assert handle.is_active, handle.failures

    try:
        with psycopg.connect(url) as connection:
            connection.cursor().executemany("INSERT INTO rates VALUES (%s, %s)", list(RATES.items()))
        until(lambda: len(query("SELECT 1 FROM known_rates")) == len(RATES), "the rates are known everywhere")
        shop.trade(400)
        until(lambda: len(query("SELECT 1 FROM journal")) > 100 and handle.worker_pids, "something was committed")
        before = len(handle.restored_from)
        # The first vertices are the sources.
        os.kill(handle.worker_pids["1/0"], signal.SIGKILL)
        shop.trade(400)
        until(lambda: len(handle.restored_from) > before and handle.worker_pids, "a second attempt")
        handle.rescale(3, timeout=600)
        shop.trade(400)
        until(lambda: len(query("SELECT 1 FROM journal")) > 600, "more was committed")
        postgres_server.crash()
        postgres_server.start()
        shop.trade(400)
        until(lambda: len(query("SELECT 1 FROM journal")) >= len(shop.journal), "everything was committed")
        until(lambda: query("SELECT id, euros FROM priced ORDER BY 1") == shop.priced, "the same as a plain loop's")
        assert sorted(query("SELECT id, version, euros FROM journal")) == sorted(shop.journal), "each change once"
        result = handle.stop()
        assert result is not None and len(result.failures) >= 1
        assert sorted(query("SELECT id, version, euros FROM journal")) == sorted(shop.journal)
    finally:
        if handle.is_active:
            handle.cancel()


def test_a_batch_reads_a_table_and_writes_another_one(spark, postgres_server: PostgresServer):  # noqa: F811
    postgres_server.query("CREATE TABLE numbers AS SELECT n, n %% 7 AS key FROM generate_series(1, 5000) n")
    postgres_server.query("ALTER TABLE numbers ADD PRIMARY KEY (n)")
    postgres_server.query("CREATE TABLE sums (key integer PRIMARY KEY, total bigint)")

    class Sum(mo.KeyedProcessFunction):
        total = mo.ValueState(int, default=0)

        def process_element(self, row, ctx):
            self.total.update(self.total.value() + row["n"])
            yield {"key": ctx.current_key, "total": self.total.value()}

    url = postgres_server.url
    for run in (1, 2):
        job = mo.Job("sums", parallelism=3)
        rows = job.source(mo.read_postgres(url, "numbers", splits=5, page_rows=300), uid="numbers")
        sums = rows.key_by(lambda row: row["key"]).process(Sum(), uid="sum")
        sums.sink(mo.write_postgres(url, "sums", mode="upsert", key="key"), uid="sums")
        mo.run(job, spark, mode="batch")
        expected = [(key, sum(range(key or 7, 5001, 7))) for key in range(7)]
        assert postgres_server.query("SELECT key, total FROM sums ORDER BY 1") == expected, f"run {run}"
        postgres_server.query("TRUNCATE sums")
