"""The report of the error that ended a subtask."""

from __future__ import annotations

import traceback
from pathlib import Path

from moorline.errors import MoorlineError, SnapshotCorrupt, StorageError, UnreadableRecord, UserCodeFailed
from moorline.model.wire.messages import Failed

#: Characters that are reported of an error's text and of its traceback.
REPORTED = 100_000
_PACKAGE = str(Path(__file__).parents[1])


def describe_failure(error: BaseException) -> Failed:
    """An error as a report."""
    calls = _sendable(_traceback(error))
    if isinstance(error, UserCodeFailed):
        return Failed(
            error=_sendable(error.error),
            traceback=_sendable(error.traceback),
            uid=error.uid,
            name=error.name,
            position=error.position,
            record=_sendable(error.record),
        )
    if isinstance(error, SnapshotCorrupt):
        return Failed(error=_sendable(str(error)), traceback=calls, corrupt=error.path, can_pass=False)
    # The place in the input, by which it is known again.
    record = f"{error.path} at {error.position}" if isinstance(error, UnreadableRecord) else ""
    can_pass = None
    if isinstance(error, MoorlineError):
        can_pass = error.can_pass
    elif isinstance(error, OSError):
        can_pass = StorageError.of("", "", error).can_pass
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    text = _sendable(f"{type(error).__name__}: {error}{notes}")
    return Failed(error=text, traceback=calls, record=record, can_pass=can_pass)


def _traceback(error: BaseException) -> str:
    """The calls to where it happened. An error of ours says itself what is wrong: only the user's calls are shown."""
    if not isinstance(error, MoorlineError):
        return "".join(traceback.format_exception(error))
    frames = traceback.extract_tb(error.__traceback__)
    return "".join(traceback.format_list([f for f in frames if not f.filename.startswith(_PACKAGE)]))


def advice_on_module(error: ModuleNotFoundError) -> str:
    """The places where a module may be that a worker lacks, in one line."""
    module = (error.name or "").partition(".")[0]
    return (
        f"no worker finds the module {module!r}: if it is a file of yours, send it along with spark-submit --py-files "
        f"{module}.py or spark.sparkContext.addPyFile({module + '.py'!r}); if it is a package, install it everywhere"
    )


def _sendable(text: str) -> str:
    """``text`` as a message can carry it: user code may raise with half a character in its text, or with megabytes."""
    if len(text) > REPORTED:
        text = f"{text[: REPORTED // 2]} ... {text[-REPORTED // 2 :]}"
    return text.encode("utf-8", "backslashreplace").decode()
