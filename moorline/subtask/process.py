"""The figures of the process that a subtask runs in: memory, processor time, garbage collection."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

from moorline.model.wire.figures import ProcessFigures


class ProcessMeter:
    """Reads the figures of this process; :meth:`watch` and :meth:`close` are called once each.

    >>> meter = ProcessMeter().watch()
    >>> _ = gc.collect()
    >>> figures = meter.figures()
    >>> figures.gc_collections >= 1, figures.rss_bytes > 0
    (True, True)
    >>> meter.close()
    """

    def __init__(self) -> None:
        self._collections, self._collecting_ns, self._began_ns = 0, 0, 0
        self._cpu_ns = time.process_time_ns()

    def watch(self) -> ProcessMeter:
        """Count garbage collections from now on."""
        gc.callbacks.append(self._collected)
        return self

    def close(self) -> None:
        """A worker of Spark lives on, and may run another attempt."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def figures(self) -> ProcessFigures:
        return ProcessFigures(
            rss_bytes=_rss_bytes(),
            cpu_ms=(time.process_time_ns() - self._cpu_ns) // 1_000_000,
            gc_collections=self._collections,
            gc_ms=self._collecting_ns // 1_000_000,
        )

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._began_ns = now
        else:
            self._collections += 1
            self._collecting_ns += now - self._began_ns


def _rss_bytes() -> int:
    """The memory of the process that is in RAM; 0 where the system does not say so in ``/proc``."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
