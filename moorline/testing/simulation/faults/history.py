"""Faults of a simulated history: an entry that is lost, cut short, replaced or copied, as by hand or by a bad backup.

Only where an older checkpoint is left to go back to: without one the job refuses to start, and rightly. Then nothing
may be lost or doubled all the same. ``testing/simulation/simulator.py`` decides when.
"""

from __future__ import annotations

import random

from moorline.storage.blobs import BlobStore
from moorline.storage.chain import Record
from moorline.storage.layout import entry_path


def spoil_history(store: BlobStore, chance: random.Random, records: list[Record], newest: Record) -> str:
    """Do something to the entry of the newest checkpoint, or on top of it. Returns what it was."""
    others = [r for r in records if r.damage is None and r.seq != newest.seq]
    ways = ["removed", "cut short"] + (["replaced", "copied on top"] if others else [])
    way = chance.choice(ways)
    if way == "copied on top":
        store.put(entry_path(records[-1].seq + 1), store.get(chance.choice(others).path))
        return way
    data = store.get(newest.path)
    store.delete([newest.path])
    if way == "cut short":
        store.put(newest.path, data[: chance.randrange(len(data))])
    elif way == "replaced":
        store.put(newest.path, store.get(chance.choice(others).path))
    return way
