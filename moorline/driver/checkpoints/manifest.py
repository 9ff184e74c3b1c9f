"""The manifest of a checkpoint, from the handles that its subtasks have acknowledged it with."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from moorline.model.ids import SubtaskId
from moorline.model.manifest import ElementsHandle, Manifest, OperatorEntry, OperatorHandles
from moorline.model.wire.deployment import Deployment
from moorline.protocol.coordination import Handles


def manifest_of(
    deployment: Deployment,
    checkpoint: int,
    handles: Mapping[SubtaskId, Handles],
    enumerated: Mapping[str, ElementsHandle],
    created_ms: int,
) -> Manifest:
    """The manifest of one checkpoint: an entry for each operator, with the handles of its subtasks in their order.

    ``enumerated``: what enumerators know. It stands with the first subtask of their source.
    """
    plan, graph = deployment.plan, deployment.plan.graph
    entries = []
    for vertex in plan.vertices:
        for uid in vertex.operators:
            operator = graph.by_uid[uid]
            subtasks = [
                next((h for h in handles[SubtaskId(vertex.id, i)] if h.uid == uid), OperatorHandles(uid))
                for i in range(vertex.parallelism)
            ]
            if uid in enumerated:
                first = subtasks[0]
                subtasks[0] = msgspec.structs.replace(first, elements=[*first.elements, enumerated[uid]])
            rekey = operator.options.get("rekey")
            entries.append(
                OperatorEntry(
                    uid,
                    operator.name,
                    vertex.parallelism,
                    graph.max_parallelism,
                    subtasks,
                    rekey.name if rekey is not None else "",
                )
            )
    return Manifest(graph.job, deployment.attempt, checkpoint, created_ms, entries, lineage=deployment.lineage)
