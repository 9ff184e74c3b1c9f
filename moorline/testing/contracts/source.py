"""One suite for every source: yours too.

    class TestMySource(SourceContract):
        @pytest.fixture
        def source(self, server):
            return MySource(server)

        @pytest.fixture
        def expected(self, server):
            return [...]                  # all records that it has, in any order

The suite plays the part of the subtasks and of the driver: it reads, takes snapshots, crashes, and goes on at another
parallelism. A source that does not end is read until it has returned as many records as are expected, and a little
further, to see whether it returns one twice.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from moorline.api.sources import EnumeratorContext, Source, SourceContext, SourceReader, SplitEnumerator, owner_of
from moorline.model.wire import user_code
from moorline.state.types import plain

JOB, UID = "contract", "source"
#: Records that a reader is asked for at a time.
LIMIT = 7


class Snapshot:
    """The state of a source: the positions of its splits, what its enumerator knows, and how often it was taken."""

    def __init__(self, positions: dict[Any, Any], enumerated: Any = None) -> None:
        # As they come back from a file.
        self.positions = {split: plain.decode(plain.encode(position)) for split, position in positions.items()}
        self.enumerated = plain.decode(plain.encode(enumerated))


class RunningSource:
    """All readers of a source, and its enumerator, at one parallelism."""

    def __init__(self, source: Source, parallelism: int, attempt: int, snapshot: Snapshot) -> None:
        self.source: Source = user_code.loads(user_code.dumps(source))
        self.parallelism = parallelism
        self.enumerated = snapshot.enumerated
        self.enumerator: SplitEnumerator | None = None
        self.has_all = False
        self.announcement: Any = None
        self.reports: dict[int, bytes] = {}
        self.readers: list[SourceReader | None] = []
        for subtask in range(parallelism):
            context = SourceContext(UID, subtask, parallelism, attempt, dict(snapshot.positions))
            reader = self.source.open(context)
            self.readers.append(reader)
            mine = {s: p for s, p in snapshot.positions.items() if context.owns(s)}
            if source.enumerates and mine:
                reader.add_splits(mine)
        if source.enumerates:
            ctx = EnumeratorContext(
                JOB, UID, attempt, dict(snapshot.positions), snapshot.enumerated, parallelism=parallelism
            )
            self.enumerator = self.source.open_enumerator(ctx)

    def look(self) -> None:
        """Have the enumerator look once, and give readers what it has found."""
        if self.enumerator is None or self.has_all:
            return
        found = self.enumerator.discover()
        self.enumerated = plain.decode(plain.encode(self.enumerator.snapshot()))
        self.has_all = found is None
        announcement = plain.decode(plain.encode(self.enumerator.announcement()))
        is_news, self.announcement = announcement != self.announcement, announcement
        for subtask, reader in enumerate(self.readers):
            if reader is not None and is_news and announcement is not None:
                reader.announced(announcement)
            mine = {s: p for s, p in (found or {}).items() if owner_of(s, self.parallelism) == subtask}
            if reader is not None and mine:
                reader.add_splits(mine)
            if reader is not None and self.has_all:
                reader.no_more_splits()

    def read(self, subtask: int) -> list[Any]:
        """Have one reader read once. What it has read, which is nothing after its end."""
        reader = self.readers[subtask]
        assert reader is not None
        records = reader.read(LIMIT)
        self.pass_report(subtask)
        return [] if records is None else list(records)

    def pass_report(self, subtask: int) -> None:
        """Let the enumerator know what a reader reports, if that is news."""
        reader = self.readers[subtask]
        if reader is None or reader.report is None or self.enumerator is None:
            return
        report = plain.encode(reader.report)
        if self.reports.get(subtask) != report:
            self.reports[subtask] = report
            self.enumerator.reported(subtask, plain.decode(report))

    def positions(self) -> dict[Any, Any]:
        merged: dict[Any, Any] = {}
        for subtask, reader in enumerate(self.readers):
            assert reader is not None
            own = reader.positions()
            foreign = [split for split in own if owner_of(split, self.parallelism) != subtask]
            assert not foreign, f"subtask {subtask} of {self.parallelism} has positions of {foreign}"
            merged.update(own)
        return merged

    def snapshot(self) -> Snapshot:
        return Snapshot(self.positions(), self.enumerated)

    def close(self) -> None:
        for reader in self.readers:
            if reader is not None:
                reader.close()
        if self.enumerator is not None:
            self.enumerator.close()


class SourceContract:
    """Subclass it in a test module; override the fixtures ``source`` and ``expected``."""

    #: Seconds without a record after which nothing more is taken to come.
    patience = 60.0

    @pytest.fixture
    def source(self) -> Source:
        """A source with some records in it, a hundred or so in several splits."""
        raise NotImplementedError("override the fixture `source`")

    @pytest.fixture
    def expected(self) -> list[Any]:
        """All records that it has, in any order."""
        raise NotImplementedError("override the fixture `expected`")

    # --- what the suite stands on ---

    def assert_same(self, found: list[Any], expected: list[Any]) -> None:
        """Exactly these records, in any order."""
        got, wanted = Counter(map(repr, found)), Counter(map(repr, expected))
        assert got == wanted, f"missing: {wanted - got}; too many: {got - wanted}"

    def drain(self, running: RunningSource, found: list[Any], total: int, look: Callable[[], None]) -> None:
        """Read until as many records as there are have come, and a little further."""
        quiet_since, further = time.monotonic(), 0
        while further < 3 * running.parallelism:
            look()
            records = [r for subtask in range(running.parallelism) for r in running.read(subtask)]
            found += records
            if records:
                quiet_since = time.monotonic()
            if len(found) >= total:
                further += 1
            elif not records:
                assert time.monotonic() - quiet_since < self.patience, f"{len(found)} of {total} records came"
                time.sleep(0.002)

    # --- the promises ---

    @pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
    def test_every_record_is_read_once(self, source: Source, expected: list[Any], parallelism: int) -> None:
        running = RunningSource(source, parallelism, 1, Snapshot({}))
        found: list[Any] = []
        self.drain(running, found, len(expected), running.look)
        running.close()
        self.assert_same(found, expected)

    def test_a_reader_returns_no_more_than_it_is_asked_for(self, source: Source, expected: list[Any]) -> None:
        running = RunningSource(source, 1, 1, Snapshot({}))
        reader = running.readers[0]
        assert reader is not None
        read = 0
        while read < len(expected):
            running.look()
            records = reader.read(1)
            running.pass_report(0)
            assert records is None or len(records) <= 1
            read += len(records or [])
        running.close()

    def test_positions_that_were_handed_out_do_not_change(self, source: Source, expected: list[Any]) -> None:
        running = RunningSource(source, 1, 1, Snapshot({}))
        running.look()
        for _ in range(5):
            before = running.positions()
            written = plain.encode(sorted(([s, p] for s, p in before.items()), key=repr))
            running.look()
            running.read(0)
            assert plain.encode(sorted(([s, p] for s, p in before.items()), key=repr)) == written
        running.close()

    def test_a_source_that_is_read_to_the_end_has_nothing_after_a_restore(
        self, source: Source, expected: list[Any]
    ) -> None:
        running = RunningSource(source, 2, 1, Snapshot({}))
        found: list[Any] = []
        self.drain(running, found, len(expected), running.look)
        snapshot = running.snapshot()
        running.close()
        again = RunningSource(source, 3, 2, snapshot)
        more: list[Any] = []
        for _ in range(10):
            again.look()
            more += [r for subtask in range(3) for r in again.read(subtask)]
        again.close()
        self.assert_same(more, [])

    def test_the_split_of_a_batch_is_named_if_splits_are(self, source: Source, expected: list[Any]) -> None:
        running = RunningSource(source, 1, 1, Snapshot({}))
        reader = running.readers[0]
        assert reader is not None
        read = 0
        while read < len(expected):
            running.look()
            before = reader.splits()
            records = reader.read(LIMIT) or []
            running.pass_report(0)
            read += len(records)
            if before is not None and records:
                # It may have been found by this very read, or finished by it.
                known = {*before, *(reader.splits() or ())}
                assert reader.split in known, f"records came from {reader.split}, and the splits were {known}"
        running.close()

    @pytest.mark.parametrize("seed", range(10))
    def test_each_record_counts_once_whatever_crashes(self, source: Source, expected: list[Any], seed: int) -> None:
        """Snapshots, crashes and rescales in between; what was read after the last snapshot is read again."""
        chance = random.Random(seed)
        snapshot, kept = Snapshot({}), list[Any]()
        for attempt in range(1, chance.randrange(3, 6)):
            running = RunningSource(source, chance.randrange(1, 5), attempt, snapshot)
            found: list[Any] = []
            for _ in range(chance.randrange(5, 25)):
                step = chance.random()
                if step < 0.15:
                    running.look()
                elif step < 0.8:
                    found += running.read(chance.randrange(running.parallelism))
                else:
                    snapshot = running.snapshot()
                    kept, found = kept + found, []
            running.close()  # what was found since the snapshot is lost
        last = RunningSource(source, chance.randrange(1, 5), 99, snapshot)
        self.drain(last, kept, len(expected), last.look)
        last.close()
        self.assert_same(kept, expected)
