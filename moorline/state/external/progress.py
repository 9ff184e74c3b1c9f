"""The progress of an outside store, in a snapshot: how far it had come, and what is to be removed from it.

A small state of its own, ``store:<label>``, with a row for each key group, so that it is dealt out with the key groups
after a rescale. The rows of the states themselves hold what is to be written (``state/external/table.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.api.state.external import Place
from moorline.errors import SnapshotCorrupt
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.state.backend import RestoredRows

#: The state of a snapshot that says how far a store had come is called so, and its label.
STORE = "store:"


class StoreProgress(msgspec.Struct, frozen=True):
    """The progress of a store in one key group, when a snapshot was taken."""

    checkpoint: int
    #: The last checkpoint that the store had all of.
    reached: int
    #: The states that are kept there.
    states: list[str]
    #: Documents that are gone and that the store may still have: state and encoded key.
    gone: list[tuple[str, bytes]] = []
    #: The last barrier before which something changed: what the store is as of when it has this snapshot. 0: written by
    #: an earlier version, which did not say.
    changed: int = 0

    @property
    def as_of(self) -> int:
        """The number that a store's mark gets when it has all of this snapshot: the lowest that is true."""
        return self.changed or self.checkpoint


def read_progress(restored: RestoredRows) -> dict[int, StoreProgress]:
    """The progress of a store that a snapshot holds, by key group."""
    by_group: dict[int, StoreProgress] = {}
    for rows in restored.tables():
        texts = rows["value"].to_pylist()
        try:
            decoded = {text: msgspec.msgpack.decode(text, type=StoreProgress) for text in set(texts)}
        except msgspec.DecodeError as error:
            path = restored.handle.file.path if restored.handle.file is not None else "the manifest"
            raise SnapshotCorrupt(path, f"it should say how far a store had come: {error}") from error
        by_group |= {group: decoded[text] for group, text in zip(rows["key_group"].to_pylist(), texts)}
    return by_group


def write_progress(
    progress: StoreProgress, gone: list[Place], key_groups: KeyGroupRange, max_parallelism: int
) -> Iterator[pa.Table]:
    """The rows of a store's progress. ``gone``: documents of any key groups that are to be removed."""
    by_group: dict[int, list[tuple[str, bytes]]] = {}
    for place in gone:
        by_group.setdefault(place.key_group, []).append((place.state, place.key))
    groups = np.arange(key_groups.first, key_groups.end)
    values = [msgspec.msgpack.encode(progress)] * len(groups)
    for group, removed in by_group.items():
        values[group - key_groups.first] = msgspec.msgpack.encode(msgspec.structs.replace(progress, gone=removed))
    columns = {"key_group": pa.array(groups, pa.int32()), "key": pa.array(_some_keys(max_parallelism)[groups])}
    yield pa.table(columns | {"value": pa.array(values, pa.binary())})


@lru_cache(8)
def _some_keys(max_parallelism: int) -> npt.NDArray[np.int64]:
    """For each key group a number that belongs to it: rows have a key."""
    tried = max_parallelism
    while True:
        tried *= 8
        groups, first = np.unique(keys.int_key_groups(np.arange(tried), max_parallelism), return_index=True)
        if len(groups) == max_parallelism:
            return first
