"""The injection of faults into one simulated run: when they happen, how often each did, and a store that fails."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from moorline.errors import StorageError
from moorline.storage.blobs import Blob, BlobStore
from moorline.testing.simulation.faults.likelihood import Faults, WorkerDied


@dataclass
class Injection:
    """The faults of one run, and how often each has been injected."""

    faults: Faults
    #: From this step on nothing goes wrong any more, so that the job can come to its end.
    fault_steps: int
    step: Callable[[], int]
    chance: random.Random
    #: For faults that were added later: with a generator of their own, a seed tells the same story as before.
    later_chance: random.Random
    injected: Counter[str] = field(default_factory=Counter)
    #: Storage takes no more writes.
    sealed: bool = False
    #: Files that were damaged on purpose.
    damaged: set[str] = field(default_factory=set)

    def happens(self, probability: float) -> bool:
        return self.step() < self.fault_steps and self.chance.random() < probability

    def happens_later(self, probability: float) -> bool:
        """The same, by the generator of faults that were added later."""
        return self.step() < self.fault_steps and self.later_chance.random() < probability

    def maybe_seal(self) -> None:
        """Make storage read-only, for good."""
        if not self.sealed and self.happens(self.faults.sealed):
            self.injected["sealed storage"] += 1
            self.sealed = True


class UnsureStore:
    """A store that fails now and then, before or after having done what it was asked."""

    def __init__(self, store: BlobStore, injection: Injection, may_kill: bool) -> None:
        self._store, self._injection, self._may_kill = store, injection, may_kill

    @property
    def url(self) -> str:
        return self._store.url

    def _unsure(self, path: str, step: Callable[[], Any], is_write: bool = True) -> Any:
        injection = self._injection
        if injection.sealed and is_write:
            raise StorageError(path, "write", "simulated read-only storage", can_pass=False)
        if self._may_kill and injection.happens(injection.faults.death_in_upload):
            raise WorkerDied
        if not injection.happens(injection.faults.storage_error):
            return step()
        if injection.chance.random() < 0.5:
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
