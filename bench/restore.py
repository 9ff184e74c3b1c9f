"""What a restore reads: a snapshot of 1 GiB, at the same parallelism and at others, into each backend.

    python bench/restore.py [--quick] [--mib N]

The bytes that all subtasks read together, beside the bytes of the snapshot: a ratio of 1 means that each is read once.
In one process, without Spark: the same restore code that a worker runs, on files in a temporary folder. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import moorline as mo
from moorline.model.config.state import RocksDb, StateConfig
from moorline.model.key_groups import owned
from moorline.model.keys import int_key_groups
from moorline.model.manifest import Manifest, OperatorEntry, OperatorHandles, RowsHandle
from moorline.storage.segments import write_rows
from moorline.storage.stores.local import LocalStore
from moorline.testing.harness import HarnessSnapshot, OperatorHarness

VALUE_BYTES, TABLE_ROWS, KEY_GROUPS, WAS = 1024, 100_000, 128, 4


class Keeps(mo.KeyedProcessFunction):
    kept = mo.ValueState(bytes)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.kept.update(value[1])


def tables(keys: np.ndarray[Any, Any], groups: np.ndarray[Any, Any]) -> Iterator[pa.Table]:
    """Rows as the heap backend writes them: sorted by key group and key, with values that cannot be compressed."""
    chance = np.random.default_rng(1)
    order = np.lexsort((keys, groups))
    for first in range(0, len(order), TABLE_ROWS):
        rows = order[first : first + TABLE_ROWS]
        values = chance.bytes(VALUE_BYTES * len(rows))
        offsets = np.arange(0, len(values) + 1, VALUE_BYTES, dtype=np.int32)
        column = pa.BinaryArray.from_buffers(
            pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(values)]
        )
        group_column = pa.array(groups[rows], pa.int32())
        yield pa.table({"key_group": group_column, "key": pa.array(keys[rows], pa.int64()), "value": column})


def make_snapshot(folder: Path, rows: int) -> HarnessSnapshot:
    """A snapshot of a job with ``WAS`` subtasks."""
    store, keys = LocalStore(str(folder)), np.arange(rows, dtype=np.int64)
    groups, subtasks = int_key_groups(keys, KEY_GROUPS), []
    for index in range(WAS):
        mine = owned(index, WAS, KEY_GROUPS)
        own = (groups >= mine.first) & (groups < mine.end)
        handles = []
        for number, table in enumerate(tables(keys[own], groups[own])):
            file = write_rows(store, f"data/chk-1/keeps/kept-{index}-{number}.parquet", table)
            first, end = table["key_group"][0].as_py(), table["key_group"][-1].as_py() + 1
            handles.append(RowsHandle("kept", "value", "bytes", first, end, table.num_rows, file))
        subtasks.append(OperatorHandles("keeps", handles))
    manifest = Manifest("bench", 1, 1, 0, [OperatorEntry("keeps", "Keeps", WAS, KEY_GROUPS, subtasks)])
    return HarnessSnapshot(manifest, store)  # type: ignore[arg-type]


def restore(snapshot: HarnessSnapshot, backend: str, parallelism: int, key_groups: int, folder: Path) -> dict[str, Any]:
    state = StateConfig(RocksDb(folder=str(folder)) if backend == "rocksdb" else None)
    began = time.perf_counter()
    with OperatorHarness.of(
        lambda s: s.key_by(lambda r: r[0]).process(Keeps(), uid="keeps"),
        parallelism=parallelism,
        max_parallelism=key_groups,
        state=state,
        snapshot=snapshot,
    ) as harness:
        seconds, size = time.perf_counter() - began, snapshot.manifest.size
        ratio = harness.read_bytes / size
    print(
        f"{backend:8} {WAS} -> {parallelism} subtasks, {key_groups:4} key groups: "
        f"read {harness.read_bytes:13,} bytes of {size:13,}: {ratio:.3f} times, in {seconds:.1f} s"
    )
    return {
        "backend": backend,
        "from": WAS,
        "to": parallelism,
        "key_groups": key_groups,
        "ratio": round(ratio, 4),
        "seconds": round(seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="64 MiB instead of 1 GiB")
    parser.add_argument("--mib", type=int, default=None)
    options = parser.parse_args()
    mib = options.mib or (64 if options.quick else 1024)
    folder = Path(tempfile.mkdtemp(prefix="moorline-bench-"))
    try:
        snapshot = make_snapshot(folder / "snapshot", mib * (1 << 20) // VALUE_BYTES)
        shapes = [(WAS, KEY_GROUPS), (8, KEY_GROUPS), (3, KEY_GROUPS), (6, 500)]
        found = [
            restore(snapshot, backend, parallelism, key_groups, folder / f"{backend}-{parallelism}")
            for backend in ("heap", "rocksdb")
            for parallelism, key_groups in shapes
            if backend == "heap" or parallelism == 8
        ]
        print(json.dumps({"snapshot_bytes": snapshot.manifest.size, "restores": found}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
