"""Write a snapshot to be stored here, with the code that is on the path.

    python tests/formats/write_snapshots.py timed rocksdb-increments --to tests/formats/snapshots/4-timed-rocksdb.zip

A job runs in one thread, without Spark, and is left half-way: its newest checkpoint is all there is. Stored snapshots
are never written again. Before the storage format gets a new number, the last code that writes the old one writes
those of its own; ``README.md`` beside them says which commit wrote which.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import zipfile
from pathlib import Path

import moorline as mo
from moorline.model.config.thresholds import Folding, Thresholds
from moorline.storage.stores.open import open_store

sys.path.insert(0, str(Path(__file__).parents[1] / "scenarios"))

#: The module of each job. One that needs newer names is not imported in an older checkout.
MODULES = {"keyed": "keyed_job", "timed": "timed_job", "typed": "typed_job"}
#: Increments of small tables are folded at once; here they are to stay.
LONG_CHAINS = Thresholds(
    folding=Folding(growth=None, max_increments=20, max_files=20, copied_entries=0, copied_share=2)
)
BACKENDS = {
    "heap": ("heap", False),
    "heap-increments": ("heap", True),
    "rocksdb": ("rocksdb", False),
    "rocksdb-increments": ("rocksdb", True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("job", choices=list(MODULES))
    parser.add_argument("backend", choices=list(BACKENDS))
    parser.add_argument("--to", type=Path, required=True, help="a zip file that is new")
    parser.add_argument("--savepoint", action="store_true", help="store a savepoint and not a checkpoint")
    parser.add_argument("--unaligned", action="store_true", help="with records in flight")
    options = parser.parse_args()
    if options.to.exists():
        sys.exit(f"{options.to} is there already")
    whole_jobs = importlib.import_module("whole_jobs")
    build = getattr(importlib.import_module(MODULES[options.job]), options.job)
    backend, is_incremental = BACKENDS[options.backend]
    with tempfile.TemporaryDirectory() as scratch:
        checkpoints = {"incremental": is_incremental}
        config = {"backend": mo.RocksDb(folder=scratch, memory="8MB")} if backend == "rocksdb" else {}
        if options.backend == "heap-increments":
            config["thresholds"] = LONG_CHAINS
        if options.unaligned:
            checkpoints["unaligned"] = True
        store = open_store(f"{scratch}/checkpoints")
        config["checkpoints"] = mo.Checkpoints("memory://", interval="40ms", **checkpoints)
        running = whole_jobs.WholeJob(build("stored"), store, **config).checkpoints(3)
        if options.savepoint:
            store = open_store(running.savepoint())
        with zipfile.ZipFile(options.to, "x", zipfile.ZIP_DEFLATED) as archive:
            for blob in store.list(""):
                archive.writestr(blob.path, store.get(blob.path))
    print(f"{options.to}: {options.to.stat().st_size} bytes")


if __name__ == "__main__":
    main()
