"""Faults of a simulated world, and how likely each of them is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moorline.errors import StorageError
from moorline.storage.blobs import Blob, BlobStore

if TYPE_CHECKING:
    from moorline.testing.simulation.cluster import World


class WorkerDied(BaseException):
    """The simulated worker is killed at this very step."""


@dataclass
class Faults:
    """The likelihood of each fault, per chance it gets."""

    worker_death: float = 0.002
    driver_death: float = 0.0007
    death_in_upload: float = 0.01
    storage_error: float = 0.01
    lost_notification: float = 0.1
    repeated_order: float = 0.05
    zombie: float = 0.3
    #: A worker stops answering and does not die: at any step; and before it has done anything.
    hang: float = 0.00015
    hang_at_start: float = 0.002
    #: When a driver dies: one file of its newest checkpoint is damaged, if there is an older checkpoint, or if it is
    #: the final one of a stop with a savepoint.
    damage: float = 0.3
    #: It is its entry in the history instead: lost, cut short, replaced by another; or another is copied on top.
    history: float = 0.4
    #: Not faults, but wishes that must not disturb anything: another parallelism; a savepoint; a stop with a savepoint,
    #: from which the job then goes on.
    rescale: float = 0.0006
    savepoint: float = 0.0004
    stop: float = 0.0003
    #: It goes on from its newest checkpoint instead, which is the final one of the stop; that may be damaged by then.
    latest_after_stop: float = 0.5
    #: The job's folder is swept from outside.
    sweep: float = 0.002
    #: A driver that takes over, or a rescale, also brings another number of key groups.
    key_groups: float = 0.3
    #: The job rescales itself, by loads that are made up.
    autoscale: float = 0.2
    #: Storage takes no more writes, for good: the job has to end.
    sealed: float = 0.0


class UnsureStore:
    """A store that fails now and then, before or after having done what it was asked."""

    def __init__(self, store: BlobStore, world: World, may_kill: bool) -> None:
        self._store, self._world, self._may_kill = store, world, may_kill

    @property
    def url(self) -> str:
        return self._store.url

    def _unsure(self, path: str, step: Callable[[], Any], is_write: bool = True) -> Any:
        world = self._world
        if world.sealed and is_write:
            raise StorageError(path, "write", "simulated read-only storage", can_pass=False)
        if self._may_kill and world.happens(world.faults.death_in_upload):
            raise WorkerDied
        if not world.happens(world.faults.storage_error):
            return step()
        if world.chance.random() < 0.5:
            step()
        raise StorageError(path, "reach", "simulated failure")

    def put(self, path: str, data: bytes) -> None:
        self._unsure(path, lambda: self._store.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return bool(self._unsure(path, lambda: self._store.put_if_absent(path, data)))

    def get(self, path: str) -> bytes:
        return bytes(self._unsure(path, lambda: self._store.get(path), is_write=False))

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        return bytes(self._unsure(path, lambda: self._store.get_range(path, offset, size), is_write=False))

    def list(self, prefix: str = "") -> list[Blob]:
        return self._store.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        wanted = [*paths]
        self._unsure(str(wanted[:1]), lambda: self._store.delete(wanted))

    def modified_ms(self, path: str) -> int:
        return self._store.modified_ms(path)
