"""What runs in a Spark task: one subtask, with threads around it that bring its input and orders.

    Spark's batches --reader thread--> mailbox (bounded)   --+
    the driver's orders --control thread--> mailbox        --+--> the task's generator: Subtask, then yield rows
    finished uploads --upload thread--> mailbox            --+
    what comes back round a loop --its own threads--> mailbox (on disk, if it is much)
    progress thread --> the driver: also the sign of life

The generator is the only thread that touches the subtask. Yielding blocks when the next stage does not keep up, the
mailbox fills, the reader thread stops reading, and Spark holds the stages before back.
"""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from moorline import failpoints
from moorline.failpoints import failpoint
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Connected, Order, Progress
from moorline.spark import shipping
from moorline.spark.exchange import ARROW_SCHEMA
from moorline.spark.pieces import PIECE_BYTES, Pieces, cut
from moorline.storage.stores.open import open_store, remember_options
from moorline.subtask.control.line import ControlLine
from moorline.subtask.control.stalls import StallWatch
from moorline.subtask.environment import Environment
from moorline.subtask.failure_report import describe_failure
from moorline.subtask.iteration.feedback import MEMORY_BUDGET
from moorline.subtask.iteration.lines import FeedbackLost, FeedbackReceiver, FeedbackSender
from moorline.subtask.output import Rows
from moorline.subtask.spill_queue import SpillQueue
from moorline.subtask.task import Subtask
from moorline.subtask.time_accounting import Activity

#: Frames read ahead of the subtask.
READ_AHEAD = 4
PROGRESS_SECONDS = 0.5
#: The longest wait without looking around.
PATIENCE_SECONDS = 1.0
#: No batch of rows is much larger than this.
BATCH_BYTES = 8 << 20
#: How soon a source that had nothing is asked again.
IDLE_SECONDS = 0.001


class DriverLost(RuntimeError):
    """The control line broke: the driver is gone, or has given this attempt up."""


@dataclass(frozen=True)
class TaskSpec:
    """What every task of an attempt is told."""

    address: tuple[str, int]
    secret: bytes
    flush_ms: int
    #: User code among it: see ``spark/shipping.py``.
    deployment: bytes
    failpoints: failpoints.Plan
    #: What opening the job's storage takes, and where that is. Secret like the rest.
    storage: tuple[str, Mapping[str, Any] | None] = field(default=("", None), repr=False)


class Mailbox:
    """Where the threads meet. Calls (orders, finished uploads) go before frames and are never held back."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frames: deque[bytes] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._feedback = SpillQueue()
        self.input_ended = False
        self._error: BaseException | None = None
        self._closed = False

    def put_frame(self, frame: bytes) -> bool:
        """False: nobody will read it any more."""
        with self._changed:
            while len(self._frames) >= READ_AHEAD and not self._closed:
                self._changed.wait()
            self._frames.append(frame)
            self._changed.notify_all()
            return not self._closed

    def put_call(self, call: Callable[[], None]) -> None:
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()

    def put_feedback(self, frame: bytes) -> None:
        """Never waits: see ``subtask/iteration/lines.py``."""
        with self._changed:
            self._feedback.append(frame, to_disk=self._feedback.memory_bytes + len(frame) > MEMORY_BUDGET)
            self._changed.notify_all()

    def take_feedback(self) -> Iterator[bytes]:
        while self._feedback:
            with self._changed:
                frame = self._feedback.popleft()
            yield frame

    def end_input(self, error: BaseException | None) -> None:
        with self._changed:
            self.input_ended, self._error = True, error
            self._changed.notify_all()

    def take_calls(self) -> list[Callable[[], None]]:
        if not self._calls:
            return []
        with self._changed:
            calls, self._calls = list(self._calls), deque()
            return calls

    def has_calls(self) -> bool:
        return bool(self._calls)

    def take_frame(self) -> bytes | None:
        if not self._frames:
            if self._error is not None:
                raise self._error
            return None
        with self._changed:
            frame = self._frames.popleft()
            self._changed.notify_all()
            return frame

    def wait(self, seconds: float) -> None:
        """Wait until there is something to take, but no longer than ``seconds``."""
        with self._changed:
            if not self._frames and not self._calls and not self._feedback and not self.input_ended:
                self._changed.wait(seconds)

    def wait_for_calls(self, seconds: float) -> None:
        with self._changed:
            if not self._calls and not self._feedback:
                self._changed.wait(seconds)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._frames.clear()
            self._feedback.close()
            self._changed.notify_all()


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
    subtask_id = deployment.plan.at(stage, context.partitionId())
    mailbox = Mailbox()
    reader = threading.Thread(target=_read, args=(batches, stage, mailbox), name="moorline-reader", daemon=True)
    uploads = ThreadPoolExecutor(1, thread_name_prefix="moorline-upload")
    ended = threading.Event()
    line: ControlLine | None = None
    subtask: Subtask | None = None
    job, attempt, plan = deployment.plan.graph.job, deployment.attempt, deployment.plan
    receiver: FeedbackReceiver | None = None
    sender = FeedbackSender(job, attempt, spec.secret, subtask_id)

    def ordered(order: Order) -> None:
        mailbox.put_call(lambda: subtask.order(order) if subtask else None)

    def lost() -> None:
        def fail() -> None:
            raise DriverLost("the control line to the driver is broken")

        mailbox.put_call(fail)

    def loop_broken() -> None:
        def fail() -> None:
            raise FeedbackLost("a line that leads back to this subtask is broken")

        mailbox.put_call(fail)

    def background(work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def finished(future: Future[Any]) -> None:
            error = future.exception()
            result = None if error else future.result()
            mailbox.put_call(lambda: done(result, error))

        uploads.submit(work).add_done_callback(finished)

    try:
        line = ControlLine(spec.address, spec.secret, job, attempt, subtask_id, ordered, lost)
        line.report(Connected(pid=os.getpid(), host=socket.gethostname(), executor=_executor()))
        watch = StallWatch(threading.get_ident(), _now_ms)
        # From here on it gives signs of life, however long it takes to read state back and to open functions.
        threading.Thread(target=_report_progress, args=(lambda: subtask, watch, line, ended), daemon=True).start()
        if back := plan.feedback_into(subtask_id):
            senders = {SubtaskId(plan.links[link].source, index) for link, index in back}
            receiver = FeedbackReceiver(
                line.host, job, attempt, spec.secret, subtask_id, senders, mailbox.put_feedback, loop_broken
            )
        store = open_store(deployment.location) if deployment.location else None
        environment = Environment(
            _now_ms,
            line.report,
            background,
            store,
            spec.flush_ms,
            has_urgent_work=mailbox.has_calls,
            send_back_to=sender.connect,
        )
        subtask = Subtask(deployment, subtask_id, environment)
        subtask.start(os.getpid(), receiver.address if receiver is not None else None)
        reader.start()
        yield from _drive(subtask, mailbox, sender)
        yield from _drain(subtask, mailbox)
        line.report(subtask.progress())  # the last word: where it stands at the end
    except Exception as error:
        if line is not None and subtask is not None and not isinstance(error, (DriverLost, FeedbackLost)):
            line.report(describe_failure(error))
        raise
    finally:
        ended.set()
        mailbox.close()
        uploads.shutdown(wait=False, cancel_futures=True)
        sender.close()
        if receiver is not None:
            receiver.close()
        if subtask is not None:
            subtask.close()
        if line is not None:
            line.close()


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
    except BaseException as error:
        mailbox.end_input(error)


def _report_progress(
    current: Callable[[], Subtask | None], watch: StallWatch, line: ControlLine, ended: threading.Event
) -> None:
    """On a thread of its own: the generator may be restoring, or be held back by the next stage, for very long."""
    while True:
        subtask = current()
        progress = subtask.progress() if subtask is not None else Progress(records_in=0, records_out=0)
        stall = watch.look(subtask.turn() if subtask is not None else None)
        line.report(msgspec.structs.replace(progress, stalled_ms=stall.ms, stalled_at=stall.at))
        if ended.wait(PROGRESS_SECONDS):
            return


def _drive(subtask: Subtask, mailbox: Mailbox, sender: FeedbackSender) -> Iterator[pa.RecordBatch]:
    """Until the job is done: orders first, then input, then whatever the subtask has to do of its own."""
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
            if subtask.is_reading:
                seconds = min(seconds, IDLE_SECONDS)
            else:
                seconds = min(seconds, subtask.tick_in_seconds())
            if seconds > 0:
                times.switch_to(Activity.IDLE)
                (mailbox.wait_for_calls if mailbox.input_ended else mailbox.wait)(seconds)
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
