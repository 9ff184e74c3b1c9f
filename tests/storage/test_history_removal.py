"""What may go from a history, in which order, and what must stay."""

from __future__ import annotations

import pytest
from storage_samples import JOB, claimed, data_files, manifest, publish, snapshot, story
from wrapped_stores import Crash, WrappedStore, crash_at

from moorline import failpoints
from moorline.errors import Fenced
from moorline.model.manifest import Manifest
from moorline.storage.blobs import BlobStore
from moorline.storage.checkpoints import History
from moorline.storage.layout import data_path, entry_path
from moorline.storage.memory import MemoryStore
from moorline.storage.snapshots import verify

# --- removing ---------------------------------------------------------------------------------


def test_removing_takes_the_entry_and_its_files_and_nothing_else(store: BlobStore) -> None:
    history = claimed(store)
    files = {n: publish(history, store, n) for n in (1, 2, 3)}
    history.remove([1, 2, 99])
    assert story(store) == ["1c1", "4m1:3"]
    assert data_files(store) == sorted(f.path for f in files[3])
    history.remove([3])
    assert story(store) == ["1c1", "5c1"] and data_files(store) == []


def test_a_file_that_another_checkpoint_names_stays() -> None:
    store = MemoryStore()
    history = claimed(store)
    files = publish(history, store, 1)
    history.publish(manifest(2, 1, files[:1]))
    history.remove([1])
    assert data_files(store) == [files[0].path]


@pytest.mark.parametrize("step", range(12))
def test_a_crash_while_removing_never_leaves_a_checkpoint_without_its_files(step: int) -> None:
    inner = MemoryStore()
    old = claimed(inner)
    for n in (1, 2):
        publish(old, inner, n)
    store = WrappedStore(inner)
    history = claimed(store)
    kept = publish(history, store, 3)
    store.before = crash_at(step)
    crashed = False
    try:
        history.remove([1, 2])
    except Crash:
        crashed = True
    # 2 checkpoints of an entry and 2 files each, then the superseded claim.
    assert crashed == (step < 7)
    left = [r.entry for r in History(inner, JOB).read() if isinstance(r.entry, Manifest)]
    for entry in left:
        for file in entry.files():
            verify(inner, file)
    # Oldest first: what is left is the newest of them.
    assert [e.checkpoint for e in left] == [1, 2, 3][-len(left) :]

    # The next attempt finishes the work.
    successor = claimed(inner)
    successor.remove([1, 2])
    successor.sweep(successor.attempt)
    assert data_files(inner) == sorted(f.path for f in kept)


def test_the_failpoint_lies_between_the_entry_and_its_files() -> None:
    store = MemoryStore()
    history = claimed(store)
    files = publish(history, store, 1)
    failpoints.arm(failpoints.Plan("retention.between:raise"))
    try:
        with pytest.raises(RuntimeError):
            history.remove([1])
    finally:
        failpoints.arm(failpoints.Plan())
    assert story(store) == ["1c1", "3c1"]
    assert data_files(store) == sorted(f.path for f in files)


@pytest.mark.parametrize("point, exists", [("publish.before", False), ("publish.after", True)])
def test_the_failpoints_lie_on_both_sides_of_publishing(point: str, exists: bool) -> None:
    store = MemoryStore()
    history = claimed(store)
    failpoints.arm(failpoints.Plan(f"{point}:raise"))
    try:
        with pytest.raises(RuntimeError):
            publish(history, store, 1)
    finally:
        failpoints.arm(failpoints.Plan())
    assert story(store) == (["1c1", "2m1:1"] if exists else ["1c1"])


def test_a_fenced_attempt_removes_nothing(store: BlobStore) -> None:
    first = claimed(store)
    publish(first, store, 1)
    claimed(store)
    before = store.list()
    for order in (lambda: first.remove([1]), lambda: first.sweep(1)):
        with pytest.raises(Fenced):
            order()
    assert store.list() == before


def test_superseded_claims_go_when_nothing_of_their_time_is_left(store: BlobStore) -> None:
    first = claimed(store, fresh=True)
    publish(first, store, 1)
    second = claimed(store)
    publish(second, store, 2)
    third = claimed(store)
    third.remove([])
    assert story(store) == ["1c1", "2m1:1", "3c2", "4m2:2", "5c3"]
    third.remove([1])
    assert story(store) == ["3c2", "4m2:2", "5c3"]
    publish(third, store, 3)
    third.remove([2])
    assert story(store) == ["5c3", "6m3:3"]
    third.remove([3])
    assert story(store) == ["5c3", "7c3"]


@pytest.mark.parametrize("step", range(7))
def test_a_crash_while_removing_claims_leaves_the_younger_ones(step: int) -> None:
    """Claims go oldest first: while an attempt's own claim is there, so is the one that fences it."""
    inner = MemoryStore()
    for _ in range(3):
        claimed(inner)
    store = WrappedStore(inner)
    last = claimed(store)
    publish(last, store, 1)
    store.before = crash_at(step)
    try:
        last.remove([])
        assert step >= 3
    except Crash:
        assert step < 3
    assert story(inner) == ["1c1", "2c2", "3c3", "4c4", "5m4:1"][min(step, 3) :]


def test_claims_between_two_checkpoints_stay_so_that_no_number_is_freed_out_of_order(store: BlobStore) -> None:
    first = claimed(store)
    publish(first, store, 1)
    for _ in range(3):
        last = claimed(store)
    publish(last, store, 2)
    last.remove([])
    assert story(store) == ["1c1", "2m1:1", "3c2", "4c3", "5c4", "6m4:2"]


def test_a_fresh_claim_stays_while_there_is_a_checkpoint_for_it_to_hide(store: BlobStore) -> None:
    publish(claimed(store, fresh=True), store, 1)
    claimed(store, fresh=True)
    last = claimed(store)
    publish(last, store, 2)
    last.remove([])
    assert story(store) == ["1c1", "2m1:1", "3c2", "4c3", "5m3:2"]
    last.remove([1])
    assert story(store) == ["4c3", "5m3:2"]


def test_numbers_and_attempts_go_on_after_everything_was_removed(store: BlobStore) -> None:
    history = claimed(store)
    publish(history, store, 1)
    history.remove([1])
    assert claimed(store).attempt == 2
    assert story(store) == ["1c1", "3c1", "4c2"]


def test_an_attempt_that_removed_all_its_checkpoints_can_still_be_fenced(store: BlobStore) -> None:
    """The highest entry is never removed, so the next claim takes the number that we would."""
    first = claimed(store)
    publish(first, store, 1)
    first.remove([1])
    second = claimed(store)
    with pytest.raises(Fenced):
        publish(first, store, 2)
    publish(second, store, 2)
    with pytest.raises(Fenced):
        first.remove([2])
    assert story(store) == ["1c1", "3c1", "4c2", "5m2:2"]


def test_removing_the_newest_checkpoint_is_refused_to_who_was_just_taken_over() -> None:
    inner = MemoryStore()
    store = WrappedStore(inner)
    first = claimed(store)
    files = publish(first, store, 1)

    def take_over(operation: str, path: str) -> None:
        if operation == "put_if_absent":
            store.before = lambda operation, path: None
            claimed(inner)

    store.before = take_over
    with pytest.raises(Fenced):
        first.remove([1])
    assert story(inner) == ["1c1", "2m1:1", "3c2"]
    assert data_files(inner) == sorted(f.path for f in files)


def test_without_any_checkpoint_all_claims_stay(store: BlobStore) -> None:
    claimed(store), claimed(store)
    claimed(store).remove([])
    assert story(store) == ["1c1", "2c2", "3c3"]


def test_with_a_damaged_entry_no_claim_below_or_above_it_goes() -> None:
    store = MemoryStore()
    publish(claimed(store), store, 1)
    store.delete([entry_path(2)])
    store.put(entry_path(2), b"damaged")
    claimed(store)
    last = claimed(store)
    last.remove([])
    assert story(store) == ["1c1", "2damaged", "3c3", "4c4"]


# --- discarding and sweeping ------------------------------------------------------------------


def test_discarded_files_are_gone(store: BlobStore) -> None:
    history = claimed(store)
    kept = publish(history, store, 1)
    history.discard(snapshot(store, 2, 1))
    assert data_files(store) == sorted(f.path for f in kept)


def test_sweeping_takes_what_older_attempts_left_and_nobody_names(store: BlobStore) -> None:
    first = claimed(store)
    published = publish(first, store, 1)
    snapshot(store, 2, 1)
    second = claimed(store)
    running = snapshot(store, 2, 2)
    future = snapshot(store, 2, 3)
    store.put("data/notes.txt", b"not ours")
    assert second.sweep(second.attempt) == 2
    assert data_files(store) == sorted([f.path for f in published + running + future] + ["data/notes.txt"])
    assert second.sweep(second.attempt) == 0


def test_with_a_damaged_entry_nothing_is_swept() -> None:
    store = MemoryStore()
    first = claimed(store)
    publish(first, store, 1)
    store.put(data_path(2, "u", "s", 0, 1), b"garbage")
    store.delete([entry_path(2)])
    store.put(entry_path(2), b"damaged")
    before = data_files(store)
    second = claimed(store)
    assert second.sweep(second.attempt) == 0
    assert data_files(store) == before
