"""What state costs: a codec, an access, a checkpoint, a restore; on the heap and in RocksDB.

    codecs       a value of each of some types to bytes and back, beside msgspec alone; to a column and back
    access       each kind of state, one read and one write per record, beside a dict in a bare loop
    checkpoints  full and incremental (1 % of the keys changed), at several numbers of keys: how long the stream waits
                 (sync), how long the upload takes (async), how many bytes are uploaded
    restore      of a full and of an incremental checkpoint, at the same parallelism and at twice as many subtasks,
                 beside a plain read of the same bytes

    python bench/state.py [--quick] [--largest KEYS]

In one process, without Spark: the same backends, snapshot and restore code that a worker runs. Times are CPU time of
the process, its background threads among them, so other work on the machine does not count. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from moorline.api.functions.base import AggregateFunction
from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from moorline.model.config.state import RocksDb, StateConfig
from moorline.model.key_groups import KeyGroupRange, owned
from moorline.model.manifest import KeyedHandle, OperatorHandles
from moorline.state.backend import NO_KEY, KeyedBackend, OperatorClock
from moorline.state.heap.backend import HeapBackend
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.state.types.annotations import stored
from moorline.storage.stores.local import LocalStore
from moorline.subtask.restore.state import as_stored
from moorline.subtask.snapshot.capture import Captured
from moorline.subtask.snapshot.writer import Writer

GROUPS = 128
BATCH = 2048
ALL = KeyGroupRange(0, GROUPS)


class Sum(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


def make(kind: str, folder: Path, incremental: bool, mine: KeyGroupRange = ALL) -> KeyedBackend:
    if kind == "heap":
        return HeapBackend("bench", GROUPS, OperatorClock(), incremental=incremental)
    local = Path(tempfile.mkdtemp(dir=folder))
    config = StateConfig(RocksDb(memory="256MB"), incremental)
    assert config.rocksdb is not None
    return RocksDbBackend(
        "bench",
        GROUPS,
        OperatorClock(),
        key_groups=mine,
        folder=local,
        incremental=incremental,
        memory_budget=config.rocksdb.memory_bytes,
    )


def batches(records: int, keys: int) -> Iterator[list[int]]:
    """Keys in an order that no cache likes: a full walk in large steps."""
    step, key = 7_919, 0
    for start in range(0, records, BATCH):
        batch = []
        for _ in range(min(BATCH, records - start)):
            key = (key + step) % keys
            batch.append(key)
        yield batch


# --- codecs -------------------------------------------------------------------------------------


@dataclass
class Basket:
    owner: str
    items: int
    total: float


class Pair(NamedTuple):
    count: int
    total: float


#: Annotation, and a value made of a number.
TYPES: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "int": (int, lambda n: n),
    "tuple[int, int]": (tuple[int, int], lambda n: (n, n * 7)),
    "tuple[str, int, float]": (tuple[str, int, float], lambda n: (f"k{n}", n, n / 7)),
    "NamedTuple": (Pair, lambda n: Pair(n, n / 7)),
    "dataclass": (Basket, lambda n: Basket(f"k{n}", n, n / 7)),
    "list[int]": (list[int], lambda n: [n, n + 1, n + 2]),
    "dict[str, int]": (dict[str, int], lambda n: {"a": n, "b": n + 1}),
}


def per_value(work: Callable[..., Any], values: list[Any]) -> int:
    """Nanoseconds per value, in the best of many short runs: what else runs on the machine disturbs the longer ones."""
    times = []
    for _ in range(100):
        began = time.process_time()
        work(values)
        times.append(time.process_time() - began)
    return round(min(times) / len(values) * 1e9)


def each(work: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
    return lambda values: [work(v) for v in values]


def measure_codecs(count: int) -> dict:
    found: dict = {}
    for name, (annotation, make_value) in TYPES.items():
        stored_type, values = stored(annotation, "here"), [make_value(n) for n in range(count)]
        column = stored_type.to_array(values)
        row = {
            "msgspec_ns": per_value(each(msgspec.msgpack.Encoder().encode), values),
            "pack_ns": per_value(each(stored_type.pack), values),
            "unpack_ns": per_value(each(stored_type.unpack), [stored_type.pack(v) for v in values]),
            "to_column_ns": per_value(stored_type.to_array, values),
            "from_column_ns": per_value(lambda _, t=stored_type, c=column: t.from_array(c), values),
        }
        row["pack_times_msgspec"] = round(row["pack_ns"] / max(row["msgspec_ns"], 1), 2)
        found[name] = row
        print(
            f"{name:24} pack {row['pack_ns']:>5} ns ({row['pack_times_msgspec']:>5}x msgspec)   unpack "
            f"{row['unpack_ns']:>5} ns   to a column {row['to_column_ns']:>5} ns   back {row['from_column_ns']:>5} ns"
        )
    return found


# --- access -------------------------------------------------------------------------------------


def kinds() -> dict[str, tuple[Any, Callable[[Any], Callable[[int], None]], Callable[[dict], Callable[[int], None]]]]:
    """For each kind: a descriptor, one access through the live state, and the same on a dict."""

    def value(state: Any) -> Callable[[int], None]:
        return lambda n: state.update(state.value() + n)

    def pair(state: Any) -> Callable[[int], None]:
        def access(n: int) -> None:
            count, total = state.value()
            state.update((count + 1, total + n))

        return access

    def pair_dict(d: dict) -> Callable[[int], None]:
        def access(n: int) -> None:
            count, total = d.get(d["key"], (0, 0))
            d[d["key"]] = (count + 1, total + n)

        return access

    def value_dict(d: dict) -> Callable[[int], None]:
        def access(n: int) -> None:
            d[d["key"]] = d.get(d["key"], 0) + n

        return access

    def add(state: Any) -> Callable[[int], None]:
        return lambda n: state.add(n)

    def list_dict(d: dict) -> Callable[[int], None]:
        return lambda n: d.setdefault(d["key"], []).append(n)

    def map_state(state: Any) -> Callable[[int], None]:
        return lambda n: state.put(n % 8, state.get(n % 8, 0) + 1)

    def map_dict(d: dict) -> Callable[[int], None]:
        def access(n: int) -> None:
            entries = d.setdefault(d["key"], {})
            entries[n % 8] = entries.get(n % 8, 0) + 1

        return access

    return {
        "value": (ValueStateDescriptor("value", int, 0), value, value_dict),
        "count and sum": (ValueStateDescriptor("pair", tuple[int, int], (0, 0)), pair, pair_dict),
        "list (append)": (ListStateDescriptor("list", int), add, list_dict),
        "map": (MapStateDescriptor("map", int, int), map_state, map_dict),
        "reducing": (ReducingStateDescriptor("reducing", lambda a, b: a + b, int), add, value_dict),
        "aggregating": (AggregatingStateDescriptor("aggregating", Sum(), int), add, value_dict),
    }


def bare_loop(access_of: Callable[[dict], Callable[[int], None]], records: int, keys: int) -> float:
    d: dict = {}
    access = access_of(d)
    work = list(batches(records, keys))
    began = time.process_time()
    for batch in work:
        for n in batch:
            d["key"] = n
            access(n)
    return (time.process_time() - began) / records


def through_state(backend: KeyedBackend, descriptor: Any, access_of: Any, records: int, keys: int) -> float:
    access, current = access_of(backend.bind(descriptor)), backend.current
    work = list(batches(records, keys))
    for batch in work[: max(1, keys // BATCH)]:  # once round, so that every key is there
        backend.prefetch(batch)
        for n in batch:
            current.key = n
            access(n)
        backend.flush()
    began = time.process_time()
    for batch in work:
        backend.prefetch(batch)
        for n in batch:
            current.key = n
            access(n)
        current.key = NO_KEY
        backend.flush()
    return (time.process_time() - began) / records


def measure_access(folder: Path, records: int, few: int, many: int) -> dict:
    found: dict = {}
    rows = [(name, few, *kind) for name, kind in kinds().items()]
    rows += [(f"{name}, {many:,} keys", many, *kind) for name, kind in kinds().items() if name == "count and sum"]
    for name, keys, descriptor, state_access, dict_access in rows:
        bare = min(bare_loop(dict_access, records, keys) for _ in range(3))
        row: dict = {"dict_ns": round(bare * 1e9)}
        for kind in ("heap", "rocksdb"):
            backend = make(kind, folder, incremental=kind == "rocksdb")
            seconds = through_state(backend, descriptor, state_access, records, keys)
            backend.close()
            row[kind] = {
                "ns": round(seconds * 1e9),
                "records_per_second": round(1 / seconds),
                "times_a_dict": round(seconds / bare, 2),
            }
        found[name] = row
        heap, rocks = row["heap"], row["rocksdb"]
        print(
            f"{name:28} dict {row['dict_ns']:>5} ns   heap {heap['ns']:>5} ns ({heap['times_a_dict']:>4}x)   "
            f"rocksdb {rocks['ns']:>6} ns ({rocks['times_a_dict']:>5}x)"
        )
    return found


# --- checkpoints and restores -------------------------------------------------------------------

STATE = ValueStateDescriptor("total", tuple[int, int], (0, 0))


def fill(backend: KeyedBackend, state: Any, keys: Iterator[int] | range) -> None:
    current, batch = backend.current, []
    for key in [*keys, None]:
        if key is not None:
            batch.append(key)
        if len(batch) == BATCH or (key is None and batch):
            backend.prefetch(batch)
            for k in batch:
                current.key = k
                count, total = state.value()
                state.update((count + 1, total + k))
            current.key = NO_KEY
            backend.flush()
            batch = []


def checkpoint(backend: KeyedBackend, store: LocalStore, number: int, mine: KeyGroupRange = ALL) -> tuple[dict, list]:
    began = time.process_time()
    taken = backend.snapshot(number, number - 1)
    sync = time.process_time() - began
    began = time.process_time()
    (handles,) = Writer(store, [Captured("bench", taken, [], {}, [])], number, 0, 1, mine)()
    seconds = time.process_time() - began
    taken.done(handles.keyed)
    backend.confirmed(number)
    uploaded = sum(f.size for f in handles.files() if f"chk-{number}/" in f.path)
    total = sum(f.size for f in handles.files())
    row = {"sync_ms": round(1000 * sync, 2), "async_ms": round(1000 * seconds, 1), "uploaded": uploaded, "size": total}
    return row, handles.keyed


def restore(kind: str, folder: Path, store: LocalStore, handles: list[KeyedHandle], parts: int) -> tuple[float, int]:
    """Seconds of the slowest of ``parts`` subtasks, and how many keys they have together."""
    slowest, keys = 0.0, 0
    for index in range(parts):
        mine = owned(index, parts, GROUPS)
        backend = make(kind, folder, incremental=True, mine=mine)
        began = time.process_time()
        backend.restore(list(as_stored([h for h in handles if mine & h.key_groups], mine, store)))
        backend.bind(STATE)
        backend.check_all_bound()
        slowest = max(slowest, time.process_time() - began)
        keys += sum(1 for _ in backend.keys("total"))
        backend.close()
    return slowest, keys


def plain_read(root: Path, handles: list[KeyedHandle]) -> tuple[float, int]:
    files = OperatorHandles("bench", handles).files()
    began = time.process_time()
    size = sum(len((root / f.path).read_bytes()) for f in files)
    return time.process_time() - began, size


def measure_checkpoints(folder: Path, keys: int) -> dict:
    found: dict = {}
    for kind in ("heap", "rocksdb"):
        for incremental in (False, True):
            root = Path(tempfile.mkdtemp(dir=folder))
            store = LocalStore(root)
            backend = make(kind, folder, incremental)
            state = backend.bind(STATE)
            fill(backend, state, range(keys))
            first, _ = checkpoint(backend, store, 1)
            fill(backend, state, range(0, keys, 100))
            second, handles = checkpoint(backend, store, 2)
            backend.close()
            read, size = plain_read(root, handles)
            row = {"first": first, "after_1_percent": second, "plain_read_s": round(read, 3), "bytes": size}
            for name, parts in (("same", 1), ("doubled", 2)):
                seconds, count = restore(kind, folder, store, handles, parts)
                assert count == keys, (kind, incremental, name, count, keys)
                row[f"restore_{name}"] = {
                    "s": round(seconds, 3),
                    "s_per_gb": round(seconds / size * 1e9, 1),
                    "s_per_million_keys": round(seconds / keys * 1e6, 2),
                    "times_a_plain_read": round(seconds / max(read, 1e-9), 1),
                }
            found[f"{kind} {'incremental' if incremental else 'full'}"] = row
            print(
                f"{keys:>9,} keys  {kind:7} {'incremental' if incremental else 'full':11} "
                f"first: sync {first['sync_ms']:>7} ms, async {first['async_ms']:>8} ms, {first['uploaded']:>12,} B   "
                f"1 % later: sync {second['sync_ms']:>7} ms, async {second['async_ms']:>8} ms, "
                f"{second['uploaded']:>12,} B   restore {row['restore_same']['s']:>7} s, "
                f"at twice the parallelism {row['restore_doubled']['s']:>7} s (plain read {row['plain_read_s']} s)"
            )
            shutil.rmtree(root)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of minutes")
    parser.add_argument("--largest", type=int, default=5_000_000, help="no state of more keys than this")
    given = parser.parse_args()
    quick = given.quick
    folder = Path(tempfile.mkdtemp(prefix="moorline-bench-"))
    try:
        print("codecs, one value")
        codecs = measure_codecs(2_000)
        print("one access (read and write) per record")
        access = measure_access(folder, *((50_000, 10_000, 40_000) if quick else (400_000, 100_000, 400_000)))
        print("checkpoints and restores")
        sizes = [20_000, 100_000] if quick else [100_000, 1_000_000, 5_000_000]
        checkpoints = {str(keys): measure_checkpoints(folder, keys) for keys in sizes if keys <= given.largest}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        json.dumps({"bench": "state", "quick": quick, "codecs": codecs, "access": access, "checkpoints": checkpoints})
    )


if __name__ == "__main__":
    main()
