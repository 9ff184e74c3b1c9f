"""Cleanup after a job ends. Best effort: never fails the job, all is committed or given up by then."""

from __future__ import annotations

import logging

from moorline.api.sinks import Sink
from moorline.driver.checkpoints.coordinator import AttemptCheckpoints
from moorline.driver.restore import own_checkpoints
from moorline.errors import Fenced, LeadershipLost, MoorlineError, StorageError
from moorline.model.graph import Graph
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.protocol.supervision.requests import StoppedWith
from moorline.storage.history import History

log = logging.getLogger("moorline")


def clean_up_sinks(graph: Graph) -> None:
    """Have the sinks of a job that has finished put away what only a running one needs."""
    for operator in graph.operators:
        if isinstance(operator.function, Sink):
            try:
                operator.function.clean_up(graph.job, operator.uid)
            except Exception as error:  # whatever a user's sink raises: all is committed, so the job has not failed
                log.warning("sink %r could not clean up: %s", operator.uid, error)


def leave_storage(
    history: History | None,
    checkpoints: AttemptCheckpoints | None,
    status: JobStatus,
    error: MoorlineError | None,
    is_unwanted: bool,
    now_ms: int,
    stopped: StoppedWith | None = None,
) -> bool:
    """Leave nothing in storage but what is to be retained, and the word that the job has ended. Is it tidy?

    ``is_unwanted``: that no checkpoint is to be retained. A driver that was taken over changes nothing.
    ``stopped``: the savepoint that the job was stopped with, for a restart that finds the final checkpoint damaged.
    """
    if history is not None and is_unwanted:
        _delete_checkpoints(history)
    if isinstance(error, (Fenced, LeadershipLost)):
        return False
    is_tidy = _tidy_up(checkpoints) if checkpoints is not None else False
    if history is not None and history.has_claimed:
        try:
            if stopped is not None and status is JobStatus.FINISHED and not is_unwanted:
                history.end(status.value, now_ms, stopped.savepoint, stopped.checkpoint)
            else:
                history.end(status.value, now_ms)
        except (StorageError, Fenced) as failure:
            log.warning("that the job has ended could not be put on record: %s", failure)
    return is_tidy


def _delete_checkpoints(history: History) -> None:
    try:
        history.remove(own_checkpoints(history))
    except (StorageError, Fenced) as failure:
        log.warning("checkpoints could not be deleted: %s", failure)


def _tidy_up(checkpoints: AttemptCheckpoints) -> bool:
    try:
        return checkpoints.tidy_up()
    except Fenced as failure:
        log.warning("unused files are left to the next driver: %s", failure)
        return False
