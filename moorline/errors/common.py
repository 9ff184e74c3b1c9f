"""The base of all errors, and the reasons for giving up a checkpoint, which are none."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum


class MoorlineError(Exception):
    """Base of all errors of Moorline."""

    #: Can it pass by itself? True: a service may come back. False: someone has to mend something first. None: unknown.
    #: Decides how often a job is restarted (``protocol/restarts.py``).
    can_pass: bool | None = None

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith("moorline.errors."):
            cls.__module__ = "moorline.errors"  # tracebacks name what users can import, not the file it is in

    def __reduce__(self) -> tuple[type[MoorlineError], tuple[object, ...], dict[str, object]]:
        # Exceptions cross from Spark tasks to the driver, so they must survive pickling: notes too.
        arguments = tuple(getattr(self, f.name) for f in fields(self)) if is_dataclass(self) else self.args
        return type(self), arguments, self.__dict__


class FailureReason(Enum):
    """The reason why a checkpoint did not complete, and whether it counts as a failure."""

    EXPIRED = ("it did not finish within the checkpoint timeout", True)
    DECLINED = ("a subtask declined it", True)
    OVERTAKEN = ("the barrier of a newer checkpoint arrived first at a subtask", False)
    UPLOAD_FAILED = ("a subtask could not write its files", True)
    PUBLISH_FAILED = ("its manifest could not be published", True)
    SUBSUMED = ("a newer checkpoint completed first", False)

    def __init__(self, sentence: str, counts: bool):
        self.sentence, self.counts = sentence, counts
