"""State that expires: through snapshots and restarts, with another configuration, and in event time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from moorline.api.state.descriptors import StateDescriptor
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.state.backend import OperatorClock
from moorline.testing.contracts.backend.base import (
    ALL,
    KEYS,
    LIST,
    MAP,
    VALUE,
    Subtask,
    key_id,
    saved,
    shown,
)
from moorline.testing.contracts.backend.ttl.rules import KINDS, LENGTH, START, TtlTests, after_one_write, living, write

INCREMENTAL = pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])


class TtlRestoring(TtlTests):
    """Lives go on where they were; what is expired is decided by the configuration of today."""

    def restarted(
        self, old: Subtask, moment: OperatorClock, *descriptors: StateDescriptor, incremental: bool = True
    ) -> Subtask:
        """The job fails after a checkpoint and begins again, perhaps as another program."""
        parts = old.checkpoint()
        return self.under(moment, *descriptors, restored=parts, completed=old.completed, incremental=incremental)

    @KINDS
    @INCREMENTAL
    def test_a_restart_changes_nothing_about_a_life(
        self, plain: StateDescriptor, incremental: bool, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain), incremental=incremental)
        write(subtask.states[0])
        for _ in range(3):
            moment.processing_ms += LENGTH // 4
            subtask = self.restarted(subtask, moment, living(plain), incremental=incremental)
            assert shown(subtask.states[0]) == after_one_write(plain)
        moment.processing_ms = START + LENGTH
        subtask = self.restarted(subtask, moment, living(plain), incremental=incremental)
        assert shown(subtask.states[0]) is None

    @KINDS
    @INCREMENTAL
    def test_a_new_life_survives_a_restart(
        self, plain: StateDescriptor, incremental: bool, moment: OperatorClock
    ) -> None:
        descriptor = living(plain, update="on_read_and_write")
        subtask = self.under(moment, descriptor, incremental=incremental)
        write(subtask.states[0])
        subtask.checkpoint()
        moment.processing_ms += LENGTH - 1
        assert shown(subtask.states[0]) is not None
        moment.processing_ms += LENGTH - 1
        subtask = self.restarted(subtask, moment, descriptor, incremental=incremental)
        assert shown(subtask.states[0]) == after_one_write(plain)

    @KINDS
    @INCREMENTAL
    @pytest.mark.parametrize("own", [LENGTH // 2, LENGTH * 2])
    def test_a_length_of_its_own_survives_a_restart(
        self, plain: StateDescriptor, incremental: bool, own: int, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain), incremental=incremental)
        write(subtask.states[0], ttl=own / 1000)
        subtask = self.restarted(subtask, moment, living(plain), incremental=incremental)
        moment.processing_ms = START + own - 1
        assert shown(subtask.states[0]) == after_one_write(plain)
        subtask = self.restarted(subtask, moment, living(plain), incremental=incremental)
        moment.processing_ms = START + own
        assert shown(subtask.states[0]) is None

    @KINDS
    @INCREMENTAL
    def test_what_was_removed_because_it_was_expired_does_not_come_back(
        self, plain: StateDescriptor, incremental: bool, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain), incremental=incremental)
        write(subtask.states[0])
        subtask.checkpoint()
        moment.processing_ms += LENGTH
        assert shown(subtask.states[0]) is None
        subtask = self.restarted(subtask, moment, living(plain, "1h"), incremental=incremental)
        assert shown(subtask.states[0]) is None

    @KINDS
    def test_a_snapshot_in_the_air_keeps_what_expires_meanwhile(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain))
        write(subtask.states[0])
        snapshot = subtask.begin()
        moment.processing_ms += LENGTH
        subtask.at("a")
        assert shown(subtask.states[0]) is None
        again = self.under(moment, living(plain, "1h"), restored=subtask.complete(snapshot))
        assert shown(again.states[0]) == after_one_write(plain)

    @pytest.mark.parametrize("key", KEYS, ids=key_id)
    def test_every_kind_of_key_expires_after_a_restart(self, key: Any, moment: OperatorClock) -> None:
        subtask = self.under(moment, living(VALUE), living(MAP))
        subtask.at(key)
        for state in subtask.states:
            write(state)
        subtask = self.restarted(subtask, moment, living(VALUE), living(MAP))
        moment.processing_ms += LENGTH - 1
        assert (subtask.held(0, [key]), subtask.held(1, [key])) == ({key: 1}, {key: {"k": 1}})
        moment.processing_ms += 1
        assert (subtask.held(0, [key]), subtask.held(1, [key])) == ({}, {})

    # --- another configuration ------------------------------------------------------------------

    @KINDS
    @INCREMENTAL
    def test_state_from_before_it_had_a_time_to_live_begins_its_life_when_it_is_read(
        self, plain: StateDescriptor, incremental: bool, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, plain, incremental=incremental)
        write(subtask.states[0])
        subtask = self.restarted(subtask, moment, living(plain), incremental=incremental)
        moment.processing_ms += 100 * LENGTH
        assert shown(subtask.states[0]) == after_one_write(plain)
        moment.processing_ms += LENGTH - 1
        subtask = self.restarted(subtask, moment, living(plain), incremental=incremental)
        assert shown(subtask.states[0]) == after_one_write(plain)
        moment.processing_ms += 1
        assert shown(subtask.states[0]) is None

    @KINDS
    def test_state_from_before_it_had_a_time_to_live_is_removed_though_nobody_reads_it(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        if not self.sweeps_on_access:
            pytest.skip("this backend removes what is expired in another way")
        subtask = self.under(moment, plain)
        write(subtask.states[0])
        subtask = self.restarted(subtask, moment, living(plain))
        subtask.at("b")
        for _ in range(100):
            write(subtask.states[0])
        moment.processing_ms += LENGTH
        for _ in range(200):
            write(subtask.states[0])
        self.check_entries(subtask.backend, 1)

    @KINDS
    @INCREMENTAL
    def test_without_its_time_to_live_all_that_is_left_is_visible(
        self, plain: StateDescriptor, incremental: bool, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain), incremental=incremental)
        write(subtask.states[0], ttl="1s")
        moment.processing_ms += LENGTH
        subtask = self.restarted(subtask, moment, plain, incremental=incremental)
        assert shown(subtask.states[0]) == after_one_write(plain)
        write(subtask.states[0])
        subtask = self.restarted(subtask, moment, plain, incremental=incremental)
        assert shown(subtask.states[0]) is not None

    @KINDS
    @INCREMENTAL
    def test_a_time_to_live_that_was_taken_away_and_comes_back_begins_new_lives(
        self, plain: StateDescriptor, incremental: bool, moment: OperatorClock
    ) -> None:
        """Nothing may be lost that was visible a moment ago: files with the old stamps must not be built on."""
        subtask = self.under(moment, living(plain), incremental=incremental)
        write(subtask.states[0])
        subtask = self.restarted(subtask, moment, plain, incremental=incremental)
        moment.processing_ms += 100 * LENGTH
        subtask = self.restarted(subtask, moment, living(plain), incremental=incremental)
        assert shown(subtask.states[0]) == after_one_write(plain)

    @KINDS
    def test_a_shorter_time_to_live_holds_at_once(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        subtask = self.under(moment, living(plain))
        write(subtask.states[0])
        moment.processing_ms += LENGTH // 2
        assert shown(self.restarted(subtask, moment, living(plain, "5s")).states[0]) is None

    @KINDS
    def test_a_longer_time_to_live_revives_what_was_not_removed_yet(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain))
        write(subtask.states[0])
        moment.processing_ms += LENGTH
        again = self.restarted(subtask, moment, living(plain, "20s"))
        assert shown(again.states[0]) == after_one_write(plain)
        moment.processing_ms += LENGTH
        assert shown(again.states[0]) is None

    @KINDS
    @pytest.mark.parametrize("leaves_out", [False, True])
    def test_full_snapshots_can_leave_out_what_is_expired(
        self, plain: StateDescriptor, leaves_out: bool, moment: OperatorClock
    ) -> None:
        if not self.writes_rows:
            pytest.skip("this backend's full snapshots are its own files")
        descriptor = living(plain, cleanup_full_snapshot=leaves_out, cleanup_incrementally=0)
        subtask = self.under(moment, descriptor, incremental=False)
        write(subtask.states[0])
        moment.processing_ms += LENGTH // 2
        subtask.at("b")
        write(subtask.states[0], 2)
        moment.processing_ms += LENGTH // 2
        again = self.under(moment, living(plain, "1h"), restored=saved(subtask.backend), incremental=False)
        live = {"b": after_one_write(plain, 2)}
        assert again.held(0, "ab") == (live if leaves_out else {"a": after_one_write(plain), **live})

    def test_stamps_follow_their_keys_to_other_subtasks(self, moment: OperatorClock) -> None:
        descriptors = [living(d) for d in ALL]
        subtask = self.under(moment, *descriptors)
        for key in range(20):
            moment.processing_ms = START + 100 * key
            subtask.at(key)
            for state in subtask.states:
                write(state)
        parts = subtask.checkpoint()
        moment.processing_ms = START + LENGTH + 1000
        by_state: dict[int, dict[int, Any]] = {n: {} for n in range(len(ALL))}
        for index in range(3):
            new = self.under(moment, *descriptors, restored=parts, completed=1, index=index, parallelism=3)
            for n in by_state:
                by_state[n].update(new.held(n, range(20)))
        for n, plain in enumerate(ALL):
            assert by_state[n] == {key: after_one_write(plain) for key in range(11, 20)}


class TtlInEventTime(TtlTests):
    """A record judges and touches state at its own time; the watermark says what may be removed."""

    def record(self, subtask: Subtask, moment: OperatorClock, timestamp: int | None, key: Any = "a") -> Any:
        """A record is being processed; gives the state."""
        moment.timestamp = timestamp
        subtask.at(key)
        return subtask.states[0]

    @KINDS
    def test_a_record_judges_by_its_own_time_and_a_late_one_by_the_watermark(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain, time="event"))
        write(self.record(subtask, moment, START + 500))
        for passed in (MIN_TIME, START, START + 500 + LENGTH - 1):
            moment.passed = passed
            assert shown(self.record(subtask, moment, START + 500 + LENGTH)) is None
            assert shown(self.record(subtask, moment, START + 500 + LENGTH - 1)) == after_one_write(plain)
            assert shown(self.record(subtask, moment, START)) == after_one_write(plain)
        moment.passed = START + 500 + LENGTH
        assert shown(self.record(subtask, moment, START + 500)) is None

    @KINDS
    @pytest.mark.parametrize("update", ["on_create_and_write", "on_read_and_write"])
    def test_what_records_see_does_not_depend_on_when_watermarks_are_announced(
        self, plain: StateDescriptor, update: Any
    ) -> None:
        """Records out of order by up to 3 s, one of them in three a write; every watermark is right, or none comes."""

        def seen(chance: random.Random, announced: float) -> list[Any]:
            moment = OperatorClock()
            subtask = self.under(moment, living(plain, time="event", update=update), incremental=False)
            reads = []
            for n, timestamp in enumerate(timestamps):
                if chance.random() < announced:
                    moment.passed = max(moment.passed, min(timestamps[n:]) - 1)
                state = self.record(subtask, moment, timestamp, key=n % 5)
                write(state, n) if not n % 3 else reads.append((n, shown(state)))
            return reads

        chance = random.Random(7)
        timestamps = [START + 700 * n + chance.randrange(3000) for n in range(600)]
        expected = seen(chance, 0)
        assert None in dict(expected).values()
        for announced in (0.05, 0.5, 1):
            assert seen(chance, announced) == expected

    @KINDS
    def test_the_clock_on_the_wall_does_not_matter(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        subtask = self.under(moment, living(plain, time="event"))
        moment.passed = START
        write(self.record(subtask, moment, START))
        moment.processing_ms += 100 * LENGTH
        assert shown(subtask.states[0]) == after_one_write(plain)

    @KINDS
    def test_without_a_timestamp_the_watermark_is_the_time_of_a_touch(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain, time="event"))
        moment.passed = START
        write(self.record(subtask, moment, None))
        moment.passed = START + LENGTH - 1
        assert shown(subtask.states[0]) == after_one_write(plain)
        moment.passed = START + LENGTH
        assert shown(subtask.states[0]) is None

    @KINDS
    def test_before_any_watermark_nothing_expires_and_lives_without_a_time_begin_later(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain, time="event"))
        write(self.record(subtask, moment, None))
        assert shown(self.record(subtask, moment, None)) == after_one_write(plain)
        moment.passed = START
        assert shown(self.record(subtask, moment, START - LENGTH)) == after_one_write(plain)
        moment.passed = START + LENGTH - 1
        assert shown(subtask.states[0]) == after_one_write(plain)
        moment.passed = START + LENGTH
        assert shown(subtask.states[0]) is None

    @pytest.mark.parametrize("plain", [d for d in ALL if d is not LIST], ids=lambda d: d.kind)
    @pytest.mark.parametrize("touch", [write, shown], ids=["write", "read"])
    def test_a_late_record_does_not_shorten_a_life(
        self, plain: StateDescriptor, touch: Any, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain, time="event", update="on_read_and_write"))
        moment.passed = START
        write(self.record(subtask, moment, START))
        touch(self.record(subtask, moment, START - LENGTH // 2))
        moment.passed = START + LENGTH - 1
        assert shown(self.record(subtask, moment, None)) is not None

    @KINDS
    def test_at_the_end_of_the_input_a_timer_finds_what_was_live_at_its_time(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain, time="event"))
        moment.passed = START
        write(self.record(subtask, moment, START))
        moment.passed = MAX_TIME
        assert shown(self.record(subtask, moment, START + LENGTH - 1)) == after_one_write(plain)
        assert shown(self.record(subtask, moment, START + LENGTH)) is None

    @KINDS
    def test_event_times_survive_a_restart(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        descriptor = living(plain, time="event")
        subtask = self.under(moment, descriptor)
        moment.passed = START
        write(self.record(subtask, moment, START + 500))
        parts = subtask.checkpoint()
        for past, expected in ((LENGTH - 1, after_one_write(plain)), (LENGTH, None)):
            later = OperatorClock()
            again = self.under(later, descriptor, restored=parts, completed=1)
            assert shown(self.record(again, later, START + 500 + past)) == expected
            later.passed = START + 500 + past
            assert shown(self.record(again, later, None)) == expected
