"""A restore brings back what was saved, at any parallelism."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from moorline.api.state.descriptors import (
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.errors import StateIncompatible
from moorline.model.key_groups import owned
from moorline.state.backend import KeyedBackend
from moorline.testing.contracts.backend.base import (
    ALL,
    BASKET,
    KEYS,
    LIST,
    MAP,
    MAX_PARALLELISM,
    VALUE,
    Account,
    BackendTests,
    Basket,
    Colour,
    at,
    saved,
    snapshot_of,
)


class Restoring(BackendTests):
    """A restore brings back what was saved, at any parallelism."""

    # --- restoring ------------------------------------------------------------------------------

    def test_a_restored_backend_is_as_the_old_one_was(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in "ab":
            at(backend, key)
            self._fill(states)
            self._change(states)
        again, *restored = self.restored(saved(backend), *ALL)
        self.check_entries(again, backend.entries())
        for key in "abc":
            at(backend, key)
            at(again, key)
            assert self._shown(restored) == self._shown(states)
        for key in "ab":
            assert self.held_by(saved(again), *ALL, key=key) == self.held_by(saved(backend), *ALL, key=key)

    def test_a_list_comes_back_in_order_and_a_map_with_every_entry(self, backend: KeyedBackend) -> None:
        listed: Any = backend.bind(LIST)
        mapped: Any = backend.bind(MAP)
        for key in range(20):
            at(backend, key)
            listed.update([f"{key}-{n}" for n in range(key + 1)])
            mapped.put_all({f"{key}-{n}": n for n in range(key + 1)})
        again, restored_list, restored_map = self.restored(saved(backend), LIST, MAP)
        for key in range(20):
            at(again, key)
            assert list(restored_list.get()) == [f"{key}-{n}" for n in range(key + 1)]
            assert dict(restored_map.items()) == {f"{key}-{n}": n for n in range(key + 1)}

    @pytest.mark.parametrize("sample", [range(100), [f"k{n}" for n in range(100)], KEYS], ids=["int", "str", "any"])
    def test_state_is_dealt_out_by_key_groups_and_put_together_again(
        self, backend: KeyedBackend, sample: Iterable[Any]
    ) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in sample:
            at(backend, key)
            self._fill(states)
        whole = saved(backend)
        three = self.rescaled(whole, 3, *ALL)
        assert sum(p.stored_rows for parts in three for p in parts) == sum(p.stored_rows for p in whole)
        for subtask, parts in enumerate(three):
            key_groups = owned(subtask, 3, MAX_PARALLELISM)
            for table in (t for p in parts for t in p.tables):
                assert all(group in key_groups for group in table["key_group"].to_pylist())
        two = self.rescaled([p for parts in three for p in parts], 2, *ALL)
        again, *restored = self.restored([p for parts in two for p in parts], *ALL)
        self.check_entries(again, backend.entries())
        for key in sample:
            at(again, key)
            assert self._shown(restored) == (1, ["x"], {"k": 1}, 1, 1.0)

    def test_keys_of_the_jobs_own_classes_wait_until_a_record_brings_them(self, backend: KeyedBackend) -> None:
        sample = [Colour.RED, Account("north", 1), (Colour.BLUE, 2), "plain"]
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in sample:
            at(backend, key)
            self._fill(states)
        again, *restored = self.restored(saved(backend), *ALL)
        self.check_entries(again, len(sample) * len(ALL))
        at(again, Account("north", 1))
        assert self._shown(restored) == (1, ["x"], {"k": 1}, 1, 1.0)
        self._change(restored)
        at(again, Account("south", 1))
        assert self._shown(restored) == (7, [], {}, None, None)
        once_more, *last = self.restored(saved(again), *ALL)
        for key in sample:
            at(once_more, key)
            changed = key == Account("north", 1)
            assert last[0].value() == (2 if changed else 1)

    def test_a_waiting_key_is_still_in_the_next_snapshot(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(BASKET)
        at(backend, Colour.RED)
        state.update(Basket("ann", ["x"]))
        again, restored = self.restored(saved(backend), BASKET)
        with snapshot_of(again) as snapshot:
            at(again, Colour.RED)
            restored.value().items.append("y")
            assert self.held(snapshot.write(), BASKET, [Colour.RED]) == {Colour.RED: Basket("ann", ["x"])}

    def test_rows_of_several_files_come_together(self, backend: KeyedBackend) -> None:
        other = self.make_backend("op", MAX_PARALLELISM)
        for source, key in ((backend, "a"), (other, 5)):
            state: Any = source.bind(LIST)
            at(source, key)
            state.add(str(key))
        again, restored = self.restored([*saved(backend), *saved(other)], LIST)
        for key in ("a", 5):
            at(again, key)
            assert list(restored.get()) == [str(key)]

    @pytest.mark.parametrize(
        "declared",
        [
            ValueStateDescriptor("value", str),
            ListStateDescriptor("value", int),
            ReducingStateDescriptor("value", max, int),
        ],
        ids=["another type", "another kind", "a kind that looks the same"],
    )
    def test_state_of_another_shape_is_refused(self, backend: KeyedBackend, declared: StateDescriptor) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        with pytest.raises(StateIncompatible) as caught:
            self.restored(saved(backend), declared)
        assert (caught.value.uid, caught.value.state) == ("op", "value")
        assert caught.value.stored.endswith("int")

    def test_state_that_nobody_declares_any_more_is_refused(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        with pytest.raises(StateIncompatible, match="no such state"):
            self.restored(saved(backend), LIST)

    def test_a_new_state_beside_a_restored_one_starts_empty(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        again, restored, new = self.restored(saved(backend), VALUE, LIST)
        at(again, "a")
        assert restored.value() == 1
        assert list(new.get()) == []
