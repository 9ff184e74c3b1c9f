"""A window operator in a harness, told in seconds."""

from __future__ import annotations

import moorline as mo
from moorline.testing.harness import OperatorHarness

LATE, SIDE = mo.OutputTag("late"), mo.OutputTag("side")


class World(OperatorHarness):
    """A harness that is told times in seconds, and shows what comes out with its timestamp."""

    def add(self, key, value, at=None, side=0):
        return self._stamped(lambda: self.process((key, value), None if at is None else round(at * 1000), side=side))

    def time(self, at):
        return self._stamped(lambda: self.watermark(round(at * 1000) if at < 1e12 else at))

    def _stamped(self, act):
        out = act()
        times = [t for s in self._subtasks for t in s.timestamps]
        for subtask in self._subtasks:
            subtask.timestamps = []
        return [(value, at / 1000 if at is not None and at < 1e15 else at) for value, at in zip(out, times)]

    @property
    def late_records(self):
        return sum(s.operator.counters.get("late_records", 0) for s in self._subtasks)

    def kept(self):
        return sum(s.operator.backend.entries() for s in self._subtasks)

    def timers(self, key):
        (found,) = [t for s in self._subtasks if (t := s.operator._timers.event.of_key(key))] or [[]]
        return [(time, span) for time, span in found]


def total(a, b):
    return a[0], a[1] + b[1]


def keyed(stream):
    return stream.key_by(lambda r: r[0])


def summed(assigner, trigger=None, lateness=0, tag=None, evictor=None, **of):
    """A sum for each window."""

    def build(stream):
        windowed = keyed(stream).window(assigner).allowed_lateness(lateness)
        windowed = windowed if trigger is None else windowed.trigger(trigger)
        windowed = windowed if evictor is None else windowed.evictor(evictor)
        return (windowed if tag is None else windowed.side_output_late_data(tag)).reduce(total, uid="sums")

    return World.of(build, **of)


def listed(assigner, function, trigger=None, lateness=0, **of):
    """What a window function makes of all records of a window."""

    def build(stream):
        windowed = keyed(stream).window(assigner).allowed_lateness(lateness)
        return (windowed if trigger is None else windowed.trigger(trigger)).process(function, uid="lists")

    return World.of(build, **of)
