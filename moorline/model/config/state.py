"""Configuration of state backends: the heap or RocksDB."""

from __future__ import annotations

from dataclasses import dataclass

from moorline.errors import InvalidArgument
from moorline.model.config.thresholds import FOLDING, Folding
from moorline.model.options import checks_options
from moorline.model.sizes import size_in_bytes


@checks_options()
@dataclass(frozen=True, kw_only=True)
class RocksDb:
    """Keep keyed state in RocksDB, on the worker's disk: it may be far larger than memory.

    >>> RocksDb(memory="128MB").memory_bytes
    134217728
    """

    #: What one worker may use for caches and buffers.
    memory: str | int = "256MB"
    #: Where its files lie while the job runs. None: the worker's folder for temporary files.
    folder: str | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes < 8 << 20:
            raise InvalidArgument("memory", self.memory, "RocksDB needs 8MB at least.")

    @property
    def memory_bytes(self) -> int:
        return size_in_bytes(self.memory, "memory")


@dataclass(frozen=True)
class StateConfig:
    """The configuration of state and its snapshots that a subtask needs."""

    rocksdb: RocksDb | None = None
    incremental: bool = False
    at_least_once: bool = False
    #: May a snapshot hold pickled records in flight? It says so who chooses a mode that writes them.
    unaligned: bool = False
    #: In a batch job: only the key that is being worked on has state, and it is never snapshotted.
    one_key: bool = False
    #: Records are passed on by reference instead of as copies: see :attr:`RunConfig.object_reuse`.
    object_reuse: bool = False
    folding: Folding = FOLDING


#: On the heap, full snapshots.
ON_THE_HEAP = StateConfig()
