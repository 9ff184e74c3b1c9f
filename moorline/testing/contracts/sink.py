"""One suite for every sink that promises exactly once: yours too.

    class TestMySink(SinkContract):
        @pytest.fixture
        def sink(self, tmp_path):
            return MySink(tmp_path)

        @pytest.fixture
        def visible(self, tmp_path):
            return lambda: [...]          # the records an outsider can read now, in any order

If the sink cannot take back what it has committed, set ``can_roll_back = False``; if it does not write dicts,
override :meth:`SinkContract.record`. The suite plays the part of the subtask and of the driver, crashes included,
and looks at nothing but what is visible.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from moorline.api.sinks import CommitterContext, DeliveryGuarantee, Sink, SinkCommitter, SinkContext, SinkWriter
from moorline.model.wire import user_code
from moorline.state.types import plain

Visible = Callable[[], list[Any]]
#: A committable, with the lineage and the checkpoint that it was staged for.
Staged = tuple[str, int, Any]

JOB, UID, LINEAGE = "contract", "out", "5f1e" * 8


class SinkContract:
    """Subclass it in a test module; override the fixtures ``sink`` and ``visible``."""

    #: Can the sink undo commits of checkpoints that turned out to be damaged?
    can_roll_back = True
    #: Seeds of the test with crashes. A sink whose commits take long may try fewer.
    crash_seeds = 20

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """The seeds, as many as the sink wants."""
        if "seed" in metafunc.fixturenames:
            metafunc.parametrize("seed", range(metafunc.cls.crash_seeds))

    @pytest.fixture
    def sink(self) -> Sink:
        """A new sink with nothing in it."""
        raise NotImplementedError("override the fixture `sink`")

    @pytest.fixture
    def visible(self) -> Visible:
        """A function that returns all records an outsider can read now."""
        raise NotImplementedError("override the fixture `visible`")

    def record(self, number: int) -> Any:
        """A record that the sink can write, another one for each number."""
        return {"number": number, "text": f"record {number}"}

    # --- what the suite stands on ---

    def records(self, first: int, end: int) -> list[Any]:
        """The records with the numbers ``[first, end)``."""
        return [self.record(number) for number in range(first, end)]

    def open(self, sink: Sink, subtask: int = 0, attempt: int = 1, parallelism: int = 2, **names: str) -> SinkWriter:
        """A writer, made as in a worker: from a copy of the sink that was sent there."""
        job, uid, lineage = names.get("job", JOB), names.get("uid", UID), names.get("lineage", LINEAGE)
        return self.sent(sink).open(SinkContext(job, uid, subtask, parallelism, attempt, lineage=lineage))

    def prepare(self, writer: SinkWriter, checkpoint: int, lineage: str = LINEAGE) -> list[Staged]:
        """The committables that a writer stages for a checkpoint."""
        return [(lineage, checkpoint, committable) for committable in writer.prepare(checkpoint)]

    def commit(self, sink: Sink, staged: list[Staged], uid: str = UID) -> None:
        """Commit, in the worker or on the driver, whichever the sink wants."""
        if not sink.commits_on_driver:
            self.committer(sink, uid).commit([committable for _, _, committable in staged])
            return
        committer = sink.open_committer(CommitterContext(JOB, uid, 1, LINEAGE))
        batches: dict[tuple[int, str], list[Any]] = {}
        for lineage, checkpoint, committable in staged:
            batches.setdefault((checkpoint, lineage), []).append(committable)
        for (checkpoint, lineage), committables in sorted(batches.items(), key=lambda item: item[0]):
            committer.commit(lineage, checkpoint, committables)
        committer.close()

    @pytest.fixture(autouse=True)
    def committers(self) -> Iterator[None]:
        """The committers of workers, which live as long as the attempt does; they end with the test."""
        yield
        for _, committer in self._open_committers().values():
            committer.close()

    def committer(self, sink: Sink, uid: str = UID) -> SinkCommitter:
        """The committer that a worker has for a sink."""
        key, committers = (id(sink), uid), self._open_committers()
        if key not in committers:
            # With the sink, so that no other gets its place in memory.
            committers[key] = sink, sink.open_subtask_committer(SinkContext(JOB, uid, 0, 2, 1, lineage=LINEAGE))
        return committers[key][1]

    def _open_committers(self) -> dict[tuple[int, str], tuple[Sink, SinkCommitter]]:
        found: dict[tuple[int, str], tuple[Sink, SinkCommitter]] = self.__dict__.setdefault("_committers", {})
        return found

    def sent(self, sink: Sink) -> Sink:
        """The sink as another process has it."""
        copy: Sink = user_code.loads(user_code.dumps(sink))
        return copy

    def through_a_snapshot(self, staged: list[Staged]) -> list[Staged]:
        """Committables as they come back from a snapshot."""
        return [(lineage, n, plain.decode(plain.encode(committable))) for lineage, n, committable in staged]

    def assert_visible(self, visible: Visible, expected: list[Any]) -> None:
        """Exactly these records are visible, in any order."""
        assert sorted(map(repr, visible())) == sorted(map(repr, expected))

    # --- the promises ---

    def test_it_promises_exactly_once(self, sink: Sink) -> None:
        assert sink.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def test_nothing_is_visible_before_the_commit(self, sink: Sink, visible: Visible) -> None:
        writer = self.open(sink)
        writer.write(self.records(0, 100))
        self.assert_visible(visible, [])
        self.prepare(writer, 1)
        self.assert_visible(visible, [])
        writer.close()
        self.assert_visible(visible, [])

    def test_committed_records_are_visible(self, sink: Sink, visible: Visible) -> None:
        writer = self.open(sink)
        writer.write(self.records(0, 60))
        writer.write(self.records(60, 100))
        self.commit(sink, self.through_a_snapshot(self.prepare(writer, 1)))
        self.assert_visible(visible, self.records(0, 100))

    def test_a_commit_covers_only_what_was_prepared(self, sink: Sink, visible: Visible) -> None:
        writer = self.open(sink)
        writer.write(self.records(0, 10))
        prepared = self.prepare(writer, 1)
        writer.write(self.records(10, 20))
        self.commit(sink, prepared)
        self.assert_visible(visible, self.records(0, 10))
        self.commit(sink, self.prepare(writer, 2))
        self.assert_visible(visible, self.records(0, 20))

    def test_a_commit_can_cover_several_checkpoints_and_subtasks(self, sink: Sink, visible: Visible) -> None:
        prepared = list[Staged]()
        for subtask in range(2):
            writer = self.open(sink, subtask)
            for checkpoint in (1, 2, 3):
                first = (subtask * 3 + checkpoint) * 10
                writer.write(self.records(first, first + 10))
                prepared += self.prepare(writer, checkpoint)
            writer.close()
        self.commit(sink, prepared)
        self.assert_visible(visible, self.records(10, 70))

    def test_a_checkpoint_without_records_is_harmless(self, sink: Sink, visible: Visible) -> None:
        writer = self.open(sink)
        writer.write([])
        self.commit(sink, self.prepare(writer, 1))
        self.commit(sink, self.prepare(writer, 2))
        self.commit(sink, [])
        self.assert_visible(visible, [])

    def test_committing_twice_is_harmless(self, sink: Sink, visible: Visible) -> None:
        writer = self.open(sink)
        writer.write(self.records(0, 10))
        prepared = self.prepare(writer, 1)
        for _ in range(3):
            self.commit(self.sent(sink), self.through_a_snapshot(prepared))
        writer.write(self.records(10, 20))
        self.commit(sink, prepared + self.prepare(writer, 2))
        self.assert_visible(visible, self.records(0, 20))

    def test_attempts_that_commit_the_same_at_the_same_time_do_no_harm(self, sink: Sink, visible: Visible) -> None:
        writer = self.open(sink)
        prepared = list[Staged]()
        for checkpoint in range(1, 9):
            writer.write(self.records(checkpoint * 10, checkpoint * 10 + 10))
            prepared += self.prepare(writer, checkpoint)
        with ThreadPoolExecutor(4) as attempts:
            for done in [attempts.submit(self.commit, self.sent(sink), list(prepared)) for _ in range(4)]:
                done.result()
        self.assert_visible(visible, self.records(10, 90))

    def test_what_was_not_prepared_is_given_up(self, sink: Sink, visible: Visible) -> None:
        writer = self.open(sink)
        writer.write(self.records(0, 10))
        writer.close()
        again = self.open(sink, attempt=2)
        again.write(self.records(0, 10))
        self.commit(sink, self.prepare(again, 1))
        self.assert_visible(visible, self.records(0, 10))

    def test_a_half_dead_attempt_does_not_disturb_the_new_one(self, sink: Sink, visible: Visible) -> None:
        old, new = self.open(sink, attempt=1), self.open(sink, attempt=2)
        old.write(self.records(0, 10))
        new.write(self.records(0, 10))
        self.prepare(old, 1)
        prepared = self.prepare(new, 1)
        old.close()
        self.commit(sink, prepared)
        self.assert_visible(visible, self.records(0, 10))

    def test_rolling_back_takes_back_newer_checkpoints(self, sink: Sink, visible: Visible) -> None:
        if not self.can_roll_back:
            pytest.skip("this sink cannot take back what it has committed")
        writer, other = self.open(sink), self.open(sink, uid="out-2")
        prepared = {}
        for checkpoint in (1, 2, 3):
            writer.write(self.records(checkpoint * 10, checkpoint * 10 + 10))
            prepared[checkpoint] = self.prepare(writer, checkpoint)
            self.commit(sink, prepared[checkpoint])
        other.write(self.records(90, 95))
        self.commit(sink, self.prepare(other, 3), "out-2")
        sink.roll_back(JOB, UID, 1)
        self.assert_visible(visible, self.records(10, 20) + self.records(90, 95))
        sink.roll_back(JOB, UID, 1)
        self.commit(sink, prepared[1])
        self.assert_visible(visible, self.records(10, 20) + self.records(90, 95))

    def test_rolling_back_leaves_what_an_earlier_job_of_the_same_name_has_written(
        self, sink: Sink, visible: Visible
    ) -> None:
        if not self.can_roll_back:
            pytest.skip("this sink cannot take back what it has committed")
        earlier, ours = "a1" * 16, "b2" * 16
        for first, lineage in ((0, earlier), (10, ours)):
            writer = self.open(sink, lineage=lineage)
            writer.write(self.records(first, first + 10))
            self.commit(sink, self.prepare(writer, 2, lineage))
        self.sent(sink).roll_back(JOB, UID, 1, (ours[:16],))
        self.assert_visible(visible, self.records(0, 10))
        self.sent(sink).roll_back(JOB, UID, 1)
        self.assert_visible(visible, [])

    def test_nothing_is_lost_by_the_roll_back_before_a_restore(self, sink: Sink, visible: Visible) -> None:
        """Every restore begins with one, and mostly there is nothing to undo.

        What was staged for the restored checkpoint is committed after it; and the number of a checkpoint that was
        staged and never published is used again.
        """
        writer = self.open(sink)
        writer.write(self.records(0, 10))
        self.commit(sink, self.prepare(writer, 1))
        writer.write(self.records(10, 20))
        promised = self.through_a_snapshot(self.prepare(writer, 2))
        writer.write(self.records(20, 30))
        self.prepare(writer, 3)  # never published
        self.sent(sink).roll_back(JOB, UID, 2)
        self.commit(sink, promised)
        again = self.open(sink, attempt=2)
        again.write(self.records(20, 40))
        self.commit(sink, self.prepare(again, 3))
        self.assert_visible(visible, self.records(0, 40))
        self.sent(sink).roll_back(JOB, UID, 3)
        self.assert_visible(visible, self.records(0, 40))

    def test_a_job_that_begins_anew_commits_under_the_same_numbers(self, sink: Sink, visible: Visible) -> None:
        """Its name, its operators and its checkpoints are called the same; only the lineage differs."""
        if not sink.commits_on_driver:
            pytest.skip("committables tell the commits of workers apart")
        for first, lineage in ((0, "a1" * 16), (10, "b2" * 16), (20, "c3" * 16)):
            writer = self.open(sink, lineage=lineage)
            writer.write(self.records(first, first + 10))
            self.commit(sink, self.prepare(writer, 1, lineage))
        self.assert_visible(visible, self.records(0, 30))

    def test_cleaning_up_keeps_what_was_committed(self, sink: Sink, visible: Visible) -> None:
        writer = self.open(sink)
        writer.write(self.records(0, 10))
        self.commit(sink, self.prepare(writer, 1))
        writer.write(self.records(10, 20))
        self.prepare(writer, 2)
        writer.write(self.records(20, 30))
        writer.close()
        sink.clean_up(JOB, UID)
        sink.clean_up(JOB, UID)
        self.assert_visible(visible, self.records(0, 10))

    def test_each_record_comes_out_once_whatever_crashes(self, sink: Sink, visible: Visible, seed: int) -> None:
        """A job of two subtasks with lost commits, failed checkpoints, crashes and zombies."""
        chance = random.Random(seed)
        attempt, checkpoint, zombies = 1, 0, []
        #: How far the source was, and the committables, of the last complete checkpoint.
        complete, promised = 0, list[Staged]()
        position = 0
        writers = [self.open(sink, subtask) for subtask in range(2)]
        pending = list[Staged]()
        for _ in range(40):
            step = chance.random()
            if step < 0.5:
                end = position + chance.randrange(1, 6)
                writers[chance.randrange(2)].write(self.records(position, end))
                position = end
            elif step < 0.8:
                checkpoint += 1
                pending += [c for writer in writers for c in self.prepare(writer, checkpoint)]
                if chance.random() < 0.8:  # otherwise it fails elsewhere, and the next one covers its files
                    complete, promised = position, self.through_a_snapshot(pending)
                    if chance.random() < 0.7:  # otherwise the notification is lost
                        self.commit(sink, pending)
                        pending = []
            else:
                zombies.append(writers)
                attempt += 1
                sink = self.sent(sink)
                self.commit(sink, promised)
                writers, pending, position = [self.open(sink, s, attempt) for s in range(2)], [], complete
                if chance.random() < 0.5:
                    for writer in zombies.pop():
                        writer.close()
                    self.commit(self.sent(sink), promised)
        checkpoint += 1
        pending += [c for writer in writers for c in self.prepare(writer, checkpoint)]
        self.commit(sink, pending)
        self.assert_visible(visible, self.records(0, position))
        sink.clean_up(JOB, UID)
        self.assert_visible(visible, self.records(0, position))
