"""Attempts of a job as Spark jobs: launched, sent orders, cancelled."""

from __future__ import annotations

import threading
import time
import uuid

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from moorline import failpoints
from moorline.driver.connectors.background import BackgroundThreads
from moorline.driver.control.server import ControlServer
from moorline.driver.loop import DriverLoop
from moorline.errors import SparkUnsuitable
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.control import ControlPort
from moorline.model.ids import SubtaskId
from moorline.model.log_lines import LogPlace, work_for
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import unpack_results
from moorline.model.wire.handshake import new_secret
from moorline.model.wire.messages import Order
from moorline.spark import exchange, shipping
from moorline.spark.descriptions import description, named, stage_names
from moorline.spark.entry import TaskSpec, run_task
from moorline.spark.pieces import Pieces
from moorline.spark.session import settings

#: How long an attempt waits for Spark to have enough executors, after one has died for example.
SLOTS_SECONDS = 120.0
#: How long tasks of an attempt that is over may take to end by themselves. Spark looks every two seconds whether a
#: worker is to be killed, and kills it two seconds later.
INTERRUPT_SECONDS = 10.0


class SparkCluster:
    """Runs attempts as Spark jobs."""

    def __init__(
        self,
        spark: SparkSession,
        loop: DriverLoop,
        job: str,
        flush_ms: int,
        in_flight_ms: int,
        checkpoints: Checkpoints | None = None,
        control: ControlPort | None = None,
        worker_log_level: str = "warning",
    ) -> None:
        self._spark, self._loop, self._job, self._flush_ms = spark, loop, job, flush_ms
        self._in_flight_ms, self._worker_log_level = in_flight_ms, worker_log_level
        self._control = control or ControlPort()
        self._storage = (checkpoints.location, checkpoints.storage_options) if checkpoints else ("", None)
        self._session = settings.own_session(spark)
        self._server: ControlServer | None = None
        self._group = ""
        #: The address of the job's page, without its token; empty if it has none.
        self.page_url = ""
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None
        self.background = BackgroundThreads(loop, job)

    def launch(self, deployment: Deployment) -> None:
        attempt = deployment.attempt
        secret = new_secret()
        bind, advertise = self._control.hosts(*settings.control_host(self._spark))
        loop = self._loop
        work_for(LogPlace(self._job, attempt))
        self._server = ControlServer(
            bind,
            self._job,
            attempt,
            secret,
            set(deployment.plan.subtasks()),
            lambda subtask, report: loop.post(lambda s, now: s.reported(attempt, subtask, report, now)),
            lambda subtask: loop.post(lambda s, now: s.line_lost(attempt, subtask)),
            self._control.port,
        )
        spec = TaskSpec(
            (advertise, self._server.address[1]),
            secret,
            self._flush_ms,
            self._in_flight_ms,
            shipping.pack(deployment),
            failpoints.current,
            self._storage,
            self._worker_log_level,
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

    @property
    def ui_url(self) -> str:
        """Spark's own web page, if it serves one."""
        return self._spark.sparkContext.uiWebUrl or ""

    def has_room(self, slots: int) -> bool:
        return exchange.free_slots(self._spark) >= slots

    def check_slots(self, wanted: int) -> None:
        """Raises if Spark cannot run so many subtasks at once."""
        free = exchange.free_slots(self._spark)
        if free < wanted:
            raise SparkUnsuitable([f"the job would need {wanted} slots at the same time, and Spark has {free}"])

    def close(self) -> None:
        self.background.close()
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _run(
        self, deployment: Deployment, spec: TaskSpec, server: ControlServer, group: str, cancelled: threading.Event
    ) -> None:
        results, error, raised = None, None, False
        work_for(LogPlace(self._job, deployment.attempt))
        try:
            self._wait_for_slots(sum(deployment.plan.widths), cancelled)
            # Threads of py4j are pinned, so the group holds for this thread's job alone.
            shown = f"moorline {description(self._job, deployment.attempt, deployment.plan, self.page_url)}"
            self._spark.sparkContext.setJobGroup(group, shown)
            names = enumerate(stage_names(deployment.plan))
            stages = [named(run_task, f"{self._job}: {name}", spec, stage) for stage, name in names]
            frames = exchange.pipeline(self._session, deployment.plan.widths, stages)
            if cancelled.is_set():
                raise RuntimeError("cancelled before it started")
            rows = frames.collect()
            pieces = Pieces()
            frames = [pieces.add(bytes(row.frame)) for row in rows if row.frame]
            results = unpack_results([frame for frame in frames if frame is not None])
        except Exception as failure:  # whatever Spark, py4j or the plan raises: the attempt has ended
            error, raised = exchange.in_short(failure), isinstance(failure, PythonException)
            self._interrupt_later(group)
        finally:
            server.close()
            attempt = deployment.attempt
            self._loop.post(lambda s, now: s.attempt_ended(attempt, results, error, now, raised))

    def _interrupt_later(self, group: str) -> None:
        """Interrupt what still runs of an attempt some time after its end.

        Spark's pipelined writer waits for a reader that never came without looking whether it was killed, and would
        keep its slot for ever. Not at once: a task that is interrupted is over, and then nothing ends a worker of it
        that has stopped; until then Spark kills it.
        """
        timer = threading.Timer(INTERRUPT_SECONDS, exchange.interrupt_tasks, (self._spark, group))
        timer.daemon = True
        timer.start()

    def _wait_for_slots(self, wanted: int, cancelled: threading.Event) -> None:
        deadline = time.monotonic() + SLOTS_SECONDS
        while (free := exchange.free_slots(self._spark)) < wanted and not cancelled.is_set():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the job needs {wanted} slots and Spark has {free}")
            time.sleep(0.1)
