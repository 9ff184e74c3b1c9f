"""The table of jobs that ``moorline top`` and ``moorline run --watch`` show, and the rates in it.

A job is what its endpoint says of it (``GET /v1/status``). Rates are differences between two looks, so the first look
has none, and neither has the first after a restart, when an attempt counts from zero.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import click

from moorline.cli.output import HAS_RICH, printable

OPERATOR_HEADERS = ("operator", "in", "in/s", "out", "out/s", "busy", "back-pressured", "keys")

if HAS_RICH:
    import rich.console
    import rich.live
    import rich.text


@dataclass(frozen=True)
class JobRates:
    """Records per second, by operator, since the last look; None: not known."""

    records_in: dict[str, float]
    records_out: dict[str, float]
    #: Of the sources together.
    total: float | None


class RateMeter:
    """Rates of one job from one look to the next.

    >>> meter = RateMeter()
    >>> operators = {"a": {"records_in": 100, "records_out": 0}}
    >>> status = {"attempt": 1, "progress": {"records_in": 100, "operators": operators}}
    >>> meter.look(status, now=1.0).total is None
    True
    >>> status["progress"] = {"records_in": 300, "operators": {"a": {"records_in": 300, "records_out": 50}}}
    >>> rates = meter.look(status, now=3.0)
    >>> rates.total, rates.records_out
    (100.0, {'a': 25.0})
    """

    def __init__(self) -> None:
        self._attempt: int | None = None
        self._at = 0.0
        self._progress: dict[str, Any] = {}

    def look(self, status: dict[str, Any], now: float | None = None) -> JobRates:
        """The rates since the last look."""
        now = time.monotonic() if now is None else now
        before, progress, seconds = self._progress, status["progress"], now - self._at
        is_same = self._attempt == status["attempt"] and seconds > 0
        self._attempt, self._at, self._progress = status["attempt"], now, progress
        if not is_same:
            return JobRates({}, {}, None)
        old = before["operators"]
        found: dict[str, dict[str, float]] = {"records_in": {}, "records_out": {}}
        for uid, counts in progress["operators"].items():
            for name, rates in found.items():
                if uid in old:
                    rates[uid] = max(0.0, (counts[name] - old[uid][name]) / seconds)
        total = max(0.0, (progress["records_in"] - before["records_in"]) / seconds)
        return JobRates(found["records_in"], found["records_out"], total)


def operator_rows(status: dict[str, Any], rates: JobRates, metrics: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row for each operator: :data:`OPERATOR_HEADERS`. ``metrics``: what ``/v1/metrics`` says at the same time.

    >>> counts = {"records_in": 1200, "records_out": 5, "keys": 3, "busy": 0.1, "back_pressured": 0.2}
    >>> status = {"progress": {"operators": {"count": counts}}}
    >>> metrics = {"vertices": [{"operators": [{"uid": "count"}], "busy": 0.9, "back_pressured": 0.05}]}
    >>> operator_rows(status, JobRates({}, {}, None), metrics)
    [('count', '1,200', '-', '5', '-', '90 %', '5 %', '3')]
    """
    rows = []
    # Of the last seconds. Those of the progress are of the whole attempt, and move slowly when it is old.
    recent = {vertex["operators"][0]["uid"]: vertex for vertex in metrics["vertices"]}
    for uid, counts in status["progress"]["operators"].items():
        shares = (f"{100 * recent.get(uid, counts)[share]:.0f} %" for share in ("busy", "back_pressured"))
        arriving = (f"{counts['records_in']:,}", _rate(rates.records_in.get(uid)))
        leaving = (f"{counts['records_out']:,}", _rate(rates.records_out.get(uid)))
        rows.append((uid, *arriving, *leaving, *shares, f"{counts.get('keys', 0):,}"))
    return rows


def job_line(status: dict[str, Any], rates: JobRates) -> str:
    """One job in one line.

    >>> status = {"job": "orders", "status": "running", "attempt": 2, "checkpoints": 4, "last_checkpoint": 9}
    >>> job_line(status | {"failures": ["lost"], "progress": {"records_in": 1234}}, JobRates({}, {}, 10.0))
    'orders: running, attempt 2, 1,234 records, 10/s, checkpoint 9, 1 failures'
    """
    newest = f", checkpoint {status['last_checkpoint']}" if status["last_checkpoint"] is not None else ""
    failures = f", {len(status['failures'])} failures" if status["failures"] else ""
    rate = f", {_rate(rates.total)}/s" if rates.total is not None else ""
    head = f"{status['job']}: {status['status']}, attempt {status['attempt']}"
    return f"{head}, {status['progress']['records_in']:,} records{rate}{newest}{failures}"


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text: the first column to the left, the others to the right."""
    cells = [list(headers), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(headers))]
    lines = ["  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


class JobsScreen(Protocol):
    """A place for a text that is shown again and again."""

    def show(self, text: str) -> None: ...


class _Lines:
    """One text after the other, for a pipe or a file."""

    def show(self, text: str) -> None:
        click.echo(text, err=True)


class _Live:
    """Each text in the place of the one before."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def show(self, text: str) -> None:
        self._live.update(rich.text.Text(text), refresh=True)


@contextmanager
def screen() -> Iterator[JobsScreen]:
    """Standard error as a place to show things: in place if a person looks at it and ``rich`` is there."""
    console = rich.console.Console(stderr=True) if HAS_RICH else None
    if console is None or not console.is_terminal:
        yield _Lines()
        return
    with rich.live.Live(console=console, auto_refresh=False) as live:
        yield _Live(live)
