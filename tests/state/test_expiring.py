"""States that expire: the sweep that removes what nobody asks for, and the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from expiring_states import MAP, START, VALUE, OnTheHeap

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from moorline.api.state.ttl import StateTtlConfig
from moorline.errors import InvalidArgument
from moorline.state.backend import CurrentKey, OperatorClock
from moorline.state.heap.states import Table, live_state
from moorline.state.ttl.states import expiring
from moorline.state.ttl.sweep import TURNS
from moorline.testing.contracts.backend.base import Subtask, shown

# --- the sweep ----------------------------------------------------------------------------------


class Swept:
    """A state with a sweep that can be watched."""

    def __init__(self, plain=VALUE, keys=None, **options):
        self.moment, self.current, self.table = OperatorClock(), CurrentKey(), Table()
        self.moment.processing_ms = START
        self.looks, self.rounds = [], 0
        self.keys = keys or (lambda: iter(list(self.table.entries)))
        inner = live_state(plain, self.table, self.current, True)
        descriptor = replace(plain, ttl=StateTtlConfig("8s", **options))
        self.state = expiring(descriptor, inner, self.moment, self.current, self.begin, self.peek)

    def begin(self):
        self.rounds += 1
        return self.keys()

    def peek(self, key):
        self.looks.append(key)
        return self.table.entries.get(key)

    def fill(self, keys):
        """Past the state, so that it does not sweep already."""
        self.table.entries.update(dict.fromkeys(keys, (1, START, None)))

    def access(self, times=TURNS):
        self.current.key = "me"
        for _ in range(times):
            self.state.value()
            assert self.current.key == "me"


def test_an_access_looks_at_so_many_keys_as_configured_and_no_more():
    swept = Swept(cleanup_incrementally=3)
    swept.fill(range(10_000))
    swept.access(1000)
    assert 3 * (1000 - TURNS) <= len(swept.looks) <= 3 * 1000
    assert len(set(swept.looks)) == len(swept.looks)


def test_after_a_round_the_sweep_rests_for_an_eighth_of_the_time_to_live():
    swept = Swept()
    swept.fill(range(10))
    swept.access(10 * TURNS)
    assert swept.rounds == 1
    swept.moment.processing_ms += 999
    swept.access(10 * TURNS)
    assert swept.rounds == 1
    swept.moment.processing_ms += 1
    swept.access(10 * TURNS)
    assert swept.rounds == 2


def test_a_large_map_is_paid_for_over_many_accesses():
    swept = Swept(MAP)
    for swept.current.key in ("large", *range(100)):
        for n in range(5000 if swept.current.key == "large" else 1):
            swept.table.entries.setdefault(swept.current.key, {})[str(n)] = (1, START, None)
    swept.current.key = "me"
    for _ in range(1000):
        swept.state.get("x")
    assert swept.looks[0] == "large"
    assert len(swept.looks) == 1
    for _ in range(1000):
        swept.state.get("x")
    assert len(swept.looks) == 101


@pytest.mark.parametrize("what", ["value", "list", "map"])
def test_live_state_is_told_only_where_there_is_something_to_do(what):
    """Looking neither copies values nor makes increments of snapshots larger."""
    plain = {
        "value": ValueStateDescriptor("s", list[int]),
        "list": ListStateDescriptor("s", list[int]),
        "map": MapStateDescriptor("s", str, list[int]),
    }[what]
    moment = OperatorClock()
    moment.processing_ms = START
    subtask = Subtask(OnTheHeap(), replace(plain, ttl="1h"), moment=moment)
    (state,) = subtask.states

    def touch():
        state.put("k", [1]) if what == "map" else state.add([1]) if what == "list" else state.update([1])

    for key in range(50):
        subtask.at(key)
        touch()
    subtask.checkpoint()
    moment.processing_ms += 1_800_000
    subtask.at("me")
    for _ in range(4 * TURNS):
        touch()
        state.clear()
    touch()
    (rows,) = subtask.begin().snapshot.parts
    assert rows.increment
    assert sum(table.num_rows for table in rows.tables()) == 1


def test_keys_that_are_gone_are_passed_over():
    swept = Swept(keys=lambda: iter(range(1000)))
    swept.fill([5])
    swept.moment.processing_ms += 8000
    swept.access(20 * TURNS)
    assert swept.table.entries == {}


def test_an_iterator_that_the_stream_breaks_begins_again():
    swept = Swept(keys=lambda: iter(swept.table.entries), cleanup_incrementally=1)
    swept.fill(range(500))
    swept.moment.processing_ms += 8000
    swept.access(200 * TURNS)
    assert swept.table.entries == {}
    assert swept.rounds > 10


def test_nobody_sweeps_unless_asked_to():
    swept = Swept(cleanup_incrementally=0)
    swept.fill(range(100))
    swept.moment.processing_ms += 8000
    swept.access(100 * TURNS)
    assert (swept.rounds, len(swept.table.entries)) == (0, 100)


def test_a_failure_while_sweeping_leaves_the_current_key_as_it_was():
    swept = Swept()
    swept.fill(range(100))
    swept.moment.processing_ms += 8000
    swept.table.entries[50] = ("not stamped", 0, "wrong")
    swept.current.key = "me"
    with pytest.raises(TypeError):
        for _ in range(100 * TURNS):
            swept.state.value()
    assert swept.current.key == "me"


def test_a_sweep_in_event_time_waits_for_the_first_watermark():
    swept = Swept(time="event")
    swept.fill(range(100))
    swept.access(100 * TURNS)
    assert swept.rounds == 0
    swept.moment.passed = START + 8000
    swept.access(100 * TURNS)
    assert swept.table.entries == {}


# --- the configuration --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "options", "message"),
    [
        (0, {}, "time to live"),
        ("soon", {}, "time to live"),
        ("1h", {"update": "sometimes"}, "'on_read_and_write'"),
        ("1h", {"visibility": "maybe"}, "'never_return_expired'"),
        ("1h", {"time": "local"}, "'event'"),
        ("1h", {"cleanup_incrementally": -1}, "from 0"),
        ("1h", {"cleanup_incrementally": True}, "from 0"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(length, options, message):
    with pytest.raises(InvalidArgument, match=message):
        StateTtlConfig(length, **options)


def test_a_live_state_knows_its_descriptor():
    for plain in (VALUE, MAP):
        subtask = Subtask(OnTheHeap(), replace(plain, ttl="1h"), moment=OperatorClock())
        subtask.at("a")
        assert subtask.states[0].descriptor.ttl_config == StateTtlConfig("1h")
        assert shown(subtask.states[0]) is None
