"""Listeners to the life of jobs, as Spark has them for its streaming queries.

``driver/observation/delivery.py`` calls them, each on a thread of its own.
"""

from __future__ import annotations

import json
from typing import Any

from moorline.api.functions.overrides import check_methods
from moorline.errors import InvalidArgument, MethodMissing
from moorline.model.spelling import nearest

#: What Spark calls the methods of its own listeners.
_OF_SPARK = {
    "onQueryStarted": "on_started",
    "onQueryProgress": "on_progress",
    "onQueryTerminated": "on_terminated",
}


class JobEvent(dict[str, Any]):
    """An event of a job, or its progress: a dict of plain data, with its ``json``.

    >>> event = JobEvent(event="checkpoint", job="payments", checkpoint=7, status="completed")
    >>> event.event, event["checkpoint"]
    ('checkpoint', 7)
    >>> event.json
    '{"event": "checkpoint", "job": "payments", "checkpoint": 7, "status": "completed"}'
    """

    @property
    def event(self) -> str:
        """``started``, ``progress``, ``metrics``, ``checkpoint``, ``restart`` or ``terminated``."""
        return str(self["event"])

    @property
    def json(self) -> str:
        """The event as JSON on one line."""
        return json.dumps(self)

    @property
    def pretty_json(self) -> str:
        """The event as JSON for people."""
        return json.dumps(self, indent=2)


class JobListener:
    """Base of listeners: override the methods that you need, and give it to :func:`moorline.add_listener`.

    >>> class Restarts(JobListener):
    ...     def on_restart(self, event):
    ...         print(event["job"], "restarts:", event["reason"])

    Calls come in order, on a thread that is the listener's own, so it may take its time: the job does not wait. If more
    than a thousand events wait, those of progress and metrics are left out first. What a listener raises is logged
    once, and no more; the job goes on.
    """

    def on_started(self, event: JobEvent, /) -> None:
        """A run of a job has begun."""

    def on_progress(self, event: JobEvent, /) -> None:
        """The progress of the job: every five seconds, and when it ends."""

    def on_metrics(self, event: JobEvent, /) -> None:
        """The figures of every subtask and operator, as ``handle.metrics`` has them: with each progress."""

    def on_checkpoint(self, event: JobEvent, /) -> None:
        """A checkpoint or savepoint is complete, or was given up: see ``status``."""

    def on_restart(self, event: JobEvent, /) -> None:
        """An attempt has ended, and another one will begin."""

    def on_terminated(self, event: JobEvent, /) -> None:
        """The job has finished, failed or been cancelled."""


def check_listener(listener: object) -> None:
    """Raise for what is no listener, and for one with a method that would never be called, or could not be."""
    if not isinstance(listener, JobListener):
        raise InvalidArgument("listener", listener, "Give an object of a class that is derived from mo.JobListener.")
    known = [name for name in vars(JobListener) if name.startswith("on_")]
    for name in dir(type(listener)):
        meant = _OF_SPARK.get(name) or (nearest(name, known) if name.startswith("on") else None)
        if meant is not None and name not in known:
            raise MethodMissing("a listener", type(listener).__name__, "JobListener", meant, name)
    check_methods(listener, "a listener")
