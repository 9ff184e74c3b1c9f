"""Checkpoints that a job has gone back past: on record, never restored again, and gone with the next that completes."""

from __future__ import annotations

from moorline.model.facts import HistoryRecord
from moorline.model.manifest import Claim, Manifest
from moorline.model.type_tree.tree import INT
from moorline.protocol.recovery import RestoreFrom, StartEmpty, choose
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore


def manifest(checkpoint: int, attempt: int = 1) -> Manifest:
    return Manifest("job", attempt, checkpoint, 0, [])


def published(*checkpoints: int) -> tuple[MemoryStore, History]:
    store = MemoryStore()
    history = History(store, "job")
    history.claim(False, 0)
    for checkpoint in checkpoints:
        history.publish(manifest(checkpoint))
    return store, history


def chosen(store: MemoryStore, refused: dict[int, str] | None = None) -> int | None:
    records = [HistoryRecord(r.path, r.entry, r.damage) for r in History(store, "job").read()]
    decision = choose(records, refused or {})
    return decision.manifest.checkpoint if isinstance(decision, RestoreFrom) else None


def test_another_driver_does_not_choose_what_was_given_up():
    store, history = published(1, 2, 3)
    assert chosen(store) == 3
    history.give_up([2, 3], 5)
    assert chosen(store) == 1


def test_later_checkpoints_are_chosen_again():
    store, history = published(1, 2)
    history.give_up([2], 5)
    history.publish(manifest(3))
    assert chosen(store) == 3
    assert chosen(store, {3: "damaged"}) == 1


def test_giving_up_uses_no_checkpoint_number_twice():
    store, history = published(1, 2)
    history.give_up([2], 5)
    claim = [r.entry for r in History(store, "job").read()][-1]
    assert isinstance(claim, Claim)
    assert (claim.given_up, claim.next_checkpoint) == ([2], 3)


def test_what_was_given_up_is_not_found_by_a_takeover_either():
    store, history = published(1, 2)
    history.give_up([2], 5)
    other = History(store, "job")
    other.claim(False, 9)
    assert chosen(store) == 1


def test_what_a_lost_entry_had_removed_is_given_up_with_it():
    store, history = published(1, 2)
    history.publish(manifest(3), going=[1])
    history.remove([1])
    lost = history.read()[-1]
    store.delete([lost.path])
    other = History(store, "job")
    other.claim(False, 9)
    assert [r.seq for r in other.read() if r.is_missing] == [lost.seq - 2, lost.seq], "of the first nobody can tell"
    other.give_up([], 9, [lost.seq])
    assert not [r for r in other.read() if r.damage]
    assert chosen(store) == 2


def test_when_nothing_was_published_there_is_nothing_to_give_up():
    store, _ = published()
    assert choose([HistoryRecord(r.path, r.entry) for r in History(store, "job").read()], {}) == StartEmpty()


def test_files_that_several_removed_checkpoints_share_go_with_the_last_of_them(monkeypatch):
    from moorline.model.manifest import OperatorEntry, OperatorHandles, RowsHandle, SnapshotFile  # noqa: PLC0415

    store = MemoryStore()
    history = History(store, "job")
    history.claim(False, 0)

    def sharing(checkpoint: int, *paths: str) -> Manifest:
        keyed = [RowsHandle("s", "value", INT, 0, 8, 1, SnapshotFile(path, 1, [])) for path in paths]
        entry = OperatorEntry("op", "op", 1, 8, [OperatorHandles("op", keyed)])
        return Manifest("job", 1, checkpoint, 0, [entry])

    for path in ("data/chk-1/op/base-0-1-a.parquet", "data/chk-2/op/more-0-1-b.parquet"):
        store.put(path, b"x")
    history.publish(sharing(1, "data/chk-1/op/base-0-1-a.parquet"))
    history.publish(sharing(2, "data/chk-1/op/base-0-1-a.parquet", "data/chk-2/op/more-0-1-b.parquet"))
    history.publish(sharing(3))

    deletions: list[list[str]] = []
    delete = store.delete

    def noted(paths):
        deletions.append(list(paths))
        delete(deletions[-1])
        for record in History(store, "job").read():
            there = {blob.path for blob in store.list("data/")}
            assert {f.path for f in record.entry.files()} <= there if isinstance(record.entry, Manifest) else True

    monkeypatch.setattr(store, "delete", noted)
    history.remove([1, 2])
    assert not store.list("data/")
    assert len(deletions) >= 4
