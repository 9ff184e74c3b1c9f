"""Steps on columns know whether columns, records or keyed records come out of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

import moorline as mo


@dataclass(frozen=True)
class Sale:
    customer: str
    cents: int


Row = dict[str, Any]


class Longest(mo.AggregateFunction[Row, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Row, accumulator: int) -> int:
        return max(accumulator, len(value["customer"]))

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Seen(mo.KeyedBatchFunction):
    seen = mo.ValueState(bool, default=False)

    def process_batch(self, keys, batch, states):
        states.seen.update([True] * len(keys))
        return batch.take(pa.array(keys.first_rows))


def in_euros(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def of_frame(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.copy()


def large(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    return np.ones(batch.num_rows, bool)


job = mo.Job("columns")
sales = job.source(mo.from_items([Sale("ada", 3)]), uid="sales").with_schema(Sale, uid="rows")
cents = mo.col("cents")
assert_type(sales, mo.ColumnStream)
assert_type(sales.select("customer", euros=cents / 100), mo.ColumnStream)
assert_type(5 - cents, mo.Expression)
assert_type((cents > 3) & mo.col("customer").is_in(["ada"]), mo.Expression)
assert_type(mo.when(cents > 3).then("large").otherwise(None), mo.Expression)
assert_type(sales.where(cents.between(3, 5)).drop("cents"), mo.ColumnStream)
assert_type(sales.map_batches(lambda batch: batch, schema="customer string, cents bigint"), mo.ColumnStream)
assert_type(sales.map_batches(in_euros, schema=Sale, uid="euros"), mo.ColumnStream)
assert_type(sales.map_batches(of_frame, frames="pandas"), mo.ColumnStream)
assert_type(sales.filter_batches(lambda batch: batch["cents"].to_numpy() > 3), mo.ColumnStream)
assert_type(sales.filter_batches(large), mo.ColumnStream)
assert_type(sales.map(lambda row: str(row["customer"])), mo.Stream[str])

timed = sales.with_columns(at=cents.as_timestamp_ms()).with_watermark("at", "5s", uid="times")
keyed = timed.key_by("customer")
assert_type(keyed, mo.KeyedColumnStream)
assert_type(timed.key_by("customer", "cents"), mo.KeyedColumnStream)
assert_type(timed.key_by(lambda row: len(row["customer"]), key_type=int), mo.KeyedStream[Row, int])
assert_type(keyed.aggregate(orders=mo.count(), cents=mo.sum("cents"), ttl="1d", uid="totals"), mo.ColumnStream)
assert_type(keyed.process_batches(Seen(), schema=Sale), mo.ColumnStream)
assert_type(keyed.top(3, by="cents", descending=False), mo.ColumnStream)
assert_type(keyed.deduplicate(keep="last"), mo.ColumnStream)

windows = keyed.window(mo.TumblingEventTimeWindows("5s"))
assert_type(windows.aggregate(cents=mo.sum("cents"), uid="sums"), mo.ColumnStream)
assert_type(windows.aggregate(Longest(), uid="longest"), mo.Stream[int])
assert_type(windows.aggregate(Longest(), lambda key, window, lengths: [str(lengths[0])]), mo.Stream[str])
