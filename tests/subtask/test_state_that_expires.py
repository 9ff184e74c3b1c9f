"""State with a time to live in a running operator: what time it is there, for records, timers and snapshots."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.model.config.state import StateConfig
from moorline.model.ids import CheckpointId
from moorline.model.wire.elements import Barrier
from moorline.testing import OperatorHarness

ON = pytest.mark.parametrize("on", ["heap", "rocksdb"])


def kept_in(on, folder):
    return StateConfig() if on == "heap" else StateConfig(rocksdb=mo.RocksDb(folder=str(folder)))


def harness_of(function, state):
    return OperatorHarness.of(lambda stream: stream.key_by(own).process(function, uid="function"), state=state)


def own(value):
    return value[0]


class Last(mo.KeyedProcessFunction):
    last = mo.ValueState(int, ttl=mo.StateTtlConfig("10s", cleanup_full_snapshot=True))

    def process_element(self, value, ctx):
        self.last.update(value[1])


def rows_of(harness, **options):
    """The rows of a full snapshot."""
    barrier = Barrier(CheckpointId(1), 0, completed=0, **options)
    (subtask,) = harness._subtasks
    (taken,) = subtask.take(barrier)
    return sum(table.num_rows for part in taken.keyed.parts if part.state == "last" for table in part.tables())


@pytest.mark.parametrize("savepoint", [False, True], ids=["checkpoint", "savepoint"])
def test_a_snapshot_without_input_leaves_out_what_has_expired_meanwhile(savepoint):
    harness = OperatorHarness(Last(), key=own)
    harness.process(("ada", 1))
    options = {"savepoint": "/somewhere"} if savepoint else {}
    assert rows_of(harness, **options) == 1
    harness.advance_clock(10_000)
    assert rows_of(harness, **options) == 0


def test_a_savepoint_of_rocksdb_without_input_leaves_out_what_has_expired_meanwhile(tmp_path):
    harness = harness_of(Last(), kept_in("rocksdb", tmp_path))
    harness.process(("ada", 1))
    assert rows_of(harness, savepoint="/somewhere") == 1
    harness.advance_clock(10_000)
    assert rows_of(harness, savepoint="/somewhere") == 0


class SeenAtTimers(mo.KeyedProcessFunction):
    """Timers one second apart say whether the first value is still there."""

    first = mo.ValueState(int, default=0, ttl=mo.StateTtlConfig("4500ms", time="event", cleanup_incrementally=100))

    def process_element(self, value, ctx):
        self.first.update(1)
        for second in range(1, 9):
            ctx.timer_service().register_event_time_timer(1000 * second)

    def on_timer(self, timestamp, ctx):
        for _ in range(100):  # enough accesses for a sweep
            found = self.first.value()
        yield ctx.current_key, timestamp, found


@ON
@pytest.mark.parametrize("watermarks", [[8000], [1000, 5000, 8000], range(0, 8001, 500), []])
def test_a_timer_sees_what_is_live_at_its_own_time_however_far_the_watermark_has_jumped(on, watermarks, tmp_path):
    with harness_of(SeenAtTimers(), kept_in(on, tmp_path)) as harness:
        harness.process(("ada", 1), timestamp=0)
        harness.process(("bob", 1), timestamp=2000)
        found = [fired for watermark in watermarks for fired in harness.watermark(watermark)]
        found += harness.finish()
        expected = {
            (who, 1000 * n, int(1000 * n < touched + 4500))
            for who, touched in (("ada", 0), ("bob", 2000))
            for n in range(1, 9)
        }
        assert set(found) == expected


class LastOfKey(mo.MapFunction):
    last = mo.ValueState(int, default=-1, ttl=mo.StateTtlConfig("10s", time="event"))

    def map(self, value):
        before = self.last.value()
        self.last.update(value[1])
        return before


def test_a_map_on_a_keyed_stream_goes_by_the_time_of_its_records_too():
    with OperatorHarness(LastOfKey(), key=own) as harness:
        assert harness.process(("ada", 1), timestamp=0) == [-1]
        assert harness.process(("ada", 2), timestamp=9_999) == [1]
        assert harness.process(("ada", 3), timestamp=20_000) == [-1]
