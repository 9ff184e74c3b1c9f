"""``mo.run`` and ``mo.start``: a job on Spark, and the handle to it."""

from __future__ import annotations

import functools
import logging
import random
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Literal

from pyspark.sql import SparkSession

from moorline import failpoints
from moorline.api.generated_uids import advice_on_uids
from moorline.api.job import Job
from moorline.driver.asking import Asking
from moorline.driver.checkpoints import CheckpointStats
from moorline.driver.control import ControlServer
from moorline.driver.election import Election
from moorline.driver.lookup import encoded_key
from moorline.driver.loop import DriverLoop
from moorline.driver.requests import SnapshotRequest
from moorline.driver.supervision import Supervision
from moorline.endpoint.server import Console, ConsoleServer
from moorline.errors import InvalidArgument, ParallelismTooHigh, SparkUnsuitable
from moorline.model.config import Checkpoints, RestartStrategy, RocksDb, RunConfig, StorageLease, ZooKeeper
from moorline.model.deployment import Deployment
from moorline.model.durations import Duration, milliseconds
from moorline.model.elements import unpack_results
from moorline.model.handshake import new_secret
from moorline.model.ids import SubtaskId
from moorline.model.messages import Order
from moorline.protocol.lifecycle import JobStatus
from moorline.protocol.lowering import lower
from moorline.spark import batch, exchange, session, shipping
from moorline.spark.entry import TaskSpec, run_task
from moorline.spark.serving import ServedJob
from moorline.storage.checkpoints import History
from moorline.storage.layout import job_url
from moorline.storage.open import open_for_history, remember_options
from moorline.storage.snapshot_folders import new_folder

log = logging.getLogger("moorline")

#: How long an attempt waits for Spark to have enough executors, after one has died for example.
SLOTS_SECONDS = 120.0


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SparkCluster:
    """Runs attempts as Spark jobs."""

    def __init__(
        self, spark: SparkSession, loop: DriverLoop, job: str, flush_ms: int, checkpoints: Checkpoints | None = None
    ) -> None:
        self._spark, self._loop, self._job, self._flush_ms = spark, loop, job, flush_ms
        self._storage = (checkpoints.location, checkpoints.storage_options) if checkpoints else ("", None)
        self._session = session.own_session(spark)
        self._server: ControlServer | None = None
        self._group = ""
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None

    def launch(self, deployment: Deployment) -> None:
        attempt = deployment.attempt
        secret = new_secret()
        bind, advertise = session.control_host(self._spark)
        loop = self._loop
        self._server = ControlServer(
            bind,
            self._job,
            attempt,
            secret,
            set(deployment.plan.subtasks()),
            lambda subtask, report: loop.post(lambda s, now: s.reported(attempt, subtask, report, now)),
            lambda subtask: loop.post(lambda s, now: s.line_lost(attempt, subtask)),
        )
        spec = TaskSpec(
            (advertise, self._server.address[1]),
            secret,
            self._flush_ms,
            shipping.pack(deployment),
            failpoints.current,
            self._storage,
        )
        self._group = f"moorline-{self._job}-{attempt}-{uuid.uuid4().hex[:8]}"
        self._cancelled = threading.Event()
        self._thread = threading.Thread(
            target=self._run,
            args=(deployment, spec, self._server, self._group, self._cancelled),
            name=f"moorline-spark-{attempt}",
            daemon=True,
        )
        self._thread.start()

    def send(self, subtask: SubtaskId, order: Order) -> None:
        if self._server is not None:
            self._server.send(subtask, order)

    def cancel(self) -> None:
        self._cancelled.set()
        exchange.cancel(self._spark, self._group)

    def check_slots(self, wanted: int) -> None:
        """Raises if Spark cannot run so many subtasks at once."""
        free = exchange.free_slots(self._spark)
        if free < wanted:
            raise SparkUnsuitable([f"the job would need {wanted} slots at the same time, and Spark has {free}"])

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _run(
        self, deployment: Deployment, spec: TaskSpec, server: ControlServer, group: str, cancelled: threading.Event
    ) -> None:
        results, error = None, None
        try:
            self._wait_for_slots(sum(deployment.plan.widths), cancelled)
            # Threads of py4j are pinned, so the group holds for this thread's job alone.
            self._spark.sparkContext.setJobGroup(group, f"moorline job {self._job}, attempt {deployment.attempt}")
            stages = [functools.partial(run_task, spec, stage) for stage in range(len(deployment.plan.widths))]
            frames = exchange.pipeline(self._session, deployment.plan.widths, stages)
            if cancelled.is_set():
                raise RuntimeError("cancelled before it started")
            rows = frames.collect()
            results = unpack_results([bytes(row.frame) for row in rows if row.frame])
        except Exception as failure:  # whatever Spark, py4j or the plan raises: the attempt has ended
            error = exchange.in_short(failure)
        finally:
            server.close()
            attempt = deployment.attempt
            self._loop.post(lambda s, now: s.attempt_ended(attempt, results, error, now))

    def _wait_for_slots(self, wanted: int, cancelled: threading.Event) -> None:
        deadline = time.monotonic() + SLOTS_SECONDS
        while (free := exchange.free_slots(self._spark)) < wanted and not cancelled.is_set():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the job needs {wanted} slots and Spark has {free}")
            time.sleep(0.1)


class Result:
    """What a finished job leaves behind in the driver."""

    def __init__(self, results: dict[str, list[Any]], supervision: Supervision | None = None) -> None:
        self._results = results
        #: Every complete checkpoint of the run. A batch job has none.
        self.checkpoints: list[CheckpointStats] = supervision.checkpoints if supervision else []
        #: One line per failed attempt.
        self.failures: list[str] = supervision.history_of_failures if supervision else []
        #: The checkpoint each attempt started from; 0: empty.
        self.restored_from: list[int] = supervision.restored_from if supervision else [0]

    def collected(self, name: str) -> list[Any]:
        """What the sink ``mo.collect(name)`` got."""
        if name not in self._results:
            raise InvalidArgument("collected", name, f"The job's collect sinks are {sorted(self._results)}.")
        return self._results[name]

    def all_collected(self) -> dict[str, list[Any]]:
        """The same for all collect sinks of the job, by name."""
        return dict(self._results)


class Handle:
    """A running job.

    ``status`` says where it stands, ``wait()`` gives its result, ``stop()`` ends it well (a final checkpoint,
    everything committed), ``cancel()`` ends it at once.
    """

    def __init__(
        self,
        job: Job,
        parallelism: int | None,
        loop: DriverLoop,
        cluster: SparkCluster,
        resources: ExitStack,
        location: str | None = None,
        console: Console | str | bool = False,
    ) -> None:
        self._job, self._loop, self._cluster, self._resources = job, loop, cluster, resources
        self._parallelism, self._of_each = parallelism, dict[str, int]()
        self._asking = Asking(job.graph(parallelism), loop, location)
        #: Where other processes can ask: its ``url``, ``token`` and ``token_file``. None if it is off.
        self.console: ConsoleServer | None = None
        if console:
            self.console = ConsoleServer(ServedJob(self), console)
            resources.callback(self.console.close)
        self._closed = threading.Event()
        threading.Thread(target=self._close_at_end, name="moorline-handle", daemon=True).start()

    @property
    def job(self) -> str:
        return self._job.name

    @property
    def status(self) -> JobStatus:
        return self._loop.status

    @property
    def is_active(self) -> bool:
        return not self.status.is_terminal

    @property
    def attempt(self) -> int:
        """The number of the running attempt; 0 between two."""
        return self._loop.supervision.attempt

    @property
    def checkpoints(self) -> list[CheckpointStats]:
        """The checkpoints completed so far."""
        return list(self._loop.supervision.checkpoints)

    @property
    def failures(self) -> list[str]:
        """One line per failed attempt."""
        return list(self._loop.supervision.history_of_failures)

    @property
    def restored_from(self) -> list[int]:
        """The checkpoint each attempt started from; 0: empty."""
        return list(self._loop.supervision.restored_from)

    @property
    def progress(self) -> dict[str, Any]:
        """Records in and out per operator of this attempt, and how many keys have state."""
        running = self._loop.supervision.progress
        if running is None:
            return {"operators": {}, "records_in": 0, "keys": 0}
        plan, reports = running
        operators: dict[str, dict[str, int]] = {}
        for subtask, report in reports.items():
            root = plan.vertices[subtask.vertex].operators[0]
            sums = operators.setdefault(root, {"records_in": 0, "records_out": 0, "keys": 0, "held_bytes": 0})
            sums["records_in"] += report.records_in
            sums["records_out"] += report.records_out
            sums["keys"] += report.keys
            sums["held_bytes"] += report.blocked_bytes
        sources = {plan.vertices[s.vertex].operators[0] for s in plan.source_subtasks()}
        return {
            "operators": operators,
            "records_in": sum(o["records_in"] for uid, o in operators.items() if uid in sources),
            "keys": sum(o["keys"] for o in operators.values()),
        }

    @property
    def worker_pids(self) -> dict[str, int]:
        """The process of each subtask of the running attempt, by ``vertex/index``."""
        return {str(s): pid for s, pid in self._loop.supervision.pids.items()}

    def query(
        self,
        uid: str,
        state: str,
        key: Any,
        *,
        level: Literal["live", "checkpoint"] = "live",
        timeout: Duration = "10s",
    ) -> Any:
        """What is stored under a key: the value, list or dict, or None. The job goes on.

        ``level="live"`` shows what the subtask has now. A job that is restarting or a subtask that is busy is waited
        for, up to ``timeout``; then :class:`QueryUnavailable` says what it was. ``level="checkpoint"`` shows what the
        newest complete checkpoint has, from storage. Values come as plain data: a dict for a dataclass.
        """
        return self._asking.query(uid, state, encoded_key(key), level, milliseconds(timeout, "timeout"))

    def wait(self, timeout: float | None = None) -> Result | None:
        """Wait for the end and return the result; ``None`` if ``timeout`` seconds were not enough.

        Raises what the job failed of, or :class:`JobCancelled`.
        """
        if not self._loop.wait(timeout):
            return None
        self._closed.wait(60)
        error = self._loop.error
        if error is not None:
            raise error
        return Result(self._loop.supervision.results, self._loop.supervision)

    def savepoint(self, path: str, timeout: float | None = None) -> str:
        """Take a savepoint at ``path`` while the job goes on, wait for it, and return where it is.

        Raises :class:`SavepointFailed` if there is none; the job goes on all the same.
        """
        request = SnapshotRequest(savepoint=new_folder(path))
        self._loop.post(lambda supervision, now: supervision.request(request, now))
        request.answer.result(timeout)
        return request.savepoint

    def stop(self, timeout: float | None = None, *, savepoint: str | None = None, drain: bool = False) -> Result | None:
        """End well: a final checkpoint, everything committed, then the result.

        With ``savepoint`` one is taken there first. ``drain`` ends time before that: all timers and windows fire, so
        what is restored from the savepoint has none of them left.
        """
        self._stop(savepoint, drain, timeout)
        return self.wait(timeout)

    def _stop(self, savepoint: str | None, drain: bool, timeout: float | None) -> None:
        """Wait for the savepoint, and not for the end."""
        if savepoint is None:
            if drain:
                raise InvalidArgument("drain", drain, "It is for stop(savepoint=...).")
            self._loop.post(lambda supervision, now: supervision.stop(now))
            return
        request = SnapshotRequest(savepoint=new_folder(savepoint), drain=drain)
        self._loop.post(lambda supervision, now: supervision.stop_with_savepoint(request, now))
        request.answer.result(timeout)

    def rescale(self, parallelism: int | Mapping[str, int], timeout: float | None = None) -> None:
        """Go on with other parallelism: of the job, or of some operators by uid. No record is lost or done twice.

        Takes a checkpoint and starts again from it, which takes a few seconds. Returns when all subtasks run.
        """
        of_each = None if isinstance(parallelism, int) else {**self._of_each, **parallelism}
        of_all = parallelism if isinstance(parallelism, int) else self._parallelism
        graph = self._job.graph(of_all, of_each)
        plan = self._loop.supervision.plan
        for operator in graph.operators:
            if plan is not None and graph.max_parallelism_is_set and operator.parallelism > plan.graph.max_parallelism:
                raise ParallelismTooHigh(operator.uid, operator.parallelism, plan.graph.max_parallelism)
        self._cluster.check_slots(sum(lower(graph).widths))
        answer: Future[int] = Future()
        self._loop.post(lambda supervision, now: supervision.rescale(graph, answer, now))
        answer.result(timeout)
        self._parallelism, self._of_each = of_all, of_each or {}

    def cancel(self) -> None:
        """End at once, and wait for it. What no checkpoint covers is not committed."""
        self._loop.post(lambda supervision, now: supervision.cancel(now))
        self._loop.wait()
        self._closed.wait(60)

    def _close_at_end(self) -> None:
        self._loop.wait()
        self._cluster.close()
        self._resources.close()
        self._closed.set()


def start(
    job: Job,
    spark: SparkSession | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    restart: RestartStrategy | None = None,
    restore: str | None = None,
    allow_non_restored_state: bool = False,
    restore_mode: Literal["no_claim", "claim"] = "no_claim",
    parallelism: int | None = None,
    backend: Literal["heap", "rocksdb"] | RocksDb = "heap",
    ha: StorageLease | ZooKeeper | None = None,
    heartbeat_timeout: Duration = "50s",
    flush: Duration = "4ms",
    console: Console | str | bool = False,
) -> Handle:
    """Start a job and return a handle to it at once.

    Without ``spark`` a local Spark is started for the job and ended with it. ``parallelism`` overrides the job's.
    ``restore="latest"`` goes on from the newest checkpoint of the job in ``checkpoints``, if there is one; any other
    text is the folder of a savepoint (or of a job's checkpoints) to start from.
    ``backend="rocksdb"`` keeps keyed state on the workers' disks instead of in their memory. With ``ha`` the job starts
    when this driver leads; until then its status is *waiting*. ``console=True``, an address such as
    ``"127.0.0.1:8090"`` or a :class:`Console` lets other processes ask for status and state over HTTP.
    """
    config = RunConfig(
        checkpoints=checkpoints,
        restart=restart,
        restore=restore,
        allow_non_restored_state=allow_non_restored_state,
        restore_mode=restore_mode,
        backend=backend,
        ha=ha,
        heartbeat_timeout=heartbeat_timeout,
        flush=flush,
    )
    graph = job.graph(parallelism)
    if (checkpoints is not None or restore is not None) and (advice := advice_on_uids(graph)) is not None:
        log.warning("job %s: %s", graph.job, advice)
    batch.refuse_dataframes(graph)
    history, location = None, None
    if checkpoints is not None:
        if checkpoints.location.startswith("memory:"):
            raise InvalidArgument(
                "checkpoints", checkpoints.location, "Workers are other processes: give a folder they all can reach."
            )
        remember_options(checkpoints.location, checkpoints.storage_options)
        location = job_url(checkpoints.location, graph.job)
        history = History(open_for_history(location, checkpoints.allow_unfenced), graph.job)
    slots = sum(lower(graph).widths)
    resources = ExitStack()
    try:
        if spark is None:
            # More than the job needs now: a slot is a thread, and it may be rescaled or have company.
            spark = resources.enter_context(session.embedded(max(2 * slots, 32)))
        session.check(spark)
        if ha is None:  # a standby may get its executors when those of the leader are gone
            _check_slots(spark, slots)
        loop = DriverLoop(graph.job)
        cluster = SparkCluster(spark, loop, graph.job, milliseconds(flush), checkpoints)
        supervision = Supervision(graph, config, history, cluster, random.Random(), _wall_ms)
        loop.supervision = supervision
        handle = Handle(job, parallelism, loop, cluster, resources, location, console)
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


def run(
    job: Job,
    spark: SparkSession | None = None,
    *,
    mode: Literal["streaming", "batch", "auto"] = "streaming",
    **options: Any,
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
    if batch.is_batch(job, mode, options):
        return Result(batch.run(job, spark, **options))
    handle = start(job, spark, **options)
    try:
        result = handle.wait()
    except KeyboardInterrupt:
        handle.cancel()
        raise
    assert result is not None
    return result


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
