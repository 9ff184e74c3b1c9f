"""The contract between Moorline and a source.

A source consists of *splits*: files, partitions, ranges. Each split has an id (an int or a str) and is read by
exactly one subtask, which is settled by the id alone, so every subtask can tell without asking. A reader says
how far it is in each of its splits; that is the source's state in a snapshot. After a restart, at whatever
parallelism, every reader is given the positions of all splits and goes on with those that are now its own.

    class Countdown(mo.Source):
        def __init__(self, start):
            self.start = start

        def open(self, ctx):
            return CountdownReader(self.start, ctx)

    class CountdownReader(mo.SourceReader):
        def __init__(self, start, ctx):
            self.mine = ctx.owns(0)                         # one split, with id 0
            self.left = ctx.positions.get(0, start)

        def read(self, limit):
            if not self.mine or self.left == 0:
                return None                                 # the end
            self.left -= 1
            return [self.left + 1]

        def positions(self):
            return {0: self.left} if self.mine else {}

**Splits that are found while the job runs.** New partitions, new files, a range at a time: a source that sets
:attr:`Source.enumerates` has a :class:`SplitEnumerator` on the driver. It looks for splits now and then; the driver
sends each to the subtask that owns it, and :meth:`SourceReader.add_splits` takes it. What the enumerator knows is part
of every snapshot, together with the positions of the splits that it has handed out by then.

**What enumerator and readers know of each other.** Two values of plain data, of which only the newest counts:

    enumerator to all readers    SplitEnumerator.announcement()  ->  SourceReader.announced(value)
    a reader to the enumerator   SourceReader.report             ->  SplitEnumerator.reported(subtask, value)

Neither is part of a snapshot: both are said again in every attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import pyarrow as pa

from moorline.api.type_parameters import T_co
from moorline.model import keys

log = logging.getLogger("moorline")

SplitId = int | str
#: Positions by split; a source mostly has ids of one kind.
Positions = dict[SplitId, Any] | dict[int, Any] | dict[str, Any]


@dataclass(frozen=True)
class SourceContext:
    """The place of a reader in its job, and the positions to go on from."""

    uid: str
    subtask: int
    parallelism: int
    attempt: int
    #: The restored position of every split that has one, of all subtasks. Empty at the first start.
    positions: dict[SplitId, Any] = field(default_factory=dict)
    #: What the reader counts, by name, beside the records it returns: shown in the job's progress.
    counters: dict[str, int] = field(default_factory=dict)
    #: Have the driver log a warning: a kind, of which once is enough, and the text.
    notice: Callable[[str, str], None] = lambda kind, text: log.warning("%s: %s", kind, text)
    #: Report that the outside system is away, in its own words, and with None that it is back: shown in the job's
    #: status and log.
    outage: Callable[[str | None], None] = lambda cause: None

    def owns(self, split: SplitId) -> bool:
        """Is this the subtask that reads ``split``?

        Splits with numbers are dealt out in turn, splits with names by their hash.
        """
        return owner_of(split, self.parallelism) == self.subtask


def owner_of(split: SplitId, parallelism: int) -> int:
    """The subtask that reads a split."""
    number = split if isinstance(split, int) else keys.encoded_hash(keys.encode(split))
    return number % parallelism


@dataclass(frozen=True)
class EnumeratorContext:
    """The place of an enumerator in its job, and the state to go on from.

    >>> EnumeratorContext(job="orders", uid="files", attempt=1).restored is None
    True
    """

    job: str
    uid: str
    attempt: int
    #: The restored position of every split that a subtask had; without those that readers have left out since.
    positions: dict[SplitId, Any] = field(default_factory=dict)
    #: What :meth:`SplitEnumerator.snapshot` returned; None at the first start.
    restored: Any = None
    #: The number of readers.
    parallelism: int = 1
    #: Does it run before a batch? Then all splits are found before a reader reads, and no reader reports anything.
    is_batch: bool = False


class SplitEnumerator:
    """The finder of splits, on the driver, for all subtasks of a source.

    An attempt has one. It is called by one thread at a time, which is not the driver's own, so it may ask a server.
    What it raises fails the attempt.

    >>> class Days(SplitEnumerator):
    ...     def __init__(self, ctx):
    ...         self.next = ctx.restored or 1
    ...     def discover(self):
    ...         self.next += 1
    ...         return {f"day {self.next - 1}": 0}
    ...     def snapshot(self):
    ...         return self.next
    >>> days = Days(EnumeratorContext("orders", "days", attempt=1, restored=7))
    >>> days.discover(), days.snapshot()
    ({'day 7': 0}, 8)
    """

    #: Milliseconds between two looks.
    interval_ms: int = 10_000

    def discover(self) -> Positions | None:
        """Find new splits: each with the position at which it begins. ``None``: there will never be another.

        Called at the start of every attempt, and then again and again. A split that was found before must not be found
        again, except after a restore that goes back to before it was.
        """
        raise NotImplementedError

    def snapshot(self) -> Any:
        """The state of the enumerator after the last :meth:`discover`, as plain data: it comes back as ``restored``."""
        return None

    def announcement(self) -> Any:
        """The message to all readers after the last :meth:`discover`, as plain data; None: nothing.

        Each reader gets it before the splits that were found, at the first look of an attempt and whenever it changes.
        """
        return None

    def reported(self, subtask: int, report: Any, /) -> None:
        """A reader has set its :attr:`SourceReader.report`. :meth:`discover` is called right after it."""

    def checkpoint_completed(self, state: Any, /) -> None:
        """A checkpoint is complete that has this :meth:`snapshot`: the job will not go back to before it by itself.

        Not called for savepoints. What is to be acknowledged to an outside system follows from the state.
        """

    def close(self) -> None:
        """Called once, at the end of the attempt."""


class SourceReader(Generic[T_co]):
    """The reader of the splits of one subtask."""

    #: After :meth:`read`: the split that its records came from, all of them. Watermarks are kept for each split, so
    #: a reader that mixes splits in one batch says None, and they are taken as one.
    split: SplitId | None = None
    #: After :meth:`read`: when its records happened, in milliseconds since 1970, if the outside system says so.
    timestamps: list[int] | None = None
    #: After :meth:`read`: what goes to side outputs, by the names of their tags. Emptied by the caller.
    side_outputs: dict[str, list[Any]] | None = None
    #: After :meth:`read`: what the enumerator is to know, as plain data. It gets it whenever this is another value.
    report: Any = None

    def read(self, limit: int, /) -> Sequence[T_co] | None:
        """Up to ``limit`` records; an empty list if there are none just now; ``None`` at the end.

        Records that lie in columns may be given as they are: a :class:`moorline.model.columns.ColumnBatch`.
        It must not block: the subtask has checkpoints to take in between.
        """
        raise NotImplementedError

    def splits(self) -> Collection[SplitId] | None:
        """The own splits that may still have records, also those that had none so far: watermarks wait for them.

        ``None``: not known; then those that :attr:`split` has named are waited for.
        """
        return None

    def records_behind(self) -> Mapping[SplitId, int] | Mapping[int, int] | Mapping[str, int]:
        """The number of records of each own split that ``read`` has not returned, as far as it is known already.

        Shown in the job's metrics. Called about twice a second between two reads: it must not ask anybody.
        """
        return {}

    def positions(self) -> Positions:
        """The position of each of the own splits: after every record that ``read`` has returned.

        Keep finished splits in it as long as they could be found again. Positions are plain data.
        """
        raise NotImplementedError

    def positions_for(self, checkpoint: int, /) -> Positions:
        """The positions that become part of ``checkpoint``, which :meth:`notify_checkpoint_complete` names again."""
        return self.positions()

    def announced(self, announcement: Any, /) -> None:
        """The enumerator's :meth:`~SplitEnumerator.announcement`. Called before ``add_splits`` of the same look."""

    def add_splits(self, splits: Positions, /) -> None:
        """Read these as well, from these positions, if the source :attr:`~Source.enumerates`.

        Right after ``open`` these are the own splits of the restored snapshot; later those that the driver has found.
        """
        raise NotImplementedError

    def no_more_splits(self) -> None:
        """No split will be added any more: ``read`` may return ``None`` when those that are there are read."""

    def notify_checkpoint_complete(self, checkpoint: int, /) -> None:
        """The positions handed out for ``checkpoint`` are safe: what lies before them may be acknowledged."""

    def close(self) -> None:
        """Called once, at the end or after a failure."""


class Source(Generic[T_co]):
    """The beginning of a stream: a system that records come from."""

    #: Does it end by itself? ``mode="auto"`` asks; None: unknown.
    is_bounded: bool | None = None
    #: Does the driver find its splits, by :meth:`open_enumerator`? Then readers get them by ``add_splits``.
    enumerates: bool = False

    def check(self) -> None:
        """Called once on the driver, before anything is started: raise here what can be known to go wrong.

        A path that is misspelt, a server that refuses the password: found now, it costs no night. Whatever is
        raised refuses the start. The default finds nothing.
        """

    def open(self, ctx: SourceContext, /) -> SourceReader[T_co]:
        """Make the reader of one subtask. Called in the worker."""
        raise NotImplementedError

    def open_enumerator(self, ctx: EnumeratorContext, /) -> SplitEnumerator:
        """Make the enumerator of an attempt, if :attr:`enumerates`. Called on the driver."""
        raise NotImplementedError


class ColumnSource(Source[dict[str, Any]]):
    """A source whose records come as columns of a schema: :meth:`Job.source` makes a stream of columns of it.

    Its readers return nothing but a :class:`moorline.model.columns.ColumnBatch` of exactly this schema.
    """

    schema: pa.Schema
