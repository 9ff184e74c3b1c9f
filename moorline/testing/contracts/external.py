"""One suite for every outside store that keeps state: yours too.

    class TestMyStore(ExternalStoreContract):
        @pytest.fixture
        def store(self):
            return MyStore(...)          # with nothing in it

It plays the parts of subtasks, of attempts that come back from the dead, and of a client that reads in the store while
the job is running. Needs pytest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from moorline.api.state.external import NOT_YET, Change, ExternalStore, Mark, Owner, Place, StoreSession, TakeOver
from moorline.errors import ExternalStateBehind, ExternalStateTaken, MoorlineError
from moorline.model.wire import user_code
from moorline.testing.contracts.external_runs import ExternalRun

JOB, UID, GROUPS = "contract", "op", 16


def owner(attempt: int = 1, first: int = 0, end: int = GROUPS, job: str = JOB, uid: str = UID) -> Owner:
    """A subtask."""
    return Owner(job, uid, attempt, first, end, f"{job} {uid} {attempt} {first}")


def mark_of(whose: Owner, reached: int = 0, *, types: tuple[tuple[str, str], ...] = ()) -> Mark:
    """Its mark."""
    return Mark(whose.attempt, whose.first, whose.end, whose.token, max(reached, 0), reached, types)


def change(key: bytes, content: bytes | None, group: int = 0, state: str = "s") -> Change:
    """One document is replaced, or removed."""
    return Change(Place(state, group, key), content, repr(key)[:100], None if content is None else '{"a": [1, null]}')


class JustLooking(MoorlineError):
    """Nothing is to be taken over."""


class ExternalStoreContract:
    """Subclass it in a test module; override the fixture ``store``."""

    @pytest.fixture
    def store(self) -> ExternalStore:
        """A store with nothing in it."""
        raise NotImplementedError("override the fixture `store`")

    # --- what the suite stands on ---

    @contextmanager
    def session(self, store: ExternalStore, whose: Owner, decision: TakeOver | None = None) -> Iterator[StoreSession]:
        """A subtask's session, made as in a worker: from a copy of the store that was sent there."""
        sent: ExternalStore = user_code.loads(user_code.dumps(store))
        session = sent.open(whose)
        try:
            session.take_over(lambda marks: decision or TakeOver(mark_of(whose)))
            yield session
        finally:
            session.close()

    def documents(self, store: ExternalStore, state: str = "s", job: str = JOB, uid: str = UID) -> dict[bytes, bytes]:
        """The documents that a client sees who reads in the store."""
        session = store.open(owner(0, job=job, uid=uid))
        try:
            stored = [document for page in session.scan(state) for document in page]
        finally:
            session.close()
        assert len({d.place for d in stored}) == len(stored)
        return {d.place.key: d.content for d in stored}

    def marks(self, store: ExternalStore) -> list[Mark]:
        """The marks that a subtask sees when it takes over."""
        seen: list[Mark] = []

        def look(marks: Sequence[Mark]) -> TakeOver:
            seen[:] = marks
            raise JustLooking

        session = store.open(owner(99))
        try:
            with pytest.raises(JustLooking):
                session.take_over(look)
        finally:
            session.close()
        return sorted(seen, key=lambda m: (m.attempt, m.first))

    # --- configuration ---

    def test_it_is_configuration_that_can_be_sent_and_compared(self, store: ExternalStore) -> None:
        sent = user_code.loads(user_code.dumps(store))
        assert sent == store
        assert hash(sent) == hash(store)
        assert store.label
        assert store.where

    # --- documents ---

    def test_what_is_applied_is_read(self, store: ExternalStore) -> None:
        with self.session(store, owner()) as session:
            session.apply(1, [change(b"a", b"1"), change(b"b", b"2", 3), change(b"a", b"3", state="other")])
            wanted = [Place("s", 0, b"a"), Place("s", 3, b"b"), Place("other", 0, b"a"), Place("s", 0, b"none")]
            assert {d.place: d.content for d in session.read(wanted)} == dict(zip(wanted, [b"1", b"2", b"3"]))
            assert session.read([]) == []
            assert session.count(100) == 3
        assert self.documents(store) == {b"a": b"1", b"b": b"2"}

    def test_documents_are_replaced_and_removed(self, store: ExternalStore) -> None:
        with self.session(store, owner()) as session:
            session.apply(1, [change(b"a", b"1"), change(b"b", b"2")])
            session.apply(2, [change(b"a", None), change(b"b", b"3"), change(b"never", None)])
            assert self.documents(store) == {b"b": b"3"}
            session.apply(3, [change(b"a", b"4"), change(b"b", None)])
            assert self.documents(store) == {b"a": b"4"}

    @pytest.mark.parametrize(
        "key", [b"", b"\0", b"s\xff\xfe", b"x" * 10_000, bytes(range(256)), b"'; DROP TABLE x; --"], ids=len
    )
    def test_any_bytes_are_a_key(self, store: ExternalStore, key: bytes) -> None:
        with self.session(store, owner()) as session:
            session.apply(1, [change(key, b"\0\xff"), change(key + b"y", b"")])
            places = [Place("s", 0, key), Place("s", 0, key + b"y")]
            assert {d.place: d.content for d in session.read(places)} == {places[0]: b"\0\xff", places[1]: b""}
            assert self.documents(store) == {key: b"\0\xff", key + b"y": b""}
            session.apply(2, [change(key, None)])
            assert self.documents(store) == {key + b"y": b""}

    def test_odd_names_are_kept_apart(self, store: ExternalStore) -> None:
        names = ["op", "op:s", "o'p", 'o"p', "{op}", "größe", "op%s", "*"]
        for uid in names:
            with self.session(store, owner(uid=uid)) as session:
                session.apply(1, [change(b"k", uid.encode(), state=state) for state in ("s", "s:0", "{s}", "s*")])
        for uid in names:
            for state in ("s", "s:0", "{s}", "s*"):
                assert self.documents(store, state, uid=uid) == {b"k": uid.encode()}

    def test_large_documents_and_many_of_them(self, store: ExternalStore) -> None:
        with self.session(store, owner()) as session:
            many = [change(b"k%d" % n, b"%d" % n, n % GROUPS) for n in range(6_001)]
            session.apply(1, [*many, change(b"large", bytes(5 << 20))])
            assert len(self.documents(store)) == 6_002
            documents = session.read([c.place for c in many] + [Place("s", 0, b"large")])
            assert len(documents) == 6_002
            assert session.count(100_000) == 6_002
            session.apply(2, [change(c.place.key, None, c.place.key_group) for c in many])
            assert list(self.documents(store)) == [b"large"]

    def test_a_subtask_sees_and_counts_its_own_key_groups(self, store: ExternalStore) -> None:
        with self.session(store, owner(1, 0, 8)) as low, self.session(store, owner(1, 8, 16)) as high:
            low.apply(1, [change(b"a", b"1", 7)])
            high.apply(1, [change(b"b", b"2", 8), change(b"c", b"3", 15)])
            assert (low.count(100), high.count(100)) == (1, 2)
            assert [d.place.key for page in low.scan("s") for d in page] == [b"a"]
            assert sorted(d.place.key for page in high.scan("s") for d in page) == [b"b", b"c"]
            assert low.read([Place("s", 7, b"a")])[0].content == b"1"

    # --- marks ---

    def test_marks_come_back_as_they_were_set(self, store: ExternalStore) -> None:
        assert self.marks(store) == []
        types = (("s", "value of int"), ("größe", "map of str to Basket(owner: str)"))
        first, second = owner(3, 0, 8), owner(3, 8, 16)
        fresh, restored = mark_of(first, types=types), Mark(3, 8, 16, second.token, 7, NOT_YET, types)
        with (
            self.session(store, first, TakeOver(fresh)) as lower,
            self.session(store, second, TakeOver(restored)) as other,
        ):
            assert self.marks(store) == [fresh, restored]
            lower.apply(8, [change(b"a", b"1")])
            other.apply(7, [])
            assert self.marks(store) == [fresh.at(8), restored.at(7)]

    def test_marks_are_dropped_with_the_decision(self, store: ExternalStore) -> None:
        with self.session(store, owner(1)) as old:
            old.apply(4, [change(b"a", b"1")])
        (before,) = self.marks(store)
        with self.session(store, owner(2), TakeOver(mark_of(owner(2), 4), (before,))):
            assert self.marks(store) == [mark_of(owner(2), 4)]

    def test_a_decision_that_raises_changes_nothing(self, store: ExternalStore) -> None:
        with self.session(store, owner(1)) as session:
            session.apply(4, [change(b"a", b"1")])
            before = self.marks(store)
            assert self.marks(store) == before
            session.apply(5, [change(b"a", b"2")])
        assert self.documents(store) == {b"a": b"2"}

    def test_clearing_is_for_the_own_key_groups_and_the_named_states(self, store: ExternalStore) -> None:
        with self.session(store, owner(1)) as old:
            states = ("s", "kept")
            old.apply(1, [change(b"%d" % g, b"1", g, state) for g in range(GROUPS) for state in states])
        with self.session(store, owner(2, 4, 8), TakeOver(mark_of(owner(2, 4, 8)), clear=("s",))):
            assert set(self.documents(store)) == {b"%d" % g for g in range(GROUPS) if not 4 <= g < 8}
            assert len(self.documents(store, "kept")) == GROUPS

    def test_forgetting_a_job_or_an_operator_leaves_the_others(self, store: ExternalStore) -> None:
        for job, uid in (("contract", "op"), ("contract", "op2"), ("other", "op")):
            with self.session(store, owner(job=job, uid=uid)) as session:
                session.apply(1, [change(b"a", b"1")])
        store.forget("contract", "op")
        assert self.documents(store) == {}
        assert self.marks(store) == []
        assert self.documents(store, uid="op2") == {b"a": b"1"}
        store.forget("contract")
        store.forget("nobody")
        assert self.documents(store, uid="op2") == {}
        assert self.documents(store, job="other") == {b"a": b"1"}

    # --- exactly once ---

    def test_applying_again_is_harmless(self, store: ExternalStore) -> None:
        with self.session(store, owner()) as session:
            for _ in range(3):
                session.apply(5, [change(b"a", b"1")])
            session.apply(6, [change(b"a", b"2"), change(b"b", b"2")])
            session.apply(7, [change(b"b", None)])
            assert self.documents(store) == {b"a": b"2"}

    def test_an_older_checkpoint_that_comes_late_changes_nothing(self, store: ExternalStore) -> None:
        with self.session(store, owner()) as session:
            session.apply(7, [change(b"a", b"7")])
            session.apply(5, [change(b"a", b"5"), change(b"b", b"5")])
            assert self.documents(store) == {b"a": b"7"}
            assert self.marks(store)[0].reached == 7

    def test_an_attempt_that_was_taken_over_writes_nothing(self, store: ExternalStore) -> None:
        with self.session(store, owner(1)) as old:
            old.apply(1, [change(b"a", b"1"), change(b"b", b"1")])
            with self.session(store, owner(2), TakeOver(mark_of(owner(2), 1))) as new:
                new.apply(2, [change(b"b", None)])
                for checkpoint in (2, 3):
                    with pytest.raises(ExternalStateTaken) as caught:
                        old.apply(checkpoint, [change(b"b", b"zombie"), change(b"c", b"zombie")])
                    assert (caught.value.ours, caught.value.theirs) == (1, 2)
                assert self.documents(store) == {b"a": b"1"}

    def test_a_takeover_of_some_key_groups_fences_the_whole_attempt(self, store: ExternalStore) -> None:
        with (
            self.session(store, owner(1)) as old,
            self.session(store, owner(2, 8, 16)),
            pytest.raises(ExternalStateTaken),
        ):
            old.apply(1, [change(b"a", b"zombie", 0)])

    def test_a_namesake_with_the_same_number_is_fenced_too(self, store: ExternalStore) -> None:
        """Without checkpoints every run is attempt 1."""
        with self.session(store, owner(1)) as old:
            twin = Owner(JOB, UID, 1, 0, GROUPS, "another token")
            with self.session(store, twin, TakeOver(mark_of(twin))), pytest.raises(ExternalStateTaken):
                old.apply(1, [change(b"a", b"zombie")])
        assert self.documents(store) == {}

    def test_a_store_that_has_lost_its_data_is_noticed(self, store: ExternalStore) -> None:
        with self.session(store, owner(1)) as session:
            session.apply(3, [change(b"a", b"1")])
            store.forget(JOB)
            with pytest.raises(ExternalStateBehind) as caught:
                session.apply(4, [change(b"a", b"2")])
            assert (caught.value.needed, caught.value.reached) == (3, 0)
            assert self.documents(store) == {}

    def test_subtasks_that_start_together_do_not_disturb_each_other(self, store: ExternalStore) -> None:
        ready = threading.Barrier(8)

        def subtask(first: int) -> None:
            ready.wait()
            with self.session(store, owner(1, first, first + 2)) as session:
                for checkpoint in range(1, 6):
                    session.apply(checkpoint, [change(b"%d" % first, b"%d" % checkpoint, first)])

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(subtask, first) for first in range(0, GROUPS, 2)]:
                done.result()
        assert self.documents(store) == {b"%d" % first: b"5" for first in range(0, GROUPS, 2)}
        assert [m.reached for m in self.marks(store)] == [5] * 8

    def test_after_a_takeover_at_any_moment_nothing_of_the_old_attempt_follows(self, store: ExternalStore) -> None:
        """The old attempt writes as fast as it can while the new one takes over."""
        written, started = [], threading.Event()

        def zombie() -> None:
            with self.session(store, owner(1)) as session:
                started.set()
                for checkpoint in range(1, 10_000):
                    session.apply(checkpoint, [change(b"a", b"%d" % checkpoint), change(b"b", b"%d" % checkpoint, 9)])
                    written.append(checkpoint)

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(zombie)
            started.wait(10)
            while len(written) < 20:
                assert not done.done(), done.exception()
            with self.session(store, owner(2), TakeOver(mark_of(owner(2), 0))):
                before = self.documents(store)
                with pytest.raises(ExternalStateTaken):
                    done.result(30)
                assert self.documents(store) == before
                assert before[b"a"] == before[b"b"]

    # --- whole runs ---

    @pytest.mark.parametrize("seed", range(4))
    def test_each_record_counts_once_whatever_crashes(self, store: ExternalStore, seed: int) -> None:
        run = ExternalRun(store, seed)
        run.play(60)
        run.finish()
