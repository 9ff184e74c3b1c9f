"""The backend is a matter of configuration: the same function, and the same snapshots, on any of them."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.model.config.state import RocksDb, StateConfig
from moorline.testing import OperatorHarness

BACKENDS = {
    "heap": StateConfig(),
    "heap incremental": StateConfig(None, True),
    "rocksdb": StateConfig(RocksDb(memory="16MB")),
    "rocksdb incremental": StateConfig(RocksDb(memory="16MB"), True),
}


class Everything(mo.KeyedProcessFunction):
    value = mo.ValueState(int, default=0)
    elements = mo.ListState(str)
    entries = mo.MapState(str, float)
    summed = mo.ReducingState(int, lambda a, b: a + b)

    def process_element(self, value, ctx):
        _, n = value
        self.value.update(self.value.value() + n)
        self.elements.add(str(n))
        self.entries.put(str(n % 3), n / 2)
        self.summed.add(n)
        ctx.timer_service().register_event_time_timer(100 + n)

    def on_timer(self, timestamp, ctx):
        state = self.value.value(), list(self.elements.get()), sorted(self.entries.items()), self.summed.get()
        yield ctx.get_current_key(), timestamp, state


def harness(backend, parallelism=2, snapshot=None):
    return OperatorHarness.of(
        lambda s: s.key_by(lambda r: r[0]).process(Everything(), uid="everything"),
        parallelism=parallelism,
        snapshot=snapshot,
        state=BACKENDS[backend],
    )


@pytest.mark.parametrize("after", BACKENDS)
@pytest.mark.parametrize("before", BACKENDS)
def test_a_checkpoint_of_any_backend_is_gone_on_with_on_any_other(before, after):
    records = [(f"k{n % 7}", n) for n in range(60)]
    plain = harness("heap", 1)
    plain.process_all(records)
    expected = sorted(plain.watermark(1_000))

    old = harness(before)
    old.process_all(records[:20])
    old.snapshot()
    old.process_all(records[20:40])
    middle = harness(after, 3, old.snapshot())
    old.close()
    middle.process_all(records[40:50])
    # And on from there, at another parallelism once more.
    new = harness(after, 1, middle.snapshot())
    middle.close()
    new.process_all(records[50:])
    assert sorted(new.watermark(1_000)) == expected
    new.close()
