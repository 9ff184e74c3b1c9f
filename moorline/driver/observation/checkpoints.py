"""The history of a job's checkpoints: in progress, completed and failed, each with the parts of its subtasks.

It is for people. What is restored from is decided by the history in storage. Filled by the driver's thread
(``driver/checkpoints/coordinator.py``), read by others, who copy what they look at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles
from moorline.model.wire.messages import Acknowledged
from moorline.storage.layout import is_of_checkpoint

#: The reason of what was in progress when its attempt ended. It is none of a checkpoint's own.
ATTEMPT_ENDED = "ATTEMPT_ENDED"
Kind = Literal["checkpoint", "savepoint", "final"]

#: So many that have ended are kept, and of so many of them what each subtask contributed.
KEPT, KEPT_IN_DETAIL = 200, 20
#: Characters kept of what went wrong.
DETAIL_CHARACTERS = 2_000


@dataclass(frozen=True)
class OperatorPart:
    """The files of one operator in one subtask's part: all that it names, and those written for this checkpoint."""

    size: int
    uploaded: int
    #: Rows of keyed state, as far as they are in rows.
    rows: int


@dataclass(frozen=True)
class SubtaskPart:
    """One subtask's part of a checkpoint."""

    #: From the trigger to its acknowledgement.
    acknowledged_ms: int
    #: Waiting for the slowest input; copying, while the stream stood still; writing, while it went on.
    align_ms: int
    sync_ms: int
    async_ms: int
    in_flight_records: int
    operators: dict[str, OperatorPart]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.operators.values())


@dataclass
class CheckpointRecord:
    """One checkpoint or savepoint of this run of the job."""

    checkpoint: int
    attempt: int
    kind: Kind
    #: Wall clock, in milliseconds since 1970.
    started_ms: int
    #: How many subtasks have to acknowledge it.
    expected: int
    #: Where it is written; empty for a checkpoint.
    savepoint: str = ""
    status: Literal["in_progress", "completed", "failed"] = "in_progress"
    duration_ms: int = 0
    size: int = 0
    uploaded: int = 0
    align_ms: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    in_flight_records: int = 0
    #: Why it failed: the name of a :class:`FailureReason`, its sentence, and the error behind it.
    reason: str = ""
    failure: str = ""
    detail: str = ""
    acknowledged: int = 0
    #: On the driver's own clock.
    began_ms: int = 0
    parts: dict[SubtaskId, SubtaskPart] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Everything but the parts, as JSON."""
        own = ("began_ms", "parts")
        return {name: value for name, value in vars(self).items() if name not in own}

    def details(self) -> dict[str, Any]:
        """The parts of subtasks, and their sums by operator, as JSON."""
        parts = dict(self.parts)
        operators: dict[str, dict[str, int]] = {}
        subtasks = []
        for subtask, part in sorted(parts.items()):
            for uid, of_operator in part.operators.items():
                sums = operators.setdefault(uid, {"subtasks": 0, "size": 0, "uploaded": 0, "rows": 0})
                sums["subtasks"] += 1
                for name in ("size", "uploaded", "rows"):
                    sums[name] += getattr(of_operator, name)
                for phase in ("acknowledged_ms", "align_ms", "sync_ms", "async_ms"):
                    sums[phase] = max(sums.get(phase, 0), getattr(part, phase))
            of_subtask = {name: value for name, value in vars(part).items() if name != "operators"}
            by_uid = {uid: vars(of_operator) for uid, of_operator in part.operators.items()}
            subtasks.append({"subtask": str(subtask), "size": part.size, **of_subtask, "operators": by_uid})
        return {**self.summary(), "operators": operators, "subtasks": subtasks}


class CheckpointHistory:
    """The checkpoints of one run of a job, over all of its attempts. ``changed`` is called when one has ended."""

    def __init__(self, changed: Callable[[CheckpointRecord], None] = lambda record: None) -> None:
        self._changed = changed
        self._in_progress: dict[int, CheckpointRecord] = {}
        self._ended: deque[CheckpointRecord] = deque(maxlen=KEPT)
        self.completed = 0
        #: How many failed, by the name of the reason.
        self.failed: dict[str, int] = {}
        #: The last that was completed, savepoints not among them; and when, by the driver's own clock.
        self.last: CheckpointRecord | None = None
        self.last_ms: int | None = None

    # --- facts -----------------------------------------------------------------------------------

    def started(self, record: CheckpointRecord) -> None:
        self._in_progress[record.checkpoint] = record

    def acknowledged(self, subtask: SubtaskId, report: Acknowledged, now_ms: int) -> None:
        record = self._in_progress.get(report.checkpoint)
        if record is None or subtask in record.parts:
            return
        of_savepoint = bool(record.savepoint)
        record.parts[subtask] = part = SubtaskPart(
            now_ms - record.began_ms,
            report.align_ms,
            report.sync_ms,
            report.async_ms,
            report.in_flight_records,
            {h.uid: _part(h, 0 if of_savepoint else report.checkpoint) for h in report.operators},
        )
        record.acknowledged += 1
        record.size += part.size
        record.uploaded += sum(o.uploaded for o in part.operators.values())
        record.in_flight_records += part.in_flight_records
        for phase in ("align_ms", "sync_ms", "async_ms"):
            setattr(record, phase, max(getattr(record, phase), getattr(part, phase)))

    def published(self, checkpoint: int, now_ms: int) -> None:
        record = self._in_progress.pop(checkpoint, None)
        if record is not None:
            self.completed += 1
            record.status = "completed"
            if not record.savepoint:
                self.last, self.last_ms = record, now_ms
            self._end(record, now_ms)

    def failed_of(self, checkpoint: int, reason: str, failure: str, detail: str, now_ms: int) -> None:
        """A checkpoint was given up."""
        record = self._in_progress.pop(checkpoint, None)
        if record is not None:
            record.status, record.reason, record.failure = "failed", reason, failure
            record.detail = detail[:DETAIL_CHARACTERS]
            self.failed[reason] = self.failed.get(reason, 0) + 1
            self._end(record, now_ms)

    def attempt_ended(self, attempt: int, now_ms: int) -> None:
        """Give up the checkpoints in progress: they will never be complete."""
        for checkpoint, record in list(self._in_progress.items()):
            if record.attempt == attempt:
                self.failed_of(checkpoint, ATTEMPT_ENDED, "the attempt ended before it was complete", "", now_ms)

    def _end(self, record: CheckpointRecord, now_ms: int) -> None:
        record.duration_ms = now_ms - record.began_ms
        self._ended.append(record)
        for old in list(self._ended)[:-KEPT_IN_DETAIL]:
            old.parts = {}
        self._changed(record)

    # --- questions -------------------------------------------------------------------------------

    def in_progress(self, now_ms: int) -> list[dict[str, Any]]:
        """Those that are under way, as JSON."""
        records = list(self._in_progress.values())
        return [{**record.summary(), "duration_ms": max(0, now_ms - record.began_ms)} for record in records]

    def ended(self) -> list[dict[str, Any]]:
        """Those that have ended, newest first, as JSON."""
        return [record.summary() for record in reversed(list(self._ended))]

    def details(self, checkpoint: int) -> dict[str, Any] | None:
        """One of them with the parts of its subtasks, as JSON; None: it is not known, or no longer."""
        records = [*list(self._ended), *list(self._in_progress.values())]
        return next((record.details() for record in records if record.checkpoint == checkpoint), None)


def _part(handles: OperatorHandles, checkpoint: int) -> OperatorPart:
    """``checkpoint``: files of an earlier one were not written for it; 0: they all were."""
    files = handles.files()
    written = [file for file in files if not checkpoint or is_of_checkpoint(file.path, checkpoint)]
    rows = sum(getattr(handle, "rows", 0) for handle in handles.keyed)
    return OperatorPart(sum(f.size for f in files), sum(f.size for f in written), rows)
