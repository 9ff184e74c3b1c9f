"""How a job is to run: checkpoints and restarts, as the user configures them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any, Literal

from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options
from moorline.model.sizes import size_in_bytes


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
    #: Write only what has changed since the last one. None: yes on RocksDB, no on the heap.
    incremental: bool | None = None
    #: Every so many checkpoints one is written whole, so that retained ones do not all rest on the same files. None:
    #: incremental ones build on each other without end.
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
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
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
            if getattr(self, name) < low:
                raise InvalidArgument(name, getattr(self, name), f"It is at least {low}.")
        if self.full_every is not None and (type(self.full_every) is not int or self.full_every < 2):
            advice = "It is at least 2: for a full one each time say incremental=False."
            raise InvalidArgument("full_every", self.full_every, advice)
        if self.full_every is not None and self.incremental is False:
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
        """How long barriers are given to line up before they overtake; None: for ever."""
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


@checks_options()
@dataclass(frozen=True, kw_only=True)
class RocksDb:
    """Keep keyed state in RocksDB, on the worker's disk: it may be far larger than memory.

    >>> RocksDb(memory="128MB").memory_bytes
    134217728
    """

    #: What one worker may use for caches and buffers.
    memory: str | int = "256MB"
    #: Where its files lie while the job runs. None: the worker's folder for temporary files.
    folder: str | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes < 8 << 20:
            raise InvalidArgument("memory", self.memory, "RocksDB needs 8MB at least.")

    @property
    def memory_bytes(self) -> int:
        return size_in_bytes(self.memory, "memory")


@checks_options()
@dataclass(frozen=True, kw_only=True)
class Autoscale:
    """Let the job rescale itself, by how busy its subtasks are and how far they hold each other back.

    A step is given so many subtasks that each is busy for ``target`` of its time; nothing is changed while it is
    within ``tolerance`` of that, on average over the last ``window``. After a rescale nothing is changed for
    ``cool_down``. Operators with a ``parallelism`` of their own are left alone.

    >>> Autoscale(maximum=8).window_ms
    60000
    """

    #: No step has fewer subtasks, and none more; None: as many as there are key groups.
    minimum: int = 1
    maximum: int | None = None
    target: float = 0.6
    tolerance: float = 0.2
    window: Duration = "1min"
    cool_down: Duration = "3min"

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= (self.maximum or self.minimum):
            advice = "From at least 1 up to the maximum."
            raise InvalidArgument("minimum and maximum", (self.minimum, self.maximum), advice)
        if not 0 < self.tolerance < self.target or self.target + self.tolerance >= 1:
            advice = "Shares of 1: the tolerance below the target, and both together below 1."
            raise InvalidArgument("target and tolerance", (self.target, self.tolerance), advice)
        milliseconds(self.window, "window"), milliseconds(self.cool_down, "cool_down")

    @property
    def window_ms(self) -> int:
        return milliseconds(self.window, "window")

    @property
    def cool_down_ms(self) -> int:
        return milliseconds(self.cool_down, "cool_down")


@dataclass(frozen=True)
class StateConfig:
    """How state is kept and snapshotted: what a subtask needs to know."""

    rocksdb: RocksDb | None = None
    incremental: bool = False
    at_least_once: bool = False
    #: May a snapshot hold pickled records in flight? It says so who chooses a mode that writes them.
    unaligned: bool = False
    #: In a batch job: only the key that is being worked on has state, and it is never snapshotted.
    one_key: bool = False
    #: Records are passed on by reference instead of as copies: see :attr:`RunConfig.object_reuse`.
    object_reuse: bool = False


#: On the heap, full snapshots.
ON_THE_HEAP = StateConfig()


@dataclass(frozen=True)
class NoRestart:
    """The first failure ends the job."""


@checks_options()
@dataclass(frozen=True)
class FixedDelay:
    """Restart up to ``attempts`` times, each after the same delay.

    >>> FixedDelay(attempts=3, delay="5s").delay_ms
    5000
    """

    attempts: int = 1
    delay: Duration = "1s"

    @property
    def delay_ms(self) -> int:
        return milliseconds(self.delay, "delay")


@checks_options()
@dataclass(frozen=True)
class FailureRate:
    """Restart as long as no more than ``failures`` happen within ``interval``.

    >>> FailureRate(failures=3, interval="5min").interval_ms
    300000
    """

    failures: int = 1
    interval: Duration = "1min"
    delay: Duration = "1s"

    @property
    def interval_ms(self) -> int:
        return milliseconds(self.interval, "interval")

    @property
    def delay_ms(self) -> int:
        return milliseconds(self.delay, "delay")


@checks_options()
@dataclass(frozen=True)
class ExponentialDelay:
    """Restart after a delay that grows with every failure and is forgotten after a healthy while.

    >>> ExponentialDelay(initial="2s").initial_ms
    2000
    """

    initial: Duration = "1s"
    multiplier: float = 1.5
    maximum: Duration = "1min"
    reset_after: Duration = "1h"
    jitter: float = 0.1
    #: None: without limit.
    attempts: int | None = None

    @property
    def initial_ms(self) -> int:
        return milliseconds(self.initial, "initial delay")

    @property
    def maximum_ms(self) -> int:
        return milliseconds(self.maximum, "maximum delay")

    @property
    def reset_after_ms(self) -> int:
        return milliseconds(self.reset_after, "reset_after")


RestartStrategy = NoRestart | FixedDelay | FailureRate | ExponentialDelay


@checks_options()
@dataclass(frozen=True, kw_only=True)
class StorageLease:
    """Have several drivers stand ready for a job, one of which leads: told by files beside its checkpoints.

    >>> StorageLease(ttl="15s").ttl_ms
    15000
    """

    #: So long after the last sign of life of the leader another one takes over.
    ttl: Duration = "15s"

    def __post_init__(self) -> None:
        _check_ttl(self.ttl)

    @property
    def ttl_ms(self) -> int:
        return milliseconds(self.ttl, "ttl")


@checks_options()
@dataclass(frozen=True, kw_only=True)
class ZooKeeper:
    """Have several drivers stand ready for a job, one of which leads: told by a session of ZooKeeper's.

    >>> ZooKeeper("zk1:2181,zk2:2181,zk3:2181", path="/moorline").ttl_ms
    15000
    """

    #: ``host:port``, with commas between several.
    hosts: str = field(kw_only=False)
    #: Each job has a node of its name below this one.
    path: str = "/moorline"
    #: The timeout of the session: so long after the last sign of life of the leader another one takes over.
    ttl: Duration = "15s"
    #: For example ``("digest", "user:password")``: then nodes can be changed by that user alone. Never shown.
    auth: tuple[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_ttl(self.ttl)
        if not self.path.startswith("/"):
            raise InvalidArgument("path", self.path, "A path in ZooKeeper begins with a slash.")

    @property
    def ttl_ms(self) -> int:
        return milliseconds(self.ttl, "ttl")


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


def _check_ttl(ttl: Duration) -> None:
    if milliseconds(ttl, "ttl") < 500:
        raise InvalidArgument("ttl", ttl, "The shortest is 500 ms: a leader must be able to renew it in time.")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything about a run beside the job itself."""

    checkpoints: Checkpoints | None = None
    #: None: as in Flink, exponential delay if there are checkpoints, else no restart.
    restart: RestartStrategy | None = None
    #: "latest": the newest checkpoint of the job; else the folder of a savepoint or of a job's checkpoints.
    restore: str | None = None
    #: May state of operators that the job no longer has be dropped?
    allow_non_restored_state: bool = False
    #: "no_claim": a savepoint is left alone; "claim": it is ours, and goes when checkpoints have made it superfluous.
    restore_mode: Literal["no_claim", "claim"] = "no_claim"
    #: Begin anew even though an earlier run of the job has not ended: it is fenced, if it lives.
    take_over: bool = False
    #: Where keyed state is kept: "heap", "rocksdb", or RocksDb(...) with settings.
    backend: Literal["heap", "rocksdb"] | RocksDb = "heap"
    #: None: the parallelism stays what it is until somebody changes it.
    autoscale: Autoscale | None = None
    #: Several drivers stand ready for the job, and one of them leads.
    ha: StorageLease | ZooKeeper | None = None
    #: A subtask that has not been heard of for so long is lost.
    heartbeat_timeout: Duration = "50s"
    #: So long after a launch every subtask has connected to the driver; and no read of storage takes longer.
    start_timeout: Duration = "10min"
    #: How long a record may wait for others to share a frame with.
    flush: Duration = "4ms"
    #: Pass records on by reference. Quicker where they can change, and wrong if a function changes or keeps one that
    #: it has emitted, or changes one that another function reads, too.
    object_reuse: bool = False

    def __post_init__(self) -> None:
        if self.restore is not None and (not isinstance(self.restore, str) or not self.restore):
            raise InvalidArgument("restore", self.restore, "Write 'latest' or the path of a savepoint.")
        if self.restore_mode not in ("no_claim", "claim"):
            raise InvalidArgument("restore_mode", self.restore_mode, "Write 'no_claim' or 'claim'.")
        if self.autoscale is not None and (not isinstance(self.autoscale, Autoscale) or self.checkpoints is None):
            raise InvalidArgument("autoscale", self.autoscale, "Give mo.Autoscale(...), and checkpoints= as well.")
        if self.restore == "latest" and self.checkpoints is None:
            raise InvalidArgument("restore", self.restore, "Give checkpoints= as well: they say where to look.")
        if self.ha is not None and self.checkpoints is None:
            raise InvalidArgument("ha", self.ha, "Give checkpoints= as well: who takes over goes on from them.")
        if self.ha is not None and not isinstance(self.ha, StorageLease | ZooKeeper):
            raise InvalidArgument("ha", self.ha, "Write mo.StorageLease(...) or mo.ZooKeeper(...).")
        if self.backend not in ("heap", "rocksdb") and not isinstance(self.backend, RocksDb):
            raise InvalidArgument("backend", self.backend, "Write 'heap', 'rocksdb' or mo.RocksDb(...).")
        milliseconds(self.flush, "flush")
        for name in ("heartbeat_timeout", "start_timeout"):
            if milliseconds(getattr(self, name), name) < 1000:
                raise InvalidArgument(name, getattr(self, name), "The shortest is 1s: signs of life come every 0.5 s.")

    @property
    def heartbeat_ms(self) -> int:
        return milliseconds(self.heartbeat_timeout, "heartbeat_timeout")

    @property
    def start_timeout_ms(self) -> int:
        return milliseconds(self.start_timeout, "start_timeout")

    @property
    def savepoint(self) -> str | None:
        """The snapshot that somebody has named to start from."""
        return None if self.restore == "latest" else self.restore

    @property
    def state(self) -> StateConfig:
        rocksdb = (
            RocksDb() if self.backend == "rocksdb" else self.backend if isinstance(self.backend, RocksDb) else None
        )
        checkpoints = self.checkpoints
        wanted = checkpoints.incremental if checkpoints else None
        return StateConfig(
            rocksdb,
            rocksdb is not None if wanted is None else wanted,
            at_least_once=checkpoints is not None and checkpoints.mode == "at_least_once",
            unaligned=checkpoints is not None and checkpoints.overtake_ms is not None,
            object_reuse=self.object_reuse,
        )

    @property
    def restart_strategy(self) -> RestartStrategy:
        if self.restart is not None:
            return self.restart
        return ExponentialDelay() if self.checkpoints else NoRestart()
