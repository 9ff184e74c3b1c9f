"""Rows per second of running count and sum per key in columns, beside the same job record by record, in one run.

100,000 random keys, parallelism 2, checkpoints every 10 s (every 2 s with --quick). Both jobs read the same numbers and
keep the same totals; the totals of both are compared with NumPy's over the same input before anything is measured.

    python bench/columns.py [--quick] [--keys 100000] [--texts] [--rocksdb]

``--texts`` has keys of texts instead of ints, ``--rocksdb`` state in RocksDB instead of on the heap. The last line is
one JSON object; ``ratio`` is columns over records, and ``cpu_ratio`` the same in processor time: that of all processes
below this one for each row that the operator took, garbage collection and checkpoints among it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

import moorline as mo

#: Multiplied with a number it makes keys that come in no order.
SPREAD = 0x9E3779B97F4A7C15
CHECKED = 400_000


def sales_of(keys: int, texts: bool) -> Any:
    """A function from numbers to a batch of sales."""

    def sales(numbers: np.ndarray) -> pa.RecordBatch:
        spread = (numbers.astype(np.uint64) * np.uint64(SPREAD)) >> np.uint64(24)
        customers = pa.array((spread % np.uint64(keys)).astype(np.int64))
        if texts:
            customers = pc.binary_join_element_wise("customer-", customers.cast(pa.string()), "")
        return pa.RecordBatch.from_arrays([customers, pa.array(numbers % 1000)], names=["customer", "cents"])

    return sales


def sale_of(keys: int, texts: bool) -> Any:
    """The same, one record at a time."""

    def sale(number: int) -> tuple[Any, int]:
        customer = ((number * SPREAD & (1 << 64) - 1) >> 24) % keys
        return (f"customer-{customer}" if texts else customer), number % 1000

    return sale


class Totals(mo.KeyedProcessFunction):
    """Count and sum of a key, record by record."""

    totals = mo.ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value, ctx):
        count, total = self.totals.value()
        totals = count + 1, total + value[1]
        self.totals.update(totals)
        yield value[0], *totals


def in_columns(source: mo.Source, texts: bool, sink: mo.Sink) -> mo.Job:
    job = mo.Job("columns", parallelism=2)
    rows = job.source(source, uid="sales").with_schema(f"customer {'string' if texts else 'bigint'}, cents bigint")
    rows.key_by("customer").aggregate(n=mo.count(), total=mo.sum("cents"), uid="totals").sink(sink, uid="out")
    return job


def in_records(source: mo.Source, sink: mo.Sink) -> mo.Job:
    job = mo.Job("records", parallelism=2)
    job.source(source, uid="sales").key_by(lambda r: r[0]).process(Totals(), uid="totals").sink(sink, uid="out")
    return job


def check(keys: int, texts: bool) -> None:
    """Both jobs find what NumPy does."""
    sales, sale = sales_of(keys, texts), sale_of(keys, texts)
    batch = sales(np.arange(CHECKED))
    grouped = pa.Table.from_batches([batch]).group_by("customer").aggregate([([], "count_all"), ("cents", "sum")])
    expected = {r["customer"]: (r["count_all"], r["cents_sum"]) for r in grouped.to_pylist()}
    columns = mo.run(in_columns(mo.generate_batches(sales, count=CHECKED), texts, mo.collect("out"))).collected("out")
    records = mo.run(in_records(mo.generate(sale, count=CHECKED), mo.collect("out"))).collected("out")
    last_columns: dict[Any, tuple[int, int]] = {}
    for row in columns:
        totals = row["n"], row["total"]
        last_columns[row["customer"]] = max(last_columns.get(row["customer"], totals), totals)
    last_records: dict[Any, tuple[int, int]] = {}
    for customer, *rest in records:
        last_records[customer] = max(last_records.get(customer, tuple(rest)), tuple(rest))
    assert last_columns == expected, "columns do not find what NumPy does"
    assert last_records == expected, "records do not find what NumPy does"


@dataclass(frozen=True)
class Rate:
    """The speed of the stateful operator in steady state."""

    per_second: float
    #: Nanoseconds of processor time a row.
    cpu_ns: float
    checkpoints: int


def measure(job: mo.Job, warm: int, seconds: float, interval: str, rocksdb: bool) -> Rate:
    """Run a job until it is warm, and some seconds more."""
    with tempfile.TemporaryDirectory() as folder:
        backend = "rocksdb" if rocksdb else "heap"
        handle = mo.start(job, checkpoints=mo.Checkpoints(folder, interval=interval), backend=backend)
        try:
            while _rows(handle) < warm:
                time.sleep(0.1)
            _next_report(handle)
            first, began, taken = _rows(handle), time.perf_counter(), len(handle.checkpoints)
            spent = processor_seconds()
            time.sleep(seconds)
            _next_report(handle)
            rows, took = _rows(handle) - first, time.perf_counter() - began
            cpu_ns = (processor_seconds() - spent) / rows * 1e9
            return Rate(rows / took, cpu_ns, len(handle.checkpoints) - taken)
        finally:
            handle.cancel()


def processor_seconds() -> float:
    """The processor time of this process and of those below it that are alive."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _rows(handle: mo.Handle) -> int:
    return handle.progress["operators"].get("totals", {}).get("records_in", 0)


def _next_report(handle: mo.Handle) -> None:
    before = _rows(handle)
    while _rows(handle) == before and handle.is_active:
        time.sleep(0.002)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--rocksdb", action="store_true")
    options = parser.parse_args()
    keys, texts = options.keys, options.texts
    seconds, interval = (8.0, "2s") if options.quick else (40.0, "10s")
    check(keys, texts)
    columns = in_columns(mo.generate_batches(sales_of(keys, texts)), texts, mo.discard())
    records = in_records(mo.generate(sale_of(keys, texts)), mo.discard())
    shrunk = 10 if options.quick else 1
    fast = measure(columns, 20_000_000 // shrunk, seconds, interval, options.rocksdb)
    slow = measure(records, 4_000_000 // shrunk, seconds, interval, options.rocksdb)
    for name, rate in (("in columns", fast), ("record by record", slow)):
        print(f"{name} {rate.per_second:,.0f} rows/s, {rate.cpu_ns:,.0f} ns of processor time a row")
    found = {
        "bench": "columns",
        "keys": keys,
        "kind": "text" if texts else "int",
        "backend": "rocksdb" if options.rocksdb else "heap",
        "columns_per_second": round(fast.per_second),
        "records_per_second": round(slow.per_second),
        "ratio": round(fast.per_second / slow.per_second, 2),
        "columns_cpu_ns": round(fast.cpu_ns),
        "records_cpu_ns": round(slow.cpu_ns),
        "cpu_ratio": round(slow.cpu_ns / fast.cpu_ns, 2),
        "checkpoints": fast.checkpoints,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
