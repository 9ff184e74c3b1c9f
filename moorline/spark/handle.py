"""The handle to a running job, and the result that a finished one leaves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Literal, overload

from moorline.api.job import Job
from moorline.api.listeners import JobEvent
from moorline.driver.attempts.progress import progress_of
from moorline.driver.checkpoints.stats import CheckpointStats
from moorline.driver.loop import DriverLoop
from moorline.driver.observation.report import figures_of
from moorline.driver.queries.explained import explain_newest, with_hottest
from moorline.driver.queries.service import QueryService
from moorline.driver.requests import SnapshotRequest
from moorline.driver.supervision import Supervision
from moorline.errors import InvalidArgument, ParallelismTooHigh
from moorline.http.console import HttpEndpoint
from moorline.http.server import ConsoleServer
from moorline.model.durations import Duration, milliseconds
from moorline.model.log_lines import LogTail
from moorline.model.options import checks_options
from moorline.protocol.lowering import lower
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.snapshots.explanation.report import Explanation
from moorline.snapshots.folders import new_folder
from moorline.snapshots.lookup import encoded_key
from moorline.spark.cluster import SparkCluster
from moorline.spark.served_job import ServedJob


class Result:
    """The results of a finished job: collected records, checkpoints and failures."""

    def __init__(self, results: dict[str, list[Any]], supervision: Supervision | None = None) -> None:
        self._results = results
        #: Every complete checkpoint of the run. A batch job has none.
        self.checkpoints: list[CheckpointStats] = supervision.checkpoints if supervision else []
        #: One line per failed attempt.
        self.failures: list[str] = supervision.history_of_failures if supervision else []
        #: The checkpoint each attempt started from; 0: empty.
        self.restored_from: list[int] = supervision.restored_from if supervision else [0]

    def __repr__(self) -> str:
        collected = ", ".join(f"{name!r}: {len(values)} records" for name, values in sorted(self._results.items()))
        counts = f"{len(self.checkpoints)} checkpoints, {len(self.failures)} failures"
        return f"<Result of {collected or 'no collect sinks'}; {counts}>"

    def collected(self, name: str) -> list[Any]:
        """The records of the sink ``mo.collect(name)``."""
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
        console: HttpEndpoint | str | bool = False,
        savepoints: str | None = None,
    ) -> None:
        self._job, self._loop, self._cluster, self._resources = job, loop, cluster, resources
        self._parallelism, self._of_each = parallelism, dict[str, int]()
        self._queries = QueryService(job.graph(parallelism), loop, location)
        self._location = location
        self._log = LogTail(job.name)
        logging.getLogger("moorline").addHandler(self._log)
        resources.callback(logging.getLogger("moorline").removeHandler, self._log)
        #: Where other processes can ask: its ``url``, ``token`` and ``token_file``. None if it is off.
        self.console: ConsoleServer | None = None
        if console:
            config = HttpEndpoint.of(console)
            permitted = (*config.savepoints, *((savepoints,) if savepoints else ()))
            self.console = ConsoleServer(ServedJob(self, permitted, location), config)
            resources.callback(self.console.close)
            cluster.page_url = self.console.url
        self._closed = threading.Event()
        threading.Thread(target=self._close_at_end, name="moorline-handle", daemon=True).start()

    def __repr__(self) -> str:
        return f"<Handle of job {self.job!r}: {self.status.value}, attempt {self.attempt}>"

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
        """Records in and out per operator of this attempt, how it has spent its time, and how many keys have state.

        Between two attempts and after the end it is that of the last one.

        ``restored``: how many bytes were read to restore it, by all subtasks together, and the size of the snapshot.
        ``counters``: what operators count beside that, such as ``late_records`` that were dropped, by uid.
        ``stalled``: subtasks whose thread has not moved on for some seconds, and where in the code they are.
        """
        return progress_of(self._loop.supervision.last_attempt)

    @property
    def metrics(self) -> dict[str, Any]:
        """The figures of every vertex, subtask and operator, with rates over the last ten seconds, and of checkpoints.

        What the console serves at ``/v1/metrics``; its shape is in ``docs/reference/metrics.md``.
        """
        supervision = self._loop.supervision
        job = {"job": self.job, "status": self.status.value, "attempt": self.attempt}
        return {**job, **figures_of(supervision.observation, supervision.last_attempt)}

    @property
    def log_lines(self) -> list[dict[str, Any]]:
        """The last lines of the driver's log on this job: ``number``, ``time_ms``, ``level`` and ``text``."""
        return self._log.after(0)

    @property
    def last_progress(self) -> JobEvent | None:
        """The last event of progress: a dict with ``json``, as of Spark's streaming queries. None before the first."""
        recent = self.recent_progress
        return recent[-1] if recent else None

    @property
    def recent_progress(self) -> list[JobEvent]:
        """The last hundred events of progress, oldest first: one every five seconds, and one at the end."""
        return list(self._loop.supervision.observation.progress)

    @property
    def worker_pids(self) -> dict[str, int]:
        """The process of each subtask of the running attempt, by ``vertex/index``."""
        running = self._loop.supervision.running
        return {str(s): pid for s, pid in dict(running.pids).items()} if running else {}

    @checks_options()
    def query(
        self,
        uid: str,
        state: str,
        key: Any,
        *,
        level: Literal["live", "checkpoint"] = "live",
        timeout: Duration = "10s",
    ) -> Any:
        """The content of a key: the value, list or dict, or None. The job goes on.

        ``level="live"`` shows what the subtask has now. A job that is restarting or a subtask that is busy is waited
        for, up to ``timeout``; then :class:`QueryUnavailable` says what it was. ``level="checkpoint"`` shows what the
        newest complete checkpoint has, from storage. Values come as plain data: a dict for a dataclass.
        """
        return self._queries.query(uid, state, encoded_key(key), level, milliseconds(timeout, "timeout"))

    @checks_options()
    def explain(
        self, uid: str | None = None, *, top: int = 10, ttl: Duration | None = None, growth: bool = True
    ) -> Explanation:
        """Explain why the state is as large as it is, from the newest checkpoint: as :func:`explain_snapshot` does.

        Which keys get the most records now is added, from a sample of the running job: ``operators[0].hottest``.

        How long states live is known from the classes of the job's functions; ``ttl`` counts for the others. In event
        time, now is when the state was last touched. What is read is storage alone: the job goes on.
        """
        length = milliseconds(ttl, "ttl") if ttl is not None else None
        found = explain_newest(self._job.graph(self._parallelism), self._location, uid, top, length, growth)
        return with_hottest(found, self.metrics["operators"])

    @checks_options()
    @overload
    def wait(self) -> Result: ...
    @overload
    def wait(self, timeout: float | None) -> Result | None: ...
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

    @checks_options()
    def savepoint(self, path: str, timeout: float | None = None) -> str:
        """Take a savepoint at ``path`` while the job goes on, wait for it, and return where it is.

        Raises :class:`SavepointFailed` if there is none; the job goes on all the same.
        """
        request = SnapshotRequest(savepoint=new_folder(path))
        self._loop.post(lambda supervision, now: supervision.request(request, now))
        request.answer.result(timeout)
        return request.savepoint

    @checks_options()
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

    @checks_options()
    def rescale(self, parallelism: int | Mapping[str, int], timeout: float | None = None) -> None:
        """Go on with other parallelism: of the job, or of some operators by uid. No record is lost or done twice.

        Takes a checkpoint and starts again from it, which takes a few seconds. Returns when all subtasks run.
        """
        running = self._loop.supervision.running
        plan = running.deployment.plan if running else None
        of_all, of_each = self._parallelism, dict[str, int]()
        if isinstance(parallelism, int):
            of_all = parallelism
        else:
            # What the others have by now, by an earlier rescale or because the job has rescaled itself.
            by_now = {o.uid: o.parallelism for o in plan.graph.operators} if plan is not None else self._of_each
            of_each = {**by_now, **parallelism}
        graph = self._job.graph(of_all, of_each)
        for operator in graph.operators:
            if plan is not None and graph.max_parallelism_is_set and operator.parallelism > plan.graph.max_parallelism:
                raise ParallelismTooHigh(operator.uid, operator.parallelism, plan.graph.max_parallelism)
        self._cluster.check_slots(sum(lower(graph).widths))
        answer: Future[int] = Future()
        self._loop.post(lambda supervision, now: supervision.rescale(graph, answer, now))
        answer.result(timeout)
        self._parallelism, self._of_each = of_all, of_each

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
