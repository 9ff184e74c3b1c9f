"""Spans of OpenTelemetry: one for each attempt of a job, in it one for each checkpoint, and in that one per subtask.

A listener like any other (``api/listeners.py``): it is called on a thread of its own, and a collector that does not
answer holds up no job.
"""

from __future__ import annotations

import importlib
from typing import Any

from moorline.api.listeners import JobEvent, JobListener
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options


@checks_options()
class TracingListener(JobListener):
    """Spans of OpenTelemetry for the attempts and checkpoints of all jobs; needs ``pip install 'moorline[otel]'``.

    >>> import moorline as mo
    >>> tracing = mo.TracingListener()  # of the tracer provider that your program has set
    >>> mo.add_listener(tracing)
    >>> mo.remove_listener(tracing)

    Attributes begin with ``moorline.``: ``job``, ``attempt``, ``checkpoint``, ``size``, and so on. The span of a
    checkpoint that was given up, and of an attempt that failed, has the status *error* with the reason.
    """

    def __init__(self, tracer_provider: Any = None) -> None:
        try:
            self._trace: Any = importlib.import_module("opentelemetry.trace")
        except ImportError:
            advice = "Install it: pip install 'moorline[otel]'."
            raise InvalidArgument("TracingListener", "no opentelemetry", advice) from None
        self._tracer = self._trace.get_tracer("moorline", tracer_provider=tracer_provider)
        #: The attempt of each job that is under way, and when it began.
        self._attempts: dict[str, tuple[Any, int]] = {}

    def on_started(self, event: JobEvent) -> None:
        self._begin(event["job"], event["attempt"], event["time_ms"])

    def on_restart(self, event: JobEvent) -> None:
        self._end(event["job"], event["time_ms"], event["reason"])
        self._begin(event["job"], event["attempt"] + 1, event["time_ms"] + event["delay_ms"])

    def on_terminated(self, event: JobEvent) -> None:
        self._end(event["job"], event["time_ms"], event["error"] if event["status"] == "failed" else "")

    def on_checkpoint(self, event: JobEvent) -> None:
        attempt, _ = self._attempts.get(event["job"], (None, 0))
        numbers = ("checkpoint", "attempt", "size", "uploaded", "align_ms", "sync_ms", "async_ms", "in_flight_records")
        names = ("job", "kind", "savepoint", "reason")
        attributes = {name: event[name] for name in (*numbers, *names) if event[name] != ""}
        began, ended = event["started_ms"], event["started_ms"] + event["duration_ms"]
        span = self._span(event["kind"], attempt, began, attributes)
        for part in event["subtasks"]:
            of_part = {name: value for name, value in part.items() if name != "operators"}
            child = self._span(f"subtask {part['subtask']}", span, began, of_part)
            child.end(_ns(began + part["acknowledged_ms"]))
        if event["status"] == "failed":
            self._failed(span, f"{event['failure']}: {event['detail']}".removesuffix(": "))
        span.end(_ns(ended))

    def _begin(self, job: str, attempt: int, time_ms: int) -> None:
        self._attempts[job] = self._span("attempt", None, time_ms, {"job": job, "attempt": attempt}), time_ms

    def _end(self, job: str, time_ms: int, why: str) -> None:
        span, began_ms = self._attempts.pop(job, (None, 0))
        if span is not None:
            if why:
                self._failed(span, why)
            span.end(_ns(max(began_ms, time_ms)))

    def _span(self, name: str, parent: Any, time_ms: int, attributes: dict[str, Any]) -> Any:
        context = None if parent is None else self._trace.set_span_in_context(parent)
        named = {f"moorline.{key}": value for key, value in attributes.items()}
        return self._tracer.start_span(name, context=context, start_time=_ns(time_ms), attributes=named)

    def _failed(self, span: Any, why: str) -> None:
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, why))


def _ns(ms: int) -> int:
    return ms * 1_000_000
