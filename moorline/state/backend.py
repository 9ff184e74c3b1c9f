"""The interface of a state backend.

A backend keeps the keyed states of one operator in one subtask. It belongs to the subtask's thread; only what a
snapshot hands out to be written (:class:`Rows`, :class:`Files`) is used from another one.

    restore(...)*  bind(...)* timers(...)*  check_all_bound()        before the first record
    prefetch(keys)  [access ...]  flush()                            for every batch of records or timers
    peek(state, key)                                                 between two of them: a query
    snapshot(n, completed)  written(handles)                         at a barrier, and when its files are durable
    confirmed(n)                                                     the checkpoint is complete
    close()

**What is uploaded.** A snapshot names files of earlier checkpoints that are still right (``reused``) and says what is
to be written beside them. It may build on checkpoint ``completed`` and on what was restored, and on nothing else: the
files of a checkpoint that was given up are deleted. ``completed`` comes with the barrier, so a lost confirmation does
no harm, and the driver keeps what a checkpoint in flight may build on (``driver/checkpoints/retention.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pyarrow as pa

from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.states import State
from moorline.errors import NoCurrentKey
from moorline.model.keys.identity import KeyIdentities
from moorline.model.manifest import FileHandle, KeyedHandle, NativeFile, NativeHandle, StoredState
from moorline.model.times import MIN_TIME
from moorline.model.type_tree.tree import StateType

if TYPE_CHECKING:
    from moorline.state.peeking import Peeked

#: Which window a state belongs to: its start and end. None: to the key alone.
Namespace = tuple[int, int] | None


class _NoKey:
    """Stands for "no record is being processed". It cannot be looked up, so no access needs to check for it."""

    def __hash__(self) -> NoReturn:
        raise NoCurrentKey("?")


NO_KEY = _NoKey()


class CurrentKey:
    """The key of the record being processed, shared by the operator and all of its states.

    It is what stands for the key in memory (``model/keys/identity.py``). States of windows have a ``CurrentKey`` of
    their own, whose key is the pair of key and namespace.
    """

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: Any = NO_KEY


class OperatorClock:
    """The time of one operator. Set by the operator for every batch, read by states with a time to live."""

    __slots__ = ("passed", "processing_ms", "timestamp", "watermark")

    def __init__(self) -> None:
        #: Wall clock, in milliseconds since 1970; never goes back.
        self.processing_ms = 0
        self.watermark = MIN_TIME
        #: Event time that is over: the last watermark, once all of its timers have fired. What has expired by then is
        #: seen by no record that is on time and by no timer.
        self.passed = MIN_TIME
        #: Of the record or event-time timer being processed; None if it has none.
        self.timestamp: int | None = None


class Slices(Protocol):
    """The slices in which state is encoded beside the stream: ask how many rows to do, do them, and say so."""

    @property
    def rows(self) -> int:
        """About how many rows to encode before :meth:`done` is called."""
        ...

    def done(self, rows: int) -> None:
        """So many rows were looked at or encoded. May take a while: others have the interpreter meanwhile."""
        ...


class _Whole:
    """No slices: nothing else is going on."""

    rows = 65_536

    def done(self, rows: int) -> None:
        pass


WHOLE: Slices = _Whole()


@dataclass(frozen=True)
class Rows:
    """Rows of one state, to be written as Parquet.

    ``tables`` is called once, off the subtask's thread. Each table is of bounded size, sorted by key group and key;
    together they are sorted too. Columns: key_group, key, [namespace], [map_key], value, [last_access], [ttl], and in
    an increment ``gone`` (bool): true in the one row of a key that has nothing left.
    """

    state: str
    kind: str
    type: StateType
    tables: Callable[[], Iterator[pa.Table]]
    #: Only what has changed: a key that occurs here replaces all there was under it before.
    increment: bool = False
    #: The same as ``tables``, for a backend that can do it in slices.
    sliced: Callable[[Slices], Iterator[pa.Table]] | None = None

    def tables_in(self, slices: Slices) -> Iterator[pa.Table]:
        """The tables, encoded in slices if the backend can. Called once, in place of ``tables``."""
        if self.sliced is not None:
            yield from self.sliced(slices)
            return
        for table in self.tables():
            yield table
            slices.done(table.num_rows)


@dataclass(frozen=True)
class Files:
    """Files of the backend's own kind, to be stored as they are. Those in ``known`` are in storage already."""

    states: tuple[StoredState, ...]
    #: By the name that the backend will want back.
    paths: dict[str, Path]
    known: dict[str, NativeFile]


@dataclass
class KeyedSnapshot:
    """The synchronous part of a snapshot is done; this is what is left to do."""

    #: Parts of earlier checkpoints that belong to this one as they are, oldest first.
    reused: list[KeyedHandle] = field(default_factory=list)
    parts: list[Rows | Files] = field(default_factory=list)
    #: The chain has become long: write what ``reused`` and ``parts`` amount to, as a new base.
    fold: bool = False
    #: Whose chains are folded then; None: those of all states.
    foldable: frozenset[str] | None = None
    #: Called on the subtask's thread: with all handles when they are durable, with None when they never will be.
    done: Callable[[list[KeyedHandle] | None], None] = lambda handles: None


@dataclass(frozen=True)
class RestoredRows:
    """Rows of one state in a checkpoint, cut to the subtask's own key groups."""

    handle: FileHandle
    #: The rows of the own key groups, in tables of bounded size.
    tables: Callable[[], Iterator[pa.Table]]


@dataclass(frozen=True)
class RestoredFiles:
    """Files of the backend's own kind in a checkpoint."""

    handle: NativeHandle
    #: Brings the files into a folder, verified. They are named as the backend named them.
    fetch: Callable[[Path], None]


Restored = RestoredRows | RestoredFiles


@dataclass
class StateFigures:
    """The amount that a backend keeps, for people. Estimates where an exact number would cost too much."""

    #: The keys of each state.
    keys: dict[str, int] = field(default_factory=dict)
    #: Timers that wait, of both kinds.
    timers: int = 0
    #: What else there is to say of one kind of backend, by name: bytes in memory and on disk.
    sizes: dict[str, int] = field(default_factory=dict)


class TimerStore(Protocol):
    """The timers of one kind (event or processing time), one per time, key and namespace."""

    def register(self, time: int, key: Any, namespace: Namespace = None) -> None:
        """Add a timer. One that is there already stays the only one."""
        ...

    def delete(self, time: int, key: Any, namespace: Namespace = None) -> None:
        """Remove a timer, if it is there."""
        ...

    def of_key(self, key: Any) -> list[tuple[int, Namespace]]:
        """All timers of a key, earliest first."""
        ...

    def next_time(self) -> int | None:
        """The time at which the earliest timer is due; None: there is none."""
        ...

    def pop_due(self, up_to: int) -> tuple[int, Any, Namespace] | None:
        """Remove and return the earliest timer that is due at ``up_to``: time, key, namespace."""
        ...


class KeyedBackend(Protocol):
    """The keyed states of one operator in one subtask.

    Keys that are passed in stand for the users' keys as :attr:`identities` says; those handed out are the users' own.
    """

    current: CurrentKey
    identities: KeyIdentities

    def restore(self, restored: Sequence[Restored]) -> None:
        """Take state back, before :meth:`bind`. In the order of the chain: a later one replaces an earlier one."""
        ...

    def bind(self, descriptor: StateDescriptor, scope: CurrentKey | None = None) -> State:
        """The live state of a descriptor, with its restored content. ``scope``: for states of windows."""
        ...

    def timers(self, name: str) -> TimerStore:
        """The timers of a kind, with their restored content."""
        ...

    def check_all_bound(self) -> None:
        """Raise if something was restored that no state was bound for."""
        ...

    def prefetch(self, keys: Iterable[Any]) -> None:
        """Records with these keys are about to be processed."""
        ...

    def flush(self) -> None:
        """The batch has been processed: write back what it has changed."""
        ...

    def keys(self, state: str) -> Iterator[Any]:
        """All keys that have something in a state. The state may be changed on the way."""
        ...

    def peek(self, state: str, encoded: bytes) -> Peeked:
        """The rows under a key, between two batches. Changes nothing that a record could notice."""
        ...

    def snapshot(self, checkpoint: int, completed: int, *, canonical: bool = False) -> KeyedSnapshot:
        """The synchronous part of a snapshot: quick, whatever the size of the state.

        ``canonical``: all of the state in rows, for a savepoint. It builds on nothing, and nothing is built on it.
        """
        ...

    def confirmed(self, checkpoint: int) -> None:
        """The checkpoint is complete."""
        ...

    def entries(self) -> int:
        """The number of keys, over all states. May be an estimate."""
        ...

    def figures(self) -> StateFigures:
        """The amount of each state, of timers and of memory. May write back what has changed."""
        ...

    def close(self) -> None:
        """Give back what is held."""
        ...
