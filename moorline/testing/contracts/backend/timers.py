"""Timers: one for each time, key and namespace, fired in order, and never lost."""

from __future__ import annotations

from typing import Any

import pytest

from moorline.errors import KeyClassUnknown
from moorline.model.keys import encode
from moorline.model.keys.identity import KeyIdentities
from moorline.state.backend import Namespace, TimerStore
from moorline.testing.contracts.backend.base import (
    DAY,
    HOUR,
    KEYS,
    VALUE,
    Account,
    BackendTests,
    Colour,
    Subtask,
    saved,
    subtask_of,
)

FOREVER = (1 << 63) - 1


def fired(timers: TimerStore, up_to: int = FOREVER) -> list[Any]:
    """All timers that are due, in the order they come."""
    due = []
    while (timer := timers.pop_due(up_to)) is not None:
        due.append(timer)
    return due


def _order(timer: tuple[int, Any, Namespace]) -> Any:
    time, key, namespace = timer
    return time, encode(key), repr(namespace)


class ByOwnKeys:
    """Timers that are set with the users' own keys."""

    def __init__(self, timers: TimerStore, identities: KeyIdentities) -> None:
        self._timers, self._identity = timers, identities.of
        self.next_time, self.pop_due = timers.next_time, timers.pop_due

    def register(self, time: int, key: Any, namespace: Namespace = None) -> None:
        self._timers.register(time, self._identity(key), namespace)

    def delete(self, time: int, key: Any, namespace: Namespace = None) -> None:
        self._timers.delete(time, self._identity(key), namespace)

    def of_key(self, key: Any) -> list[tuple[int, Namespace]]:
        return self._timers.of_key(self._identity(key))


class Timers(BackendTests):
    """Timers: one for each time, key and namespace, fired in order, and never lost."""

    def _timers(self, **options: Any) -> tuple[Subtask, TimerStore]:
        subtask = self.subtask(timers=["event"], **options)
        return subtask, ByOwnKeys(subtask.timers[0], subtask.backend.identities)

    def _at(self, subtask: Subtask, *keys: Any) -> None:
        subtask.backend.flush()
        subtask.backend.prefetch(subtask.backend.identities.of_batch(list(keys)))

    # --- firing ---------------------------------------------------------------------------------

    def test_timers_fire_in_the_order_of_their_times(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a", "b")
        for time, key in ((30, "a"), (-10, "b"), (20, "a"), (0, "b")):
            timers.register(time, key)
        assert fired(timers) == [(-10, "b", None), (0, "b", None), (20, "a", None), (30, "a", None)]

    def test_a_timer_is_due_at_its_time_and_not_before(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a")
        timers.register(10, "a")
        assert timers.pop_due(9) is None
        assert timers.pop_due(10) == (10, "a", None)
        assert timers.pop_due(10) is None

    def test_timers_of_one_time_all_fire(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, *KEYS)
        for key in KEYS:
            timers.register(10, key)
        assert {key for _, key, _ in fired(timers)} == set(KEYS)

    def test_a_timer_that_is_registered_twice_fires_once(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a")
        for _ in range(3):
            timers.register(10, "a")
        assert fired(timers) == [(10, "a", None)]

    def test_a_timer_that_has_fired_can_be_registered_again(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a")
        timers.register(10, "a")
        assert fired(timers) == [(10, "a", None)]
        timers.register(10, "a")
        assert fired(timers) == [(10, "a", None)]

    def test_a_timer_registered_while_others_fire_takes_its_turn(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a")
        timers.register(10, "a")
        timers.register(30, "a")
        assert timers.pop_due(100) == (10, "a", None)
        timers.register(20, "a")
        timers.register(5, "a")
        assert [time for time, _, _ in fired(timers, 100)] == [5, 20, 30]

    def test_a_timer_for_each_window_of_a_key(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a")
        for window in (None, HOUR, DAY, HOUR):
            timers.register(10, "a", window)
        assert {namespace for _, _, namespace in fired(timers)} == {None, HOUR, DAY}

    def test_the_next_time_is_that_of_the_earliest_timer(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a", "b")
        assert timers.next_time() is None
        timers.register(20, "a")
        timers.register(10, "b")
        assert timers.next_time() == 10
        timers.delete(10, "b")
        assert timers.next_time() == 20
        timers.pop_due(20)
        assert timers.next_time() is None

    @pytest.mark.parametrize("time", [-(1 << 63), -1, 0, FOREVER])
    def test_any_time_will_do(self, time: int) -> None:
        subtask, timers = self._timers(incremental=False)
        self._at(subtask, "a")
        timers.register(time, "a")
        _, restored = self._timers(restored=saved(subtask.backend))
        assert fired(restored) == fired(timers) == [(time, "a", None)]

    # --- deleting and looking -------------------------------------------------------------------

    def test_a_deleted_timer_does_not_fire(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a", "b")
        for time, key in ((10, "a"), (10, "b"), (20, "a")):
            timers.register(time, key)
        timers.delete(10, "a")
        assert fired(timers) == [(10, "b", None), (20, "a", None)]

    def test_deleting_what_is_not_there_is_harmless(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a", "b")
        timers.delete(10, "a")
        timers.register(10, "a")
        timers.delete(10, "b")
        timers.delete(11, "a")
        timers.delete(10, "a", HOUR)
        assert fired(timers) == [(10, "a", None)]
        timers.delete(10, "a")

    def test_a_deleted_timer_can_be_registered_again_and_fires_once(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a")
        for _ in range(3):
            timers.register(10, "a")
            timers.delete(10, "a")
            timers.register(10, "a")
        assert fired(timers) == [(10, "a", None)]

    def test_a_timer_that_is_pushed_on_and_on_fires_once(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a")
        timers.register(0, "a")
        for time in range(1000):
            timers.delete(time, "a")
            timers.register(time + 1, "a")
        assert fired(timers) == [(1000, "a", None)]

    def test_the_timers_of_a_key_are_listed_earliest_first(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a", "b")
        for time, key, window in ((30, "a", None), (10, "a", HOUR), (20, "b", None), (20, "a", DAY)):
            timers.register(time, key, window)
        assert timers.of_key("a") == [(10, HOUR), (20, DAY), (30, None)]
        timers.delete(20, "a", DAY)
        timers.pop_due(10)
        assert timers.of_key("a") == [(30, None)]
        assert timers.of_key("nobody") == []

    def test_kinds_of_timers_do_not_see_each_other(self) -> None:
        subtask = self.subtask(timers=["event", "processing"])
        event, processing = subtask.timers
        self._at(subtask, "a")
        event.register(10, "a")
        processing.register(20, "a")
        assert fired(event) == [(10, "a", None)]
        assert fired(processing) == [(20, "a", None)]

    def test_asking_for_the_same_timers_twice_gives_the_same_ones(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, "a")
        timers.register(10, "a")
        assert subtask.backend.timers("event").next_time() == 10

    def test_timers_are_no_state_of_the_key(self) -> None:
        subtask = self.subtask(VALUE, timers=["event"])
        self._at(subtask, "a")
        subtask.timers[0].register(10, "a")
        subtask.backend.flush()
        assert list(subtask.backend.keys("value")) == []

    # --- snapshots ------------------------------------------------------------------------------

    @pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
    def test_timers_survive_a_restart(self, incremental: bool) -> None:
        subtask, timers = self._timers(incremental=incremental)
        self._at(subtask, *KEYS)
        for n, key in enumerate(KEYS):
            timers.register(n, key)
            timers.register(n + 5, key, HOUR)
        parts = subtask.checkpoint()
        again, restored = self._timers(restored=parts, completed=1, incremental=incremental)
        self._at(again, *KEYS)
        assert [restored.of_key(key) for key in KEYS] == [timers.of_key(key) for key in KEYS]
        assert sorted(fired(restored), key=_order) == sorted(fired(timers), key=_order)

    def test_timers_go_where_their_key_goes(self) -> None:
        subtask, timers = self._timers()
        sample = list(range(200))
        self._at(subtask, *sample)
        for key in sample:
            timers.register(key * 7 % 100, key, None if key % 2 else HOUR)
        parts = subtask.checkpoint()
        of_all = []
        for index in range(3):
            _, restored = self._timers(restored=parts, completed=1, index=index, parallelism=3)
            due = fired(restored)
            assert all(subtask_of(key, 3) == index for _, key, _ in due)
            assert [time for time, _, _ in due] == sorted(time for time, _, _ in due)
            of_all += due
        assert sorted(of_all, key=repr) == sorted(fired(timers), key=repr)

    def test_what_fires_after_the_snapshot_is_still_in_it(self) -> None:
        subtask, timers = self._timers(incremental=False)
        self._at(subtask, "a", "b")
        timers.register(10, "a")
        timers.register(20, "a")
        timers.register(30, "b")
        snapshot = subtask.begin()
        self._at(subtask, "a", "b")
        assert fired(timers, 20) == [(10, "a", None), (20, "a", None)]
        timers.delete(30, "b")
        timers.register(40, "a")
        _, restored = self._timers(restored=snapshot.done())
        assert fired(restored) == [(10, "a", None), (20, "a", None), (30, "b", None)]

    def test_increments_hold_what_became_of_timers(self) -> None:
        subtask, timers = self._timers()
        self._at(subtask, *"abcd")
        for n, key in enumerate("abcd"):
            timers.register(n, key)
            timers.register(n + 50, key, HOUR)
        subtask.checkpoint()
        self._at(subtask, *"abcd")
        assert fired(timers, 0) == [(0, "a", None)]
        timers.delete(1, "b")
        timers.register(60, "c", HOUR)
        subtask.checkpoint()
        self._at(subtask, "b")
        timers.register(2, "b")
        parts = subtask.checkpoint()
        _, restored = self._timers(restored=parts, completed=3)
        assert sorted(fired(restored), key=repr) == sorted(fired(timers), key=repr)

    # --- keys of the job's own classes ----------------------------------------------------------

    def test_timers_of_declared_classes_fire_without_a_record(self) -> None:
        sample: list[Any] = [Colour.RED, Account("north", 1), ("a", Colour.BLUE)]
        declared = Colour | Account | tuple[str, Colour]
        subtask, timers = self._timers(incremental=False, key_type=declared)
        self._at(subtask, *sample)
        for n, key in enumerate(sample):
            timers.register(n, key)
        _, restored = self._timers(restored=saved(subtask.backend), key_type=declared)
        assert fired(restored) == [(n, key, None) for n, key in enumerate(sample)]

    def test_a_timer_of_an_unknown_class_that_is_due_says_what_to_declare(self) -> None:
        subtask, timers = self._timers(incremental=False)
        self._at(subtask, Colour.RED, "b")
        timers.register(10, Colour.RED)
        timers.register(5, "b")
        _, restored = self._timers(restored=saved(subtask.backend))
        assert restored.next_time() == 5
        assert restored.pop_due(7) == (5, "b", None)
        assert restored.pop_due(9) is None
        for _ in range(2):
            with pytest.raises(KeyClassUnknown, match="key_type=") as caught:
                restored.pop_due(10)
            assert caught.value.name == "Colour"

    def test_a_record_brings_the_class_of_its_timers_along(self) -> None:
        subtask, timers = self._timers(incremental=False)
        self._at(subtask, Colour.RED)
        timers.register(10, Colour.RED)
        timers.register(20, Colour.RED, HOUR)
        again, restored = self._timers(restored=saved(subtask.backend))
        self._at(again, Colour.RED)
        restored.register(10, Colour.RED)
        assert restored.of_key(Colour.RED) == [(10, None), (20, HOUR)]
        assert fired(restored) == [(10, Colour.RED, None), (20, Colour.RED, HOUR)]

    def test_a_waiting_timer_is_still_in_the_next_snapshot(self) -> None:
        subtask, timers = self._timers(incremental=False)
        self._at(subtask, Colour.RED)
        timers.register(10, Colour.RED)
        again, _ = self._timers(restored=saved(subtask.backend), incremental=False)
        _, last = self._timers(restored=saved(again.backend), key_type=Colour)
        assert fired(last) == [(10, Colour.RED, None)]
