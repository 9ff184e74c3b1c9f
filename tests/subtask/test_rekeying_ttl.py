"""State with a time to live under other keys: it lives on as if nothing had happened."""

from __future__ import annotations

import pytest
from rekey_worlds import LOWER, EveryKind, Mean, every, lower_key, shown

import moorline as mo
from moorline.model.config.state import StateConfig


def kept_for(seconds, **config):
    ttl = mo.StateTtlConfig(seconds, **config)

    class Expiring(EveryKind):
        visits = mo.ValueState(int, ttl=ttl)
        pages = mo.ListState(str, ttl=ttl)
        per_page = mo.MapState(str, int, ttl=ttl)
        most = mo.ReducingState(int, max, ttl=ttl)
        mean = mo.AggregatingState(tuple[int, int], Mean(), ttl=ttl)

        def process_element(self, value, ctx):
            if value[1] is None:
                return
            self.visits.update((self.visits.value() or 0) + 1)
            self.pages.add(value[1])
            self.per_page[value[1]] = self.per_page.get(value[1], 0) + 1
            self.most.add(value[2])
            self.mean.add(value[2])

    return Expiring()


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_what_has_a_time_to_live_keeps_the_time_of_its_last_touch(backend, tmp_path):
    state = StateConfig() if backend == "heap" else StateConfig(rocksdb=mo.RocksDb(folder=str(tmp_path)))
    old = every(function=kept_for(10), state=state)
    old.advance_clock(1000)
    old.process(("Ann", "a", 1))
    old.advance_clock(4000)
    old.process(("Bob", "b", 2))
    new = every(2, old.snapshot(), LOWER, key=lower_key, function=kept_for(10), state=state)
    new.advance_clock(5999)  # 10.999 s: ann's is one millisecond from its end

    def live(key):
        new.process((key, None, 0))  # sets the clock of the subtask
        return shown(new, key)

    assert live("ann") == [1, ["a"], {"a": 1}, 1, 1.0]
    new.advance_clock(1)
    assert live("ann") == [None, [], {}, None, None]
    assert live("bob") == [1, ["b"], {"b": 1}, 2, 2.0]
    new.advance_clock(4000)
    assert live("bob") == [None, [], {}, None, None]


def test_what_is_merged_lives_as_long_as_the_later_one_whichever_comes_first():
    for first, second in (("Ann", "ANN"), ("ANN", "Ann")):
        old = every(function=kept_for(10))
        old.advance_clock(1000)
        old.process((first, "a", 1))
        old.advance_clock(4000)
        old.process((second, "a", 2))
        new = every(1, old.snapshot(), LOWER, key=lower_key, function=kept_for(10))
        new.advance_clock(9000)  # 14 s: only the later one would be left
        new.process(("x", None, 0))
        assert shown(new, "ann") == [2, ["a"], {"a": 2}, 2, 1.5], "a list's elements go one by one"


def test_what_is_over_its_time_by_the_other_is_not_merged():
    for first, second in (("Ann", "ANN"), ("ANN", "Ann")):
        old = every(function=kept_for(10))
        old.advance_clock(1000)
        old.process((first, "a", 1))
        old.advance_clock(20_000)
        old.process((second, "a", 2))
        new = every(1, old.snapshot(), LOWER, key=lower_key, function=kept_for(10))
        new.process(("x", None, 0))
        assert shown(new, "ann") == [1, ["a"], {"a": 1}, 2, 2.0]


def test_a_time_to_live_in_event_time_is_kept_too():
    function = kept_for(10, time="event")
    old = every(function=function)
    old.process(("Ann", "a", 1), 1000)
    old.process(("ANN", "a", 2), 5000)
    old.process(("Bob", "b", 2), 2000)
    new = every(1, old.snapshot(), LOWER, key=lower_key, function=kept_for(10, time="event"))
    new.watermark(12_000)
    assert shown(new, "ann") == [2, ["a"], {"a": 2}, 2, 1.5]
    assert shown(new, "bob") == [None, [], {}, None, None]


def test_an_own_length_of_one_value_is_kept():
    class Own(EveryKind):
        visits = mo.ValueState(int, ttl="10s")

        def process_element(self, value, ctx):
            if value[2]:
                self.visits.update(1, ttl=f"{value[2]}s")

    old = every(function=Own(), drop_states=None)
    old.process(("Ann", "a", 100))
    new = every(1, old.snapshot(), mo.Rekey("lower", str.lower), key=lower_key, function=Own())
    new.advance_clock(99_999)
    new.process(("x", "a", 0))
    assert new.state("visits", "ann") == 1
    new.advance_clock(1)
    new.process(("x", "a", 0))
    assert new.state("visits", "ann") is None
