"""Metrics that a user's function defines, by PyFlink's names: counters, gauges, meters, distributions, histograms.

``runtime_context.metrics_group`` is a :class:`MetricGroup`. What is defined is reported per subtask with every sign of
life, so it costs what the function itself does: an addition. Values belong to the attempt and begin at zero with it;
what must survive a failure is state.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from moorline.errors import InvalidArgument
from moorline.model.options import checks_options
from moorline.model.wire.figures import MetricKind, UserMetric

#: So many metrics of one operator are reported; groups and labels make others of them.
MOST_METRICS = 200
#: Upper bounds of a histogram that is given none.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,99}")
_LONGEST_LABEL = 200


class Counter:
    """A number that goes up and down.

    >>> errors = Counter()
    >>> errors.inc(), errors.inc(5), errors.dec()
    (None, None, None)
    >>> errors.get_count()
    5
    """

    kind: MetricKind = "counter"

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count

    def figures(self) -> dict[str, Any]:
        """The fields of a report."""
        return {"value": float(self._count)}


@checks_options()
class Gauge:
    """A number that a function of yours returns, asked for about twice a second between two batches.

    >>> Gauge(lambda: 7).get_value()
    7.0
    """

    kind: MetricKind = "gauge"

    def __init__(self, function: Callable[[], float]) -> None:
        self._function = function
        #: As it was when it was asked for last; None: it could not be had.
        self.value: float | None = None

    def get_value(self) -> float:
        """The number as of now."""
        self.value = None  # if the function fails now, what it said before is no longer so
        self.value = float(self._function())
        return self.value

    def figures(self) -> dict[str, Any]:
        return {"value": self.value}


@checks_options()
class Meter:
    """A count of events and how many there are per second, over the last minute or as long as you say.

    >>> logins = Meter(time_span_in_seconds=10)
    >>> logins.mark_event(), logins.mark_event(4), logins.get_count()
    (None, None, 5)
    """

    kind: MetricKind = "meter"

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        if type(time_span_in_seconds) not in (int, float) or not 0 < time_span_in_seconds < math.inf:
            raise InvalidArgument("time_span_in_seconds", time_span_in_seconds, "Give a number of seconds above 0.")
        self._span_ms = 1_000 * time_span_in_seconds
        self._count = 0
        self._rate = 0.0
        self._looks: deque[tuple[float, int]] = deque()

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        return self._count

    def get_rate(self) -> float:
        """Events per second, as it was looked at last."""
        return self._rate

    def look(self, now_ms: float) -> None:
        """Note the count of this moment: the rate is what it differs by from the oldest within the time span."""
        looks = self._looks
        if not looks or now_ms - looks[-1][0] >= self._span_ms / 60:
            looks.append((now_ms, self._count))
            while len(looks) > 2 and now_ms - looks[1][0] >= self._span_ms:
                looks.popleft()
        then_ms, before = looks[0]
        if now_ms > then_ms:
            self._rate = (self._count - before) / ((now_ms - then_ms) / 1_000)

    def figures(self) -> dict[str, Any]:
        return {"value": self._rate, "count": self._count}


class Distribution:
    """The number, sum, least and greatest of values.

    >>> sizes = Distribution()
    >>> sizes.update(3), sizes.update(5)
    (None, None)
    >>> sizes.figures()
    {'count': 2, 'sum': 8.0, 'min': 3.0, 'max': 5.0}
    """

    kind: MetricKind = "distribution"

    def __init__(self) -> None:
        self._count, self._sum = 0, 0.0
        self._min = self._max = 0.0

    def update(self, value: float) -> None:
        if not self._count:
            self._min = self._max = value
        elif value < self._min:
            self._min = value
        elif value > self._max:
            self._max = value
        self._count += 1
        self._sum += value

    def figures(self) -> dict[str, Any]:
        return {"count": self._count, "sum": float(self._sum), "min": float(self._min), "max": float(self._max)}


@checks_options()
class Histogram(Distribution):
    """A distribution that also counts how many values there are up to each of some bounds.

    >>> seconds = Histogram([0.1, 1.0])
    >>> seconds.update(0.05), seconds.update(0.5), seconds.update(7.0)
    (None, None, None)
    >>> seconds.figures()["buckets"]
    [(0.1, 1), (1.0, 2)]
    """

    kind: MetricKind = "histogram"

    def __init__(self, bounds: Sequence[float] = BOUNDS) -> None:
        super().__init__()
        try:
            self.bounds = tuple(map(float, bounds))
        except (TypeError, ValueError):
            self.bounds = ()
        is_ascending = all(a < b for a, b in zip(self.bounds, self.bounds[1:]))
        if not self.bounds or not is_ascending or not all(map(math.isfinite, self.bounds)):
            raise InvalidArgument("bounds", bounds, "Give one or more numbers in ascending order.")
        self._counts = [0] * (len(self.bounds) + 1)

    def update(self, value: float) -> None:
        super().update(value)
        self._counts[bisect_left(self.bounds, value)] += 1

    def figures(self) -> dict[str, Any]:
        total, buckets = 0, []
        for bound, count in zip(self.bounds, self._counts):
            total += count
            buckets.append((bound, total))
        return {**super().figures(), "buckets": buckets}


Metric = Counter | Gauge | Meter | Distribution
M = TypeVar("M", Counter, Gauge, Meter, Distribution, Histogram)


class MetricRegistry:
    """All metrics of one operator in one subtask. ``warn`` is called with a kind of warning and its text."""

    def __init__(self, uid: str, warn: Callable[[str, str], None] = lambda kind, text: None) -> None:
        self._uid, self._warn = uid, warn
        #: Kinds of warnings that were given.
        self._warned: set[str] = set()
        self._metrics: dict[str, tuple[Metric, str, list[tuple[str, str]]]] = {}

    def add(self, name: str, labels: list[tuple[str, str]], metric: M) -> M:
        """The metric of that name and labels: a new one, or the one that was defined before."""
        key = name + ("{" + ",".join(f"{label}={value}" for label, value in labels) + "}" if labels else "")
        known = self._metrics.get(key)
        if known is not None:
            if type(known[0]) is not type(metric):
                had = f"It was defined as a {known[0].kind} before. Give one of them another name."
                raise InvalidArgument(f"metric {key!r} of operator {self._uid!r}", metric.kind, had)
            before = getattr(known[0], "bounds", None)
            if isinstance(metric, Histogram) and metric.bounds != before:
                had = f"It was defined with the bounds {before} before. Give one of them another name."
                raise InvalidArgument(f"metric {key!r} of operator {self._uid!r}", metric.bounds, had)
            if isinstance(metric, Gauge):
                self._warn_once(f"gauges {key}", f"defines the gauge {key!r} twice: the first function is asked")
            return known[0]
        if len(self._metrics) >= MOST_METRICS:
            text = f"defines more than {MOST_METRICS} metrics: {key!r:.200} and others are not reported"
            self._warn_once("metrics", text)
        else:
            self._metrics[key] = metric, name, labels
        return metric

    def look(self, now_ms: float) -> None:
        """Ask gauges and note the counts of meters. On the subtask's thread."""
        for key, (metric, _, _) in list(self._metrics.items()):
            if isinstance(metric, Meter):
                metric.look(now_ms)
            elif isinstance(metric, Gauge):
                try:
                    metric.get_value()
                except Exception as error:  # it is for people, and no reason for a job to fail
                    text = f"has a gauge {key!r} that cannot be read: {type(error).__name__}: {error}"
                    self._warn_once(f"gauge {key}", text)

    def report(self) -> dict[str, UserMetric]:
        """All of them as they stand. Called from another thread, which must go on whatever a function has put in."""
        report = {}
        for key, (metric, name, labels) in list(self._metrics.items()):
            if isinstance(metric, Gauge) and metric.value is None:
                continue
            try:
                figures = metric.figures()
                if all(math.isfinite(value) for value in figures.values() if isinstance(value, float)):
                    report[key] = UserMetric(kind=metric.kind, name=name, labels=labels, **figures)
                    continue
                cause = "it is no finite number"
            except Exception as error:  # whatever a value of the user's raises, signs of life go on
                cause = f"{type(error).__name__}: {error}"
            self._warn_once(f"metric {key}", f"has a metric {key!r} that is not reported: {cause}")
        return report

    def _warn_once(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(kind, text)


@checks_options()
class MetricGroup:
    """The metrics of a function in one subtask: ``runtime_context.metrics_group``.

    >>> import moorline as mo
    >>> class Parse(mo.MapFunction):
    ...     def open(self, runtime_context):
    ...         group = runtime_context.metrics_group
    ...         self.errors = group.counter("errors")
    ...         self.sizes = group.add_group("side", "left").distribution("sizes")
    ...     def map(self, value):
    ...         self.sizes.update(len(value))
    ...         if not value.isdigit():
    ...             self.errors.inc()
    ...         return value
    >>> from moorline.testing import OperatorHarness
    >>> harness = OperatorHarness(Parse())
    >>> harness.process_all(["1", "x"])
    ['1', 'x']
    >>> harness.metrics["errors"]
    1
    >>> harness.metrics["sizes{side=left}"].count
    2

    A name has letters, digits, ``_``, ``.`` and ``-``. Asked for twice, a metric is the same one.
    """

    def __init__(self, registry: MetricRegistry, prefix: str = "", labels: Sequence[tuple[str, str]] = ()) -> None:
        self._registry, self._prefix, self._labels = registry, prefix, list(labels)

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A group within this one: its name goes before those of its metrics. With ``extra`` it is a label instead."""
        _check(name)
        if extra is None:
            return MetricGroup(self._registry, f"{self._prefix}{name}.", self._labels)
        if name in dict(self._labels):
            raise InvalidArgument("name of a group", name, "There is such a label around it already.")
        return MetricGroup(self._registry, self._prefix, [*self._labels, (name, str(extra)[:_LONGEST_LABEL])])

    def counter(self, name: str) -> Counter:
        """A number that goes up and down."""
        return self._add(name, Counter())

    def gauge(self, name: str, obj: Callable[[], float]) -> Gauge:
        """A number that ``obj`` returns whenever it is called."""
        if not callable(obj):
            raise InvalidArgument(f"gauge {name!r}", obj, "Give a function without arguments that returns a number.")
        return self._add(name, Gauge(obj))

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """A count of events, and their rate."""
        return self._add(name, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """The number, sum, least and greatest of values."""
        return self._add(name, Distribution())

    def histogram(self, name: str, bounds: Sequence[float] = BOUNDS) -> Histogram:
        """A distribution with counts up to each of some bounds."""
        return self._add(name, Histogram(bounds))

    def _add(self, name: str, metric: M) -> M:
        _check(name)
        return self._registry.add(self._prefix + name, self._labels, metric)


def _check(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        advice = "Begin with a letter, and go on with letters, digits, '_', '.' and '-', 100 at most."
        raise InvalidArgument("name of a metric", name, advice)
