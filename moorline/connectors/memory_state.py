"""State in an outside store that is a dict of this process: for tests, and for the simulator.

It keeps the contract of all stores (``api/state/external.py``) and can be made to fail, so what is tried with it holds
for a database too. Stores of the same name are one store, also after pickling.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from moorline.api.state.external import (
    Change,
    Document,
    ExternalStore,
    FreshStart,
    Mark,
    Owner,
    Place,
    StoreSession,
    TakeOver,
    check_settings,
    own_mark,
)
from moorline.errors import StorageError
from moorline.model.options import checks_options

#: Job, uid and place of a document.
Ident = tuple[str, str, Place]


@dataclass
class MemoryData:
    """The contents of a store. Tests look at it, and make it fail."""

    documents: dict[Ident, bytes] = field(default_factory=dict)
    marks: dict[tuple[str, str], dict[tuple[int, int], Mark]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: Called before and after each step ("take_over", "read", "scan", "apply"; "took_over", "applied") and may raise.
    on_step: Callable[[str], None] = lambda step: None
    round_trips: int = 0


_stores: dict[str, MemoryData] = {}


@dataclass(frozen=True)
class MemoryState(ExternalStore):
    """A store in memory, by its name."""

    name: str
    on_fresh_start: FreshStart = "error"
    cache_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def label(self) -> str:
        return f"memory.{self.name}"

    @property
    def where(self) -> str:
        return f"memory store {self.name!r}"

    @property
    def data(self) -> MemoryData:
        """The contents of the store."""
        return _stores.setdefault(self.name, MemoryData())

    def open(self, owner: Owner) -> StoreSession:
        return _MemorySession(self.where, self.data, owner)

    def forget(self, job: str, uid: str | None = None) -> None:
        data = self.data
        with data.lock:
            for ident in [i for i in data.documents if i[0] == job and uid in (None, i[1])]:
                del data.documents[ident]
            for whose in [w for w in data.marks if w[0] == job and uid in (None, w[1])]:
                del data.marks[whose]


@checks_options()
def memory_state(name: str, *, on_fresh_start: FreshStart = "error", cache_bytes: int = 32 << 20) -> MemoryState:
    """Keep a state in this process, outside of the job: for tests.

    >>> memory_state("counts").where
    "memory store 'counts'"
    """
    return MemoryState(name, on_fresh_start, cache_bytes)


class _MemorySession:
    def __init__(self, where: str, data: MemoryData, owner: Owner) -> None:
        self._where, self._data, self._owner = where, data, owner
        self._reached: int | None = None

    def take_over(self, decide: Callable[[Sequence[Mark]], TakeOver]) -> None:
        data, owner = self._data, self._owner
        self._step("take_over")
        with data.lock:
            marks = data.marks.setdefault((owner.job, owner.uid), {})
            decision = decide(list(marks.values()))
            for mark in decision.drop:
                marks.pop((mark.attempt, mark.first), None)
            for ident in [i for i in data.documents if self._is_mine(i) and i[2].state in decision.clear]:
                del data.documents[ident]
            marks[owner.attempt, owner.first] = decision.mark
            self._reached = decision.mark.reached
        self._step("took_over")

    def read(self, places: Sequence[Place]) -> list[Document]:
        self._step("read")
        with self._data.lock:
            self._own_mark()
            documents, job, uid = self._data.documents, self._owner.job, self._owner.uid
            contents = [(place, documents.get((job, uid, place))) for place in places]
        return [Document(place, content) for place, content in contents if content is not None]

    def scan(self, state: str) -> Iterator[list[Document]]:
        with self._data.lock:
            own = [(i[2], d) for i, d in self._data.documents.items() if self._is_mine(i) and i[2].state == state]
        for n in range(0, len(own), 100):
            self._step("scan")
            yield [Document(place, content) for place, content in own[n : n + 100]]

    def count(self, limit: int) -> int:
        with self._data.lock:
            return sum(map(self._is_mine, self._data.documents))

    def apply(self, checkpoint: int, changes: Sequence[Change]) -> None:
        data, job, uid = self._data, self._owner.job, self._owner.uid
        self._step("apply")
        with data.lock:
            mark = self._own_mark()
            if mark.reached < checkpoint:
                for change in changes:
                    if change.content is None:
                        data.documents.pop((job, uid, change.place), None)
                    else:
                        data.documents[job, uid, change.place] = change.content
                data.marks[job, uid][mark.attempt, mark.first] = mark.at(checkpoint)
        self._step("applied")
        self._reached = checkpoint

    def close(self) -> None:
        pass

    def _step(self, step: str) -> None:
        self._data.round_trips += step in ("take_over", "read", "scan", "apply")
        try:
            self._data.on_step(step)
        except OSError as error:
            raise StorageError(self._where, step.replace("_", " "), str(error)) from error

    def _is_mine(self, ident: Ident) -> bool:
        owner = self._owner
        return ident[:2] == (owner.job, owner.uid) and owner.first <= ident[2].key_group < owner.end

    def _own_mark(self) -> Mark:
        owner = self._owner
        marks = self._data.marks.get((owner.job, owner.uid), {})
        return own_mark(list(marks.values()), owner, self._where, self._reached)
