"""Keys of maps: what cannot be there is a mistake and no miss, and one identity holds on every backend."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

import moorline as mo
from moorline.errors import StateTypeMismatch
from moorline.model.config.state import RocksDb, StateConfig
from moorline.testing import OperatorHarness

BACKENDS = {"heap": StateConfig(), "rocksdb": StateConfig(RocksDb(memory="16MB"))}
FIRST = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
SECOND = FIRST.replace(fold=1)


def harness(function, backend, **options):
    return OperatorHarness.of(
        lambda s: s.key_by(lambda r: "k").process(function, uid="f"), state=BACKENDS[backend], **options
    )


def counting(key_type):
    class Counts(mo.KeyedProcessFunction):
        seen = mo.MapState(key_type, int)

        def process_element(self, key, ctx):
            self.seen.put(key, self.seen.get(key, 0) + 1)
            yield self.seen[key]

    return Counts()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ask", ["get", "contains", "remove"])
@pytest.mark.parametrize("wrong", ["1", 1.0, True, None, 1 << 70])
def test_a_key_of_another_type_is_refused_where_it_is_looked_for(backend, ask, wrong):
    class Asks(mo.KeyedProcessFunction):
        names = mo.MapState(int, str, ttl=None)

        def process_element(self, key, ctx):
            self.names.put(1, "one")
            yield getattr(self.names, ask)(key)

    with harness(Asks(), backend) as world, pytest.raises(StateTypeMismatch, match="a key of the map in state 'names'"):
        world.process(wrong)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_key_of_another_type_is_refused_in_a_map_that_expires(backend):
    class Asks(mo.KeyedProcessFunction):
        names = mo.MapState(str, int, ttl="1h")

        def process_element(self, key, ctx):
            yield key in self.names

    with harness(Asks(), backend) as world:
        assert world.process("a") == [False]
        with pytest.raises(StateTypeMismatch, match="a int is not a str"):
            world.process(1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("key_type", "wrap"), [(datetime, lambda at: at), (tuple[datetime, int], lambda at: (at, 1))])
def test_both_hours_of_a_night_that_has_one_twice_are_keys_of_their_own(backend, key_type, wrap):
    first, second = wrap(FIRST), wrap(SECOND)
    with harness(counting(key_type), backend) as before:
        assert before.process_batch([first, second, first, second, second]) == [1, 1, 2, 2, 3]
        snapshot = before.snapshot()
    with harness(counting(key_type), backend, snapshot=snapshot) as after:
        assert after.process_batch([first, second]) == [3, 4]


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_moment_in_two_zones_is_one_key(backend):
    with harness(counting(datetime), backend) as world:
        assert world.process_batch([FIRST, FIRST.astimezone(UTC), FIRST.astimezone(ZoneInfo("Asia/Tokyo"))]) == [
            1,
            2,
            3,
        ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("key_type", "key"), [(float, float("nan")), (tuple[str, float], ("a", float("nan")))])
def test_nan_is_refused_because_it_would_never_be_found_again(backend, key_type, key):
    with harness(counting(key_type), backend) as world, pytest.raises(StateTypeMismatch, match="NaN is not equal"):
        world.process(key)


def test_keys_of_broadcast_state_are_looked_at_as_well():
    rules = mo.MapStateDescriptor("rules", str, int)

    class Rules(mo.BroadcastProcessFunction):
        def process_element(self, value, ctx):
            yield ctx.get_broadcast_state(rules).get(value)

        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(rules).put(value, 1)

    build = lambda s, r: s.connect(r.broadcast(rules)).process(Rules(), uid="rules")  # noqa: E731
    with OperatorHarness.of(build, inputs=2) as world:
        world.process("a", side=1)
        assert world.process("a") == [1]
        with pytest.raises(StateTypeMismatch, match="a int is not a str"):
            world.process(5)
