"""Where the chaos job reads and writes: a source, a sink and a query of the output for each system.

The job reads numbers. What it makes of each is the same everywhere (``chaos_job.py``), so an end says how its source is
declared, which number a record of it stands for, and which rows are found in its sink. Names of topics, tables and
streams come from the folders of the test and of the cell, so both the test and the job know them.

    files       a generator -> files, and a Delta table that the driver commits
    kafka       a topic -> a topic
    postgres    first load and changes of a table -> a table
    sql         ranges of a PostgreSQL table -> a MariaDB table, by key
    redis       streams -> a stream
    nats        subjects of a stream -> a stream
    tables      a Delta table -> an Iceberg table that the driver commits
    windows     a topic -> a Delta table, with windows in between
    join        changes of two tables, one of them broadcast -> a table
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import nats
import psycopg
import pyarrow as pa
import redis
import sqlalchemy as sa
from chaos_flows import JOINED, TOTALS, WINDOWS, Flow, Second
from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import moorline as mo

SPLITS, RATE = 4, 60_000
COLUMNS = ("key", "count", "sum", "last")
ROW = pa.schema([(name, pa.int64()) for name in COLUMNS])


@dataclass(frozen=True)
class Place:
    """Where one cell reads and writes."""

    folder: Path
    records: int
    #: The server that is read from, and the one that is written to.
    source: str = ""
    sink: str = ""

    @property
    def input(self) -> str:
        """The name of what all cells of a test read."""
        return f"{_plain(self.folder.parent.name)}_in"

    @property
    def output(self) -> str:
        """The name of what this cell alone writes, and reads where its input is its own."""
        return f"{_plain(self.folder.parent.name)}_{_plain(self.folder.name)}"


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name).lower()


@dataclass(frozen=True)
class End:
    """One pair of systems."""

    source: Callable[[Place], mo.Source[Any]]
    #: The number that a record of the source stands for. Those of a key come in their order.
    number: Callable[[Any], int]
    #: By the uids of sinks.
    sinks: Callable[[Place], dict[str, mo.Sink[Any]]]
    #: The rows of each sink, as readers of committed data find them.
    found: Callable[[Place], dict[str, list[dict[str, Any]]]]
    #: Its source has no end: whoever runs the job stops it when all is there.
    is_endless: bool = False
    flow: Flow = TOTALS
    second: Callable[[Place], Second] | None = None


def itself(record: Any) -> int:
    return int(record)


# --- files ------------------------------------------------------------------------------------------


def _files(place: Place) -> dict[str, mo.Sink[Any]]:
    # The same twice: committed by workers, and by the driver in one step.
    return {
        "files": mo.write_files(str(place.folder / "out"), format="jsonl"),
        "table": mo.write_delta(place.folder / "table", schema=ROW),
    }


def _in_files(place: Place) -> dict[str, list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    for path in (place.folder / "out").glob("part-*.jsonl"):
        rows += msgspec.json.decode(b"[" + path.read_bytes().strip().replace(b"\n", b",") + b"]")
    return {"files": rows, "table": _in_delta(place)}


def _in_delta(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(place.folder / "table")).to_pyarrow_table().to_pylist()
    return found


# --- Kafka ------------------------------------------------------------------------------------------


def _in_topic(place: Place) -> dict[str, list[dict[str, Any]]]:
    settings = {"bootstrap.servers": place.sink, "group.id": "chaos", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(place.output, timeout=60).topics[place.output].partitions
        consumer.assign([TopicPartition(place.output, partition, 0) for partition in partitions])
        rows, open_ones = [], set(partitions)
        while open_ones:
            for message in consumer.consume(10_000, 0.2):
                if message.error() is None:
                    rows.append(json.loads(message.value() or b"null"))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(message.partition())
        return {"topic": rows}
    finally:
        consumer.close()


# --- databases --------------------------------------------------------------------------------------


def _changes(place: Place) -> mo.Source[Any]:
    return mo.read_postgres_changes(place.source, f"{place.output}_in", slot=place.output, page_rows=200)


def _kinds(place: Place) -> Second:
    changes = mo.read_postgres_changes(place.source, f"{place.output}_kinds", slot=f"{place.output}_kinds")
    return changes, mo.write_postgres(place.sink, f"{place.output}_known")


def _changed(change: Any) -> int:
    return int(change.new["n"])


def _in_postgres(place: Place) -> dict[str, list[dict[str, Any]]]:
    with psycopg.connect(place.sink) as connection:
        rows = connection.execute(f"SELECT key, count, sum, last FROM {place.output}").fetchall()
    return {"rows": [dict(zip(COLUMNS, row)) for row in rows]}


def _in_mariadb(place: Place) -> dict[str, list[dict[str, Any]]]:
    engine = sa.create_engine(place.sink)
    try:
        with engine.connect() as connection:
            rows = connection.execute(sa.text(f"SELECT `key`, `count`, `sum`, `last` FROM {place.output}")).fetchall()
    finally:
        engine.dispose()
    return {"rows": [dict(zip(COLUMNS, row)) for row in rows]}


# --- streams ----------------------------------------------------------------------------------------


def _in_redis(place: Place) -> dict[str, list[dict[str, Any]]]:
    with redis.Redis.from_url(place.sink) as client:
        entries = client.xrange(place.output)
    return {"entries": [{name.decode(): int(value) for name, value in fields.items()} for _, fields in entries]}


def _in_jetstream(place: Place) -> dict[str, list[dict[str, Any]]]:
    async def look() -> list[dict[str, Any]]:
        client = await nats.connect(place.sink)
        try:

            async def ask(subject: str, request: Any) -> dict[str, Any]:
                answer = await client.request(f"$JS.API.{subject}", json.dumps(request).encode(), timeout=30)
                found: dict[str, Any] = json.loads(answer.data)
                assert "error" not in found, found
                return found

            state = (await ask(f"STREAM.INFO.{place.output}", {"deleted_details": True}))["state"]
            gone = set(state.get("deleted") or ())
            numbers = [n for n in range(state["first_seq"] or 1, state["last_seq"] + 1) if n not in gone]
            rows = []
            for first in range(0, len(numbers), 500):
                some = [ask(f"STREAM.MSG.GET.{place.output}", {"seq": n}) for n in numbers[first : first + 500]]
                messages = [answer["message"] for answer in await asyncio.gather(*some)]
                rows += [m for m in messages if not m["subject"].startswith("moorline.")]
            return [json.loads(base64.b64decode(message["data"])) for message in rows]
        finally:
            await client.close()

    return {"messages": asyncio.run(look())}


# --- tables -----------------------------------------------------------------------------------------


def catalog(place: Place) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{place.folder}/catalog.db",
        "warehouse": f"file://{place.folder}/tables",
    }


def _in_iceberg(place: Place) -> dict[str, list[dict[str, Any]]]:
    table = load_catalog("default", **catalog(place)).load_table("chaos.out")
    return {"snapshots": table.scan().to_arrow().to_pylist()}


ENDS = {
    "files": End(
        lambda at: mo.generate(itself, count=at.records, splits=SPLITS, rate=RATE),
        itself,
        _files,
        _in_files,
    ),
    "kafka": End(
        lambda at: mo.read_kafka(at.source, at.input, end="latest", interval="500ms"),
        itself,
        lambda at: {"topic": mo.write_kafka(at.sink, at.output, key=lambda row: str(row["key"]))},
        _in_topic,
    ),
    "postgres": End(
        _changes,
        _changed,
        lambda at: {"rows": mo.write_postgres(at.sink, at.output)},
        _in_postgres,
        is_endless=True,
    ),
    "sql": End(
        lambda at: mo.read_postgres(at.source, at.input, key="n", splits=1, page_rows=500),
        lambda row: int(row["n"]),
        lambda at: {"rows": mo.write_sql(at.sink, at.output, key=("key", "count"))},
        _in_mariadb,
    ),
    "redis": End(
        lambda at: mo.read_redis_stream(at.source, pattern=f"{at.input}:*", end="latest", interval="500ms"),
        lambda fields: int(fields["n"]),
        lambda at: {"entries": mo.write_redis_stream(at.sink, at.output)},
        _in_redis,
    ),
    "nats": End(
        lambda at: mo.read_nats(at.source, at.input, subjects=[f"{at.input}.{n}" for n in range(SPLITS)], end="latest"),
        itself,
        lambda at: {"messages": mo.write_nats(at.sink, lambda row: f"{at.output}.{row['key']}", stream=at.output)},
        _in_jetstream,
    ),
    "windows": End(
        lambda at: mo.read_kafka(at.source, at.input, end="latest", interval="500ms"),
        itself,
        lambda at: {"table": mo.write_delta(at.folder / "table", schema=ROW)},
        lambda at: {"table": _in_delta(at)},
        flow=WINDOWS,
    ),
    "join": End(
        _changes,
        _changed,
        lambda at: {"rows": mo.write_postgres(at.sink, at.output)},
        _in_postgres,
        is_endless=True,
        flow=JOINED,
        second=_kinds,
    ),
    "tables": End(
        lambda at: mo.read_delta(at.folder.parent / "in"),
        lambda row: int(row["n"]),
        lambda at: {"snapshots": mo.write_iceberg("chaos.out", catalog_options=catalog(at), schema=ROW)},
        _in_iceberg,
    ),
}


def rows(found: Iterable[dict[str, Any]]) -> Iterable[tuple[int, ...]]:
    """Rows in the form in which they are compared."""
    return (tuple(int(row[name]) for name in COLUMNS) for row in found)
