"""State that expires: Flink's rules, for every kind of state, with a clock that the tests move by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.api.state.states import ListState, MapState, ValueState
from moorline.api.state.ttl import StateTtlConfig
from moorline.errors import InvalidArgument, NoCurrentKey, TtlNotEnabled
from moorline.state.backend import NO_KEY, OperatorClock
from moorline.testing.contracts.backend.base import (
    AGGREGATING,
    ALL,
    DAY,
    HOUR,
    LIST,
    MAP,
    REDUCING,
    VALUE,
    BackendTests,
    Subtask,
    shown,
)

#: When the tests begin, and how long state lives in them.
START, LENGTH = 1_700_000_000_000, 10_000

KINDS = pytest.mark.parametrize("plain", ALL, ids=lambda d: d.kind)


def living(plain: StateDescriptor, length: str = "10s", **options: Any) -> StateDescriptor:
    """The same state with a time to live, and without a default: what is gone is None."""
    if isinstance(plain, ValueStateDescriptor):
        plain = replace(plain, default=None)
    return replace(plain, ttl=StateTtlConfig(length, **options))


def write(state: Any, number: int = 1, **options: Any) -> None:
    """Write one element, whatever the kind of state."""
    match state:
        case ValueState():
            state.update(number, **options)
        case ListState():
            state.add(str(number), **options)
        case MapState():
            state.put("k", number, **options)
        case _:
            state.add(number, **options)


def after_one_write(plain: StateDescriptor, number: int = 1) -> Any:
    """The content that ``shown`` gives for a state with one element."""
    match plain:
        case ListStateDescriptor():
            return [str(number)]
        case MapStateDescriptor():
            return {"k": number}
        case AggregatingStateDescriptor():
            return float(number)
    return number


class TtlTests(BackendTests):
    """The vocabulary of the parts about expiry."""

    #: Does an access look at other keys too? A backend that has another way to remove what is expired says no.
    sweeps_on_access = True

    @pytest.fixture
    def moment(self) -> OperatorClock:
        moment = OperatorClock()
        moment.processing_ms = START
        return moment

    def under(self, moment: OperatorClock, *descriptors: StateDescriptor, **options: Any) -> Subtask:
        """A subtask whose current key is "a"."""
        subtask = self.subtask(*descriptors, moment=moment, **options)
        subtask.at("a")
        return subtask


class Ttl(TtlTests):
    """State that expires by the clock."""

    # --- every kind of state --------------------------------------------------------------------

    @KINDS
    def test_what_was_not_touched_for_its_length_is_gone(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        subtask = self.under(moment, living(plain))
        (state,) = subtask.states
        write(state)
        moment.processing_ms = START + LENGTH - 1
        assert shown(state) == after_one_write(plain)
        moment.processing_ms = START + LENGTH
        assert shown(state) is None
        self.check_entries(subtask.backend, 0)

    @KINDS
    def test_a_read_removes_what_is_expired(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(plain)).states
        write(state)
        moment.processing_ms += LENGTH
        assert shown(state) is None
        moment.processing_ms = START
        assert shown(state) is None

    @KINDS
    def test_a_write_begins_a_new_life(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(plain)).states
        write(state)
        moment.processing_ms += LENGTH - 1
        write(state)
        moment.processing_ms += LENGTH - 1
        assert shown(state) is not None
        moment.processing_ms += 1
        assert shown(state) is None

    @KINDS
    @pytest.mark.parametrize("counts", [False, True])
    def test_a_read_begins_a_new_life_only_if_reads_count(
        self, plain: StateDescriptor, counts: bool, moment: OperatorClock
    ) -> None:
        update = "on_read_and_write" if counts else "on_create_and_write"
        (state,) = self.under(moment, living(plain, update=update)).states
        write(state)
        moment.processing_ms += LENGTH - 1
        assert shown(state) == after_one_write(plain)
        moment.processing_ms += LENGTH - 1
        assert shown(state) == (after_one_write(plain) if counts else None)

    @KINDS
    def test_what_is_expired_can_be_shown_a_last_time(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        descriptor = living(plain, visibility="return_expired_if_not_cleaned_up", update="on_read_and_write")
        (state,) = self.under(moment, descriptor).states
        write(state)
        moment.processing_ms += LENGTH
        assert shown(state) == after_one_write(plain)
        assert shown(state) is None

    @KINDS
    def test_other_keys_live_their_own_lives(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        subtask = self.under(moment, living(plain))
        (state,) = subtask.states
        write(state)
        moment.processing_ms += LENGTH // 2
        subtask.at("b")
        write(state, 2)
        moment.processing_ms += LENGTH // 2
        assert subtask.held(0, "ab") == {"b": after_one_write(plain, 2)}

    @KINDS
    def test_what_is_cleared_is_gone_at_once(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(plain)).states
        write(state)
        state.clear()
        assert shown(state) is None

    @KINDS
    def test_without_a_current_key_expiring_state_cannot_be_touched(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        subtask = self.under(moment, living(plain))
        subtask.backend.current.key = NO_KEY
        for attempt in (lambda: write(subtask.states[0]), lambda: shown(subtask.states[0])):
            with pytest.raises(NoCurrentKey):
                attempt()

    # --- one length for one write ---------------------------------------------------------------

    @KINDS
    @pytest.mark.parametrize("own", [LENGTH // 2, LENGTH * 2])
    def test_one_write_can_have_a_length_of_its_own(
        self, plain: StateDescriptor, own: int, moment: OperatorClock
    ) -> None:
        (state,) = self.under(moment, living(plain)).states
        write(state, ttl=own / 1000)
        moment.processing_ms = START + own - 1
        assert shown(state) == after_one_write(plain)
        moment.processing_ms = START + own
        assert shown(state) is None

    @KINDS
    def test_a_length_of_its_own_stays_through_reads(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(plain, update="on_read_and_write")).states
        write(state, ttl="1h")
        for _ in range(3):
            moment.processing_ms += 3_599_999
            assert shown(state) is not None
        moment.processing_ms += 3_600_000
        assert shown(state) is None

    @pytest.mark.parametrize("plain", [VALUE, MAP, REDUCING, AGGREGATING], ids=lambda d: d.kind)
    def test_the_next_write_has_the_length_of_the_state_again(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        (state,) = self.under(moment, living(plain)).states
        write(state, ttl="1h")
        write(state)
        moment.processing_ms += LENGTH
        assert shown(state) is None

    @KINDS
    def test_a_length_of_its_own_needs_a_state_that_expires(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        (state,) = self.under(moment, plain).states
        with pytest.raises(TtlNotEnabled, match=f"{plain.name!r}.*Declare the state with ttl="):
            write(state, ttl="1h")
        write(state, ttl=None)

    @KINDS
    @pytest.mark.parametrize("wrong", [0, "0s", -1, "soon", True])
    def test_a_length_that_is_none_is_refused_and_nothing_is_written(
        self, plain: StateDescriptor, wrong: Any, moment: OperatorClock
    ) -> None:
        (state,) = self.under(moment, living(plain)).states
        with pytest.raises(InvalidArgument, match="ttl"):
            write(state, ttl=wrong)
        assert shown(state) is None

    # --- values ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("time", ["processing", "event"])
    def test_a_value_that_never_was_or_is_expired_is_its_default(self, time: Any, moment: OperatorClock) -> None:
        descriptor = ValueStateDescriptor("value", int, 7, ttl=StateTtlConfig("10s", time=time))
        (state,) = self.under(moment, descriptor).states
        moment.timestamp = START
        assert state.value() == 7
        state.update(1)
        assert state.value() == 1
        moment.processing_ms = moment.timestamp = START + LENGTH
        assert state.value() == 7
        state.update(2)
        state.clear()
        assert state.value() == 7

    def test_a_default_that_can_be_changed_in_place_is_handed_out_as_a_copy(self, moment: OperatorClock) -> None:
        (state,) = self.under(moment, ValueStateDescriptor("numbers", list[int], [], ttl="10s")).states
        state.value().append(1)
        assert state.value() == []

    def test_none_clears_a_value(self, moment: OperatorClock) -> None:
        subtask = self.under(moment, living(VALUE))
        (state,) = subtask.states
        state.update(1)
        state.update(None)
        assert state.value() is None
        self.check_entries(subtask.backend, 0)

    # --- lists ----------------------------------------------------------------------------------

    def test_list_elements_expire_one_by_one(self, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(LIST)).states
        state.add("x")
        moment.processing_ms += LENGTH // 2
        state.add_all(["y", "z"])
        state.add("short", ttl=0.001)
        assert list(state.get()) == ["x", "y", "z", "short"]
        moment.processing_ms += LENGTH // 2
        assert list(state.get()) == ["y", "z"]
        state.add("x")
        assert list(state.get()) == ["y", "z", "x"]
        moment.processing_ms += LENGTH // 2
        assert list(state) == ["x"]

    def test_replacing_a_list_begins_new_lives(self, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(LIST)).states
        state.add("x")
        moment.processing_ms += LENGTH // 2
        state.update(["x", "y"])
        moment.processing_ms += LENGTH // 2
        assert list(state.get()) == ["x", "y"]
        state.update([])
        assert list(state.get()) == []

    def test_expired_elements_are_shown_once_beside_the_live_ones(self, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(LIST, visibility="return_expired_if_not_cleaned_up")).states
        state.add("x")
        moment.processing_ms += LENGTH // 2
        state.add("y")
        moment.processing_ms += LENGTH // 2
        assert list(state.get()) == ["x", "y"]
        assert list(state.get()) == ["y"]

    # --- reducing and aggregating state ---------------------------------------------------------

    @pytest.mark.parametrize("plain", [REDUCING, AGGREGATING], ids=lambda d: d.kind)
    def test_what_is_added_to_something_expired_begins_afresh(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        (state,) = self.under(moment, living(plain)).states
        state.add(5)
        moment.processing_ms += LENGTH // 2
        state.add(7)
        moment.processing_ms += LENGTH - 1
        assert state.get() == (12 if plain is REDUCING else 6.0)
        moment.processing_ms += 1
        state.add(3)
        assert state.get() == 3

    @pytest.mark.parametrize("plain", [REDUCING, AGGREGATING], ids=lambda d: d.kind)
    def test_what_may_still_be_seen_is_also_added_to(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        """As in Flink's TtlReduceFunction and TtlAggregateFunction."""
        descriptor = living(plain, visibility="return_expired_if_not_cleaned_up", cleanup_incrementally=0)
        (state,) = self.under(moment, descriptor).states
        state.add(5)
        moment.processing_ms += LENGTH
        state.add(7)
        assert state.get() == (12 if plain is REDUCING else 6.0)
        moment.processing_ms += LENGTH - 1
        assert state.get() == (12 if plain is REDUCING else 6.0)

    # --- removing what is not asked for ---------------------------------------------------------

    @KINDS
    def test_accesses_of_one_key_remove_what_is_expired_under_others(
        self, plain: StateDescriptor, moment: OperatorClock
    ) -> None:
        if not self.sweeps_on_access:
            pytest.skip("this backend removes what is expired in another way")
        subtask = self.under(moment, living(plain))
        (state,) = subtask.states
        for key in range(100):
            subtask.at(key)
            write(state)
        moment.processing_ms += LENGTH // 2
        for key in range(90, 100):
            subtask.at(key)
            write(state)
        moment.processing_ms += LENGTH // 2
        subtask.at("a")
        for _ in range(200):
            write(state)
            assert subtask.backend.current.key == "a"
        self.check_entries(subtask.backend, 11)
        assert len(subtask.held(0, range(100))) == 10

    # --- windows --------------------------------------------------------------------------------

    @KINDS
    def test_state_of_windows_expires_too(self, plain: StateDescriptor, moment: OperatorClock) -> None:
        subtask = self.under(moment, windows=[living(plain)])
        (state,) = subtask.windows
        write(state)
        moment.processing_ms += LENGTH // 2
        subtask.at("a", DAY)
        for _ in range(200):
            write(state, 2)
        moment.processing_ms += LENGTH // 2
        subtask.at("a", DAY)
        assert shown(state) is not None
        subtask.at("a", HOUR)
        assert shown(state) is None
