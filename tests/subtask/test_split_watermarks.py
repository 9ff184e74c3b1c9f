"""Watermarks at sources: the slowest split that is not idle counts, and none makes another's records late."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.testing import OperatorHarness

MONOTONOUS = mo.WatermarkStrategy.monotonous(timestamp=lambda r: r)
BY_LINE = mo.WatermarkStrategy.monotonous(timestamp=int)


class Log:
    """Everything that comes out of a source, in its order."""

    def __init__(self):
        self.seen = []

    def process(self, records, timestamps=None, side=0):
        self.seen += [("record", t) for t in timestamps]

    def watermark(self, time):
        self.seen.append(("watermark", time))

    def idle(self):
        self.seen.append(("idle", None))

    def late(self):
        """Records that came after a watermark that had left them behind."""
        reached, found = MIN_TIME, []
        for kind, time in self.seen:
            if kind == "watermark":
                assert time >= reached
                reached = time
            elif kind == "record" and time <= reached:
                found.append(time)
        return found

    def watermarks(self):
        return [time for kind, time in self.seen if kind == "watermark"]


def reading(source, strategy=MONOTONOUS, parallelism=1, snapshot=None):
    """A harness around a source, and what each subtask says."""
    harness = OperatorHarness.of(
        lambda job: job.source(source, uid="in", watermarks=strategy),
        inputs=0,
        parallelism=parallelism,
        snapshot=snapshot,
    )
    logs = [Log() for _ in harness._subtasks]
    for subtask, log in zip(harness._subtasks, logs, strict=True):
        subtask.operator.targets = [log]
    return harness, logs


def read_all(harness, ms=60, reads=100_000):
    """Read to the end, with an interval between any two batches."""
    for _ in range(reads):
        harness.advance_clock(ms)
        harness.read(0)
        if all(subtask.has_ended for subtask in harness._subtasks):
            return


@pytest.mark.parametrize("parallelism", [1, 3])
def test_no_record_of_a_generator_is_late_though_its_splits_are_read_in_turn(parallelism):
    harness, logs = reading(mo.generate(lambda i: i, count=60_000, splits=8), parallelism=parallelism)
    read_all(harness)
    assert [log.late() for log in logs] == [[]] * parallelism
    for log in logs:
        assert len(log.watermarks()) > 3, "and yet time goes on"
        assert log.watermarks()[-1] == MAX_TIME
    assert sum(len(log.seen) - len(log.watermarks()) for log in logs) == 60_000


def test_nor_after_a_restart_in_the_middle_at_another_parallelism():
    source = mo.generate(lambda i: i, count=60_000, splits=8)
    before, _ = reading(source)
    read_all(before, reads=11)
    after, logs = reading(source, parallelism=2, snapshot=before.snapshot())
    read_all(after)
    assert [log.late() for log in logs] == [[], []]


def test_a_list_is_one_split():
    harness, (first, second) = reading(mo.from_items([10, 20, 15, 30]), parallelism=2)
    read_all(harness)
    assert first.watermarks()[-1] == MAX_TIME
    assert second.seen == [("watermark", MAX_TIME)], "a subtask without a split has reached the end at once"


def by_hand(script, strategy=MONOTONOUS, splits=None):
    """``splits``: what the reader says it has after each read; None: it says nothing."""

    class Reader(mo.SourceReader):
        def __init__(self):
            self.reads = 0

        def read(self, limit):
            self.reads += 1
            step = script[self.reads - 1]
            if step is None:
                return []
            if step == "end":
                return None
            self.split, records = step
            return records

        def splits(self):
            return None if splits is None else splits[max(min(self.reads, len(splits)) - 1, 0)]

        def positions(self):
            return {}

    class Scripted(mo.Source):
        def open(self, ctx):
            return Reader()

    harness, (log,) = reading(Scripted(), strategy)
    for _ in script:
        harness.advance_clock(60)
        harness.read(0)
    harness.advance_clock(60)
    return log


def test_the_slowest_split_counts():
    log = by_hand([("a", [100]), ("b", [50]), ("a", [200]), ("b", [150])])
    assert log.watermarks() == [99, 149], "50 came when 99 was announced: nobody had said that there is a split b"


def test_a_split_that_is_known_and_has_said_nothing_is_waited_for():
    log = by_hand([("a", [100]), ("b", [50]), ("a", [200]), ("b", [150])], splits=[{"a", "b"}])
    assert log.watermarks() == [49, 149]
    assert log.late() == []


def test_a_split_that_is_finished_is_not_waited_for_any_more():
    log = by_hand([("a", [100]), ("b", [50]), ("a", [200]), ("a", [300])], splits=[{"a", "b"}, {"a", "b"}, {"a"}])
    assert log.watermarks() == [49, 199, 299]


def test_a_new_split_that_begins_behind_holds_time_but_does_not_take_it_back():
    log = by_hand([("a", [100]), ("a", [110]), ("b", [20]), ("b", [120])], splits=[{"a"}, {"a", "b"}])
    assert log.watermarks() == [99, 109]


def test_a_reader_that_has_splits_and_does_not_say_which_it_read_from_is_told_so():
    with pytest.raises(InvalidArgument, match="says with its attribute split"):
        by_hand([(None, [100])], splits=[{"a", "b"}])


def test_each_split_has_a_generator_of_its_own():
    made = []

    class Counting(mo.WatermarkGenerator):
        def __init__(self):
            self.values = []
            made.append(self)

        def on_event(self, value, timestamp):
            self.values.append(value)

        def watermark(self):
            return None

    strategy = mo.WatermarkStrategy.of(lambda: Counting(), timestamp=lambda r: r)
    by_hand([("a", [1]), ("b", [2]), ("a", [3])], strategy)
    assert [generator.values for generator in made] == [[1, 3], [2]]


def test_timestamps_of_the_outside_system_are_kept_if_there_is_no_assigner():
    class Reader(mo.SourceReader):
        def read(self, limit):
            self.timestamps = [5, 6]
            return ["a", "b"]

        def positions(self):
            return {}

    class Outside(mo.Source):
        def open(self, ctx):
            return Reader()

    harness, (log,) = reading(Outside(), mo.WatermarkStrategy.monotonous())
    harness.read(0)
    assert log.seen == [("record", 5), ("record", 6)]


# --- files ----------------------------------------------------------------------------------------


def lines(folder, name, *times):
    with (folder / name).open("a") as file:
        file.writelines(f"{time}\n" for time in times)


def test_a_file_that_was_read_to_its_end_does_not_hold_time_back(tmp_path):
    lines(tmp_path, "a.txt", *range(10))
    lines(tmp_path, "b.txt", *range(10, 20))
    lines(tmp_path, "c.txt", *range(20, 30))
    harness, (log,) = reading(mo.read_files(tmp_path), BY_LINE)
    read_all(harness)
    assert log.watermarks() == [8, 18, 28, MAX_TIME]
    assert log.late() == []


def test_files_that_grow_are_waited_for_all_of_them(tmp_path):
    lines(tmp_path, "a.txt", 10)
    lines(tmp_path, "b.txt", 50)
    harness, (log,) = reading(mo.read_files(tmp_path, watch="1ms"), BY_LINE)
    for _ in range(4):
        harness.advance_clock(60)
        harness.read(0)
    assert log.watermarks()[-1] == 9
    lines(tmp_path, "a.txt", 60)
    for _ in range(400):
        harness.advance_clock(60)
        harness.read(0)
        if log.watermarks()[-1] == 49:
            break
    assert log.watermarks()[-1] == 49
    assert log.late() == []
    harness.close()


# --- idleness -------------------------------------------------------------------------------------

IDLE = MONOTONOUS.with_idleness("1s")


def test_a_split_without_records_is_not_waited_for_after_a_while():
    script = [("a", [100]), ("b", [50])] + [("a", [100 + n]) for n in range(1, 31)]
    log = by_hand(script, IDLE, splits=[{"a", "b"}])
    assert 49 in log.watermarks()
    assert log.watermarks()[-1] == 129
    assert ("idle", None) not in log.seen


def test_a_split_that_comes_back_is_waited_for_again():
    away = [("a", [100 + n]) for n in range(1, 31)]
    log = by_hand([("b", [50]), *away, ("b", [60]), ("a", [200]), ("b", [150])], IDLE, splits=[{"a", "b"}])
    reached = log.watermarks()
    assert reached[-1] == 149
    assert 199 not in reached
    assert log.late() == [60], "what it brings along is late if the others have gone on"


def test_a_source_that_is_idle_says_so_once_and_says_when_it_is_back():
    log = by_hand([("a", [100]), *[None] * 40, ("a", [101])], IDLE)
    assert log.seen == [
        ("record", 100),
        ("watermark", 99),
        ("idle", None),
        ("watermark", 99),  # before the record: nobody is to take it for late
        ("record", 101),
        ("watermark", 100),
    ]


def test_a_source_that_never_had_a_record_goes_idle_too():
    log = by_hand([*[None] * 20, ("a", [5])], IDLE)
    assert log.seen == [("idle", None), ("watermark", MIN_TIME), ("record", 5), ("watermark", 4)]


def test_a_source_with_splits_that_never_had_a_record_goes_idle_too():
    assert by_hand([None] * 20, IDLE, splits=[{"a"}]).seen == [("idle", None)]


def test_a_source_that_was_idle_ends_like_any_other():
    log = by_hand([("a", [100]), *[None] * 20, "end"], IDLE)
    assert log.seen[-2:] == [("idle", None), ("watermark", MAX_TIME)]
