"""Queries in windows of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import moorline as mo
from moorline.api.columns.streams import ColumnStream
from nexmark_queries.query import Query
from nexmark_queries.tables import Tables, timed

WINDOW_MS = 10_000


def greatest_of(group: str, value: str) -> Any:
    """Keeps those rows of a batch that no other row of their group exceeds: all others cannot be the greatest."""

    def is_greatest(batch: pa.RecordBatch) -> Any:
        _, of_rows = np.unique(np.asarray(batch[group].cast(pa.int64())), return_inverse=True)
        values = np.asarray(batch[value])
        best = np.full(of_rows.max(initial=0) + 1, np.iinfo(np.int64).min)
        np.maximum.at(best, of_rows, values)
        return values == best[of_rows]

    return is_greatest


class Greatest(mo.ProcessWindowFunction):
    """The rows of a window that no other one exceeds."""

    def __init__(self, value: str) -> None:
        self.value = value

    def process(self, key, context, elements):
        best = max(row[self.value] for row in elements)
        yield from (row for row in elements if row[self.value] == best)


def q5(tables: Tables) -> ColumnStream:
    bids = timed(tables.bids().select("auction", "date_time", uid="offers"))
    counts = (
        bids.key_by("auction").window(mo.SlidingEventTimeWindows("10s", "2s")).aggregate(bids=mo.count(), uid="counts")
    )
    assert counts.schema is not None
    hot = counts.filter_batches(greatest_of("window_end", "bids"), uid="hot-here")
    # The results of a window have its last millisecond as their time, so they are in one window of the slide.
    per_window = hot.key_by("window_end").window(mo.TumblingEventTimeWindows("2s"))
    return per_window.process(Greatest("bids"), uid="hot").with_schema(counts.schema, uid="hot-columns")


def q7(tables: Tables) -> ColumnStream:
    wanted = ("auction", "bidder", "price", "date_time", "extra")
    bids = timed(tables.bids().select(*wanted, window=mo.col("date_time") // WINDOW_MS, uid="offers"))
    high = bids.filter_batches(greatest_of("window", "price"), uid="high-here")
    per_window = high.key_by("window").window(mo.TumblingEventTimeWindows(f"{WINDOW_MS}ms"))
    highest = per_window.process(Greatest("price"), uid="highest")
    return highest.with_schema(bids.schema, uid="highest-columns")


def q8(tables: Tables) -> ColumnStream:
    schema = pa.schema([("id", pa.int64()), ("person", pa.string()), ("sells", pa.int64())])
    nobody, nothing = mo.lit(None, "string"), mo.lit(None, "bigint")
    persons = timed(tables.persons()).select("id", person=mo.col("name"), sells=nothing, uid="new")
    sellers = timed(tables.auctions()).select(id=mo.col("seller"), person=nobody, sells=mo.lit(1), uid="sellers")
    both = persons.union(sellers).with_schema(schema, uid="both").key_by("id")
    windows = both.window(mo.TumblingEventTimeWindows(f"{WINDOW_MS}ms"))
    met = windows.aggregate(person=mo.first("person"), sells=mo.count("sells"), uid="met")
    are_both = mo.col("person").is_not_null() & (mo.col("sells") > 0)
    return met.where(are_both, uid="new-sellers").select("id", "person", "window_start", uid="names")


def q11(tables: Tables) -> ColumnStream:
    bids = timed(tables.bids().select("bidder", "date_time", uid="offers"))
    sessions = bids.key_by("bidder").window(mo.EventTimeSessionWindows("10s"))
    return sessions.aggregate(bids=mo.count(), uid="sessions")


def by_the_clock(tables: Tables) -> Any:
    bids = tables.bids().select("bidder", uid="offers")
    return bids.key_by("bidder").window(mo.TumblingProcessingTimeWindows("10s"))


def q12(tables: Tables) -> ColumnStream:
    return by_the_clock(tables).aggregate(bids=mo.count(), uid="counts")


def q12_at_once(tables: Tables) -> ColumnStream:
    """The same with each count at once: windows by the clock that have not ended with the input are given up."""
    return by_the_clock(tables).trigger(mo.CountTrigger(1)).aggregate(bids=mo.count(), uid="counts")


QUERIES = {
    "q5": Query("the auctions with most bids in ten seconds, every two", q5),
    "q7": Query("the highest bids of ten seconds", q7),
    "q8": Query("new persons who sell something within ten seconds", q8, reads=("person", "auction")),
    "q11": Query("bids of each bidder in a session", q11),
    "q12": Query(
        "bids of each bidder in ten seconds by the clock",
        q12,
        replaces=("bidder", "window_start"),
        adds="bids",
        checked=q12_at_once,
    ),
}
