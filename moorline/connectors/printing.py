"""Two sinks for looking and for not looking: ``print`` and ``discard``."""

from __future__ import annotations

import sys
from typing import Any

from moorline.api.sinks import DeliveryGuarantee, Sink, SinkContext, SinkWriter
from moorline.model.options import checks_options


@checks_options()
def print_(prefix: str = "") -> Sink:
    """Print each record as soon as it arrives, with the number of its subtask, counted from 1 as in Flink.

    The text goes to the standard output of the worker; on a cluster that is the executor's log. What is printed
    cannot be taken back, so after a failure records are printed again: at least once.

    >>> writer = print_("words").open(SinkContext("job", "out", subtask=0, parallelism=2, attempt=1))
    >>> writer.write(["to", "be"])
    words:1> to
    words:1> be
    """
    return Print(prefix)


@checks_options()
def discard() -> Sink:
    """Take the records and forget them, for a stream whose output is not wanted.

    >>> discard().open(SinkContext("job", "out", subtask=0, parallelism=1, attempt=1)).write([1, 2])
    """
    return Discard()


class Print(Sink):
    """See :func:`print_`."""

    guarantee = DeliveryGuarantee.AT_LEAST_ONCE

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer to this process's standard output."""
        number = f"{ctx.subtask + 1}> "
        return _PrintWriter(f"{self.prefix}:{number}" if self.prefix else number)


class _PrintWriter(SinkWriter):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def write(self, records: list[Any]) -> None:
        # One call for the batch: several subtasks may share the terminal, and lines should stay whole.
        sys.stdout.write("".join(f"{self._prefix}{record}\n" for record in records))
        sys.stdout.flush()


class Discard(Sink):
    """See :func:`discard`."""

    has_effects = False
    takes_columns = True

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that writes nothing."""
        return _DiscardWriter()


class _DiscardWriter(SinkWriter):
    def write(self, records: list[Any]) -> None:
        pass
