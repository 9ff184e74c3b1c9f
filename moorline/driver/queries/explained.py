"""Explanations of the state of a running job: from its newest checkpoint, the running job is not touched.

The job knows what a snapshot does not say: how long its states live. ``spark/handle.py`` gives this to the user as
``handle.explain``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moorline.api.state.states import declared_states
from moorline.errors import InvalidArgument, SnapshotCorrupt, SnapshotNotFound
from moorline.model import keys
from moorline.model.graph import Graph
from moorline.snapshots.explanation.explain import Lives, explain
from moorline.snapshots.explanation.report import Explanation, KeyRate
from moorline.snapshots.folders import newest
from moorline.storage.stores.open import open_store


def explain_newest(
    graph: Graph, url: str | None, uid: str | None, top: int, ttl_ms: int | None, growth: bool
) -> Explanation:
    """Explain the newest complete checkpoint of a job, in its folder. Raises if there is none."""
    if url is None:
        raise SnapshotNotFound(graph.job, "the job takes no checkpoints, and they are what is explained: checkpoints=")
    if uid is not None and uid not in graph.by_uid:
        raise InvalidArgument("uid", uid, f"The job has {', '.join(map(repr, graph.by_uid))}.")
    store, lives = open_store(url), declared_lives(graph)
    read: set[int] = set()
    while True:
        manifest = newest(store)
        try:
            return explain(manifest, store, uid=uid, top=top, ttl_ms=ttl_ms, lives=lives, growth=growth)
        except SnapshotCorrupt:
            # It, or the one before, may have been removed while we read it, because a newer one is there.
            if manifest.checkpoint in read:
                raise
            read.add(manifest.checkpoint)


def with_hottest(explanation: Explanation, operators: Mapping[str, Mapping[str, Any]]) -> Explanation:
    """An explanation with the keys that get the most records now. ``operators``: figures of the job, by uid."""
    return replace(
        explanation,
        operators=tuple(
            replace(of, hottest=tuple(map(_key_rate, operators.get(of.uid, {}).get("hot_keys", ()))))
            for of in explanation.operators
        ),
    )


def _key_rate(hot: Mapping[str, Any]) -> KeyRate:
    encoded = base64.b64decode(hot["encoded"])
    return KeyRate(keys.decode_identity(encoded), encoded, hot["share"], hot["records_per_second"])


def declared_lives(graph: Graph) -> Lives:
    """The times to live of the states that are declared on the classes of a job's functions, and in which time."""
    configs = {
        (operator.uid, state.descriptor.name): state.descriptor.ttl_config
        for operator in graph.operators
        for state in declared_states(operator.function).values()
    }
    return {name: (ttl.length_ms, ttl.time == "event") for name, ttl in configs.items() if ttl is not None}
