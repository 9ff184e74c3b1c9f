"""Spark's log silenced while tasks of ours end as they should; our own log printed if the application prints none.

An attempt ends by a cancelled Spark job, also for a planned rescale, and every JVM thread concerned writes a stack of
its own about that: 50 to 150 lines for one event that the driver's log tells in one. While a job of ours runs, the
loggers that do this are switched off in the driver's JVM. Executors in other processes write to files of their own.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession

from moorline.errors import InvalidArgument
from moorline.model import log_lines

#: Those that speak of tasks that were cancelled or whose worker is gone.
TALKATIVE = (
    "org.apache.spark.util.ErrorNotifier",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.api.python",
    "org.apache.spark.sql.execution.python",
    "org.apache.spark.shuffle.streaming",
    "org.apache.spark.network.server.TransportChannelHandler",
    "org.apache.spark.util.Utils",
)
#: So long after the last job's end the last of its tasks have ended too.
AFTERMATH_SECONDS = 6.0


LOG_LEVELS = ("debug", "info", "warning", "error")


class _Hush:
    """Spark's talkative loggers, switched off while jobs run and then as they were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._jvm: Any = None
        #: The levels that the application has set.
        self._before: dict[str, Any] = {}

    def begin(self, spark: SparkSession) -> None:
        with self._lock:
            self._users += 1
            jvm = spark.sparkContext._jvm
            if self._jvm is jvm:
                return
            self._jvm = jvm
            core, api = jvm.org.apache.logging.log4j.core.config, jvm.org.apache.logging.log4j
            loggers = api.LogManager.getContext(False).getConfiguration().getLoggers()
            self._before = {name: loggers.get(name).getLevel() for name in TALKATIVE if loggers.containsKey(name)}
            for name in TALKATIVE:
                core.Configurator.setLevel(name, api.Level.OFF)

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                later = threading.Timer(AFTERMATH_SECONDS, self._restore)
                later.daemon = True
                later.start()

    def _restore(self) -> None:
        with self._lock, suppress(Exception):  # the JVM may be gone by now
            if self._users == 0 and self._jvm is not None:
                jvm, self._jvm = self._jvm, None
                core, api = jvm.org.apache.logging.log4j.core.config, jvm.org.apache.logging.log4j
                context = api.LogManager.getContext(False)
                for name in TALKATIVE:
                    if name in self._before:
                        core.Configurator.setLevel(name, self._before[name])
                    else:
                        context.getConfiguration().removeLogger(name)
                context.updateLoggers()


_hush = _Hush()


@contextmanager
def hushed(spark: SparkSession) -> Iterator[None]:
    """For as long as a job of ours runs on ``spark``."""
    _hush.begin(spark)
    try:
        yield
    finally:
        _hush.end()


class _OwnHandler(logging.StreamHandler[Any]):
    """Writes our log to standard error until the application sets up logging of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(log_lines.formatter())

    def emit(self, record: logging.LogRecord) -> None:
        if logging.root.handlers:
            logger = logging.getLogger("moorline")
            logger.removeHandler(self)
            logger.setLevel(logging.NOTSET)
            return
        self.stream = sys.stderr  # which tests and notebooks replace
        super().emit(record)


def show_log(level: str | None = None) -> None:
    """Have the log of ``moorline`` seen, if the application has set up no logging; ``level`` counts either way."""
    if level not in (None, *LOG_LEVELS):
        raise InvalidArgument("log_level", level, f"It is one of {', '.join(map(repr, LOG_LEVELS))}.")
    logger = logging.getLogger("moorline")
    if level is not None and logging.root.handlers:
        logger.setLevel(level.upper())
    others = [handler for handler in logger.handlers if not isinstance(handler, log_lines.LogTail)]
    if not logging.root.handlers and not others and logger.level == logging.NOTSET:
        logger.addHandler(_OwnHandler())
        logger.setLevel((level or "info").upper())
    elif level is not None and any(isinstance(handler, _OwnHandler) for handler in logger.handlers):
        logger.setLevel(level.upper())
