"""The figures of a job as the text that Prometheus reads.

From the same JSON that ``/v1/metrics`` answers with (``driver/observation/report.py``). Names and labels of users'
metrics are made fit for Prometheus; the client escapes what labels hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from moorline.driver.observation.checkpoints import ATTEMPT_ENDED
from moorline.errors import FailureReason
from moorline.http.metric_families import FAMILIES
from moorline.protocol.supervision.lifecycle import JobStatus

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
#: The reasons for which a checkpoint may not complete.
CHECKPOINT_FAILURES = (*(reason.name for reason in FailureReason), ATTEMPT_ENDED)
#: More samples than this are not sent: users' metrics of many subtasks may be many.
MOST_SAMPLES = 50_000
#: Figures of a subtask's JSON, by the name that they have here; times are in milliseconds there.
_OF_SUBTASK = {
    "subtask_records_in_total": "records_in",
    "subtask_records_out_total": "records_out",
    "subtask_bytes_in_total": "bytes_in",
    "subtask_bytes_out_total": "bytes_out",
    "subtask_busy_seconds_total": "busy_ms",
    "subtask_back_pressured_seconds_total": "back_pressured_ms",
    "subtask_idle_seconds_total": "idle_ms",
    "subtask_in_flight_bytes": "in_flight_bytes",
    "subtask_in_flight_seconds": "in_flight_ms",
    "subtask_blocked_bytes": "blocked_bytes",
    "subtask_stalled_seconds": "stalled_ms",
}
_OF_WORKER = {
    "worker_resident_memory_bytes": "rss_bytes",
    "worker_cpu_seconds_total": "cpu_ms",
    "worker_gc_collections_total": "gc_collections",
    "worker_gc_seconds_total": "gc_ms",
}
_OF_OPERATOR = {
    "operator_records_in_total": "records_in",
    "operator_records_out_total": "records_out",
    "operator_late_records_total": "late_records",
    "operator_watermark_timestamp_seconds": "watermark",
    "operator_watermark_lag_seconds": "watermark_lag_ms",
    "operator_event_time_lag_seconds": "event_time_lag_ms",
    "operator_timers": "timers",
}
_IN_MS = ("watermark",)
_UNFIT = re.compile(r"[^a-zA-Z0-9_]")


def prometheus_text(figures: Mapping[str, Any]) -> str:
    """The text for the figures of a job."""
    return generate_latest(_Page(figures)).decode()


def families(figures: Mapping[str, Any]) -> Iterable[Metric]:
    """The metrics and samples of that text."""
    return _Page(figures).collect()


class _Page(Collector):
    """All metrics of one moment."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        self._job = str(figures["job"])
        self._families: dict[str, Metric] = {}
        self._samples = self._dropped = 0
        self._add_job(figures)
        self._add_checkpoints(figures["checkpoints"])
        for vertex in figures["vertices"]:
            root = vertex["operators"][0]["uid"]
            for subtask in vertex["subtasks"]:
                if subtask["reported"]:
                    self._add_subtask(root, subtask)
        # Of all, users' own are the ones that may be left out.
        for vertex in figures["vertices"]:
            for subtask in vertex["subtasks"]:
                for operator in subtask["operators"]:
                    place = {"operator": operator["uid"], "subtask": str(subtask["index"])}
                    for metric in operator["metrics"].values():
                        self._add_users(metric, place)
        self._add("samples_dropped", self._dropped)

    def collect(self) -> Iterator[Metric]:
        yield from self._families.values()

    # --- what there is ---------------------------------------------------------------------------

    def _add_job(self, figures: Mapping[str, Any]) -> None:
        for status in JobStatus:
            self._add("job_status", int(figures["status"] == status.value), status=status.value)
        subtasks = [subtask for vertex in figures["vertices"] for subtask in vertex["subtasks"]]
        self._add("job_attempt", figures["attempt"])
        self._add("job_uptime_seconds", figures["uptime_ms"] / 1000)
        self._add("job_attempts_total", figures["attempts"])
        self._add("job_failures_total", figures["failures"])
        for host, count in figures["losses"].items():
            self._add("job_losses_total", count, host=host)
        self._add("job_subtasks", len(subtasks))
        self._add("job_subtasks_running", sum(subtask["is_running"] for subtask in subtasks))

    def _add_checkpoints(self, checkpoints: Mapping[str, Any]) -> None:
        self._add("checkpoints_completed_total", checkpoints["completed"])
        # Zeros, too: of a counter that begins with 1 Prometheus' increase() does not see the first.
        for reason, count in (dict.fromkeys(CHECKPOINT_FAILURES, 0) | checkpoints["failed"]).items():
            self._add("checkpoints_failed_total", count, reason=reason)
        self._add("checkpoints_in_progress", len(checkpoints["in_progress"]))
        if checkpoints["since_last_ms"] is not None:
            self._add("checkpoint_since_last_seconds", checkpoints["since_last_ms"] / 1000)
        last = checkpoints["last"]
        if last is None:
            return
        self._add("checkpoint_last_id", last["checkpoint"])
        self._add("checkpoint_last_duration_seconds", last["duration_ms"] / 1000)
        for phase in ("align", "sync", "async"):
            self._add("checkpoint_last_phase_seconds", last[f"{phase}_ms"] / 1000, phase=phase)
        self._add("checkpoint_last_size_bytes", last["size"])
        self._add("checkpoint_last_uploaded_bytes", last["uploaded"])
        for uid, sums in checkpoints["last_operators"].items():
            self._add("checkpoint_last_state_bytes", sums["size"], operator=uid)

    def _add_subtask(self, root: str, subtask: Mapping[str, Any]) -> None:
        place = {"operator": root, "subtask": str(subtask["index"])}
        self._add_figures(_OF_SUBTASK, subtask, place)
        self._add_figures(_OF_WORKER, subtask["process"], place)
        for operator in subtask["operators"]:
            place = {"operator": operator["uid"], "subtask": str(subtask["index"])}
            self._add_figures(_OF_OPERATOR, operator, place)
            if operator["keyed_per_second"]:
                self._add("operator_keyed_records_per_second", operator["keyed_per_second"], **place)
                hottest = max((hot["records_per_second"] for hot in operator["hot_keys"]), default=0.0)
                self._add("operator_hottest_key_records_per_second", hottest, **place)
            self._add("operator_outage", int(bool(operator["outage"])), **place)
            for state, keys in operator["states"].items():
                self._add("operator_state_keys", keys, state=state, **place)
            for counter, count in operator["counters"].items():
                if counter != "late_records":
                    self._add("operator_counter_total", count, counter=counter, **place)
            for split, of_split in operator["splits"].items():
                if "records_behind" in of_split:
                    self._add("operator_source_records_behind", of_split["records_behind"], split=split, **place)
            for name, value in operator["backend"].items():
                family = f"operator_rocksdb_{name}"
                self._add(family if family in FAMILIES else f"{family}_total", value, **place)

    def _add_figures(self, names: Mapping[str, str], figures: Mapping[str, Any], place: Mapping[str, str]) -> None:
        for name, figure in names.items():
            value = figures[figure]
            if value is not None:
                in_ms = figure.endswith("_ms") or figure in _IN_MS
                self._add(name, value / 1000 if in_ms else value, **place)

    # --- users' own ------------------------------------------------------------------------------

    def _add_users(self, metric: Mapping[str, Any], place: Mapping[str, str]) -> None:
        name = "user_" + _UNFIT.sub("_", str(metric["name"]))
        labels = {_label(label): str(value) for label, value in metric.get("labels", ())} | dict(place)
        kind, value, count = metric["kind"], metric.get("value", 0.0), metric.get("count", 0)
        total, buckets = metric.get("sum", 0.0), metric.get("buckets", [])
        help = "Defined by a function of the job."
        match kind:
            case "meter":
                self._sample(f"{name}_total", "counter", help, [("", count, {})], labels)
                self._sample(f"{name}_per_second", "gauge", help, [("", value, {})], labels)
            case "distribution":
                self._sample(name, "summary", help, [("_count", count, {}), ("_sum", total, {})], labels)
            case "histogram":
                samples = [("_bucket", n, {"le": repr(float(bound))}) for bound, n in buckets]
                samples.append(("_bucket", count, {"le": "+Inf"}))
                self._sample(name, "histogram", help, [*samples, ("_count", count, {}), ("_sum", total, {})], labels)
            case _:  # a counter may go down, so it is none of Prometheus'
                self._sample(name, "gauge", help, [("", value, {})], labels)
        if kind in ("distribution", "histogram") and count:
            self._sample(f"{name}_min", "gauge", help, [("", metric.get("min", 0.0), {})], labels)
            self._sample(f"{name}_max", "gauge", help, [("", metric.get("max", 0.0), {})], labels)

    # --- samples ---------------------------------------------------------------------------------

    def _add(self, name: str, value: float, **labels: str) -> None:
        family = FAMILIES[name]
        self._sample(name, family.kind, family.help, [("", value, {})], labels)

    def _sample(
        self,
        name: str,
        kind: str,
        help: str,
        samples: Iterable[tuple[str, float, Mapping[str, str]]],
        labels: Mapping[str, str],
    ) -> None:
        """Add samples to a metric: each the end of its name, its value and labels of its own."""
        name = f"moorline_{name}"
        # Two names of users' metrics may become the same; a metric has one kind.
        known = self._families.get(name)
        if known is not None and known.type != kind:
            name = f"{name.removesuffix('_total')}_{kind}{'_total' if kind == 'counter' else ''}"
            known = self._families.get(name)
        if known is None:
            known = self._families[name] = Metric(
                name.removesuffix("_total") if kind == "counter" else name, help, kind
            )
        for suffix, value, own in samples:
            if self._samples >= MOST_SAMPLES and name != "moorline_samples_dropped":
                self._dropped += 1
            else:
                self._samples += 1
                known.add_sample(name + suffix, {"job": self._job, **labels, **own}, value)


def _label(name: str) -> str:
    """A user's label under a name that is fit, and that is none of ours."""
    fit = _UNFIT.sub("_", name)
    return f"user_{fit}" if fit in ("job", "operator", "subtask", "le", "quantile") or fit.startswith("__") else fit
