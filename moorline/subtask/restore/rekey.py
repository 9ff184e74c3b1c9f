"""Restoring state under other keys (:class:`mo.Rekey <moorline.Rekey>`).

Under a new key a row may belong to any subtask, so each reads all rows, piece by piece, and keeps what is now its own.
A piece is restored into a heap backend of its own and carried over through the live states of the real one, so that
it works between any two backends and what two old keys have under one new key is merged by the states' own rules:

    value         by the user's merge function; without one, two values under one key are an error
    list          joined
    map           entry by entry, two values under one entry by the user's merge function
    reducing      reduced
    aggregating   by the aggregate function's merge, or the user's for accumulators
    timers        kept; equal ones are one

What has a time to live keeps the time of its last touch; what is merged, the later one of the two. The snapshot that is
read is not touched, and nothing is published before it is all done. ``subtask/restore/chain.py`` calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from moorline.api.functions.base import AggregateFunction
from moorline.api.state.descriptors import AggregatingStateDescriptor, StateDescriptor
from moorline.api.state.rekey import Rekey
from moorline.api.state.states import State
from moorline.errors import (
    InvalidArgument,
    KeysCollide,
    MergeFailed,
    MoorlineError,
    RekeyFailed,
    StateIncompatible,
    UnknownState,
)
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, NativeHandle, RowsHandle, StoreHandle
from moorline.protocol.expiry import is_expired
from moorline.state.backend import NO_KEY, KeyedBackend, OperatorClock, RestoredRows
from moorline.state.heap.backend import HeapBackend
from moorline.state.registration import TIMERS

#: Rows that are carried over at a time; and about how many bytes of a native file one of them is.
PIECE_ROWS, ROW_BYTES = 200_000, 64


class _Accumulator:
    """An accumulator on its way into an aggregating state. ``merge``: None if there is nothing to merge it with."""

    __slots__ = ("content", "merge")

    def __init__(self, content: Any, merge: Callable[[Any, Any], Any] | None) -> None:
        self.content, self.merge = content, merge


class _Merging(AggregateFunction[Any, Any, Any]):
    """The user's aggregate function, which also takes whole accumulators."""

    def __init__(self, inner: AggregateFunction[Any, Any, Any]) -> None:
        self._add = inner.add
        self.create_accumulator, self.get_result = inner.create_accumulator, inner.get_result  # type: ignore[method-assign]
        self.merge = inner.merge  # type: ignore[method-assign]

    def add(self, value: Any, accumulator: Any) -> Any:
        if type(value) is _Accumulator:
            return value.content if value.merge is None else value.merge(accumulator, value.content)
        return self._add(value, accumulator)


def mergeable(descriptor: StateDescriptor) -> StateDescriptor:
    """The descriptor of a state that accumulators can be merged into."""
    if isinstance(descriptor, AggregatingStateDescriptor):
        assert descriptor.aggregate is not None
        return replace(descriptor, aggregate=_Merging(descriptor.aggregate))
    return descriptor


class Rekeying:
    """Carries the state of one operator over."""

    def __init__(
        self,
        uid: str,
        rekey: Rekey,
        backend: KeyedBackend,
        descriptors: dict[str, StateDescriptor],
        live: dict[str, State],
        max_parallelism: int,
        own_groups: KeyGroupRange,
        key_type: Any,
        moment: OperatorClock,
        wall_ms: Callable[[], int],
    ) -> None:
        self._uid, self._rekey, self._backend, self._live = uid, rekey, backend, live
        self._descriptors, self._own_groups, self._key_type = descriptors, own_groups, key_type
        self._max_parallelism, self._moment, self._wall_ms = max_parallelism, moment, wall_ms
        #: By state: the new keys that have content already (of a map, keys and entries), and its stamp if it has one.
        self._seen: dict[str, dict[Any, int | None]] = {name: {} for name in descriptors}
        merged = {name: d for name, d in descriptors.items() if d.kind not in ("list", "reducing")}
        if unknown := rekey.merge.keys() - merged.keys():
            has = ", ".join(map(repr, merged)) or "none"
            advice = (
                f"Of operator {uid!r} it can be said for {has}; lists and reductions are merged without being told."
            )
            raise InvalidArgument(f"merge of rekey {rekey.name!r}", sorted(unknown), advice)

    def run(
        self,
        handles: Sequence[KeyedHandle],
        restored: Callable[[KeyGroupRange], Iterable[RestoredRows]],
        key_groups: int,
    ) -> None:
        """Carry over what ``handles`` have. ``restored(piece)``: their rows in some of the snapshot's key groups."""
        natives = [h for h in handles if isinstance(h, NativeHandle)]
        rows = sum(h.rows for h in handles if not isinstance(h, NativeHandle))
        size = sum(file.size for h in natives for file in h.all_files())
        width = max(1, key_groups // (1 + (rows + size // ROW_BYTES) // PIECE_ROWS))
        self._check_place(handles)
        for first in range(0, key_groups, width):
            piece = KeyGroupRange(first, min(first + width, key_groups))
            old = HeapBackend(self._uid, key_groups, key_type=self._key_type, allow_dropped=None)
            old.restore(list(restored(piece)))
            for name, descriptor in self._descriptors.items():
                self._state(name, descriptor, old)
            for domain in ("event", "processing"):
                self._timers(domain, old)
            self._backend.flush()

    def _check_place(self, handles: Sequence[KeyedHandle]) -> None:
        """Raise for restored state that is neither carried over nor dropped by name, as without a change of keys."""
        for handle in handles:
            for state, kind, stored_type in handle.states:
                if isinstance(handle, StoreHandle):
                    now = f"state that rekey {self._rekey.name!r} can reach, which is in the worker"
                    raise StateIncompatible(self._uid, state, "state in an outside store", now)
                if state in self._descriptors or state.startswith(TIMERS):
                    continue
                if self._is_bound(state):
                    now = f"state that rekey {self._rekey.name!r} can reach, which belongs to keys and not to windows"
                    raise StateIncompatible(self._uid, state, "state of windows", now)
                # Left over: the backend says so, unless it may be dropped.
                self._backend.restore([RestoredRows(RowsHandle(state, kind, stored_type, 0, 0, 0), lambda: iter(()))])

    def _is_bound(self, state: str) -> bool:
        try:
            self._backend.keys(state)
        except UnknownState:
            return False
        return True

    def _new_key(self, key: Any) -> Any:
        """The identity of the key to carry over to, or NO_KEY if it is not ours or not wanted."""
        try:
            new = self._rekey.key(key)
            if new is None:
                return NO_KEY
            if keys.key_group(new, self._max_parallelism) not in self._own_groups:
                return NO_KEY
            return self._backend.identities.of(new)
        except MoorlineError:
            raise
        except Exception as error:  # the user's function, or no key at all
            cause = f"{type(error).__name__}: {error}"
            raise RekeyFailed(self._uid, self._rekey.name, repr(key)[:200], cause) from error

    def _state(self, name: str, descriptor: StateDescriptor, old: HeapBackend) -> None:
        old.bind(replace(descriptor, store=None))
        old_keys = list(old.keys(name))  # or it raises, if the class of a key is not known
        entries = old.stored_entries(name)
        for key in old_keys:
            new = self._new_key(key)
            if new is NO_KEY:
                continue
            self._backend.prefetch((new,))
            self._backend.current.key = new
            try:
                self._carry(name, descriptor, entries[old.identities.of(key)], new)
            except MoorlineError:
                raise
            except Exception as error:  # the user's functions
                cause = f"{type(error).__name__}: {error}"
                raise MergeFailed(self._uid, self._rekey.name, name, repr(new)[:200], cause) from error
            finally:
                self._backend.current.key = NO_KEY

    def _carry(self, name: str, descriptor: StateDescriptor, content: Any, new: Any) -> None:
        """Carry over what one old key has in a state, part by part: entries of a map, elements of a list."""
        parts: Iterable[tuple[Any, Any]] = [(new, content)]
        if descriptor.kind == "map":
            parts = (((new, entry), value) for entry, value in content.items())
        elif descriptor.kind == "list":
            parts = ((new, element) for element in content)
        if descriptor.ttl_config is not None:
            self._carry_stamped(name, descriptor, parts, new)
            return
        for place, value in parts:
            self._put(name, descriptor, new, place, value, {})

    def _carry_stamped(self, name: str, descriptor: StateDescriptor, parts: Any, new: Any) -> None:
        ttl, moment, seen = descriptor.ttl_config, self._moment, self._seen[name]
        assert ttl is not None
        is_event_time = ttl.time == "event"
        before = moment.processing_ms, moment.timestamp
        try:
            for place, (value, stamp, own) in parts:
                if stamp is None and not is_event_time:
                    stamp = self._wall_ms()  # stored before it had a time to live, which begins now
                latest = None if descriptor.kind == "list" else seen.get(place)
                if latest is not None and stamp is not None:
                    if is_expired(stamp, own or ttl.length_ms, latest):
                        continue
                    stamp = max(stamp, latest)
                # A state takes the time from the operator's clock, so that is set to when it was touched.
                moment.timestamp, moment.processing_ms = (stamp, before[0]) if is_event_time else (None, stamp or 0)
                options = {} if own is None else {"ttl": timedelta(milliseconds=own)}
                self._put(name, descriptor, new, place, value, options)
                seen[place] = stamp
        finally:
            moment.processing_ms, moment.timestamp = before

    def _put(
        self, name: str, descriptor: StateDescriptor, new: Any, place: Any, value: Any, options: dict[str, Any]
    ) -> None:
        target: Any = self._live[name]
        seen = self._seen[name]
        match descriptor.kind:
            case "value":
                first = target.value() if new in seen else None  # None as well if it is over its time
                target.update(value if first is None else self._merge(name, new, first, value), **options)
            case "map":
                entry = place[1]
                is_new = not target.contains(entry)
                target.put(entry, value if is_new else self._merge(name, new, target.get(entry), value), **options)
                return
            case "list" | "reducing":
                target.add(value, **options)
                return
            case _:
                merge = self._merging(name, descriptor, new) if new in seen else None
                target.add(_Accumulator(value, merge), **options)
        seen.setdefault(new, None)

    def _merge(self, name: str, key: Any, first: Any, second: Any) -> Any:
        merge = self._rekey.merge.get(name)
        if merge is None:
            raise KeysCollide(self._uid, name, repr(key)[:200], self._rekey.name)
        return merge(first, second)

    def _merging(self, name: str, descriptor: Any, key: Any) -> Callable[[Any, Any], Any]:
        own = type(descriptor.aggregate).merge
        if name in self._rekey.merge or own is AggregateFunction.merge:
            return lambda first, second: self._merge(name, key, first, second)
        merge: Callable[[Any, Any], Any] = descriptor.aggregate.merge
        return merge

    def _timers(self, domain: str, old: HeapBackend) -> None:
        source, target = old.timers(domain), self._backend.timers(domain)
        while (due := source.pop_due((1 << 63) - 1)) is not None:
            moment, key, namespace = due
            new = self._new_key(key)
            if new is not NO_KEY:
                target.register(moment, new, namespace)
