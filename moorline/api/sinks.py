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

**Commits in one step.** A table wants one commit for each checkpoint, not one from each worker. A sink that sets
:attr:`Sink.commits_on_driver` is not committed in the workers: the driver gathers the committables of all subtasks from
the published checkpoint and gives them to a :class:`GlobalCommitter`, and subtasks keep theirs in their snapshots until
that has succeeded.

**Commits at a server.** One that may be slow or away must not hold up the stream. A sink that sets
:attr:`Sink.commits_in_background` is committed on a thread beside each subtask, one commit after the other, and until
one is done its committables stay in every snapshot. :meth:`Sink.open_subtask_committer` makes an object for it that
can keep a connection.

In a batch job there is one ``prepare``, at the end of each Spark task; ``commit`` is called once, on the driver, when
all of them have succeeded. Several attempts at a task may stage something, and may have the same attempt number: put
something unique into each name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Literal

from moorline.api.type_parameters import T_contra

log = logging.getLogger("moorline")


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
    #: The line of checkpoints that it writes for, see :attr:`CommitterContext.lineage`.
    lineage: str = ""
    #: What the writer counts, by name, beside the records it gets: shown in the job's progress.
    counters: dict[str, int] = field(default_factory=dict)
    #: Have the driver log a warning: a kind, of which once is enough, and the text.
    notice: Callable[[str, str], None] = lambda kind, text: log.warning("%s: %s", kind, text)
    #: Report that the outside system is away, in its own words, and with None that it is back: shown in the job's
    #: status and log. May be called by any thread.
    outage: Callable[[str | None], None] = lambda cause: None


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


class SinkCommitter:
    """The committer of a sink in one subtask, for commits that want a connection or take their time.

    >>> class Appends(SinkCommitter):
    ...     def __init__(self, visible):
    ...         self.visible = visible
    ...     def commit(self, committables):
    ...         self.visible.update({c["name"]: c["rows"] for c in committables})
    >>> visible = {}
    >>> for _ in range(2):
    ...     Appends(visible).commit([{"name": "1-0", "rows": [7, 8]}])
    >>> visible
    {'1-0': [7, 8]}
    """

    def commit(self, committables: list[Any], /) -> None:
        """Make them visible; repeating it is harmless, also by a half-dead attempt at the same moment.

        In the order of their checkpoints. After a restart any subtask may get them, each of them whole.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called once, at the end or after a failure; a commit may still run then."""


@dataclass(frozen=True)
class CommitterContext:
    """The place of a committer in its job.

    >>> CommitterContext(job="orders", uid="table", attempt=1, lineage="5f1e").uid
    'table'
    """

    job: str
    uid: str
    attempt: int
    #: A word for the line of checkpoints, another one for each start that does not go on from a checkpoint of its own.
    #: With the number of a checkpoint it tells commits apart, also those of a job of the same name that began anew.
    lineage: str


class GlobalCommitter:
    """The committer of a sink on the driver: one step for all subtasks of a checkpoint.

    An attempt has one. It is called by one thread at a time, which is not the driver's own, so it may take its time;
    meanwhile nothing of that checkpoint is confirmed, and the job goes on. What it raises fails the attempt, and the
    next one commits again.

    >>> class OneList(GlobalCommitter):
    ...     def __init__(self):
    ...         self.versions = {}
    ...     def commit(self, lineage, checkpoint, committables):
    ...         self.versions.setdefault((lineage, checkpoint), committables)
    >>> table = OneList()
    >>> for _ in range(2):
    ...     table.commit("5f1e", 7, ["file-1", "file-2"])
    >>> table.versions
    {('5f1e', 7): ['file-1', 'file-2']}
    """

    def commit(self, lineage: str, checkpoint: int, committables: list[Any], /) -> None:
        """Make all of these visible in one step, or none.

        Called once for each checkpoint that staged something, in their order, and again after a restart because it is
        unknown whether it happened: a commit that was made before, by this driver or by another that is half dead and
        does it at the same moment, must change nothing. ``lineage`` and ``checkpoint`` tell commits apart; write them
        together with the data.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called once, at the end of the attempt."""


class Sink(Generic[T_contra]):
    """The end of a stream: a system that takes records."""

    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    #: Does it do anything outside of the job? One that does not may be left out of a job that becomes a DataFrame.
    has_effects: bool = True
    #: The name by which ``result.collected(name)`` finds its records, if that is where they go.
    collects: str | None = None
    #: Does the driver commit for all subtasks, by :meth:`open_committer`? Then :meth:`commit` is never called.
    commits_on_driver: bool = False
    #: May a commit take its time? Then it runs on a thread beside the subtask, and checkpoints go on.
    commits_in_background: bool = False

    #: Do its writers take columns? Then ``write`` may be given a :class:`moorline.model.columns.ColumnBatch`, which is
    #: a sequence of dicts and has them as a ``pyarrow.RecordBatch``, and not a list.
    takes_columns: bool = False

    #: What becomes of output when the job has to go back past checkpoints that were lost or damaged. ``"undo"``:
    #: :meth:`roll_back` takes it back. A system that keeps what it got can only ``"fail"``, which refuses the start, or
    #: ``"repeat"``: what was written since is written once more, because the user wants it so.
    on_roll_back: Literal["undo", "fail", "repeat"] = "undo"

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

    def open_subtask_committer(self, ctx: SinkContext, /) -> SinkCommitter:
        """Make the committer of one subtask, in the worker; in a batch job, one on the driver.

        The default calls :meth:`commit`.
        """
        return _CommitOfSink(self)

    def open_committer(self, ctx: CommitterContext, /) -> GlobalCommitter:
        """Make the committer of an attempt, if :attr:`commits_on_driver`. Called on the driver."""
        raise NotImplementedError

    def roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...] = (), /) -> None:
        """Undo what was committed for checkpoints after this one. Called on the driver before it is restored.

        Only if newer checkpoints were lost or damaged and the job goes back past them; maybe more than once.
        ``lineages``: how the lineages begin that are meant, see :func:`moorline.api.sinks.is_meant`. An earlier job of
        the same name may have written to the same place, and its output stays.
        """

    def clean_up(self, job: str, uid: str, /) -> None:
        """Called once on the driver when the job has ended well: remove what is staged and not committed."""


def is_meant(lineage: str, lineages: tuple[str, ...]) -> bool:
    """Does a roll-back mean the output of a lineage? One that names none means all.

    >>> is_meant("5f1e77", ("5f1e", "a0")), is_meant("b0", ("5f1e", "a0")), is_meant("b0", ())
    (True, False, True)
    """
    return not lineages or lineage.startswith(lineages)


class _CommitOfSink(SinkCommitter):
    """Commits by the sink's own method."""

    def __init__(self, sink: Sink[Any]) -> None:
        self._sink = sink

    def commit(self, committables: list[Any]) -> None:
        self._sink.commit(committables)
