"""States that expire, against a model with a clock moved by hand."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import product

import pytest
from expiring_states import MAP, START, VALUE, OnTheHeap
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from thoroughness import examples

from moorline.api.state.ttl import StateTtlConfig
from moorline.model.times import MIN_TIME
from moorline.state.backend import OperatorClock
from moorline.testing.contracts.backend.base import Subtask

some_key = st.sampled_from(["a", "a", 3])
inner_key = st.sampled_from("xxy")
#: The length of one write: none, shorter or longer than the state's.
own_length = st.sampled_from([None, None, None, 30, 300])


class Machine(RuleBasedStateMachine):
    """A value and a map per key, and a dict of (value, stamp, own length) that knows better."""

    time, update, visibility, sweeps = "processing", "on_create_and_write", "never_return_expired", False

    def __init__(self):
        super().__init__()
        self.length = 100
        #: By key, or by key and map key.
        self.model = {}
        self.moment = OperatorClock()
        self.moment.processing_ms = START
        if self.sweeps:
            self.moment.passed = START
        self.subtask = None
        self.begin(100)
        self.checkpointed = ([], 0, {})

    def begin(self, length, parts=(), completed=0):
        """Start the job, with this length or without a time to live."""
        self.length = length
        ttl = length and StateTtlConfig(
            length / 1000,
            time=self.time,
            update=self.update,
            visibility=self.visibility,
            cleanup_incrementally=5 if self.sweeps else 0,
        )
        descriptors = [replace(VALUE, default=None, ttl=ttl), replace(MAP, ttl=ttl)]
        self.subtask = Subtask(
            OnTheHeap(), *descriptors, moment=self.moment, restored=parts, completed=completed, incremental=self.sweeps
        )
        if not length:
            self.model = {place: (value, None, None) for place, (value, _, _) in self.model.items()}

    # --- what the model does --------------------------------------------------------------------

    @property
    def now(self):
        if self.time == "processing":
            return self.moment.processing_ms
        return max(self.moment.passed, MIN_TIME if self.moment.timestamp is None else self.moment.timestamp)

    @property
    def touch(self):
        if self.time == "processing":
            return self.moment.processing_ms
        if self.moment.timestamp is not None:
            return self.moment.timestamp
        return self.moment.passed if self.moment.passed > MIN_TIME else None

    def is_over(self, place, now=None):
        _, stamp, own = self.model[place]
        return bool(self.length) and stamp is not None and stamp + (own or self.length) <= (now or self.now)

    def found_over(self, place):
        """A read has found it over. A record that is on time may still be older than its end."""
        if self.time == "processing" or self.is_over(place, self.moment.passed):
            del self.model[place]

    def touched(self, stamp):
        if self.touch is None or not self.length:
            return None
        return max(self.touch, self.now if stamp is None else stamp)

    def model_write(self, place, value, own):
        if place in self.model and self.is_over(place):
            del self.model[place]
        stamp = self.touched(self.model[place][1]) if place in self.model else self.length and self.touch
        self.model[place] = (value, stamp or None, own)

    def model_read(self, place, absent=None):
        if place not in self.model:
            return absent
        value, stamp, own = self.model[place]
        if self.is_over(place):
            self.found_over(place)
            return value if self.visibility != "never_return_expired" else absent
        if self.update == "on_read_and_write" or stamp is None:
            self.model[place] = (value, self.touched(stamp), own)
        return value

    # --- what happens ---------------------------------------------------------------------------

    def at(self, key, timestamp, after=0):
        """Some time later a record comes; its timestamp is near the watermark."""
        if self.time == "processing":
            self.moment.processing_ms += after
        elif after:
            self.moment.passed = max(self.moment.passed, START) + after
        base = max(self.moment.passed, START)
        self.moment.timestamp = None if timestamp is None else base + timestamp
        self.subtask.at(key)
        return self.subtask.states

    record = {
        "key": some_key,
        "timestamp": st.sampled_from([None, None, -100, -50, -10, 0, 10, 50]),
        "after": st.sampled_from([0, 0, 0, 10, 20, 50]),
    }

    def written_with(self, own):
        return {} if own is None or not self.length else {"ttl": own / 1000}

    @rule(**record, value=st.integers(0, 9), own=own_length)
    def update_value(self, key, timestamp, after, value, own):
        state, _ = self.at(key, timestamp, after)
        state.update(value, **self.written_with(own))
        self.model_write((key,), value, own if self.length else None)

    @rule(**record, inner=inner_key, value=st.none() | st.integers(0, 9), own=own_length)
    def put(self, key, timestamp, after, inner, value, own):
        _, state = self.at(key, timestamp, after)
        state.put(inner, value, **self.written_with(own))
        self.model_write((key, inner), value, own if self.length else None)

    @rule(**record)
    def read_value(self, key, timestamp, after):
        state, _ = self.at(key, timestamp, after)
        assert state.value() == self.model_read((key,))

    @rule(**record, inner=inner_key)
    def get(self, key, timestamp, after, inner):
        _, state = self.at(key, timestamp, after)
        assert state.get(inner, "absent") == self.model_read((key, inner), "absent")

    @rule(**record, inner=inner_key)
    def contains(self, key, timestamp, after, inner):
        _, state = self.at(key, timestamp, after)
        assert state.contains(inner) == (self.model_read((key, inner), "absent") != "absent")

    @rule(**record)
    def count_and_iterate(self, key, timestamp, after):
        _, state = self.at(key, timestamp, after)
        size, is_empty = len(state), state.is_empty()
        expected = {inner: self.model_read((key, inner), "absent") for inner in "xy"}
        expected = {inner: value for inner, value in expected.items() if value != "absent"}
        assert (size, is_empty) == (len(expected), not expected)
        assert dict(state.items()) == expected

    @rule(**record, what=st.sampled_from(["x", "y", "map", "value"]))
    def remove(self, key, timestamp, after, what):
        state, other = self.at(key, timestamp, after)
        if what == "value":
            state.clear()
        elif what == "map":
            other.clear()
        else:
            other.remove(what)
        gone = {"value": [(key,)], "map": [(key, "x"), (key, "y")]}.get(what, [(key, what)])
        self.model = {place: held for place, held in self.model.items() if place not in gone}

    @rule(accesses=st.integers(1, 40))
    def other_keys_are_busy(self, accesses):
        state, other = self.at("other", None)
        for _ in range(accesses):
            state.value(), other.get("x")

    @rule()
    def checkpoint(self):
        parts = self.subtask.checkpoint()
        self.checkpointed = (parts, self.subtask.completed, copy.deepcopy(self.model))

    @rule(length=st.sampled_from([None, 50, 100, 200]), loses=st.sampled_from([False, False, True]))
    def restart(self, length, loses):
        if not loses:
            self.checkpoint()
        parts, completed, model = self.checkpointed
        self.model = dict(model)
        if self.sweeps:
            # What is removed before it is revived by another length is not for the model to know.
            length = self.length
        elif self.time == "event":
            self.moment.passed = MIN_TIME  # it is not in the snapshot
        self.begin(length, parts, completed)

    def teardown(self):
        if self.subtask is not None:
            for key in ("a", 3):
                self.read_value(key, None, 0)
                self.count_and_iterate(key, None, 0)


@pytest.mark.parametrize("time", ["processing", "event"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("update", "visibility", "sweeps"),
    [
        *product(
            ["on_create_and_write", "on_read_and_write"],
            ["never_return_expired", "return_expired_if_not_cleaned_up"],
            [False],
        ),
        # What a sweep has removed cannot be shown any more: when is not for the model to know.
        *product(["on_create_and_write", "on_read_and_write"], ["never_return_expired"], [True]),
    ],
)
def test_a_state_expires_as_a_dict_with_stamps_says(time, update, visibility, sweeps):
    options = {"time": time, "update": update, "visibility": visibility, "sweeps": sweeps}
    case = type("ConfiguredMachine", (Machine,), options).TestCase
    case.settings = settings(max_examples=examples(60), stateful_step_count=50, deadline=None)
    case("runTest").runTest()
