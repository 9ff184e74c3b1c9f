"""Snapshots in storage as the web page shows them: what there is, what is in one, what differs between two.

Reads manifests, and rows only for a comparison. A running job does not notice. Used for the console of a job and by
``served_location.py``.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Any

from moorline.http.wire import to_json
from moorline.model.graph import Graph
from moorline.model.manifest import Claim, Manifest
from moorline.snapshots.folders import open_snapshot
from moorline.snapshots.planning import plan_restore
from moorline.snapshots.tables.catalog import states_of
from moorline.snapshots.tables.diff import Change, diff
from moorline.snapshots.tables.reader import SnapshotReader
from moorline.storage.blobs import BlobStore
from moorline.storage.chain import Record
from moorline.storage.log import read_history

#: So many differences are shown, and of a value so many characters.
MOST_CHANGES, VALUE_CHARACTERS = 200, 300
#: So many checkpoints of a job are listed.
MOST_SNAPSHOTS = 500


def history_of(store: BlobStore) -> dict[str, Any]:
    """The checkpoints in a job's folder, oldest first, and the attempts that wrote them."""
    records = read_history(store)
    claims = [r.entry for r in records if isinstance(r.entry, Claim)]
    checkpoints = [_checkpoint(r, r.entry, store) for r in records if isinstance(r.entry, Manifest)]
    known = [r.entry.job for r in records if r.entry is not None]
    return {
        "job": known[-1] if known else store.url.rpartition("/")[2],
        "url": store.url,
        "checkpoints": checkpoints[-MOST_SNAPSHOTS:],
        "damaged": [f"{r.path}: {r.damage}" for r in records if r.damage],
        "attempts": max((r.attempt for r in records), default=0),
        "ended": claims[-1].ended if claims and records and records[-1].entry is claims[-1] else "",
    }


def _checkpoint(record: Record, manifest: Manifest, store: BlobStore) -> dict[str, Any]:
    return {**summary(manifest), "entry": f"{store.url}/{record.path}"}


def summary(manifest: Manifest) -> dict[str, Any]:
    """A snapshot in one line."""
    return {
        "checkpoint": manifest.checkpoint,
        "attempt": manifest.attempt,
        "created_ms": manifest.created_ms,
        "bytes": manifest.size,
        "operators": len(manifest.operators),
        "in_flight": manifest.in_flight,
    }


def contents(url: str, checkpoint: int | None = None) -> dict[str, Any]:
    """The operators and states in a snapshot."""
    manifest, store = open_snapshot(url, checkpoint)
    operators = [
        {"uid": o.uid, "name": o.name, "parallelism": o.parallelism, "max_parallelism": o.max_parallelism}
        for o in manifest.operators
    ]
    states = [asdict(info) for info in states_of(manifest)]
    return {**summary(manifest), "job": manifest.job, "url": store.url, "operators": operators, "states": states}


def plan_of(graph: Graph, url: str, checkpoint: int | None = None) -> dict[str, Any]:
    """The fate of each state of a snapshot, if the job were started from it."""
    manifest, store = open_snapshot(url, checkpoint)
    plan = plan_restore(manifest, graph, store.url)
    return {**asdict(plan), "is_safe": plan.is_safe}


#: The URL of a savepoint or of a job's folder, and the number of a checkpoint in it; None: the newest.
Place = tuple[str, int | None]


def differences(before: Place, after: Place) -> dict[str, Any]:
    """The first differences between two snapshots."""
    found = diff(SnapshotReader.open(*before), SnapshotReader.open(*after))
    changes = [_change(change) for change in islice(found, MOST_CHANGES)]
    return {"changes": changes, "there_are_more": next(found, None) is not None}


def _change(change: Change) -> dict[str, Any]:
    fields: dict[str, Any] = {"what": change.what, "uid": change.uid, "state": change.state}
    more = {"key": change.key, "window": change.window, "map_key": change.map_key}
    more |= {"before": change.before, "after": change.after}
    return fields | {name: _brief(value) for name, value in more.items() if value is not None}


def _brief(value: object) -> Any:
    shown = to_json(value)
    text = repr(value)
    return shown if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…"
