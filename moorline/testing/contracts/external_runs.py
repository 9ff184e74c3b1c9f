"""A job that keeps counts in an outside store, played step by step: checkpoints, crashes, rescaling, zombies.

Beside it runs a model, a dict per complete checkpoint. After every step a client reads the whole store: what it sees
of a key group must be what some complete checkpoint has, and never an earlier one than he saw before. The counts are
read, changed and written back, so a record that is lost or comes twice shows.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from moorline.api.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from moorline.api.state.external import ExternalStore, Owner
from moorline.errors import ExternalStateTaken, StorageError
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange, owned
from moorline.state.external.backend import ExternalBackend
from moorline.testing.contracts.backend.storage import Part, cut, write

JOB, UID, GROUPS = "contract", "op", 16
COUNT, SEEN = ValueStateDescriptor("count", int, default=0), ListStateDescriptor("seen", int)

Counts = dict[str, int]


class RunningSubtask:
    """One subtask of one attempt."""

    def __init__(
        self, store: ExternalStore, attempt: int, key_groups: KeyGroupRange, complete: int, parts: list[Part]
    ) -> None:
        self.key_groups, restored = key_groups, complete or None
        self.backend = ExternalBackend(
            UID, GROUPS, store=store, job=JOB, key_groups=key_groups, attempt=attempt, restored=restored
        )
        self.backend.restore([p.restored(key_groups) for p in cut(parts, key_groups)])
        self.count: Any = self.backend.bind(COUNT)
        self.seen: Any = self.backend.bind(SEEN)
        self.backend.check_all_bound()

    def process(self, batch: list[tuple[str, int]]) -> None:
        self.backend.prefetch(key for key, _ in batch)
        for key, number in batch:
            self.backend.current.key = key
            if number % 7 == 0:
                self.count.clear()
                self.seen.clear()
            else:
                self.count.update(self.count.value() + 1)
                self.seen.add(number)
                assert len(list(self.seen.get())) == self.count.value()
        self.backend.flush()


class ExternalRun:
    """The whole job, from one seed."""

    def __init__(self, store: ExternalStore, seed: int) -> None:
        self._store, self._chance = store, random.Random(seed)
        self._attempt, self._number, self._position = 0, 0, 0
        #: The last complete checkpoint: its number, how far the source was, and its files.
        self._complete, self._complete_position, self._parts = 0, 0, list[Part]()
        #: What the state was at each complete checkpoint.
        self._truth: dict[int, Counts] = {0: {}}
        self._counts: Counts = {}
        self._zombies: list[tuple[RunningSubtask, int]] = []
        self._subtasks: list[RunningSubtask] = []
        #: By key group: the checkpoint that a client has seen it at.
        self._seen_at = dict.fromkeys(range(GROUPS), 0)
        #: How often a zombie was refused, and how often the store did not do what it should.
        self.refused = self.failures = 0
        self.start()

    def start(self) -> None:
        """A new attempt, at another parallelism. Those of the old one may live on."""
        while True:
            self._attempt += 1
            self._zombies += [(subtask, self._complete) for subtask in self._subtasks]
            self._subtasks = []
            parallelism = self._chance.randrange(1, 4)
            try:
                for i in range(parallelism):
                    key_groups = owned(i, parallelism, GROUPS)
                    subtask = RunningSubtask(self._store, self._attempt, key_groups, self._complete, self._parts)
                    self._subtasks.append(subtask)
            except StorageError:
                self.failures += 1
                continue
            break
        self._position = self._complete_position
        self._counts = dict(self._truth[self._complete])

    def play(self, steps: int) -> None:
        """Some random steps. What the store does not do fails the attempt."""
        for _ in range(steps):
            try:
                self._step()
            except StorageError:
                self.failures += 1
                self.start()
            self.look()

    def _step(self) -> None:
        step = self._chance.random()
        if step < 0.5:
            self._process()
        elif step < 0.75:
            self._checkpoint(fails=self._chance.random() < 0.2, heard=0.7)
        elif step < 0.8:
            self._stop(heard=0.7)
        elif step < 0.9:
            self.start()
        else:
            self._wake_a_zombie()

    def finish(self) -> None:
        self._process()
        self._checkpoint(fails=False, heard=1.0)
        while self._zombies:
            self._wake_a_zombie()
        assert self.visible() == self._counts
        for subtask in self._subtasks:
            subtask.backend.close()

    def visible(self) -> Counts:
        """The values in the store."""
        session = self._store.open(Owner(JOB, UID, 0, 0, GROUPS, "a client that looks"))
        try:
            documents = [document for page in session.scan("count") for document in page]
        finally:
            session.close()
        return {keys.decode(d.place.key): msgspec.msgpack.decode(msgspec.msgpack.decode(d.content)) for d in documents}

    def look(self) -> None:
        """Read as a client: never what no complete checkpoint covers, or what is older than what was seen before."""
        visible = self.visible()
        for group, seen in self._seen_at.items():
            here = _within(visible, group)
            fits = [n for n, truth in self._truth.items() if n >= seen and _within(truth, group) == here]
            assert fits, f"key group {group} shows {here}, which is no state since checkpoint {seen}"
            self._seen_at[group] = min(fits)

    def _process(self) -> None:
        records = []
        for _ in range(self._chance.randrange(1, 12)):
            # The same records each time they are read.
            number = self._position
            records.append((f"k{(number * 7919) % 23}", number))
            self._position += 1
        for subtask in self._subtasks:
            subtask.process([r for r in records if keys.key_group(r[0], GROUPS) in subtask.key_groups])
        for key, number in records:
            if number % 7 == 0:
                self._counts.pop(key, None)
            else:
                self._counts[key] = self._counts.get(key, 0) + 1

    def _checkpoint(self, fails: bool, heard: float) -> None:
        begun = self._barrier()
        if self._chance.random() < 0.3:  # the next one begins before it is complete
            self._process()
            following = self._barrier()
            if self._chance.random() < 0.8:
                self._completed(begun, heard)
                self.look()
            begun = following
        if not fails:
            self._completed(begun, heard)

    def _stop(self, heard: float) -> None:
        """A stop with a savepoint; a start from its final checkpoint or, if that is of no use, from the savepoint."""
        savepoint = self._barrier()
        self._completed(self._barrier(), heard)
        self.look()
        if self._chance.random() < 0.5:
            self._complete, self._complete_position, counts, self._parts = savepoint
            self._truth[self._complete] = counts
        self.start()

    def _barrier(self) -> tuple[int, int, Counts, list[Part]]:
        self._number += 1
        parts = []
        for subtask in self._subtasks:
            taken = subtask.backend.snapshot(self._number, self._complete)
            written = write(taken, subtask.key_groups, [], "external")
            taken.done([p.handle for p in written])
            parts += written
        return self._number, self._position, dict(self._counts), parts

    def _completed(self, begun: tuple[int, int, Counts, list[Part]], heard: float) -> None:
        self._complete, self._complete_position, counts, self._parts = begun
        self._truth[self._complete] = counts
        for subtask in self._subtasks:
            for _ in range(self._chance.randrange(1, 3)):
                if self._chance.random() < heard:
                    subtask.backend.confirmed(self._complete)

    def _wake_a_zombie(self) -> None:
        """Confirm a checkpoint that was complete when it died, or give it a barrier that no driver waits for."""
        if not self._zombies:
            return
        zombie, complete = self._zombies.pop(self._chance.randrange(len(self._zombies)))
        try:
            zombie.backend.confirmed(complete)
        except ExternalStateTaken:
            self.refused += 1
        zombie.backend.close()


def _within(counts: Counts, group: int) -> Counts:
    return {key: count for key, count in counts.items() if keys.key_group(key, GROUPS) == group}
