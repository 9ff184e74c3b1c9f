"""A Spark task: one subtask, with threads around it that bring its input and orders.

    Spark's batches --reader thread--> mailbox (bounded)   --+
    the driver's orders --control thread--> mailbox        --+--> the task's generator: Subtask, then yield rows
    finished uploads and commits --a thread each--> mailbox --+
    what comes back round a loop --its own threads--> mailbox (on disk, if it is much)
    progress thread --> the driver: also the sign of life

The generator is the only thread that touches the subtask. Yielding blocks when the next stage does not keep up, the
mailbox fills, the reader thread stops reading, and Spark makes the stages before wait.
"""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from moorline import failpoints
from moorline.failpoints import failpoint
from moorline.model.ids import SubtaskId
from moorline.model.log_lines import LogPlace, show_in_worker
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Connected, Order, Progress
from moorline.spark import shipping
from moorline.spark.exchange import ARROW_SCHEMA
from moorline.spark.mailbox import Mailbox
from moorline.spark.pieces import PIECE_BYTES, Pieces, cut
from moorline.storage.stores.open import open_store, remember_options
from moorline.subtask.control.line import ControlLine
from moorline.subtask.control.stalls import StallWatch
from moorline.subtask.environment import Done, Environment
from moorline.subtask.failure_report import describe_failure
from moorline.subtask.iteration.lines import FeedbackLost, FeedbackReceiver, FeedbackSender
from moorline.subtask.output import Rows
from moorline.subtask.process import ProcessMeter
from moorline.subtask.task import Subtask
from moorline.subtask.time_accounting import Activity

PROGRESS_SECONDS = 0.5
#: The longest wait without looking around.
PATIENCE_SECONDS = 1.0
#: No batch of rows is much larger than this.
BATCH_BYTES = 8 << 20


class DriverLost(RuntimeError):
    """The control line broke: the driver is gone, or has given this attempt up."""


@dataclass(frozen=True)
class TaskSpec:
    """Everything that all tasks of an attempt are given."""

    address: tuple[str, int]
    secret: bytes
    flush_ms: int
    in_flight_ms: int
    #: User code among it: see ``spark/shipping.py``.
    deployment: bytes
    failpoints: failpoints.Plan
    #: What opening the job's storage takes, and where that is. Secret like the rest.
    storage: tuple[str, Mapping[str, Any] | None] = field(default=("", None), repr=False)
    log_level: str = "warning"


class _Task:
    """One subtask, and the lines and threads around it."""

    def __init__(self, spec: TaskSpec, deployment: Deployment, subtask_id: SubtaskId) -> None:
        self._spec, self._deployment, self._id = spec, deployment, subtask_id
        self.mailbox = Mailbox()
        self.sender = FeedbackSender(deployment.plan.graph.job, deployment.attempt, spec.secret, subtask_id)
        self._uploads = ThreadPoolExecutor(1, thread_name_prefix="moorline-upload")
        self._commits = ThreadPoolExecutor(1, thread_name_prefix="moorline-commit")
        self._ended = threading.Event()
        self._line: ControlLine | None = None
        self._receiver: FeedbackReceiver | None = None
        self._subtask: Subtask | None = None
        self._process = ProcessMeter().watch()

    def start(self) -> Subtask:
        """Connect to the driver, then restore and open the subtask, with signs of life meanwhile."""
        spec, deployment = self._spec, self._deployment
        job, attempt = deployment.plan.graph.job, deployment.attempt
        self._line = line = ControlLine(
            spec.address, spec.secret, job, attempt, self._id, self._on_order, self._on_driver_lost
        )
        line.report(Connected(pid=os.getpid(), host=socket.gethostname(), executor=_executor()))
        watch = StallWatch(threading.get_ident(), _now_ms)
        # From here on it gives signs of life, however long it takes to read state back and to open functions.
        threading.Thread(target=self._report_progress, args=(watch, line), daemon=True).start()
        self._receiver = self._listen(line.host)
        store = open_store(deployment.location) if deployment.location else None
        environment = Environment(
            _now_ms,
            line.report,
            partial(self._background, self._uploads),
            store,
            spec.flush_ms,
            has_urgent_work=self.mailbox.has_calls,
            send_back_to=self.sender.connect,
            commits=partial(self._background, self._commits),
            in_flight_ms=spec.in_flight_ms,
            process_figures=self._process.figures,
        )
        self._subtask = subtask = Subtask(deployment, self._id, environment)
        subtask.start(os.getpid(), self._receiver.address if self._receiver is not None else None)
        return subtask

    def report_end(self) -> None:
        """Report where the subtask stands at the end."""
        assert self._line is not None and self._subtask is not None
        self._line.report(self._subtask.progress())

    def report_failure(self, error: Exception) -> None:
        """Report the subtask's error, unless it is only that a line to others is gone."""
        is_of_a_line = isinstance(error, (DriverLost, FeedbackLost))
        if self._line is not None and self._subtask is not None and not is_of_a_line:
            self._line.report(describe_failure(error))

    def close(self) -> None:
        self._ended.set()
        self._process.close()
        self.mailbox.close()
        for pool in (self._uploads, self._commits):
            pool.shutdown(wait=False, cancel_futures=True)
        self.sender.close()
        if self._receiver is not None:
            self._receiver.close()
        if self._subtask is not None:
            self._subtask.close()
        if self._line is not None:
            self._line.close()

    def _listen(self, host: str) -> FeedbackReceiver | None:
        """Receive what comes back round a loop, if the subtask is at the head of one."""
        plan, job, attempt = self._deployment.plan, self._deployment.plan.graph.job, self._deployment.attempt
        senders = {SubtaskId(plan.links[link].source, index) for link, index in plan.feedback_into(self._id)}
        if not senders:
            return None
        received, lost = self.mailbox.put_feedback, self._on_feedback_lost
        return FeedbackReceiver(host, job, attempt, self._spec.secret, self._id, senders, received, lost)

    def _report_progress(self, watch: StallWatch, line: ControlLine) -> None:
        """Send signs of life: the subtask's own thread may be restoring, or be back-pressured, for very long."""
        while True:
            subtask = self._subtask
            progress = subtask.progress() if subtask is not None else Progress(records_in=0, records_out=0)
            stall = watch.look(subtask.turn() if subtask is not None else None)
            line.report(msgspec.structs.replace(progress, stalled_ms=stall.ms, stalled_at=stall.at))
            if self._ended.wait(PROGRESS_SECONDS):
                return

    # --- called on other threads: each leaves a call for the subtask's own ------------------------

    def _on_order(self, order: Order) -> None:
        self.mailbox.put_call(lambda: self._subtask.order(order) if self._subtask else None)

    def _on_driver_lost(self) -> None:
        self._fail(DriverLost("the control line to the driver is broken"))

    def _on_feedback_lost(self) -> None:
        self._fail(FeedbackLost("a line that leads back to this subtask is broken"))

    def _fail(self, error: Exception) -> None:
        def fail() -> None:
            raise error

        self.mailbox.put_call(fail)

    def _background(self, pool: ThreadPoolExecutor, work: Callable[[], Any], done: Done) -> None:
        def finished(future: Future[Any]) -> None:
            if future.cancelled():
                return  # the task is over
            error = future.exception()
            result = None if error else future.result()
            self.mailbox.put_call(lambda: done(result, error))

        pool.submit(work).add_done_callback(finished)


def run_task(spec: TaskSpec, stage: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark runs in every slot of a stage."""
    # Records come and go by the thousand and hardly ever form cycles: collecting as often as by default would
    # scan the whole state again and again.
    gc.set_threshold(200_000, 20, 50)
    failpoints.arm(spec.failpoints)
    failpoint("task.start")
    remember_options(*spec.storage)
    deployment = shipping.unpack(spec.deployment)
    context = TaskContext.get()
    assert context is not None
    place = deployment.plan.at(stage, context.partitionId())
    operators = ",".join(deployment.plan.vertices[place.vertex].operators)
    log_place = LogPlace(deployment.plan.graph.job, deployment.attempt, operators, str(place))
    show_in_worker(log_place, spec.log_level)
    task = _Task(spec, deployment, place)
    mailbox = task.mailbox
    reader = threading.Thread(target=_read, args=(batches, stage, mailbox), name="moorline-reader", daemon=True)
    try:
        subtask = task.start()
        reader.start()
        yield from _drive(subtask, mailbox, task.sender)
        yield from _drain(subtask, mailbox)
        task.report_end()
    except Exception as error:
        task.report_failure(error)
        raise
    finally:
        task.close()


def _executor() -> str:
    """Spark's name for the executor that this worker belongs to: PySpark does not say, but its command line does."""
    with suppress(OSError, ValueError, IndexError):
        # A worker's parent is the daemon that forked it, and the daemon's parent is the executor's JVM.
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        words = Path(f"/proc/{daemon.rpartition(')')[2].split()[1]}/cmdline").read_bytes().split(b"\0")
        return words[words.index(b"--executor-id") + 1].decode()
    return ""


def _now_ms() -> float:
    return time.monotonic_ns() / 1e6


def _read(batches: Iterator[pa.RecordBatch], stage: int, mailbox: Mailbox) -> None:
    pieces = Pieces()
    try:
        for batch in batches:
            if stage == 0:
                continue  # what Spark's range made up
            for row in batch.column(1):
                data = row.as_py()
                frame = pieces.add(data) if data else None
                if frame is not None and not mailbox.put_frame(frame):
                    return
        mailbox.end_input(None)
    except BaseException as error:  # whatever ends this thread is for the task to raise
        mailbox.end_input(error)


def _drive(subtask: Subtask, mailbox: Mailbox, sender: FeedbackSender) -> Iterator[pa.RecordBatch]:
    """Drive a subtask until it is done: orders first, then input, then the subtask's own work."""
    output, times = subtask.output, subtask.times
    while True:
        times.turns += 1
        for call in mailbox.take_calls():
            call()
        if subtask.is_done:
            return
        for returned in mailbox.take_feedback():
            subtask.feedback(returned)
        frame = None if subtask.is_input_paused else mailbox.take_frame()
        worked = frame is not None
        if frame is not None:
            subtask.frame(frame)
            failpoint("frame")
        # What comes back has its turn even if there is always more coming in.
        if frame is None or subtask.has_feedback:
            worked = subtask.work() or worked
        worked = subtask.tick() or worked
        rows = output.take(is_idle=not worked)
        for head, going_back in output.take_feedback():
            sender.send(head, going_back)
        if rows:
            times.switch_to(Activity.BACK_PRESSURED)
            yield from _batches(rows, subtask.slot)
            times.switch_to(Activity.BUSY)
        if not worked and not rows:
            wait_ms = output.wait_ms()
            seconds = PATIENCE_SECONDS if wait_ms is None else wait_ms / 1000
            # A source that had nothing is asked again when what it then reads can be sent at once.
            seconds = min(seconds, output.flush_ms / 1000 if subtask.is_reading else subtask.tick_in_seconds())
            if seconds > 0:
                is_held = subtask.is_held_back
                times.switch_to(Activity.BACK_PRESSURED if is_held else Activity.IDLE)
                (mailbox.wait_for_calls if mailbox.input_ended or is_held else mailbox.wait)(seconds)
                times.switch_to(Activity.BUSY)


def _drain(subtask: Subtask, mailbox: Mailbox) -> Iterator[pa.RecordBatch]:
    """The subtask is done; later stages may still be sent results through it, and Spark wants its input read."""
    while True:
        rows = subtask.output.take_rest()
        if rows:
            yield from _batches(rows, subtask.slot)
        frame = mailbox.take_frame()
        if frame is not None:
            subtask.frame(frame)
        elif mailbox.input_ended:
            return
        else:
            mailbox.wait(1.0)


def _batches(rows: Rows, sender: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches that Arrow and Spark can carry. Nearly always that is one."""
    if any(len(frame) > PIECE_BYTES for _, frame in rows):
        rows = list(cut(rows, sender))
    start = size = 0
    for number, (_, frame) in enumerate(rows):
        size += len(frame)
        if size >= BATCH_BYTES:
            yield _batch(rows[start : number + 1])
            start, size = number + 1, 0
    if start < len(rows):
        yield _batch(rows[start:])


def _batch(rows: Rows) -> pa.RecordBatch:
    slots, frames = zip(*rows)
    return pa.record_batch([pa.array(slots, pa.int32()), pa.array(frames, pa.binary())], schema=ARROW_SCHEMA)
