"""What may go from a history, in which order, and what must stay."""

from __future__ import annotations

import pytest
from storage_samples import JOB, claimed, data_files, manifest, publish, snapshot, story
from wrapped_stores import Crash, WrappedStore, crash_at

from moorline import failpoints
from moorline.errors import Fenced
from moorline.model.manifest import Manifest
from moorline.storage import entries
from moorline.storage.blobs import BlobStore
from moorline.storage.history import History
from moorline.storage.layout import HISTORY, data_path, entry_path, number_of
from moorline.storage.segments import verify
from moorline.storage.stores.memory import MemoryStore

# --- removing ---------------------------------------------------------------------------------


def test_removing_takes_the_entry_and_its_files_and_nothing_else(store: BlobStore) -> None:
    history = claimed(store)
    files = {n: publish(history, store, n, going=[n - 1]) for n in (1, 2, 3)}
    history.remove([1, 2, 99])
    assert story(store) == ["1c1", "4m1:3"]
    assert data_files(store) == sorted(f.path for f in files[3])
    history.remove([3])
    assert story(store) == ["1c1", "5c1"] and data_files(store) == []


def test_what_goes_is_named_by_an_entry_before_it_is_gone(store: BlobStore) -> None:
    history = claimed(store)
    for n in (1, 2, 3):
        publish(history, store, n)
    history.remove([1])
    assert story(store) == ["1c1", "3m1:2", "4m1:3", "5c1"]
    assert not [r.damage for r in History(store, JOB).read() if r.damage]


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
    kept = publish(history, store, 3, going=[1, 2])
    store.before = crash_at(step)
    crashed = False
    try:
        history.remove([1, 2])
    except Crash:
        crashed = True
    # 2 checkpoints of an entry and 2 files each.
    assert crashed == (step < 6)
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


def test_claims_that_say_nothing_any_more_go_with_the_next_claim(store: BlobStore) -> None:
    first = claimed(store, fresh=True)
    publish(first, store, 1)
    publish(claimed(store), store, 2)
    third = claimed(store)
    # Where the lineage begins, the newest, and the one before it.
    assert story(store) == ["1c1", "2m1:1", "3c2", "4m2:2", "5c3"]
    publish(third, store, 3, going=[1, 2])
    third.remove([1, 2])
    assert story(store) == ["1c1", "3c2", "5c3", "6m3:3"]
    fourth = claimed(store)
    assert story(store) == ["1c1", "5c3", "6m3:3", "7c4"]
    assert fourth.attempt == 4


def test_a_job_that_fails_before_its_first_checkpoint_leaves_no_claim_per_start(store: BlobStore) -> None:
    for _ in range(20):
        claimed(store, fresh=True).end("failed", 1)
    assert len(story(store)) <= 4
    history = claimed(store)
    assert history.attempt == 21
    for _ in range(20):
        history.claim(False, 1)
    assert story(store)[-2:] == ["60c40", "61c41"] and len(story(store)) <= 4
    assert not [r.damage for r in History(store, JOB).read() if r.damage]


def test_a_job_that_fails_again_and_again_after_a_checkpoint_leaves_no_claim_per_start(store: BlobStore) -> None:
    publish(claimed(store, fresh=True), store, 1)
    for _ in range(20):
        claimed(store)
    assert story(store) == ["1c1", "2m1:1", "21c20", "22c21"]


@pytest.mark.parametrize("step", range(3))
def test_a_crash_while_removing_claims_is_no_loss(step: int) -> None:
    inner = MemoryStore()
    for _ in range(3):
        claimed(inner)
    store = WrappedStore(inner)
    # The claim, the head, the old head, then what goes.
    store.before = crash_at(3 + step)
    try:
        claimed(store)
    except Crash:
        assert step < 1
    assert not [r.damage for r in History(inner, JOB).read() if r.damage]
    assert claimed(inner).attempt == 5
    assert story(inner) == ["4c4", "5c5"]


def test_a_fresh_claim_stays_while_there_is_a_checkpoint_for_it_to_hide(store: BlobStore) -> None:
    publish(claimed(store, fresh=True), store, 1)
    claimed(store, fresh=True)
    for _ in range(3):
        last = claimed(store)
    publish(last, store, 2)
    last.remove([])
    assert "3c2" in story(store)
    earlier = claimed(store, fresh=True)
    publish(earlier, store, 3)
    claimed(store, fresh=True), claimed(store)
    assert story(store)[:2] == ["2m1:1", "3c2"], "it separates two earlier lineages"


def test_numbers_and_attempts_go_on_after_everything_was_removed(store: BlobStore) -> None:
    history = claimed(store)
    publish(history, store, 1)
    history.remove([1])
    assert claimed(store).attempt == 2
    assert story(store) == ["3c1", "4c2"]


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
    assert story(store) == ["3c1", "4c2", "5m2:2"]


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


def test_what_a_very_late_writer_leaves_behind_is_nobodys(store: BlobStore) -> None:
    """It died before it could take its entry back, and there is no checkpoint that would be newer."""
    zombie = claimed(store)
    for _ in range(3):
        last = claimed(store)
    assert story(store) == ["3c3", "4c4"]
    files = snapshot(store, 1, 1)
    number, data = 2, entries.encode(manifest(1, 1, files), zombie.writer, "", entries.Place(2))
    store.put(entry_path(number), data)
    assert story(store) == ["3c3", "4c4"]
    assert [r.seq for r in last.look().strays] == [2]
    last.remove([])
    last.sweep(4)
    assert store.list("history/") == [b for b in store.list("history/") if number_of(HISTORY, b.path) in (3, 4)]
    assert data_files(store) == []


def test_a_damaged_entry_goes_with_a_checkpoint_that_is_newer() -> None:
    store = MemoryStore()
    first = claimed(store)
    for n in (1, 2):
        publish(first, store, n)
    store.delete([entry_path(2)])
    store.put(entry_path(2), b"damaged")
    last = claimed(store)
    last.remove([])
    assert story(store) == ["1c1", "2damaged", "3m1:2", "4c4"]
    publish(last, store, 3, going=[2])
    last.remove([2])
    assert story(store) == ["1c1", "4c4", "5m4:3"]


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
