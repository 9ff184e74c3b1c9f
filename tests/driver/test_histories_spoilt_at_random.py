"""Several things done to a history at once, at random: what is restored never changes in silence.

``test_history_manipulations.py`` has the ways that people have found. Here chance puts them together, on the entries
alone: the head, which lies in a folder of its own, is left as it is.
"""

from __future__ import annotations

import random
import uuid

import pytest
from driver_worlds import World
from thoroughness import examples

import moorline as mo
from moorline.errors import HistoryBroken
from moorline.model.manifest import Manifest
from moorline.snapshots import inspection
from moorline.snapshots.inspection import Verdict
from moorline.storage.layout import HISTORY, entry_path
from moorline.storage.log import read_history
from moorline.storage.stores.memory import MemoryStore

UNNAMED = "data/chk-9/count/sum-0-1-c0ffee.parquet"


def entries(store: MemoryStore) -> dict[str, bytes]:
    return {blob.path: store.get(blob.path) for blob in store.list(HISTORY)}


def write(store: MemoryStore, path: str, data: bytes) -> None:
    store.delete([path])
    store.put(path, data)


def spoil(chance: random.Random, store: MemoryStore, earlier: list[dict[str, bytes]]) -> None:
    """Do to one of the entries what a person, a backup or a disk could."""
    now = entries(store)
    if not now:
        return
    one, other = chance.choice(list(now)), chance.choice(list(now))
    data = now[one]
    match chance.randrange(7):
        case 0:
            store.delete([one])
        case 1:
            write(store, other, data)
        case 2:
            write(store, one, now[other])
            write(store, other, data)
        case 3:
            write(store, one, data[: chance.randrange(len(data) + 1)])
        case 4:
            at = chance.randrange(max(1, len(data)))
            write(store, one, data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)] if data else []) + data[at + 1 :])
        case 5:
            write(store, entry_path(chance.randrange(1, 14)), data)
        case _:
            path, data = chance.choice(list(chance.choice(earlier).items()))
            write(store, path, data)


def history(chance: random.Random, store: MemoryStore) -> tuple[mo.Checkpoints, list[dict[str, bytes]]]:
    """That of a job, perhaps taken over. Also as it was after each checkpoint."""
    config = mo.Checkpoints("memory://small", interval="1s", timeout="10s", retained=chance.randrange(1, 4))
    world = World(store=store, checkpoints=config).run()
    earlier = []
    for _ in range(chance.choice([1, 2, 4])):
        world.complete()
        earlier.append(entries(store))
    if chance.random() < 0.4:
        World(store=store, checkpoints=config, restore="latest").run().complete()
        earlier.append(entries(store))
    return config, earlier


@pytest.mark.parametrize("seed", range(examples(150)))
def test_whatever_is_done_the_job_goes_on_refuses_or_says_what_it_passes_over(seed, caplog):
    chance, store = random.Random(seed), MemoryStore(uuid.uuid4().hex)
    config, earlier = history(chance, store)
    before = entries(store)
    newest = max(r.entry.checkpoint for r in read_history(store) if isinstance(r.entry, Manifest))
    for _ in range(chance.randrange(1, 5)):
        spoil(chance, store, earlier)
    if entries(store) == before:
        return
    store.put(UNNAMED, b"of an upload that was under way, or of what was lost")
    report = inspection.check(store, 0)
    assert report.verdict is not Verdict.SOUND, "fsck has seen nothing"
    caplog.clear()
    world = World(store=store, checkpoints=config, restore="latest").start()
    restored = world.supervision.restored_from
    if restored:
        assert restored[0] > 0, "it has begun empty"
        assert restored[0] == newest or "CANNOT BE USED" in caplog.text
    else:
        assert isinstance(world.supervision.error, HistoryBroken)
        assert store.list("data/"), "swept before anything was decided"
    assert report.newest_whole == (restored[0] if restored else None), "fsck and the driver choose alike"
