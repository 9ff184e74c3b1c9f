"""Lists and maps whose elements expire one by one.

A call judges everything by one moment, so ``len`` and ``is_empty`` agree with what an iteration in their place would
have shown; they look at no entry by itself and so touch none. Nothing is removed or stamped while the plain state is
being iterated: it may be lazy. ``state/ttl/states.py`` makes these states and says what they lie over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor
from moorline.api.state.states import ListState, MapState
from moorline.model.durations import Duration
from moorline.protocol.expiry import after_read, after_write, is_expired
from moorline.state.ttl.rules import Rules, Stamped, length_of

_MISSING: Any = object()


def _element_reader(inner: Any, rules: Rules) -> Callable[[Iterable[Stamped], int, int | None, bool], list[Any]]:
    """A function that reads the elements of a list."""
    length, shows_expired, removable_at = rules.length, rules.shows_expired, rules.removable_at

    def split(elements: Iterable[Stamped], now: int, touch: int | None, counts: bool) -> list[Any]:
        """The values that a read shows. Those to be removed or stamped by it are, in one write, if there are any."""
        shown: list[Any] = []
        kept: list[Stamped] = []
        is_changed = False
        removable = removable_at(now)
        for element in elements:
            value, last, own = element
            if is_expired(last, own or length, now):
                if shows_expired:
                    shown.append(value)
                if is_expired(last, own or length, removable):
                    is_changed = True
                else:
                    kept.append(element)
                continue
            shown.append(value)
            stamp = after_read(last, touch, now, counts)
            if stamp != last:
                is_changed, element = True, (value, stamp, own)
            kept.append(element)
        if is_changed:
            inner.update(kept)
        return shown

    return split


class ExpiringListState(ListState[Any]):
    """A list whose elements expire one by one."""

    def __init__(self, descriptor: ListStateDescriptor, inner: Any, rules: Rules) -> None:
        super().__init__(descriptor.type, name=descriptor.name, ttl=descriptor.ttl)
        length, reads_count, times, split = rules.length, rules.reads_count, rules.times, _element_reader(inner, rules)
        turn, sweep_some = rules.sweep(lambda now: split(inner.get(), now, now, False), of_collections=True)

        def get() -> list[Any]:
            if turn():
                sweep_some()
            elements = inner.get()
            if type(elements) is not list:
                elements = list(elements)
            now, touch = times()
            if not reads_count:
                # Nearly always there is nothing to be changed. Then one pass is enough.
                oldest = now - length
                live = [
                    value
                    for value, last, own in elements
                    if last is not None and (last > oldest if own is None else last + own > now)
                ]
                if len(live) == len(elements):
                    return live
            return split(elements, now, touch, reads_count)

        def add(value: Any, *, ttl: Duration | None = None) -> None:
            if turn():
                sweep_some()
            inner.add((value, times()[1], None if ttl is None else length_of(ttl)))

        def add_all(values: Iterable[Any]) -> None:
            if turn():
                sweep_some()
            touch = times()[1]
            inner.add_all([(value, touch, None) for value in values])

        def update(values: Iterable[Any]) -> None:
            if turn():
                sweep_some()
            touch = times()[1]
            inner.update([(value, touch, None) for value in values])

        self.get, self.add, self.add_all = get, add, add_all  # type: ignore[method-assign]
        self.update, self.clear = update, inner.clear  # type: ignore[method-assign]


def _entry_reader(inner: Any, rules: Rules) -> Callable[[int, int | None, bool], list[tuple[Any, Any]]]:
    """A function that reads the entries of a map."""
    length, shows_expired, removable_at = rules.length, rules.shows_expired, rules.removable_at
    store, remove = inner.put, inner.remove

    def pass_over(now: int, touch: int | None, counts: bool) -> list[tuple[Any, Any]]:
        """The entries that an iteration shows. Those to be removed or stamped by it are, when it is over."""
        shown: list[tuple[Any, Any]] = []
        gone: list[Any] = []
        stamped: list[tuple[Any, Stamped]] = []
        removable = removable_at(now)
        for key, (value, last, own) in inner.items():
            if is_expired(last, own or length, now):
                if is_expired(last, own or length, removable):
                    gone.append(key)
                if shows_expired:
                    shown.append((key, value))
                continue
            shown.append((key, value))
            if counts or last is None:
                stamp = after_read(last, touch, now, counts)
                if stamp != last:
                    stamped.append((key, (value, stamp, own)))
        for key in gone:
            remove(key)
        for key, element in stamped:
            store(key, element)
        return shown

    return pass_over


class ExpiringMapState(MapState[Any, Any]):
    """A map whose entries expire one by one."""

    def __init__(self, descriptor: MapStateDescriptor, inner: Any, rules: Rules) -> None:
        super().__init__(descriptor.key_type, descriptor.type, name=descriptor.name, ttl=descriptor.ttl)
        length, reads_count, shows_expired, times = rules.length, rules.reads_count, rules.shows_expired, rules.times
        find, store, remove, is_event_time = inner.get, inner.put, inner.remove, rules.is_event_time
        removable_at, pass_over = rules.removable_at, _entry_reader(inner, rules)
        turn, sweep_some = rules.sweep(lambda now: pass_over(now, now, False), of_collections=True)

        def get(key: Any, default: Any = None) -> Any:
            if turn():
                sweep_some()
            stamped = find(key)
            if stamped is None:
                return default
            value, last, own = stamped
            now, touch = times()
            if is_expired(last, own or length, now):
                if is_expired(last, own or length, removable_at(now)):
                    remove(key)
                return value if shows_expired else default
            if reads_count or last is None:
                stamp = after_read(last, touch, now, reads_count)
                if stamp != last:
                    store(key, (value, stamp, own))
            return value

        def put(key: Any, value: Any, *, ttl: Duration | None = None) -> None:
            if turn():
                sweep_some()
            now, touch = times()
            if is_event_time:
                # By the clock nothing can have been touched later than now.
                before = find(key)
                if before is not None:
                    touch = after_write(before[1], touch, now, before[2] or length)
            store(key, (value, touch, None if ttl is None else length_of(ttl)))

        def put_all(entries: dict[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
            for key, value in dict(entries).items():
                put(key, value)

        def items() -> list[tuple[Any, Any]]:
            if turn():
                sweep_some()
            return pass_over(*times(), reads_count)

        def count() -> int:
            now = times()[0]
            return sum(shows_expired or not is_expired(last, own or length, now) for _, last, own in inner.values())

        self.get, self.put, self.put_all = get, put, put_all  # type: ignore[method-assign]
        self.contains = lambda key: get(key, _MISSING) is not _MISSING  # type: ignore[method-assign]
        self.remove, self.clear = remove, inner.clear  # type: ignore[method-assign]
        self.items = items  # type: ignore[method-assign]
        self.keys = lambda: [key for key, _ in items()]  # type: ignore[method-assign]
        self.values = lambda: [value for _, value in items()]  # type: ignore[method-assign]
        self.is_empty = lambda: not count()  # type: ignore[method-assign]
        self._count = count

    def __len__(self) -> int:
        return self._count()

    def __getitem__(self, key: Any) -> Any:
        # One read, not two: the first could be the last that shows an expired entry.
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value
