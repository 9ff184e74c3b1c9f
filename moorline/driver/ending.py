"""What is put in order when a job is over. None of it can fail the job: all is committed, or given up, by then."""

from __future__ import annotations

import logging

from moorline.api.sinks import Sink
from moorline.driver.checkpoints import AttemptCheckpoints
from moorline.driver.restore import own_checkpoints
from moorline.errors import Fenced, StorageError
from moorline.model.graph import Graph
from moorline.storage.checkpoints import History

log = logging.getLogger("moorline")


def clean_up_sinks(graph: Graph) -> None:
    """Have the sinks of a job that has finished put away what only a running one needs."""
    for operator in graph.operators:
        if isinstance(operator.function, Sink):
            try:
                operator.function.clean_up(graph.job, operator.uid)
            except Exception as error:  # whatever a user's sink raises: all is committed, so the job has not failed
                log.warning("sink %r could not clean up: %s", operator.uid, error)


def delete_checkpoints(history: History) -> None:
    """Delete those of this job."""
    try:
        history.remove(own_checkpoints(history))
    except (StorageError, Fenced) as failure:
        log.warning("checkpoints could not be deleted: %s", failure)


def tidy_up(checkpoints: AttemptCheckpoints) -> bool:
    """Delete files that nobody needs. Does nothing lie in storage now but what is to be retained?"""
    try:
        return checkpoints.tidy_up()
    except Fenced as failure:
        log.warning("unused files are left to the next driver: %s", failure)
        return False
