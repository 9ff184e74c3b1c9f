"""The contract between Moorline and a sink.

A sink makes its output visible in two steps. At a barrier, ``prepare`` stages what was written since the last
one, durably, and returns *committables*: plain data that says what is to be done to make it visible. They are
part of the snapshot. When the checkpoint is complete, ``commit`` does it. After a restart the committables of
the restored checkpoint are committed again, because it is unknown whether that happened before; so committing
twice must be harmless, also when an older, half-dead attempt does it at the same time.

Each call gets the order of events like this:

    write* prepare(1) write* prepare(2) commit(all of 1 and 2) write* …

A notification may get lost, so a commit can cover more than one checkpoint, and the last one at the end of a
bounded job covers everything.

In a batch job there is one ``prepare``, at the end of each Spark task; ``commit`` is called once, on the driver, when
all of them have succeeded. Several attempts at a task may stage something, and may have the same attempt number: put
something unique into each name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic

from moorline.api.type_parameters import T_contra


class DeliveryGuarantee(Enum):
    """The promise of a sink: exactly once, at least once, or none."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True)
class SinkContext:
    """The place of a writer in its job, and the state to go on from."""

    job: str
    uid: str
    subtask: int
    parallelism: int
    #: Put it into the name of everything staged: an older attempt may still be writing.
    attempt: int
    #: What :meth:`SinkWriter.snapshot` returned, dealt out anew if the parallelism has changed.
    restored: tuple[Any, ...] = ()


class SinkWriter(Generic[T_contra]):
    """The writer of the records of one subtask."""

    def write(self, records: list[T_contra], /) -> None:
        """Take a batch. Nothing may become visible yet."""
        raise NotImplementedError

    def prepare(self, checkpoint: int, /) -> list[Any]:
        """Stage durably all that was written since the last call; return its committables."""
        return []

    def snapshot(self) -> list[Any]:
        """The writer's own state, as plain data; it comes back as ``SinkContext.restored``."""
        return []

    def results(self) -> tuple[str, list[Any]] | None:
        """At the end of the job: records for ``result.collected(name)``, in this driver's memory."""
        return None

    def close(self) -> None:
        """Called once, at the end or after a failure. What was not prepared is given up."""


class Sink(Generic[T_contra]):
    """The end of a stream: a system that takes records."""

    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    #: Does it do anything outside of the job? One that does not may be left out of a job that becomes a DataFrame.
    has_effects: bool = True
    #: The name by which ``result.collected(name)`` finds its records, if that is where they go.
    collects: str | None = None

    def check(self) -> None:
        """Called once on the driver, before anything is started: raise here what can be known to go wrong.

        A trial write that leaves nothing behind is best. Whatever is raised refuses the start. The default finds
        nothing.
        """

    def open(self, ctx: SinkContext, /) -> SinkWriter[T_contra]:
        """Make the writer of one subtask. Called in the worker."""
        raise NotImplementedError

    def commit(self, committables: list[Any], /) -> None:
        """Make them visible. Called in the worker; repeating it is harmless."""

    def roll_back(self, job: str, uid: str, checkpoint: int, /) -> None:
        """Called on the driver before ``checkpoint`` is restored: undo what was committed for those after it.

        There is nothing to undo unless newer checkpoints were lost or damaged and the job goes back past them.
        """

    def clean_up(self, job: str, uid: str, /) -> None:
        """Called once on the driver when the job has ended well: remove what is staged and not committed."""
