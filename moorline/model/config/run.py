"""The configuration of a run as a whole, and of rescaling by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from moorline.errors import InvalidArgument
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.leadership import StorageLease, ZooKeeper
from moorline.model.config.restarts import ExponentialDelay, NoRestart, RestartStrategy
from moorline.model.config.state import RocksDb, StateConfig
from moorline.model.config.thresholds import THRESHOLDS, Thresholds
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options
from moorline.model.spelling import nearest


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
    #: None: the parallelism stays what it is until it is changed.
    autoscale: Autoscale | None = None
    #: Several drivers stand ready for the job, and one of them leads.
    ha: StorageLease | ZooKeeper | None = None
    #: A subtask that has not been heard of for so long is lost.
    heartbeat_timeout: Duration = "50s"
    #: So long after a launch every subtask has connected to the driver; and no read of storage takes longer.
    start_timeout: Duration = "10min"
    #: How long a record may wait for others to share a frame with.
    flush: Duration = "15ms"
    #: How long a subtask should need for what is on its way to it.
    in_flight: Duration = "250ms"
    #: Pass records on by reference. Quicker where they can change, and wrong if a function changes or keeps one that
    #: it has emitted, or changes one that another function reads, too.
    object_reuse: bool = False
    #: Sizes at which a job changes its ways; not an option of ``mo.run``.
    thresholds: Thresholds = THRESHOLDS

    def __post_init__(self) -> None:
        if self.restore is not None and (not isinstance(self.restore, str) or not self.restore):
            raise InvalidArgument("restore", self.restore, "Write 'latest' or the path of a savepoint.")
        if self.restore is not None and _is_misspelt(self.restore):
            advice = "Is 'latest' meant? A folder of that name is './" + self.restore + "'."
            raise InvalidArgument("restore", self.restore, advice)
        if self.restart is not None and not isinstance(self.restart, RestartStrategy):
            advice = "Give a strategy, such as mo.FixedDelay(attempts=3, delay='1s') or mo.NoRestart()."
            raise InvalidArgument("restart", self.restart, advice)
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
        if milliseconds(self.in_flight, "in_flight") < 10:
            raise InvalidArgument("in_flight", self.in_flight, "The shortest is 10ms.")
        for name in ("heartbeat_timeout", "start_timeout"):
            if milliseconds(getattr(self, name), name) < 1000:
                raise InvalidArgument(name, getattr(self, name), "The shortest is 1s: signs of life come every 0.5 s.")

    @property
    def flush_ms(self) -> int:
        return milliseconds(self.flush, "flush")

    @property
    def in_flight_ms(self) -> int:
        return milliseconds(self.in_flight, "in_flight")

    @property
    def heartbeat_ms(self) -> int:
        return milliseconds(self.heartbeat_timeout, "heartbeat_timeout")

    @property
    def start_timeout_ms(self) -> int:
        return milliseconds(self.start_timeout, "start_timeout")

    @property
    def savepoint(self) -> str | None:
        """The snapshot that was named to start from."""
        return None if self.restore == "latest" else self.restore

    @property
    def state(self) -> StateConfig:
        rocksdb = (
            RocksDb() if self.backend == "rocksdb" else self.backend if isinstance(self.backend, RocksDb) else None
        )
        checkpoints = self.checkpoints
        return StateConfig(
            rocksdb,
            # Without checkpoints there is nothing to note changes for.
            incremental=checkpoints is not None and checkpoints.incremental is not False,
            at_least_once=checkpoints is not None and checkpoints.mode == "at_least_once",
            unaligned=checkpoints is not None and checkpoints.overtake_ms is not None,
            object_reuse=self.object_reuse,
            folding=self.thresholds.folding,
        )

    @property
    def restart_strategy(self) -> RestartStrategy:
        if self.restart is not None:
            return self.restart
        return ExponentialDelay() if self.checkpoints else NoRestart()


def _is_misspelt(restore: str) -> bool:
    """Is it nearly "latest", and no path?"""
    return restore != "latest" and "/" not in restore and nearest(restore, ["latest"]) is not None
