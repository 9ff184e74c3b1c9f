"""Some states of an operator in the worker, others in outside stores: each goes where its declaration says.

    timers, states without store=      the operator's own backend
    states with store=                 one backend for each store (``state/external/backend.py``)

All of them look at one current key. A snapshot is theirs put together; a restore is dealt out again by what the
snapshot says about each store: which states it keeps. A state cannot move between the worker and a store, or between
two stores, from one run to the next: its content would have to be moved, and half of it is not in the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.external import ExternalStore
from moorline.api.state.states import State
from moorline.errors import InvalidArgument, StateIncompatible, UnknownState
from moorline.model.manifest import KeyedHandle, NativeHandle, StoreHandle
from moorline.state.backend import (
    CurrentKey,
    KeyedBackend,
    KeyedSnapshot,
    Restored,
    RestoredFiles,
    RestoredRows,
    Rows,
    StateFigures,
    TimerStore,
)
from moorline.state.external.backend import ExternalBackend
from moorline.state.external.progress import STORE, read_progress
from moorline.state.peeking import Peeked

IN_THE_WORKER = "kept in the worker"


class CompositeBackend:
    """A backend and the outside stores of some of its states.

    ``make_external`` is called once for each store, when the first state that is kept there is bound.

    >>> from moorline.api.state.states import ValueStateDescriptor
    >>> from moorline.connectors.memory_state import memory_state
    >>> from moorline.model.key_groups import KeyGroupRange
    >>> from moorline.state.heap.backend import HeapBackend
    >>> def external(store):
    ...     return ExternalBackend("op", 128, store=store, job="job", key_groups=KeyGroupRange(0, 128))
    >>> backend = CompositeBackend("op", HeapBackend("op", 128), external)
    >>> here = backend.bind(ValueStateDescriptor("here", int))
    >>> there = backend.bind(ValueStateDescriptor("there", int, store=memory_state("composite")))
    >>> backend.prefetch(["a"])
    >>> backend.current.key = "a"
    >>> here.update(1), there.update(2)
    (None, None)
    >>> [part.state for part in backend.snapshot(1, completed=0).parts]
    ['here', 'there', 'store:memory.composite']
    """

    def __init__(
        self,
        uid: str,
        inner: KeyedBackend,
        make_external: Callable[[ExternalStore], ExternalBackend],
        *,
        allow_dropped: frozenset[str] | None = frozenset(),
    ) -> None:
        self.current, self.identities = inner.current, inner.identities
        self._uid, self._inner, self._make_external, self._allow_dropped = uid, inner, make_external, allow_dropped
        self._stores: dict[ExternalStore, ExternalBackend] = {}
        #: Where each state that is bound is: its backend.
        self._homes: dict[str, KeyedBackend] = {}
        #: What was restored for a store, by its label; and for each restored state where it was.
        self._waiting: dict[str, list[RestoredRows]] = {}
        self._was_in: dict[str, str] = {}

    # --- before the first record ----------------------------------------------------------------

    def restore(self, restored: Sequence[Restored]) -> None:
        for part in restored:
            if isinstance(part, RestoredRows) and isinstance(part.handle, StoreHandle):
                label = part.handle.state.removeprefix(STORE)
                self._waiting.setdefault(label, []).append(part)
                for progress in read_progress(part).values():
                    self._was_in |= dict.fromkeys(progress.states, label)
        in_the_worker: list[Restored] = []
        for part in restored:
            if isinstance(part, RestoredFiles):
                in_the_worker.append(part)
            elif (label := self._was_in.get(part.handle.state, IN_THE_WORKER)) != IN_THE_WORKER:
                self._waiting[label].append(part)
            elif not isinstance(part.handle, StoreHandle):
                in_the_worker.append(part)
        for part in in_the_worker:
            self._was_in |= dict.fromkeys((name for name, _, _ in part.handle.states), IN_THE_WORKER)
        self._inner.restore(in_the_worker)

    def bind(self, descriptor: StateDescriptor, scope: CurrentKey | None = None) -> State:
        name, store = descriptor.name, descriptor.store
        if store is not None and not isinstance(store, ExternalStore):
            advice = "Give a store such as mo.postgres_state(...) or mo.redis_state(...)."
            raise InvalidArgument(f"store of state {name!r} of operator {self._uid!r}", store, advice)
        home: KeyedBackend = self._inner if store is None else self._external(store)
        if self._homes.setdefault(name, home) is not home:
            advice = "Another state of that name is kept elsewhere. Give one of them another name."
            raise InvalidArgument(f"store of state {name!r} of operator {self._uid!r}", store, advice)
        now = IN_THE_WORKER if store is None else store.label
        was = self._was_in.get(name, now)
        if was != now:
            raise StateIncompatible(self._uid, name, _place(was), _place(now))
        return home.bind(descriptor, scope)

    def _external(self, store: ExternalStore) -> ExternalBackend:
        if store not in self._stores:
            if any(store.label == other.label for other in self._stores):
                advice = (
                    f"Another store of operator {self._uid!r} is called {store.label!r} too. Use the very same one."
                )
                raise InvalidArgument("store", store, advice)
            made = self._make_external(store)
            made.current, made.identities = self.current, self.identities
            made.restore(self._waiting.pop(store.label, []))
            self._stores[store] = made
        return self._stores[store]

    def timers(self, name: str) -> TimerStore:
        return self._inner.timers(name)

    def check_all_bound(self) -> None:
        for label in self._waiting:
            names = {name for name, was in self._was_in.items() if was == label}
            if self._allow_dropped is not None and names - self._allow_dropped:
                name = ", ".join(sorted(names - self._allow_dropped))
                raise StateIncompatible(self._uid, name, _place(label), "nothing: no state is kept there any more")
        self._waiting = {}
        for backend in self._all():
            backend.check_all_bound()

    # --- while records are processed ------------------------------------------------------------

    def prefetch(self, keys: Iterable[Any]) -> None:
        distinct = set(keys) if self._stores else keys
        for backend in self._all():
            backend.prefetch(distinct)

    def flush(self) -> None:
        for backend in self._all():
            backend.flush()

    def keys(self, state: str) -> Iterator[Any]:
        return self._homes.get(state, self._inner).keys(state)

    def peek(self, state: str, encoded: bytes) -> Peeked:
        if state not in self._homes:
            raise UnknownState(self._uid, state, tuple(self._homes))
        return self._homes[state].peek(state, encoded)

    def entries(self) -> int:
        return sum(backend.entries() for backend in self._all())

    def figures(self) -> StateFigures:
        together = StateFigures()
        for part in (backend.figures() for backend in self._all()):
            together.keys |= part.keys
            together.timers += part.timers
            together.sizes |= part.sizes
        return together

    def close(self) -> None:
        errors = []
        for backend in self._all():
            try:
                backend.close()
            except Exception as error:  # all are closed before one is raised
                errors.append(error)
        if errors:
            raise errors[0]

    # --- checkpoints ----------------------------------------------------------------------------

    def snapshot(self, checkpoint: int, completed: int, *, canonical: bool = False) -> KeyedSnapshot:
        taken = [backend.snapshot(checkpoint, completed, canonical=canonical) for backend in self._all()]
        named = [
            {name for h in s.reused for name, _, _ in h.states} | {p.state for p in s.parts if isinstance(p, Rows)}
            for s in taken
        ]

        def done(handles: list[KeyedHandle] | None) -> None:
            for snapshot, names in zip(taken, named):
                # Files of a backend's own kind are the inner backend's.
                own = snapshot is taken[0]
                snapshot.done(
                    handles and [h for h in handles if (own if isinstance(h, NativeHandle) else h.state in names)]
                )

        return KeyedSnapshot(
            [handle for snapshot in taken for handle in snapshot.reused],
            [part for snapshot in taken for part in snapshot.parts],
            taken[0].fold,
            # What is on its way to a store is no chain.
            frozenset(named[0]) if taken[0].foldable is None else taken[0].foldable,
            done,
        )

    def stage(self, checkpoint: int) -> None:
        """A checkpoint that is stored nowhere: what is on its way to stores is applied when it is confirmed."""
        for backend in self._stores.values():
            backend.snapshot(checkpoint, 0).done(None)

    def confirmed(self, checkpoint: int) -> None:
        for backend in self._all():
            backend.confirmed(checkpoint)

    def _all(self) -> list[KeyedBackend]:
        return [self._inner, *self._stores.values()]


def _place(label: str) -> str:
    return f"state {label}" if label == IN_THE_WORKER else f"state in the store {label!r}"
