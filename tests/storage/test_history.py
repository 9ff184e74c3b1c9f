"""One log decides who may write and what exists."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from storage_samples import JOB, claimed, manifest, publish, snapshot, story
from wrapped_stores import UnsureStore, WrappedStore

from moorline.errors import Fenced, InvalidTransition, StorageError
from moorline.model.manifest import Claim
from moorline.storage.blobs import BlobStore
from moorline.storage.history import History
from moorline.storage.layout import entry_path, head_of
from moorline.storage.segments import verify
from moorline.storage.stores.memory import MemoryStore

# --- claiming and publishing ------------------------------------------------------------------


def test_entries_are_numbered_as_they_are_written(store: BlobStore) -> None:
    history = claimed(store, fresh=True)
    publish(history, store, 1)
    publish(history, store, 2)
    assert story(store) == ["1c1", "2m1:1", "3m1:2"]
    assert history.read()[0].entry == Claim(JOB, 1, 1, True)


def test_what_was_published_is_what_is_read(store: BlobStore) -> None:
    history = claimed(store)
    files = snapshot(store, 1, 1)
    written = manifest(1, 1, files)
    history.publish(written)
    assert History(store, JOB).read()[1].entry == written
    for file in files:
        verify(store, file)


def test_a_second_claim_fences_the_first(store: BlobStore) -> None:
    first = claimed(store)
    publish(first, store, 1)
    second = claimed(store)
    with pytest.raises(Fenced) as fenced:
        publish(first, store, 2)
    assert (fenced.value.ours, fenced.value.theirs, fenced.value.location) == (1, 2, store.url)
    publish(second, store, 2)
    assert story(store) == ["1c1", "2m1:1", "3c2", "4m2:2"]


def test_a_leader_that_slept_before_its_claim_does_not_take_the_job_back(store: BlobStore) -> None:
    def leader(run: str, term: int) -> History:
        history = History(store, JOB)
        history.run, history.term = run, term
        return history

    slept, next_leader = leader("run", 3), leader("run", 7)
    assert next_leader.claim(fresh=True, now_ms=0) == 1
    with pytest.raises(Fenced):
        slept.claim(fresh=True, now_ms=0)
    publish(next_leader, store, 1)
    # A successor goes on, whatever it was told; a run of its own begins anew, whatever its number.
    leader("run", 8).claim(fresh=True, now_ms=0)
    leader("another", 1).claim(fresh=True, now_ms=0)
    claims = [r.entry for r in History(store, JOB).read() if isinstance(r.entry, Claim)]
    assert [(c.run, c.term, c.fresh) for c in claims] == [("run", 8, False), ("another", 1, True)]


def test_a_fenced_attempt_stays_fenced(store: BlobStore) -> None:
    first, second = claimed(store), claimed(store)
    for n in range(3):
        publish(second, store, n + 1)
        with pytest.raises(Fenced):
            publish(first, store, n + 10)
    assert story(store) == ["1c1", "2c2", "3m2:1", "4m2:2", "5m2:3"]


def test_the_same_driver_may_claim_again(store: BlobStore) -> None:
    history = claimed(store)
    publish(history, store, 1)
    assert history.claim(False, 2) == 2
    publish(history, store, 2)
    assert story(store) == ["1c1", "2m1:1", "3c2", "4m2:2"]


def test_nothing_is_written_without_a_claim_or_for_another_attempt(store: BlobStore) -> None:
    history = History(store, JOB)
    for order in (lambda: history.publish(manifest(1, 1)), lambda: history.remove([1]), lambda: history.sweep(1)):
        with pytest.raises(InvalidTransition):
            order()
    history.claim(True, 1)
    for wrong in (manifest(1, 2), manifest(1, 1, job="other")):
        with pytest.raises(InvalidTransition):
            history.publish(wrong)
    with pytest.raises(InvalidTransition):
        history.sweep(2)
    assert story(store) == ["1c1"]


def test_concurrent_claims_get_distinct_attempts_and_one_can_write(store: BlobStore) -> None:
    start = threading.Barrier(6)

    def claim(_: int) -> History:
        start.wait()
        return claimed(store)

    with ThreadPoolExecutor(6) as pool:
        histories = list(pool.map(claim, range(6)))
    attempts = [h.attempt for h in histories]
    assert len(set(attempts)) == 6
    could = []
    for history in sorted(histories, key=lambda h: h.attempt):
        try:
            publish(history, store, 1)
            could.append(history.attempt)
        except Fenced:
            pass
    assert could == [max(attempts)]


def test_racing_publishers_and_claimers_never_share_a_timeline(store: BlobStore) -> None:
    """Each manifest stands below every claim of a higher attempt: who took over has seen it."""
    start = threading.Barrier(4)

    def run(worker: int) -> None:
        start.wait()
        for n in range(4):
            history = claimed(store)
            try:
                for i in range(3):
                    history.publish(manifest(100 * worker + 10 * n + i, history.attempt))
            except Fenced:
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    attempts = [r.attempt for r in History(store, JOB).read()]
    assert attempts == sorted(attempts)


def test_a_damaged_claim_does_not_make_its_attempt_available_again() -> None:
    store = MemoryStore()
    first, second = claimed(store), claimed(store)
    store.delete([entry_path(2)])
    store.put(entry_path(2), b"damaged")
    third = claimed(store)
    assert third.attempt == 3
    for old in (first, second):
        with pytest.raises((Fenced, StorageError)):
            publish(old, store, 1)
    publish(third, store, 1)
    assert story(store) == ["1c1", "2damaged", "3c3", "4m3:1"]


def test_a_history_that_changes_while_it_is_read_is_read_again() -> None:
    inner = MemoryStore()
    first = claimed(inner)
    publish(first, inner, 1)
    publish(first, inner, 2)
    store = WrappedStore(inner)

    def go_on(operation: str, path: str) -> None:
        if operation == "get":
            store.before = lambda operation, path: None
            publish(first, inner, 3)

    store.before = go_on
    assert [r.seq for r in History(store, JOB).read()] == [1, 2, 3, 4]


# --- very late writers ------------------------------------------------------------------------


def test_a_zombie_whose_number_is_free_again_takes_its_entry_back(store: BlobStore) -> None:
    zombie = claimed(store)
    publish(zombie, store, 1)
    second = claimed(store)
    publish(second, store, 2)
    third = claimed(store)
    publish(third, store, 3, going=[1, 2])
    third.remove([1, 2])
    third.claim(False, 1)
    assert story(store) == ["5c3", "6m3:3", "7c4"]
    with pytest.raises(Fenced) as fenced:
        publish(zombie, store, 2)
    assert fenced.value.theirs == 4
    with pytest.raises(Fenced):
        publish(second, store, 4)
    assert story(store) == ["5c3", "6m3:3", "7c4"]
    assert len(store.list("history/")) == 3


@pytest.mark.parametrize("moment", [("put_if_absent", "head/"), ("list", "history/")])
def test_a_checkpoint_published_just_before_a_takeover_stands(moment: tuple[str, str]) -> None:
    """The new attempt may be restoring from it already, so the old one must not take it back."""
    inner = MemoryStore()
    store = WrappedStore(inner)
    first = claimed(store)
    taken_over = []

    def take_over(operation: str, path: str) -> None:
        # publish() moves the head right after its put, and then lists the history.
        if operation == moment[0] and path.startswith(moment[1]) and not taken_over:
            taken_over.append(claimed(inner))

    store.before = take_over
    publish(first, store, 1)
    assert story(inner) == ["1c1", "2m1:1", "3c2"]
    heads = [head_of(blob.path) for blob in inner.list("head/")]
    assert [head[0] for head in heads if head is not None] == [3], "the head is that of who took over"
    with pytest.raises(Fenced):
        publish(first, store, 2)


def test_a_claim_that_comes_far_too_late_is_made_again_at_the_end() -> None:
    """It looked, slept, and found its number free: used and removed in the meantime."""
    for meanwhile in ("a manifest stood there", "a claim stood there", "the history was empty"):
        inner = MemoryStore()
        store = WrappedStore(inner)
        running = claimed(inner) if meanwhile != "the history was empty" else None
        done = []

        def sleep(operation: str, path: str, meanwhile=meanwhile, running=running, done=done, inner=inner) -> None:
            if operation != "put_if_absent" or done:
                return
            done.append(True)
            if meanwhile == "a manifest stood there":
                publish(running, inner, 1)
                publish(running, inner, 2, going=[1])
                running.remove([1])
                assert story(inner) == ["1c1", "3m1:2"]
            else:
                claimed(inner)
                last = claimed(inner)
                publish(last, inner, 1)
                last.remove([])

        store.before = sleep
        before = History(store, JOB)
        before.claim(False, 1)
        told = story(inner)
        assert told[-1] == f"{int(told[-2].split('m')[0]) + 1}c{before.attempt}", meanwhile
        attempts = [r.attempt for r in History(inner, JOB).read()]
        assert attempts == sorted(attempts)
        publish(before, store, 9)


# --- unknown results --------------------------------------------------------------------------


def test_a_put_that_failed_after_it_took_effect_counts_as_published() -> None:
    inner = MemoryStore()
    store = UnsureStore(inner, "fine")
    history = claimed(store)
    store.how = "after"
    publish(history, store, 1)
    publish(history, store, 2)
    assert story(inner) == ["1c1", "2m1:1", "3m1:2"]


def test_a_put_that_failed_without_effect_is_an_error_and_may_be_tried_again() -> None:
    inner = MemoryStore()
    store = UnsureStore(inner, "fine")
    history = claimed(store)
    store.how = "before"
    with pytest.raises(StorageError, match="connection was reset"):
        publish(history, store, 1)
    assert story(inner) == ["1c1"]
    publish(history, store, 2)
    assert story(inner) == ["1c1", "2m1:2"]


def test_a_put_that_arrives_after_all_does_not_fence_its_own_writer() -> None:
    inner = MemoryStore()
    store = UnsureStore(inner, "fine")
    history = claimed(store)
    store.how = "late"
    with pytest.raises(StorageError):
        publish(history, store, 1)
    publish(history, store, 2)
    assert story(inner) == ["1c1", "2m1:1", "3m1:2"]


def test_a_put_that_failed_because_another_took_the_number_is_fenced() -> None:
    inner = MemoryStore()
    store = UnsureStore(inner, "fine")
    history = claimed(store)
    claimed(inner)
    store.how = "before"
    with pytest.raises(Fenced):
        publish(history, store, 1)


@pytest.mark.parametrize("how, attempts", [("after", ["1c1"]), ("fine", ["1c1"])])
def test_an_unsure_claim_is_looked_up(how: str, attempts: list[str]) -> None:
    inner = MemoryStore()
    claimed(UnsureStore(inner, how))
    assert story(inner) == attempts


def test_two_unsure_claimers_do_not_take_each_others_claim_for_their_own() -> None:
    inner = MemoryStore()
    one, other = claimed(UnsureStore(inner, "after")), claimed(UnsureStore(inner, "after"))
    assert (one.attempt, other.attempt) == (1, 2)


def test_a_driver_whose_first_claim_failed_takes_over_from_whoever_came_meanwhile() -> None:
    inner = MemoryStore()
    replaced = claimed(inner)
    store = UnsureStore(inner, "before")
    history = History(store, JOB)
    with pytest.raises(StorageError):
        history.claim(False, 1)
    replaced.claim(False, 2)
    store.how = "fine"
    assert history.claim(False, 3) == 3
    with pytest.raises(Fenced):
        replaced.claim(False, 4)


def test_a_first_claim_that_arrived_after_all_is_not_made_again_over_a_newer_one() -> None:
    inner = MemoryStore()
    store = UnsureStore(inner, "late")
    history = History(store, JOB)
    with pytest.raises(StorageError):
        history.claim(False, 1)
    assert store.late is not None
    inner.put_if_absent(*store.late)
    newer = claimed(inner)
    with pytest.raises(Fenced, match="from our attempt 0"):
        history.claim(False, 2)
    publish(newer, inner, 1)


def test_an_error_while_looking_back_does_not_lose_the_published_checkpoint() -> None:
    inner = MemoryStore()
    store = WrappedStore(inner)
    history = claimed(store)

    def fail(operation: str, path: str) -> None:
        if operation == "list":
            raise StorageError(path, "list", "503")

    store.before = fail
    with pytest.raises(StorageError):
        publish(history, store, 1)
    store.before = lambda operation, path: None
    publish(history, store, 2)
    assert story(inner) == ["1c1", "2m1:1", "3m1:2"]
