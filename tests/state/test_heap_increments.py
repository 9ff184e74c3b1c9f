"""What the heap backend does beyond the contract when its snapshots are incremental."""

import dataclasses

import msgspec

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from moorline.model.config.thresholds import Folding
from moorline.model.manifest import RowsHandle
from moorline.model.type_tree.tree import INT
from moorline.state.heap.backend import HeapBackend
from moorline.state.heap.chains import Chains
from moorline.state.heap.states import MAX_INTERVALS, TrackedTable
from moorline.testing.contracts.backend import KeyedBackendContract
from moorline.testing.contracts.backend.base import LIST, VALUE, BackendTests, Part

ALLOWED = frozenset({"old"})


MAX_INCREMENTS = Folding().max_increments


class HeapTests(BackendTests):
    folding = Folding()

    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        return HeapBackend(
            uid,
            max_parallelism,
            moment,
            incremental=incremental,
            key_type=key_type,
            allow_dropped=ALLOWED,
            folding=self.folding,
        )


class TestHeapBackendThatFolds(HeapTests, KeyedBackendContract):
    """The whole contract again, as if every state were large."""

    folding = Folding(copied_entries=-1, copied_share=2)


class TestIncrements(HeapTests):
    def filled(self, *descriptors, keys=range(100), **options):
        subtask = self.subtask(*descriptors, **options)
        for key in keys:
            subtask.at(key)
            subtask.states[0].update(key)
        return subtask

    # --- the synchronous part -------------------------------------------------------------------

    def test_an_increment_shares_only_what_it_holds(self):
        subtask = self.subtask(ListStateDescriptor("list"))
        (state,) = subtask.states
        inner = {}
        for key in range(10):
            subtask.at(key)
            inner[key] = [key]
            state.add(inner[key])
        subtask.checkpoint()
        subtask.at(1)
        state.add([0])
        snapshot = subtask.begin()
        subtask.at(1)
        assert state.get()[0] is not inner[1]
        subtask.at(2)
        assert state.get()[0] is inner[2]
        snapshot.failed()

    def test_the_synchronous_part_does_not_look_at_what_has_not_changed(self):
        subtask = self.filled(VALUE, keys=range(1000))
        subtask.checkpoint()
        subtask.at(5)
        subtask.states[0].update(1)
        (table,) = [t.table for t in subtask.backend._states.parts.values()]
        live, table.entries = table.entries, CountingDict(table.entries)
        snapshot = subtask.begin()
        assert table.entries.looked_at <= 4
        table.entries = live
        snapshot.failed()

    # --- what is built on -----------------------------------------------------------------------

    def test_the_first_checkpoint_after_a_restart_is_an_increment(self):
        parts = self.filled(VALUE).checkpoint()
        again = self.subtask(VALUE, restored=parts, completed=1)
        again.at(3)
        again.states[0].update(0)
        snapshot = again.begin().snapshot
        assert snapshot.reused == [p.handle for p in parts]
        assert [(part.increment, part.state) for part in snapshot.parts] == [(True, "value")]

    def test_a_changed_type_makes_a_new_base(self):
        parts = self.filled(ValueStateDescriptor("value", int)).checkpoint()
        wider = ValueStateDescriptor("value", float)
        again = self.subtask(wider, restored=parts, completed=1)
        snapshot = again.begin()
        assert snapshot.snapshot.reused == []
        (part,) = again.complete(snapshot)
        assert (str(part.handle.type), part.handle.increment, part.handle.rows) == ("float", False, 100)
        once_more = self.subtask(wider, restored=[part], completed=2)
        once_more.at(3)
        assert once_more.states[0].value() == 3.0
        once_more.states[0].update(4.0)
        assert once_more.begin().snapshot.reused == [part.handle]

    def test_files_that_are_not_ours_to_keep_are_not_built_on(self):
        parts = self.filled(VALUE).checkpoint()
        foreign = [Part(msgspec.structs.replace(p.handle, file=None), p.tables) for p in parts]
        again = self.subtask(VALUE, restored=foreign, completed=1)
        assert again.begin().snapshot.reused == []

    def test_a_checkpoint_that_is_complete_before_we_know_our_own_handles_is_not_built_on(self):
        subtask = self.filled(VALUE)
        first = subtask.begin()
        parts = first.write()
        subtask.completed, subtask.parts = first.number, parts
        assert subtask.begin().snapshot.reused == []
        first.done()
        assert subtask.begin().snapshot.reused == [p.handle for p in parts]

    def test_nothing_changed_means_no_part(self):
        subtask = self.filled(VALUE)
        parts = subtask.checkpoint()
        snapshot = subtask.begin().snapshot
        assert (snapshot.parts, snapshot.reused) == ([], [p.handle for p in parts])

    def test_a_snapshot_that_builds_on_nothing_stands_alone_and_disturbs_no_chain(self):
        parts = self.filled(VALUE).checkpoint()
        again = self.subtask(VALUE, restored=parts, completed=1)
        again.at(3)
        again.states[0].update(0)
        alone = again.backend.snapshot(2, completed=0)
        assert (alone.reused, [p.increment for p in alone.parts]) == ([], [False])
        alone.done(None)
        again.next = 3
        snapshot = again.begin()
        assert snapshot.snapshot.reused == [p.handle for p in parts]
        assert self.held(again.complete(snapshot), VALUE, [2, 3, 4]) == {2: 2, 3: 0, 4: 4}

    def test_asking_a_map_for_its_keys_is_no_change(self):
        subtask = self.subtask(MapStateDescriptor("map", str, list[int]))
        (state,) = subtask.states
        subtask.at("a")
        state.put("x", [1])
        subtask.checkpoint()
        subtask.at("a")
        assert (state.contains("x"), list(state.keys()), len(state), state.is_empty()) == (True, ["x"], 1, False)
        assert subtask.begin().snapshot.parts == []
        state.get("x")
        assert [part.state for part in subtask.begin().snapshot.parts] == ["map"]

    # --- folding --------------------------------------------------------------------------------

    def test_a_small_state_is_written_anew_instead_of_folded(self):
        subtask = self.filled(VALUE)
        subtask.checkpoint()
        for key in range(60):
            subtask.at(key)
            subtask.states[0].update(0)
        snapshot = subtask.begin().snapshot
        assert (snapshot.fold, snapshot.reused, [p.increment for p in snapshot.parts]) == (False, [], [False])

    def test_a_large_state_is_folded_off_the_thread(self):
        self.folding = Folding(copied_entries=10, copied_share=2)
        subtask = self.filled(VALUE)
        subtask.checkpoint()
        for n in range(MAX_INCREMENTS):
            subtask.at(n)
            subtask.states[0].update(0)
            subtask.checkpoint()
        subtask.at(99)
        subtask.states[0].update(0)
        snapshot = subtask.begin()
        assert (snapshot.snapshot.fold, len(snapshot.snapshot.reused)) == (True, MAX_INCREMENTS + 1)
        assert [p.increment for p in snapshot.snapshot.parts] == [True]
        (base,) = subtask.complete(snapshot)
        assert (base.handle.increment, base.handle.rows) == (False, 100)
        subtask.at(98)
        subtask.states[0].update(0)
        assert [len(p.tables) for p in subtask.checkpoint()] == [1, 1]

    def test_only_the_states_whose_chains_are_long_are_folded(self):
        self.folding = Folding(copied_entries=10, copied_share=2)
        quiet = ValueStateDescriptor("quiet", int)
        subtask = self.filled(VALUE, quiet)
        for key in range(100):
            subtask.at(key)
            subtask.states[1].update(key)
        subtask.checkpoint()
        for key in range(60):
            subtask.at(key)
            subtask.states[0].update(0)
        subtask.states[1].update(0)
        snapshot = subtask.begin()
        assert (snapshot.snapshot.fold, snapshot.snapshot.foldable) == (True, {"value"})
        chains = [(p.handle.state, p.handle.increment, p.handle.rows) for p in subtask.complete(snapshot)]
        assert sorted(chains) == [("quiet", False, 100), ("quiet", True, 1), ("value", False, 100)]
        assert self.subtask(VALUE, quiet, restored=subtask.parts).held(1, [59, 60]) == {59: 0, 60: 60}

    # --- states that are dropped ----------------------------------------------------------------

    def test_a_state_that_may_be_dropped_is_not_carried_on(self):
        old = ValueStateDescriptor("old", int)
        subtask = self.subtask(old, LIST)
        for key in range(10):
            subtask.at(key)
            subtask.states[0].update(1)
            subtask.states[1].add("x")
        again = self.subtask(LIST, restored=subtask.checkpoint(), completed=1)
        assert {p.handle.state for p in again.checkpoint()} == {"list"}


class CountingDict(dict):
    """Counts how often something is looked up in it, and cannot be copied."""

    looked_at = 0

    def __contains__(self, key):
        self.looked_at += 1
        return super().__contains__(key)

    def __getitem__(self, key):
        self.looked_at += 1
        return super().__getitem__(key)

    def __iter__(self):
        raise AssertionError("all entries were looked at")

    keys = values = items = copy = __iter__


class TestTrackedTable:
    def test_many_intervals_become_one_without_losing_a_key(self):
        table = TrackedTable()
        table.put("old", 1)
        table.begin()
        for n in range(MAX_INTERVALS * 3):
            table.put(n, n)
            if n == 3:
                table.drop("old")
            table.cut(n + 1)
        changed = table.changed_since(0)
        assert set(changed) == {"old", *range(MAX_INTERVALS * 3)}
        assert changed["old"]
        # The second half began after these.
        assert set(table.changed_since(MAX_INTERVALS * 2)) >= set(range(MAX_INTERVALS * 2, MAX_INTERVALS * 3))

    def test_intervals_put_together_never_hide_that_a_key_is_gone(self):
        table = TrackedTable()
        table.put("a", 1)
        table.cut(1)
        table.drop("a")
        for n in range(2, MAX_INTERVALS + 2):
            table.cut(n)
        assert table.changed_since(1)["a"]

    def test_what_came_and_went_is_not_listed(self):
        table = TrackedTable()
        table.put("window", 1)
        table.drop("window")
        assert table.changed == {}
        table.put("window", 1)
        table.cut(1)
        table.drop("window")
        assert table.changed_since(1) == {"window": True}
        assert table.changed_since(0) == {"window": False}


class TestChains:
    HANDLE = RowsHandle("s", "value", INT, 0, 128, 1)

    def test_restored_handles_are_built_on_until_one_of_ours_has_completed(self):
        chains = Chains()
        chains.restored("s", [self.HANDLE])
        assert chains.base(7) == {"s": [self.HANDLE]}
        chains.begin(8)
        chains.ended(8, [dataclasses_replace(self.HANDLE, rows=2)])
        assert chains.base(7) == {"s": [self.HANDLE]}
        assert chains.base(8)["s"][0].rows == 2
        assert chains.base(8)["s"][0].rows == 2

    def test_a_snapshot_that_failed_or_was_overtaken_is_forgotten(self):
        chains = Chains()
        for n in (1, 2, 3):
            chains.begin(n)
        chains.ended(1, [self.HANDLE])
        chains.ended(2, None)
        chains.ended(3, [self.HANDLE])
        assert chains.base(2) == {}
        assert chains.base(3) == {"s": [self.HANDLE]}
        chains.ended(1, [self.HANDLE])
        assert chains.base(1) == {}


def dataclasses_replace(handle, **changes):
    return msgspec.structs.replace(handle, **changes)


class TestMigration(HeapTests):
    """Types that have changed are read as they were stored, and every row of a chain is carried over."""

    def chain(self, *descriptors):
        subtask = self.subtask(*descriptors)
        for key in range(20):
            subtask.at(key)
            for state in subtask.states:
                state.put("k", key) if hasattr(state, "put") else state.update(key)
        subtask.checkpoint()
        subtask.at(1)
        for state in subtask.states:
            state.put("k", 100) if hasattr(state, "put") else state.update(100)
        return subtask.checkpoint()

    def test_a_migrate_function_makes_the_new_values_of_all_of_a_chain(self):
        parts = self.chain(ValueStateDescriptor("value", int))
        new = ValueStateDescriptor("value", str, migrate=lambda n: f"<{n}>")
        again = self.subtask(new, restored=parts, completed=2)
        assert again.held(0, [0, 1]) == {0: "<0>", 1: "<100>"}
        assert self.subtask(new, restored=again.checkpoint(), completed=3).held(0, [0, 1]) == {0: "<0>", 1: "<100>"}

    def test_the_values_of_a_map_are_migrated_and_its_keys_are_not(self):
        parts = self.chain(MapStateDescriptor("map", str, int))
        new = MapStateDescriptor("map", str, str, migrate=str)
        again = self.subtask(new, restored=parts, completed=2)
        assert again.held(0, [0, 1]) == {0: {"k": "0"}, 1: {"k": "100"}}

    def test_a_new_field_gets_its_default(self):
        @dataclasses.dataclass(frozen=True)
        class Point:
            x: int

        old = Point
        subtask = self.subtask(ValueStateDescriptor("value", Point))
        subtask.at("a")
        subtask.states[0].update(old(1))
        parts = subtask.checkpoint()

        @dataclasses.dataclass(frozen=True)
        class Point:
            x: int
            y: int = 5

        Point.__qualname__ = old.__qualname__
        again = self.subtask(ValueStateDescriptor("value", Point), restored=parts, completed=1)
        assert again.held(0, "a") == {"a": Point(1, 5)}
