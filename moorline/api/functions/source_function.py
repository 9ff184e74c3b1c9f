"""Sources and sinks in the short form that Flink's documentation shows: ``run`` and ``invoke``.

They suit examples, tests and code that comes from Flink. For anything that reads or writes an outside system, a
:class:`~moorline.Source` (splits, positions) or a :class:`~moorline.Sink` (two phases) gives stronger guarantees.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Generic, Protocol

from moorline.api.functions.base import Function
from moorline.api.type_parameters import IN, OUT, T_contra


class RunContext(Protocol[T_contra]):
    """The collector of :meth:`SourceFunction.run`: it emits through this."""

    def collect(self, value: T_contra) -> None:
        """Emit a record. Do it, and change what your snapshot is made from, while holding the lock.

        It waits while too many records are queued. When the source is closed it ends the thread that it is called on.
        """
        ...

    def collect_with_timestamp(self, value: T_contra, timestamp: int) -> None:
        """Emit a record that happened at ``timestamp``, in milliseconds since 1970."""
        ...

    def get_checkpoint_lock(self) -> AbstractContextManager[object]:
        """No snapshot is taken while this is held: what is done under it is one step. It may be taken twice."""
        ...


class SourceFunction(Function, Generic[OUT]):
    """A source that runs until it is cancelled, in every subtask.

    Either ``run`` is a generator that yields records; then nothing happens between two ``yield``, and no lock is
    needed: change your state *before* you yield. Or it is an ordinary method that runs on a thread of its own, emits
    through ``ctx.collect`` and takes ``ctx.get_checkpoint_lock()`` around each record. ``snapshot_state`` and the
    notifications of checkpoints are called while it is outside of the lock.

    >>> class Numbers(SourceFunction):
    ...     def run(self, ctx):
    ...         yield from range(3)
    """

    def run(self, ctx: RunContext[OUT], /) -> Iterator[OUT] | None:
        """Emit records until there are no more, or :meth:`cancel` was called."""
        raise NotImplementedError

    def cancel(self) -> None:
        """End :meth:`run` soon. Called when the source is closed, from another thread than ``run`` is on."""


class InvokeContext(Protocol):
    """The time of a record, and the clocks, for :meth:`SinkFunction.invoke`."""

    def timestamp(self) -> int | None:
        """The time of the record, in milliseconds since 1970; None if it has no timestamp."""
        ...

    def current_watermark(self) -> int: ...
    def current_processing_time(self) -> int: ...


class SinkFunction(Function, Generic[IN]):
    """A sink that gets one record at a time, and acts on it at once.

    What it does is done when a failure comes, and is done again after the restart: at least once. On a keyed stream it
    may have keyed state.

    >>> class Show(SinkFunction):
    ...     def invoke(self, value, context):
    ...         print(value)
    """

    def invoke(self, value: IN, context: InvokeContext, /) -> None:
        """Take one record."""
        raise NotImplementedError
