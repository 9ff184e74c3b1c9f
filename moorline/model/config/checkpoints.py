"""Configuration of checkpoints: when they are taken, where they go and which are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Literal

from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options


@checks_options()
@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Take a checkpoint now and then, and restart from the newest one after a failure.

    >>> Checkpoints("file:///data/checkpoints", interval="10s", retained=3).interval_ms
    10000

    ``location`` may hold the checkpoints of many jobs: each gets a folder of its own name.
    """

    location: str = field(kw_only=False)
    interval: Duration = "10s"
    #: From the completion of one checkpoint to the start of the next.
    min_pause: Duration = 0
    timeout: Duration = "10min"
    #: How many checkpoints in a row may fail before the job does.
    tolerable_failures: int = 0
    max_concurrent: int = 1
    retained: int = 1
    #: Write only what has changed since the last one, and name its files for the rest. False: each one is whole.
    incremental: bool = True
    #: Every so many checkpoints one is written whole, so that retained ones do not all rest on the same files. None: as
    #: it comes. On the heap that is after 16 increments at the latest, in RocksDB whenever it has rewritten its files.
    full_every: int | None = None
    #: What becomes of them when the job has finished or was cancelled. After a failure they are always kept.
    at_end: Literal["keep", "delete"] = "keep"
    #: at_least_once: inputs do not wait for each other's barriers, and after a failure records may count twice.
    mode: Literal["exactly_once", "at_least_once"] = "exactly_once"
    #: Do not wait until records that are queued have been processed: make them part of the checkpoint.
    unaligned: bool = False
    #: Wait for so long, and only then do as if :attr:`unaligned`. 0 is at once; None: as :attr:`unaligned` says.
    aligned_timeout: Duration | None = None
    #: Files that no checkpoint names, and that none in flight can need, are deleted after so long.
    grace: Duration = "10min"
    #: What opening the location takes beside its URL: credentials, an endpoint. Never shown; None: the environment.
    storage_options: Mapping[str, object] | None = field(default=None, repr=False, compare=False)
    #: Use a filesystem on which nothing keeps a driver that was given up from writing.
    allow_unfenced: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.location, PathLike):
            object.__setattr__(self, "location", fspath(self.location))
        if not isinstance(self.location, str) or not self.location:
            raise InvalidArgument("location", self.location, "Give a folder or a URL, such as '/data/checkpoints'.")
        if self.interval_ms < 10:
            raise InvalidArgument("checkpoint interval", self.interval, "The shortest interval is 10 ms.")
        for name, low in (("tolerable_failures", 0), ("max_concurrent", 1), ("retained", 1)):
            number = getattr(self, name)
            if type(number) is not int or number < low:
                raise InvalidArgument(name, number, f"It is at least {low}, and a whole number.")
        if self.full_every is not None and (type(self.full_every) is not int or self.full_every < 2):
            advice = "It is at least 2: for a full one each time say incremental=False."
            raise InvalidArgument("full_every", self.full_every, advice)
        if self.full_every is not None and not self.incremental:
            advice = "With incremental=False every checkpoint is a full one: leave it out."
            raise InvalidArgument("full_every", self.full_every, advice)
        if self.at_end not in ("keep", "delete"):
            raise InvalidArgument("at_end", self.at_end, "Write 'keep' or 'delete'.")
        milliseconds(self.min_pause, "min_pause"), milliseconds(self.timeout, "timeout")
        milliseconds(self.grace, "grace")
        if self.mode not in ("exactly_once", "at_least_once"):
            raise InvalidArgument("mode", self.mode, "Write 'exactly_once' or 'at_least_once'.")
        if self.overtake_ms is not None:
            if self.mode != "exactly_once":
                advice = "At least once nothing waits for barriers, so there is nothing to overtake: leave it out."
                raise InvalidArgument(self._unaligned_by, True, advice)
            if self.max_concurrent != 1:
                advice = f"With {self._unaligned_by} there is one checkpoint at a time: leave max_concurrent at 1."
                raise InvalidArgument("max_concurrent", self.max_concurrent, advice)

    @property
    def _unaligned_by(self) -> str:
        return "unaligned" if self.aligned_timeout is None else "aligned_timeout"

    @property
    def overtake_ms(self) -> int | None:
        """The time that barriers have to line up before they overtake; None: for ever."""
        if self.aligned_timeout is not None:
            return milliseconds(self.aligned_timeout, "aligned_timeout")
        return 0 if self.unaligned else None

    def is_full(self, checkpoint: int, completed: int) -> bool:
        """Is a checkpoint to be written whole, by :attr:`full_every`?

        Also the next one after such a one has failed: a multiple was passed since the newest that is complete.

        >>> checkpoints = Checkpoints("/data", full_every=4)
        >>> [n for n in range(1, 10) if checkpoints.is_full(n, completed=n - 1)], checkpoints.is_full(9, completed=7)
        ([4, 8], True)
        """
        every = self.full_every
        return every is not None and checkpoint // every != completed // every

    @property
    def interval_ms(self) -> int:
        return milliseconds(self.interval, "checkpoint interval")

    @property
    def min_pause_ms(self) -> int:
        return milliseconds(self.min_pause)

    @property
    def timeout_ms(self) -> int:
        return milliseconds(self.timeout)

    @property
    def grace_ms(self) -> int:
        return milliseconds(self.grace)


def as_checkpoints(checkpoints: Checkpoints | str | PathLike[str] | None) -> Checkpoints | None:
    """A location alone is a configuration with everything else as it is by default.

    >>> as_checkpoints("/data/checkpoints").interval_ms
    10000
    """
    if isinstance(checkpoints, (str, PathLike)):
        return Checkpoints(fspath(checkpoints))
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        raise InvalidArgument("checkpoints", checkpoints, "Give a location or mo.Checkpoints(location, ...).")
    return checkpoints
