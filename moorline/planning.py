"""``mo.plan``: what would become of the state in a snapshot, told before anything starts."""

from __future__ import annotations

from moorline.api.job import Job
from moorline.driver.planning import RestorePlan, plan_restore
from moorline.driver.preflight import with_key_kinds
from moorline.model.options import checks_options
from moorline.storage.snapshot_folders import open_snapshot


@checks_options()
def plan(
    job: Job,
    *,
    restore: str,
    checkpoint: int | None = None,
    parallelism: int | None = None,
    allow_non_restored_state: bool = False,
) -> RestorePlan:
    """What starting ``job`` from a savepoint (or from a checkpoint in a job's folder) would do to each state.

    ``print`` it; ``plan.is_safe`` is false if the job would refuse to start, because state would be lost or could not
    be read. Nothing is started.
    """
    manifest, store = open_snapshot(restore, checkpoint)
    graph = job.graph(parallelism)
    return plan_restore(with_key_kinds(manifest, graph, store), graph, store.url, allow_non_restored_state)
