"""Damage to the newest checkpoint of a simulated job: to one of its files, or to its entry in the history.

Only where something is left to go back to: an older checkpoint, or the savepoint that the job was stopped with.
``testing/simulation/simulator.py`` decides when.
"""

from __future__ import annotations

from moorline.model.manifest import Claim, Manifest
from moorline.protocol.recovery import ended_with_a_savepoint, lineage
from moorline.storage.blobs import BlobStore
from moorline.storage.chain import Record
from moorline.storage.history import History
from moorline.testing.simulation.faults.history import spoil_history
from moorline.testing.simulation.faults.injection import Injection


def damage_newest(store: BlobStore, job: str, injection: Injection, *, has_outside_state: bool) -> None:
    """Damage the newest checkpoint, if the job can do without it."""
    records = History(store, job).read()
    manifests = _restorable(records)
    # A file that older checkpoints share would take them with it, and there would be nothing to go back to.
    shared = {file.path for manifest in manifests[:-1] for file in manifest.files()}
    there = {blob.path for blob in store.list("data/")}  # some may be gone since another driver died
    own = [f.path for f in manifests[-1].files() if f.path in there - shared] if manifests else []
    # The final checkpoint of a stop: then there is its savepoint. Elsewhere a store outside cannot go back at all.
    found = [r.fact for r in records]
    is_final = ended_with_a_savepoint(found, lineage(found)) is not None and bool(manifests)
    if not is_final and (has_outside_state or len(manifests) < 2):
        return
    if is_final and (own or injection.faults.history):
        injection.injected["final checkpoint of a stop"] += 1
    if injection.chance.random() < injection.faults.history:
        newest = next(r for r in records if r.entry is manifests[-1])
        way = spoil_history(store, injection.chance, records, newest)
        injection.injected[f"history entry: {way}"] += 1
    elif own:
        _damage_file(store, injection.chance.choice(own), injection)


def _restorable(records: list[Record]) -> list[Manifest]:
    """The checkpoints that the job may go back to, oldest first."""
    given_up = {n for r in records if isinstance(r.entry, Claim) for n in r.entry.given_up}
    # What was there before the job was started anew, from a savepoint, is not for it to go back to.
    own = lineage([r.fact for r in records])
    # Nor is what came before a savepoint that it was stopped with.
    stopped_at = max([r.entry.stopped_at for r in own if isinstance(r.entry, Claim)], default=0)
    kept = [r.entry for r in own if isinstance(r.entry, Manifest) and r.entry.checkpoint > stopped_at]
    return [manifest for manifest in kept if manifest.checkpoint not in given_up]


def _damage_file(store: BlobStore, path: str, injection: Injection) -> None:
    data = bytearray(store.get(path))
    store.delete([path])
    how = injection.chance.choice(["removed", "cut short", "flipped"])
    if how == "cut short":
        store.put(path, bytes(data[: len(data) // 2]))
    elif how == "flipped":
        data[injection.chance.randrange(len(data))] ^= 0x40
        store.put(path, bytes(data))
    injection.injected[f"damaged file: {how}"] += 1
    injection.damaged.add(path)
