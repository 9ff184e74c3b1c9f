"""The figures of all jobs of a process as metrics of OpenTelemetry, under the names that Prometheus gets.

A listener like any other (``api/listeners.py``). The instruments are observable: a reader of the program asks for
values when it exports, and gets the newest figures of each job, which are five seconds old at most.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moorline.api.listeners import JobEvent, JobListener
from moorline.errors import InvalidArgument
from moorline.http.prometheus import families
from moorline.model.options import checks_options

log = logging.getLogger("moorline")
#: Names that OpenTelemetry takes are no longer.
LONGEST_NAME = 255
_UNITS = {"_seconds": "s", "_bytes": "By"}

#: The labels and the values of a metric.
Samples = list[tuple[Mapping[str, str], float]]


@checks_options()
class MetricsListener(JobListener):
    """Metrics of OpenTelemetry for all jobs of the process; needs ``pip install 'moorline[otel]'``.

    >>> import moorline as mo
    >>> metrics = mo.MetricsListener()  # of the meter provider that your program has set
    >>> mo.add_listener(metrics)
    >>> mo.remove_listener(metrics)

    Names and attributes are those of docs/reference/metrics.md. Metrics of a job that has ended are no longer sent.
    """

    def __init__(self, meter_provider: Any = None) -> None:
        try:
            self._metrics: Any = importlib.import_module("opentelemetry.metrics")
        except ImportError:
            advice = "Install it: pip install 'moorline[otel]'."
            raise InvalidArgument("MetricsListener", "no opentelemetry", advice) from None
        if meter_provider is not None and not isinstance(meter_provider, self._metrics.MeterProvider):
            raise InvalidArgument("meter_provider", meter_provider, "Give a MeterProvider of opentelemetry, or none.")
        #: Is it that of the program, which may not have set one?
        self._may_be_unset = meter_provider is None
        self._meter = self._metrics.get_meter("moorline", meter_provider=meter_provider)
        self._instruments: set[str] = set()
        #: By job and name. Replaced as a whole: readers come on threads of their own.
        self._jobs: Mapping[str, Mapping[str, Samples]] = {}

    def on_metrics(self, event: JobEvent) -> None:
        if self._may_be_unset:
            self._may_be_unset = False
            self._warn_if_unset()
        by_name: dict[str, Samples] = {}
        for family in families(event):
            for sample in family.samples:
                by_name.setdefault(sample.name, []).append((sample.labels, sample.value))
                if sample.name not in self._instruments:
                    self._instruments.add(sample.name)
                    self._instrument(family.type, sample.name, family.documentation)
        self._jobs = {**self._jobs, event["job"]: by_name}

    def _warn_if_unset(self) -> None:
        provider = self._metrics.get_meter_provider()
        # Until one is set there is one that stands for it.
        if isinstance(provider, self._metrics.NoOpMeterProvider) or type(provider).__name__ == "_ProxyMeterProvider":
            log.warning(
                "MetricsListener: no meter provider is set, so metrics go nowhere. Call "
                "opentelemetry.metrics.set_meter_provider(...), or give one: mo.MetricsListener(meter_provider)."
            )

    def on_terminated(self, event: JobEvent) -> None:
        self._jobs = {job: samples for job, samples in self._jobs.items() if job != event["job"]}

    def _instrument(self, kind: str, name: str, help: str) -> None:
        meter = self._meter
        if kind == "gauge":
            create = meter.create_observable_gauge
        elif name.endswith("_sum"):  # of values that may be negative
            create = meter.create_observable_up_down_counter
        else:  # counters, and the counts of summaries and histograms
            create = meter.create_observable_counter
        what = name.removesuffix("_total")
        unit = next((unit for end, unit in _UNITS.items() if what.endswith(end)), "")
        create(name[:LONGEST_NAME], callbacks=[self._reader(name)], unit=unit, description=help)

    def _reader(self, name: str) -> Callable[[Any], Iterable[Any]]:
        observation = self._metrics.Observation

        def read(options: Any) -> Iterable[Any]:
            jobs = self._jobs.values()
            return [observation(value, labels) for job in jobs for labels, value in job.get(name, ())]

        return read
