"""Queries that look at each bid by itself: expressions alone."""

from __future__ import annotations

import moorline as mo
from moorline.api.columns.streams import ColumnStream
from nexmark_queries.query import Query
from nexmark_queries.tables import Tables

RATE = 0.908
#: Channels that have a number by their name; those of others are in their addresses.
NUMBERED = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def q0(tables: Tables) -> ColumnStream:
    return tables.bids().select("auction", "bidder", "price", "date_time", "extra", uid="bids")


def q1(tables: Tables) -> ColumnStream:
    return tables.bids().select("auction", "bidder", "date_time", "extra", price=mo.col("price") * RATE, uid="euros")


def q2(tables: Tables) -> ColumnStream:
    chosen = tables.bids().where(mo.col("auction") % 123 == 0, uid="chosen")
    return chosen.select("auction", "price", uid="prices")


def q14(tables: Tables) -> ColumnStream:
    euros = tables.bids().with_columns(price=mo.col("price") * RATE, uid="euros")
    dear = euros.where((mo.col("price") > 1_000_000) & (mo.col("price") < 50_000_000), uid="dear")
    hour, extra = mo.col("date_time").as_timestamp_ms().dt.hour(), mo.col("extra")
    by_day, by_night = (hour >= 8) & (hour <= 18), (hour <= 6) | (hour >= 20)
    return dear.select(
        "auction",
        "bidder",
        "price",
        "date_time",
        "extra",
        part_of_day=mo.when(by_day).then("day").when(by_night).then("night").otherwise("other"),
        cs=extra.str.length() - extra.str.replace("c", "").str.length(),
        uid="described",
    )


def q21(tables: Tables) -> ColumnStream:
    name = mo.col("channel").str.lower()
    number = mo.col("url").str.extract(r"[&?]channel_id=(?P<number>[^&]*)")
    for channel, known in NUMBERED.items():
        number = mo.when(name == channel).then(known).otherwise(number)
    numbered = tables.bids().select("auction", "bidder", "price", "channel", channel_id=number, uid="numbered")
    return numbered.where(mo.col("channel_id").is_not_null(), uid="with-number")


def q22(tables: Tables) -> ColumnStream:
    url = mo.col("url").str
    parts = {f"dir{n}": url.part("/", n + 2) for n in (1, 2, 3)}
    return tables.bids().select("auction", "bidder", "price", "channel", **parts, uid="parts")


QUERIES = {
    "q0": Query("all bids as they are", q0),
    "q1": Query("prices in another currency", q1),
    "q2": Query("bids for some auctions", q2),
    "q14": Query("dear bids, with calculations", q14),
    "q21": Query("numbers of channels, from names or addresses", q21),
    "q22": Query("parts of addresses", q22),
}
