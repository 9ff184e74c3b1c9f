"""Queries with totals, the newest row or the best rows of each key, which come out again whenever they have changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import moorline as mo
from moorline.api.columns.streams import ColumnStream
from nexmark_queries.query import Query
from nexmark_queries.tables import Tables

DAY_MS = 86_400_000
#: Bids have a rank by their price: below the first of these, below the second, or above.
BOUNDS = (10_000, 1_000_000)
RANKS = (1, 2, 3)
#: What is counted, of which bids: all, or those of a rank.
COUNTS = ("total", *(f"rank{rank}" for rank in RANKS))

DAY = mo.col("date_time") // DAY_MS
RANK = mo.when(mo.col("price") < BOUNDS[0]).then(1).when(mo.col("price") < BOUNDS[1]).then(2).otherwise(3)


# --- q15 and q16: different bidders and auctions ---------------------------------------------------


class FirstSeen(mo.KeyedBatchFunction):
    """1 for each count that a bidder or an auction is seen in for the first time."""

    #: A bit for each rank.
    ranks = mo.ValueState(int, default=0)

    def __init__(self, group: tuple[str, ...]) -> None:
        self.group = group

    def process_batch(self, keys: mo.BatchKeys, batch: pa.RecordBatch, states: Any) -> pa.RecordBatch | None:
        before = states.ranks.numpy()
        after = before.copy()
        np.bitwise_or.at(after, keys.of_rows, 1 << np.asarray(batch["rank"]))
        is_changed = after != before
        changed = np.flatnonzero(is_changed)
        if not len(changed):
            return None
        states.ranks.update(after, where=is_changed)
        rows = batch.take(pa.array(keys.first_rows[changed]))
        new = after[changed] & ~before[changed]
        counts = [(before[changed] == 0).astype(np.int64), *((new >> rank) & 1 for rank in RANKS)]
        return pa.record_batch({**{n: rows[n] for n in (*self.group, "kind")}, **dict(zip(COUNTS, counts))})


def different(tables: Tables, group: tuple[str, ...], **more: Any) -> ColumnStream:
    """For each group: bids, different bidders and different auctions, in all and by rank."""
    ranked = tables.bids().with_columns(day=DAY, rank=RANK, **more, uid="ranked")
    assert ranked.schema is not None
    of_group = [ranked.schema.field(name) for name in group]
    seen = pa.schema([*of_group, ("kind", pa.string()), ("id", pa.int64()), ("rank", pa.int64())])
    counted = pa.schema([*of_group, ("kind", pa.string()), *((name, pa.int64()) for name in COUNTS)])

    def distinct(batch: pa.RecordBatch) -> pa.Table:
        """Each bidder and auction once for each group and rank: of what a batch repeats, nothing new is learnt."""
        parts = []
        for kind in ("bidder", "auction"):
            rows = pa.table({**{name: batch[name] for name in group}, "id": batch[kind], "rank": batch["rank"]})
            once = rows.group_by([*group, "id", "rank"]).aggregate([])
            parts.append(once.append_column("kind", pa.repeat(kind, len(once))).select(seen.names))
        return pa.concat_tables(parts)

    def bids(batch: pa.RecordBatch) -> pa.Table:
        """The number of bids of each group in a batch, by rank."""
        rank = np.asarray(batch["rank"])
        ones = {"total": np.ones(len(rank), np.int64)}
        ones |= {f"rank{n}": (rank == n).astype(np.int64) for n in RANKS}
        rows = pa.table({**{name: batch[name] for name in group}, **ones})
        sums = rows.group_by(list(group)).aggregate([(name, "sum") for name in COUNTS])
        sums = sums.rename_columns([*group, *COUNTS])
        return sums.append_column("kind", pa.repeat("bid", len(sums))).select(counted.names)

    by_id = ranked.map_batches(distinct, schema=seen, uid="distinct").key_by(*group, "kind", "id")
    first_seen = by_id.process_batches(FirstSeen(group), schema=counted, uid="first-seen")
    parts = first_seen.union(ranked.map_batches(bids, schema=counted, uid="bids")).with_schema(counted, uid="counted")
    kinds = {
        f"{name}_{kind}s": mo.when(mo.col("kind") == kind).then(mo.col(name)).otherwise(0)
        for kind in ("bid", "bidder", "auction")
        for name in COUNTS
    }
    spread = parts.select(*group, **kinds, uid="by-kind")
    totals = {name: mo.sum(name) for name in kinds}
    return spread.key_by(*group).aggregate(**totals, uid="totals")


def q15(tables: Tables) -> ColumnStream:
    return different(tables, ("day",))


def q16(tables: Tables) -> ColumnStream:
    return different(tables, ("channel", "day"))


# --- q17 -----------------------------------------------------------------------------------------


def q17(tables: Tables) -> ColumnStream:
    bids = tables.bids().select("auction", "price", day=DAY, rank=RANK, uid="ranked")
    of_rank = {f"rank{n}": mo.when(mo.col("rank") == n).then(1).otherwise(0) for n in RANKS}
    by_auction = bids.with_columns(**of_rank, uid="by-rank").key_by("auction", "day")
    return by_auction.aggregate(
        total_bids=mo.count(),
        **{f"{name}_bids": mo.sum(name) for name in of_rank},
        min_price=mo.min("price"),
        max_price=mo.max("price"),
        avg_price=mo.avg("price"),
        sum_price=mo.sum("price"),
        uid="totals",
    )


# --- q18 and q19: the newest, and the best --------------------------------------------------------


class Newest(mo.KeyedBatchFunction):
    """The newest row of each key; of equally new ones the one that came last."""

    newest = mo.ValueState(int, default=-1)

    def process_batch(self, keys: mo.BatchKeys, batch: pa.RecordBatch, states: Any) -> pa.RecordBatch | None:
        times, before = np.asarray(batch["date_time"]), states.newest.numpy()
        order = np.lexsort((times, keys.of_rows))
        rows = order[np.flatnonzero(np.diff(keys.of_rows[order], append=-1))]
        is_newer = times[rows] >= before
        if not is_newer.any():
            return None
        states.newest.update(times[rows], where=is_newer)
        return batch.take(pa.array(rows[is_newer]))


def q18(tables: Tables) -> ColumnStream:
    bids = tables.bids()
    return bids.key_by("bidder", "auction").process_batches(Newest(), schema=bids.schema, uid="newest")


def q19(tables: Tables) -> ColumnStream:
    return tables.bids().key_by("auction").top(10, by="price", uid="best")


QUERIES = {
    "q15": Query("bids, bidders and auctions of each day, by rank", q15, ("day",)),
    "q16": Query("bids, bidders and auctions of each channel and day", q16, ("channel", "day")),
    "q17": Query("prices of each auction and day", q17, ("auction", "day")),
    "q18": Query("the newest bid of each bidder for each auction", q18, ("bidder", "auction")),
    "q19": Query("the ten highest bids of each auction", q19, ("auction", "rank")),
}
