"""The options of ``mo.start``, which ``mo.run`` takes as well, as a type checker sees them."""

from __future__ import annotations

from os import PathLike
from typing import Literal, TypedDict

from moorline.http.console import HttpEndpoint
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.control import ControlPort
from moorline.model.config.leadership import StorageLease, ZooKeeper
from moorline.model.config.restarts import RestartStrategy
from moorline.model.config.run import Autoscale
from moorline.model.config.state import RocksDb
from moorline.model.durations import Duration


class StartOptions(TypedDict, total=False):
    """Each is explained at :func:`moorline.spark.run.start`.

    >>> import moorline as mo
    >>> wide: StartOptions = {"parallelism": 8, "backend": "rocksdb"}
    """

    checkpoints: Checkpoints | str | PathLike[str] | None
    restart: RestartStrategy | None
    restore: str | None
    allow_non_restored_state: bool
    restore_mode: Literal["no_claim", "claim"]
    take_over: bool
    parallelism: int | None
    backend: Literal["heap", "rocksdb"] | RocksDb
    autoscale: Autoscale | None
    ha: StorageLease | ZooKeeper | None
    heartbeat_timeout: Duration
    start_timeout: Duration
    flush: Duration
    in_flight: Duration
    object_reuse: bool
    console: HttpEndpoint | str | bool
    control: ControlPort | None
    log_level: Literal["debug", "info", "warning", "error"] | None
    events: str | PathLike[str] | None
