"""Queries that join auctions with their sellers or with their bids.

Of two tables the one has a row for each key, and the other any number of them. The rows of both go into one stream, by
key; whichever comes first waits for the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import moorline as mo
from moorline.api.columns.streams import ColumnStream, KeyedColumnStream
from nexmark_queries.query import Query
from nexmark_queries.tables import Tables

Places = npt.NDArray[np.int64]

INT, TEXT = pa.int64(), pa.string()
SELLER = pa.schema([("id", INT), ("name", TEXT), ("city", TEXT), ("state", TEXT)])
SOLD = pa.schema([("id", INT), ("seller", INT)])
OFFERED = pa.schema([("id", INT), ("category", INT), ("date_time", INT), ("expires", INT)])
ITEM = pa.schema(
    [("id", INT), ("item", TEXT), ("seller", INT), ("category", INT), ("date_time", INT), ("expires", INT)]
)
PRICED = pa.schema([("auction", INT), ("price", INT), ("date_time", INT)])
BID = pa.schema([("auction", INT), ("bidder", INT), ("price", INT), ("channel", TEXT), ("date_time", INT)])


def united(one: ColumnStream, one_key: str, many: ColumnStream, many_key: str) -> KeyedColumnStream:
    """The rows of both, as structs in columns of their own, by key."""
    assert one.schema is not None and many.schema is not None
    kinds = {"one": pa.struct(list(one.schema)), "many": pa.struct(list(many.schema))}
    schema = pa.schema([("key", INT), *kinds.items()])

    def side(name: str, key: str) -> Any:
        def as_struct(batch: pa.RecordBatch) -> pa.RecordBatch:
            sides = {other: pa.nulls(batch.num_rows, kind) for other, kind in kinds.items()}
            rows = pa.StructArray.from_arrays(batch.columns, fields=list(kinds[name]))
            return pa.RecordBatch.from_pydict({"key": batch[key]} | sides | {name: rows}, schema=schema)

        return as_struct

    ones = one.map_batches(side("one", one_key), schema=schema, uid="one")
    both = ones.union(many.map_batches(side("many", many_key), schema=schema, uid="many"))
    return both.with_schema(schema, uid="both").key_by("key")


class Joined(mo.KeyedBatchFunction):
    """Has rows of the many meet the one of their key."""

    #: The row that is there once, and rows of the others that came before it.
    one: mo.ValueState[Any]
    early: mo.ValueState[Any]

    def process_batch(self, keys: mo.BatchKeys, batch: pa.RecordBatch, states: Any) -> pa.RecordBatch | None:
        is_one = np.asarray(batch["one"].is_valid())
        ones, others = np.flatnonzero(is_one), np.flatnonzero(~is_one)
        row_of = np.full(len(keys), -1)
        row_of[keys.of_rows[ones]] = ones
        is_new = row_of >= 0
        if len(ones):
            states.one.update(batch["one"].take(pa.array(row_of, mask=~is_new)), where=is_new)
        known = states.one.array()
        has_one = np.asarray(known.is_valid())[keys.of_rows[others]]
        self._keep(keys, batch, others[~has_one], states.early)
        met = others[has_one]
        many, places = batch["many"].take(pa.array(met)), keys.of_rows[met]
        if len(ones):
            waited, of_keys = self._released(states.early, is_new)
            many, places = pa.concat_arrays([waited, many]), np.concatenate([of_keys, places])
        return self.joined(known, many, places, states) if len(places) else None

    def joined(self, ones: pa.StructArray, many: pa.StructArray, places: Places, states: Any) -> pa.RecordBatch | None:
        """The result for ``many``, whose keys stand at ``places`` among ``ones``."""
        raise NotImplementedError

    def _keep(self, keys: mo.BatchKeys, batch: pa.RecordBatch, rows: Places, early: Any) -> None:
        if not len(rows):
            return
        kept = early.array().to_pylist()
        for place, row in zip(keys.of_rows[rows].tolist(), batch["many"].take(pa.array(rows)).to_pylist()):
            kept[place] = [*(kept[place] or ()), row]
        early.update(kept)

    def _released(self, early: Any, is_new: npt.NDArray[np.bool_]) -> tuple[pa.StructArray, Places]:
        kept = early.array()
        is_due = is_new & np.asarray(kept.is_valid())
        due = kept.filter(pa.array(is_due))
        early.clear(where=is_due)
        return due.flatten(), np.repeat(np.flatnonzero(is_due), np.asarray(due.value_lengths()))


def states_of(one: pa.Schema, many: pa.Schema) -> tuple[Any, Any]:
    """The two states of a join."""
    return mo.ValueState(pa.struct(list(one))), mo.ValueState(pa.list_(pa.struct(list(many))))


# --- q3 ------------------------------------------------------------------------------------------


class Sellers(Joined):
    """The seller of each auction."""

    one, early = states_of(SELLER, SOLD)

    def joined(self, ones: pa.StructArray, many: pa.StructArray, places: Places, states: Any) -> pa.RecordBatch:
        sellers = ones.take(pa.array(places))
        columns = {name: sellers.field(name) for name in ("name", "city", "state")}
        return pa.record_batch({**columns, "auction": many.field("id")})


def q3(tables: Tables) -> ColumnStream:
    sellers = tables.persons().select(*SELLER.names, uid="sellers")
    chosen = tables.auctions().where(mo.col("category") == 10, uid="chosen").select(*SOLD.names, uid="sold")
    by_seller = united(sellers, "id", chosen, "seller")
    named = by_seller.process_batches(
        Sellers(), schema="name string, city string, state string, auction bigint", uid="named"
    )
    return named.where(mo.col("state").is_in(["OR", "ID", "CA"]), uid="in-three-states")


# --- q20 -----------------------------------------------------------------------------------------


class Items(Joined):
    """The auction of each bid."""

    one, early = states_of(ITEM, BID)

    def joined(self, ones: pa.StructArray, many: pa.StructArray, places: Places, states: Any) -> pa.RecordBatch:
        return side_by_side(ones.take(pa.array(places)), many)


def side_by_side(items: pa.StructArray, bids: pa.StructArray) -> pa.RecordBatch:
    """The columns of both. The times of the auction have names of their own."""
    columns = {name: bids.field(name) for name in BID.names}
    named = {"date_time": "begins"}
    columns |= {named.get(name, name): items.field(name) for name in ITEM.names if name != "id"}
    return pa.record_batch(columns)


WITH_ITEM = (
    "auction bigint, bidder bigint, price bigint, channel string, date_time bigint, "
    "item string, seller bigint, category bigint, begins bigint, expires bigint"
)


def with_items(tables: Tables) -> KeyedColumnStream:
    items = tables.auctions().select(*ITEM.names, uid="items")
    return united(items, "id", tables.bids().select(*BID.names, uid="offers"), "auction")


def q20(tables: Tables) -> ColumnStream:
    joined = with_items(tables).process_batches(Items(), schema=WITH_ITEM, uid="items-of-bids")
    return joined.where(mo.col("category") == 10, uid="chosen")


# --- q9 and q4 -----------------------------------------------------------------------------------


def in_time(ones: pa.StructArray, many: pa.StructArray, places: Places) -> tuple[pa.StructArray, Places]:
    """The bids that came while their auction was open."""
    of_bids = pa.array(places)
    times = many.field("date_time")
    begins, ends = (ones.field(name).take(of_bids) for name in ("date_time", "expires"))
    mask = pc.and_(pc.less_equal(begins, times), pc.less_equal(times, ends))
    return many.filter(mask), places[np.asarray(mask)]


def best_of_each(many: pa.StructArray, places: Places) -> Places:
    """The rows with the best bid of each key: the highest, and of equal ones the oldest."""
    prices, times = (np.asarray(many.field(name)) for name in ("price", "date_time"))
    order = np.lexsort((times, -prices, places))
    return order[np.flatnonzero(np.diff(places[order], prepend=-1))]


class Winning(Joined):
    """The best bid of each auction, whenever there is a better one."""

    one, early = states_of(ITEM, BID)
    price = mo.ValueState(int, default=-1)
    since = mo.ValueState(int, default=0)

    def joined(self, ones: pa.StructArray, many: pa.StructArray, places: Places, states: Any) -> pa.RecordBatch | None:
        many, places = in_time(ones, many, places)
        best = best_of_each(many, places)
        many, places = many.take(pa.array(best)), places[best]
        prices, times = (np.asarray(many.field(name)) for name in ("price", "date_time"))
        price, since = states.price.numpy(), states.since.numpy()
        is_better = (prices > price[places]) | ((prices == price[places]) & (times < since[places]))
        places = places[is_better]
        if not len(places):
            return None
        price[places], since[places] = prices[is_better], times[is_better]
        is_changed = np.isin(np.arange(len(price)), places)
        states.price.update(price, where=is_changed)
        states.since.update(since, where=is_changed)
        return side_by_side(ones.take(pa.array(places)), many.filter(pa.array(is_better)))


def q9(tables: Tables) -> ColumnStream:
    return with_items(tables).process_batches(Winning(), schema=WITH_ITEM, uid="winning")


class Raised(Joined):
    """By how much the highest bid of an auction has grown, and whether it is its first one."""

    one, early = states_of(OFFERED, PRICED)
    price = mo.ValueState(int, default=-1)

    def joined(self, ones: pa.StructArray, many: pa.StructArray, places: Places, states: Any) -> pa.RecordBatch | None:
        many, places = in_time(ones, many, places)
        before = states.price.numpy()
        after = before.copy()
        np.maximum.at(after, places, np.asarray(many.field("price")))
        is_changed = after > before
        if not is_changed.any():
            return None
        states.price.update(after, where=is_changed)
        changed = np.flatnonzero(is_changed)
        return pa.record_batch(
            {
                "category": ones.field("category").take(pa.array(changed)),
                "auctions": (before[changed] < 0).astype(np.int64),
                "cents": after[changed] - np.maximum(before[changed], 0),
            }
        )


def q4(tables: Tables) -> ColumnStream:
    offered = tables.auctions().select(*OFFERED.names, uid="offered")
    bids = tables.bids().select(*PRICED.names, uid="priced")
    raised = united(offered, "id", bids, "auction").process_batches(
        Raised(), schema="category bigint, auctions bigint, cents bigint", uid="raised"
    )
    totals = raised.key_by("category").aggregate(auctions=mo.sum("auctions"), cents=mo.sum("cents"), uid="totals")
    return totals.select("category", final=mo.col("cents") / mo.col("auctions"), uid="means")


BOTH = ("auction", "bid")
QUERIES = {
    "q3": Query("sellers in three states", q3, reads=("person", "auction")),
    "q4": Query("mean final price of each category", q4, ("category",), BOTH),
    "q9": Query("the winning bid of each auction", q9, ("auction",), BOTH),
    "q20": Query("bids with their auctions, of one category", q20, reads=BOTH),
}
