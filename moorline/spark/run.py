"""``mo.run`` and ``mo.start``: a job on Spark."""

from __future__ import annotations

import logging
import random
import time
from contextlib import ExitStack
from os import PathLike
from typing import Any, Literal, Unpack

from pyspark.sql import SparkSession

from moorline.api.functions.loading import refuse_while_loading
from moorline.api.generated_uids import advice_on_uids
from moorline.api.job import Job
from moorline.driver.before_start import check_ends
from moorline.driver.leadership.election import Election
from moorline.driver.loop import DriverLoop
from moorline.driver.observation.delivery import Listeners, events_listener
from moorline.driver.supervision import Supervision
from moorline.errors import InvalidArgument, SparkUnsuitable
from moorline.http.console import HttpEndpoint
from moorline.model.config.checkpoints import Checkpoints, as_checkpoints
from moorline.model.config.control import ControlPort
from moorline.model.config.leadership import StorageLease, ZooKeeper
from moorline.model.config.restarts import RestartStrategy
from moorline.model.config.run import Autoscale, RunConfig
from moorline.model.config.state import RocksDb
from moorline.model.durations import Duration
from moorline.model.options import checks_options
from moorline.protocol.lowering import lower
from moorline.snapshots.compatibility import check_declared
from moorline.spark import exchange
from moorline.spark.batch import program as batch
from moorline.spark.cluster import SparkCluster
from moorline.spark.handle import Handle, Result
from moorline.spark.session import quiet, settings
from moorline.spark.session.embedded import embedded
from moorline.spark.start_options import StartOptions
from moorline.storage.history import History
from moorline.storage.layout import job_url
from moorline.storage.stores.open import open_for_history, remember_options

log = logging.getLogger("moorline")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


# Half of this function are its options and what they mean. The rest is one sequence: check, open, wire, begin.
@checks_options()
def start(
    job: Job,
    spark: SparkSession | None = None,
    *,
    checkpoints: Checkpoints | str | PathLike[str] | None = None,
    restart: RestartStrategy | None = None,
    restore: str | None = None,
    allow_non_restored_state: bool = False,
    restore_mode: Literal["no_claim", "claim"] = "no_claim",
    take_over: bool = False,
    parallelism: int | None = None,
    backend: Literal["heap", "rocksdb"] | RocksDb = "heap",
    autoscale: Autoscale | None = None,
    ha: StorageLease | ZooKeeper | None = None,
    heartbeat_timeout: Duration = "50s",
    start_timeout: Duration = "10min",
    flush: Duration = "15ms",
    in_flight: Duration = "250ms",
    object_reuse: bool = False,
    console: HttpEndpoint | str | bool = False,
    control: ControlPort | None = None,
    log_level: Literal["debug", "info", "warning", "error"] | None = None,
    events: str | PathLike[str] | None = None,
) -> Handle:
    """Start a job and return a handle to it at once.

    Without ``spark`` a local Spark is started, and kept for other jobs of this process. ``parallelism`` overrides the
    job's. ``checkpoints`` may be a location alone.
    ``restore="latest"`` goes on from the newest checkpoint of the job in ``checkpoints``, if there is one; any other
    text is the folder of a savepoint (or of a job's checkpoints) to start from. Without ``"latest"`` a job begins anew,
    which is refused while an earlier run of it may be alive, unless ``take_over=True``.
    ``autoscale=mo.Autoscale(...)`` lets the job rescale itself.
    ``backend="rocksdb"`` keeps keyed state on the workers' disks instead of in their memory. With ``ha`` the job starts
    when this driver leads; until then its status is *waiting*. ``object_reuse=True`` passes records on without copies:
    for jobs in which no function changes or keeps what it has emitted. ``console=True``, an address such as
    ``"127.0.0.1:8090"`` or an :class:`HttpEndpoint` lets other processes ask for status and state over HTTP.
    ``control`` says where subtasks find the driver, if that is not where Spark's executors do. ``log_level`` is that of
    the driver and of the workers; without it the driver logs from INFO on, and workers from WARNING on.
    ``events`` is the path of a file, or ``"log"``, that gets a line of JSON for everything that happens to the job
    (:class:`JobListener` says what does).
    """
    refuse_while_loading("mo.start")
    quiet.show_log(log_level)
    checkpoints = as_checkpoints(checkpoints)
    config = RunConfig(
        checkpoints=checkpoints,
        restart=restart,
        restore=restore,
        allow_non_restored_state=allow_non_restored_state,
        restore_mode=restore_mode,
        take_over=take_over,
        backend=backend,
        autoscale=autoscale,
        ha=ha,
        heartbeat_timeout=heartbeat_timeout,
        start_timeout=start_timeout,
        flush=flush,
        in_flight=in_flight,
        object_reuse=object_reuse,
    )
    graph = job.graph(parallelism)
    if (checkpoints is not None or restore is not None) and (advice := advice_on_uids(graph)) is not None:
        log.warning("job %s: %s", graph.job, advice)
    batch.refuse_dataframes(graph)
    check_ends(graph)
    check_declared(graph)
    history, location = _open_history(checkpoints, graph.job)
    slots = sum(lower(graph).widths)
    resources = ExitStack()
    try:
        if spark is None:
            # More than the job needs now: a slot is a thread, and it may be rescaled or have company.
            spark = resources.enter_context(embedded(max(2 * slots, 32)))
        settings.check(spark)
        if ha is None:  # a standby may get its executors when those of the leader are gone
            _check_slots(spark, slots)
        resources.enter_context(quiet.hushed(spark))
        loop = DriverLoop(graph.job)
        cluster = SparkCluster(
            spark, loop, graph.job, config.flush_ms, config.in_flight_ms, checkpoints, control, log_level or "warning"
        )
        listeners = Listeners([] if events is None else [events_listener(events)])
        resources.callback(listeners.close)
        supervision = Supervision(graph, config, history, cluster, random.Random(), _wall_ms, listeners.publish)
        loop.supervision = supervision
        handle = Handle(
            job, parallelism, loop, cluster, resources, location, console, checkpoints.location if checkpoints else None
        )
        if ha is not None and history is not None:
            election = Election(ha, history, graph.job, loop)
            resources.callback(election.close)
            loop.start(supervision, Supervision.wait)
            election.start()
        else:
            loop.start(supervision)
    except BaseException:
        resources.close()
        raise
    return handle


@checks_options(also=StartOptions.__annotations__)
def run(
    job: Job,
    spark: SparkSession | None = None,
    *,
    mode: Literal["streaming", "batch", "auto"] = "streaming",
    **options: Unpack[StartOptions],
) -> Result:
    """Run a job to its end and return its result. Takes the options of :func:`start`.

    ``mode="batch"`` runs a job whose sources all end on Spark's regular shuffle, one key after the other, without
    checkpoints; ``"auto"`` does so if all sources say that they end.

    >>> import moorline as mo
    >>> job = mo.Job("double")
    >>> job.source(mo.from_items([1, 2, 3])).map(lambda n: 2 * n).sink(mo.collect("out"))
    >>> mo.run(job).collected("out")  # doctest: +SKIP
    [2, 4, 6]
    """
    refuse_while_loading("mo.run")
    given: dict[str, Any] = {**options}
    if batch.is_batch(job, mode, given):
        return Result(batch.run(job, spark, **given))
    handle = start(job, spark, **given)
    try:
        result = handle.wait()
    except KeyboardInterrupt:
        handle.cancel()
        raise
    assert result is not None
    return result


def _open_history(checkpoints: Checkpoints | None, job: str) -> tuple[History | None, str | None]:
    """The history of a job, and where it lies; None without checkpoints."""
    if checkpoints is None:
        return None, None
    if checkpoints.location.startswith("memory:"):
        raise InvalidArgument(
            "checkpoints", checkpoints.location, "Workers are other processes: give a folder they all can reach."
        )
    remember_options(checkpoints.location, checkpoints.storage_options)
    location = job_url(checkpoints.location, job)
    return History(open_for_history(location, checkpoints.allow_unfenced), job), location


def _check_slots(spark: SparkSession, wanted: int) -> None:
    """Executors may still be starting, so give them a while."""
    deadline = time.monotonic() + 30
    while (free := exchange.free_slots(spark)) < wanted:
        if time.monotonic() > deadline:
            raise SparkUnsuitable(
                [
                    f"the job needs {wanted} slots at the same time and Spark has {free}; lower the parallelism, "
                    f"give it more executor cores, or, in local mode, a master of local[{wanted}]"
                ]
            )
        if (spark.sparkContext.master or "").startswith("local["):
            deadline = 0
        time.sleep(0.1)
