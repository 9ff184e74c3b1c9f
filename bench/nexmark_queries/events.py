"""A generator of Nexmark's events, written from its description, and the Parquet files it writes.

Of 50 events one is a person, three are auctions and 46 are bids. Event ``n`` happens at ``n`` times the spacing. Ids
are given in turn. Half of all bids are for a hot auction, three quarters of bids and auctions are by a hot bidder or
seller; who is hot changes with every hundredth of them. The others are spread over those that are new enough to be
active. Prices are spread evenly over the orders of magnitude from one to a million.

The same shape gives the same events: each block of them has chance of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Numbers = npt.NDArray[np.int64]

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PERSONS + AUCTIONS + BIDS
#: Epochs that are made at a time.
BLOCK = 1_000
FIRST_PERSON = FIRST_AUCTION = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
#: One auction, bidder or seller of so many is hot.
HOT_EVERY = 100
#: Auctions and persons that are taken for active, and those to come that are spoken of already.
ACTIVE_AUCTIONS, ACTIVE_PERSONS, LEAD = 100, 1_000, 10
#: Half a minute before midnight, in milliseconds: the events are of two days.
BEGIN_MS = 1_767_311_970_000
CHANNELS = 10_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")

TABLES = {
    "person": pa.schema(
        [
            ("id", pa.int64()),
            *((n, pa.string()) for n in ("name", "email", "city", "state", "extra")),
            ("date_time", pa.int64()),
        ]
    ),
    "auction": pa.schema(
        [
            *((n, pa.int64()) for n in ("id", "seller", "category", "initial_bid", "reserve", "expires", "date_time")),
            *((n, pa.string()) for n in ("item", "description", "extra")),
        ]
    ),
    "bid": pa.schema(
        [
            *((n, pa.int64()) for n in ("auction", "bidder", "price", "date_time")),
            *((n, pa.string()) for n in ("channel", "url", "extra")),
        ]
    ),
}


@dataclass(frozen=True)
class Shape:
    """So many events, the time between two of them, and the seed of all chance."""

    events: int
    spacing_us: int = 100
    seed: int = 7

    def at(self, events: Numbers) -> Numbers:
        """The time of events, in milliseconds since 1970."""
        return BEGIN_MS + events * self.spacing_us // 1_000


def write(shape: Shape, folder: Path, files: int = 2) -> dict[str, int]:
    """Write a folder for each table. The rows of each, by its name.

    Epochs are dealt out to the files, so each file reaches from the first moment to the last.
    """
    rows = dict.fromkeys(TABLES, 0)
    writers: dict[tuple[str, int], Any] = {}
    for name, schema in TABLES.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file in range(files):
            writers[name, file] = pq.ParquetWriter(folder / name / f"part-{file}.parquet", schema)
    for block in blocks(shape):
        for name, (table, epochs) in block.items():
            rows[name] += table.num_rows
            for file in range(files):
                writers[name, file].write_batch(table.filter(pa.array(epochs % files == file)))
    for writer in writers.values():
        writer.close()
    return rows


def blocks(shape: Shape) -> Iterator[dict[str, tuple[pa.RecordBatch, Numbers]]]:
    """The rows of each table and the epochs they are of, block by block."""
    for first in range(0, shape.events, BLOCK * EPOCH):
        events = np.arange(first, min(first + BLOCK * EPOCH, shape.events))
        chance = np.random.default_rng([shape.seed, first])
        kind = events % EPOCH
        of_table = {
            "person": (persons, events[kind < PERSONS]),
            "auction": (auctions, events[(kind >= PERSONS) & (kind < PERSONS + AUCTIONS)]),
            "bid": (bids, events[kind >= PERSONS + AUCTIONS]),
        }
        yield {
            name: (pa.RecordBatch.from_pydict(make(shape, own, chance), schema=TABLES[name]), own // EPOCH)
            for name, (make, own) in of_table.items()
        }


def persons(shape: Shape, events: Numbers, chance: np.random.Generator) -> dict[str, Any]:
    """The columns of persons."""
    size = len(events)
    names = joined(picked(FIRST_NAMES, size, chance), " ", picked(LAST_NAMES, size, chance))
    return {
        "id": FIRST_PERSON + last_person(events),
        "name": names,
        "email": joined(letters(chance, size, 7), "@", letters(chance, size, 5), ".com"),
        "city": picked(CITIES, size, chance),
        "state": picked(STATES, size, chance),
        "extra": letters(chance, size, 100, 60),
        "date_time": shape.at(events),
    }


def auctions(shape: Shape, events: Numbers, chance: np.random.Generator) -> dict[str, Any]:
    """The columns of auctions."""
    size, at = len(events), shape.at(events)
    # As long as it takes until all that are active now have made way for others, on average.
    horizon_ms = ACTIVE_AUCTIONS * EPOCH // AUCTIONS * shape.spacing_us // 1_000
    first = prices(chance, size)
    hot_seller = last_person(events) // HOT_EVERY * HOT_EVERY
    seller = np.where(chance.integers(0, 4, size) > 0, hot_seller, some_person(events, chance))
    return {
        "id": FIRST_AUCTION + last_auction(events),
        "seller": FIRST_PERSON + seller,
        "category": FIRST_CATEGORY + chance.integers(0, CATEGORIES, size),
        "initial_bid": first,
        "reserve": first + prices(chance, size),
        "expires": at + 1 + chance.integers(0, max(2 * horizon_ms, 1), size),
        "date_time": at,
        "item": letters(chance, size, 5, 15),
        "description": letters(chance, size, 20, 80),
        "extra": letters(chance, size, 200, 250),
    }


def bids(shape: Shape, events: Numbers, chance: np.random.Generator) -> dict[str, Any]:
    """The columns of bids."""
    size = len(events)
    newest = last_auction(events)
    oldest = np.maximum(newest - ACTIVE_AUCTIONS, 0)
    some_auction = oldest + chance.integers(0, newest - oldest + 1 + LEAD)
    auction = np.where(chance.integers(0, 2, size) > 0, newest // HOT_EVERY * HOT_EVERY, some_auction)
    # The second of a hundred, so that hot bidders are not hot sellers.
    hot_bidder = last_person(events) // HOT_EVERY * HOT_EVERY + 1
    bidder = np.where(chance.integers(0, 4, size) > 0, hot_bidder, some_person(events, chance))
    channel, url = channels(chance, size)
    return {
        "auction": FIRST_AUCTION + auction,
        "bidder": FIRST_PERSON + bidder,
        "price": prices(chance, size),
        "date_time": shape.at(events),
        "channel": channel,
        "url": url,
        "extra": letters(chance, size, 20, 40),
    }


def channels(chance: np.random.Generator, size: int) -> tuple[pa.Array, pa.Array]:
    """Names of channels, half of them hot ones, and addresses, of which most say the number of their channel."""
    number = chance.integers(0, CHANNELS, size)
    is_hot = chance.integers(0, 2, size) > 0
    hot = chance.integers(0, len(HOT_CHANNELS), size)
    names = pa.array([*HOT_CHANNELS, *(f"channel-{n}" for n in range(CHANNELS))])
    place = np.where(is_hot, hot, len(HOT_CHANNELS) + number)
    # A channel has one address. One in ten, and none of the hot ones, does not say which channel it is of.
    fixed = np.random.default_rng(0)
    paths = ["/".join(part) for part in zip(*(letters(fixed, len(names), 3, 6).to_pylist() for _ in range(3)))]
    ends = ["" if n >= len(HOT_CHANNELS) and n % 10 == 0 else f"&channel_id={n}" for n in range(len(names))]
    urls = pa.array([f"https://auction.example/{p}/item.htm?query=1{end}" for p, end in zip(paths, ends)])
    return names.take(pa.array(place)), urls.take(pa.array(place))


def last_person(events: Numbers) -> Numbers:
    """The number of the newest person when an event happens, itself if it is one."""
    return events // EPOCH


def last_auction(events: Numbers) -> Numbers:
    """The number of the newest auction when an event happens, itself if it is one."""
    epoch, place = events // EPOCH, events % EPOCH
    of_epoch = np.where(place < PERSONS, -1, np.minimum(place - PERSONS, AUCTIONS - 1))
    return np.maximum(epoch * AUCTIONS + of_epoch, 0)


def some_person(events: Numbers, chance: np.random.Generator) -> Numbers:
    """One of those who are active, or about to come."""
    newest = last_person(events)
    active = np.minimum(newest, ACTIVE_PERSONS)
    return newest - active + chance.integers(0, active + LEAD)


def prices(chance: np.random.Generator, size: int) -> Numbers:
    """Prices in cents."""
    return np.round(100 * 10 ** (6 * chance.random(size))).astype(np.int64)


def letters(chance: np.random.Generator, size: int, least: int, more: int = 0) -> pa.Array:
    """Texts of ``least`` and up to ``more`` small letters."""
    lengths = least + (chance.integers(0, more, size) if more else np.zeros(size, np.int64))
    ends = np.zeros(size + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    text = chance.integers(ord("a"), ord("z") + 1, int(ends[-1]), dtype=np.uint8)
    return pa.StringArray.from_buffers(size, pa.py_buffer(ends), pa.py_buffer(text))


def picked(values: tuple[str, ...], size: int, chance: np.random.Generator) -> pa.Array:
    """One of the values for each row."""
    return pa.array(values).take(pa.array(chance.integers(0, len(values), size)))


def joined(*parts: Any) -> pa.Array:
    """Texts one after the other."""
    return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, str) else p for p in parts), "")
