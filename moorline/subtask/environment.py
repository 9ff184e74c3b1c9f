"""The world around a subtask: time, storage, the way to the driver, and threads for slow work.

On Spark it is made by ``spark/entry.py``; in a simulation everything in it is simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from moorline.model.ids import SubtaskId
from moorline.model.wire.figures import ProcessFigures
from moorline.model.wire.messages import Report
from moorline.protocol.flow import FIRST_WINDOW, TARGET_MS
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.counted import Reads
from moorline.subtask.snapshot.pace import Pace

#: What is called with the result of slow work, or with its error.
Done = Callable[[Any, BaseException | None], None]


class Background(Protocol):
    """Does slow work elsewhere."""

    def __call__(self, work: Callable[[], Any], done: Done) -> None:
        """Run ``work`` off the subtask's thread; then, on the subtask's thread, ``done`` with result or error."""
        ...


def at_once(work: Callable[[], Any], done: Done) -> None:
    """Do the work here and now: where nothing else is to go on meanwhile."""
    try:
        result = work()
    except Exception as error:  # for done to judge
        done(None, error)
    else:
        done(result, None)


@dataclass(frozen=True)
class Environment:
    """The world around one subtask."""

    #: Milliseconds of a clock that never goes back.
    now_ms: Callable[[], float]
    report: Callable[[Report], None]
    background: Background
    #: Where snapshots go; None: nowhere.
    store: BlobStore | None
    flush_ms: int = 15
    #: The wall clock, in milliseconds since 1970.
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    #: What was read to restore.
    reads: Reads = field(default_factory=Reads)
    #: What goes back round a loop is to be sent to these addresses.
    send_back_to: Callable[[dict[SubtaskId, tuple[str, int]]], None] = lambda addresses: None
    #: Has something come up that should not wait until a frame has been worked off?
    has_urgent_work: Callable[[], bool] = lambda: False
    #: How many records are processed at a time, to begin with; it follows from how long they take.
    slice_records: int = 4096
    #: How long the subtask should need for what is on its way to it.
    in_flight_ms: int = TARGET_MS
    #: How many bytes may be on their way to each receiver before anything is known of it.
    first_window: int = FIRST_WINDOW
    #: Why outside systems do not answer just now, by the uid of their source or sink. Written by any thread.
    outages: dict[str, str] = field(default_factory=dict)
    #: Commits of sinks: one that waits for a server must not keep files of a snapshot waiting.
    commits: Background = at_once
    #: How much of the interpreter its snapshots take while they are encoded.
    pace: Pace = field(default_factory=Pace)
    #: Memory, processor and garbage collection of the process. Called from another thread than the subtask's.
    process_figures: Callable[[], ProcessFigures] = ProcessFigures
