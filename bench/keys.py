"""The memory of a count and a sum per int key: record by record on the heap, in columns, and beside them in Flink.

A process of its own for each: the growth of its memory from a tenth of the keys to all of them. Of Flink it is the used
heap of its JVM after a garbage collection, with its state on the heap (``hashmap``), of the same totals in its SQL.

    python bench/keys.py [--quick] [--no-peer] [--keys 2000000]

The last line is one JSON object, with bytes a key.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys

import numpy as np
import psutil
import pyarrow as pa
from peers import flink

import moorline as mo
from moorline.api.columns.aggregation import aggregation
from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.api.state.states import declared_states
from moorline.state.columns.backend import ColumnBackend
from moorline.state.heap.backend import HeapBackend

#: Keys come in no order, so that none is the neighbour of another.
SPREAD = 0x9E3779B97F4A7C15
BATCH = 65_536


def keys_of(first: int, end: int) -> np.ndarray:
    return ((np.arange(first, end, dtype=np.uint64) * np.uint64(SPREAD)) >> np.uint64(1)).astype(np.int64)


def on_the_heap():
    backend = HeapBackend("totals", 128, incremental=True)
    totals = backend.bind(ValueStateDescriptor("totals", tuple[int, int], default=(0, 0)))

    def add(keys: np.ndarray) -> None:
        for key in keys.tolist():
            backend.current.key = key
            count, total = totals.value()
            totals.update((count + 1, total + key))

    return add


def in_columns():
    schema = pa.schema([("customer", pa.int64()), ("cents", pa.int64())])
    made = aggregation(("customer",), {"n": mo.count(), "total": mo.sum("cents")}, schema, False)
    (declared,) = declared_states(made).values()
    table = ColumnBackend("totals", 128, incremental=True).bind_columns(declared.descriptor)

    def add(keys: np.ndarray) -> None:
        slots = table.slots(keys)
        for name, numbers in (("n", 1), ("total", keys)):
            table.columns[name].values[slots] += numbers
            table.columns[name].has[slots] = True
        table.touch(slots)

    return add


KINDS = {"heap": on_the_heap, "columns": in_columns}


def bytes_a_key(kind: str, keys: int) -> float:
    """Measured in this process."""
    add, sizes = KINDS[kind](), []
    for first, end in ((0, keys // 10), (keys // 10, keys)):
        for start in range(first, end, BATCH):
            add(keys_of(start, min(start + BATCH, end)))
        gc.collect()
        sizes.append(psutil.Process().memory_info().rss)
    return (sizes[1] - sizes[0]) / (keys - keys // 10)


def of_flink(keys: int) -> float:
    """Bytes a key of Flink's state on the heap. Raises ``flink.NotInstalled``."""
    used = []
    for number in (keys // 10, keys):
        # By chance: Flink makes all numbers of a sequence before the first of them comes out.
        table = (
            "CREATE TABLE numbers (id BIGINT) WITH ('connector'='datagen', 'rows-per-second'='400000',"
            f" 'fields.id.kind'='random', 'fields.id.min'='0', 'fields.id.max'='{number - 1}')"
        )
        job = {
            "settings": flink.settings("heap", "10min"),
            "tables": [table],
            "queries": {"totals": "SELECT id, COUNT(*), SUM(id) FROM numbers GROUP BY id"},
            "what": "memory",
            "warm": 6 * number,  # by then there are 997 keys of a thousand
        }
        found = flink.run(job)["totals"]
        if "error" in found:
            raise RuntimeError(found["error"])
        used.append(found["used_bytes"])
    return (used[1] - used[0]) / (keys - keys // 10)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--keys", type=int)
    parser.add_argument("--kind", choices=sorted(KINDS), help="measure this one, here")
    asked = parser.parse_args()
    keys = asked.keys or (200_000 if asked.quick else 2_000_000)
    if asked.kind:
        print(bytes_a_key(asked.kind, keys))
        return
    found: dict[str, object] = {"bench": "keys", "keys": keys, "peer": "not asked for"}
    for kind in KINDS:
        command = [sys.executable, __file__, "--kind", kind, "--keys", str(keys)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        found[kind] = round(float(ran.stdout.split()[-1]))
        print(f"{kind}: {found[kind]} bytes a key", flush=True)
    if not asked.no_peer:
        try:
            found["flink"], found["peer"] = round(of_flink(keys)), flink.VERSION
            print(f"flink: {found['flink']} bytes a key", flush=True)
        except flink.NotInstalled as why:
            found["peer"] = str(why)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
