"""A client that keeps asking a simulated job for its state.

Asks what is live through the supervision, over the same lossy control lines as everything else, and what is in the
newest checkpoint through storage alone. Nothing of it may change what comes out of the job; and the answers must
be true as far as can be known: no count above the number of records, and in a checkpoint all states of a key agree.

Has a random generator of its own, so without queries a seed tells the same story as ever.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Protocol

from moorline.api.state.states import declared_states
from moorline.driver.queries.pending import LiveQuery, QueryRefused
from moorline.driver.supervision import Supervision
from moorline.errors import MoorlineError, SnapshotCorrupt
from moorline.model import keys
from moorline.model.graph import Operator
from moorline.model.wire.messages import Answer
from moorline.snapshots.folders import newest
from moorline.snapshots.locate import LocatedSnapshot
from moorline.snapshots.lookup import look_up
from moorline.state import peeking
from moorline.storage.stores.memory import MemoryStore
from moorline.testing.simulation.faults.injection import Injection

#: Keys that the simulated jobs use, and one that none of them does.
KEYS: list[Any] = [*range(7), *"abcdefg", *"ABC", *(f"k{n}" for n in range(0, 40, 7)), (1, "1"), (4, "4"), b"nobody"]
#: The states of ``counting.CountEverything`` that all say how many records there were.
COUNTS = ("value", "reduced", "aggregated", "loose", "elements")


class Asked(Protocol):
    """The world that is asked."""

    seed: int
    store: MemoryStore
    injection: Injection


class RandomQueries:
    """A client that asks with a probability of ``rate`` at every step."""

    def __init__(self, seed: int, rate: float) -> None:
        self._chance, self._rate = random.Random(f"{seed} asks"), rate
        #: What became of the questions.
        self.outcomes: Counter[str] = Counter()

    def maybe_ask(self, world: Asked, supervision: Supervision, operators: list[Operator]) -> None:
        if not self._rate or self._chance.random() >= self._rate:
            return
        keyed = [operator for operator in operators if operator.is_keyed]
        if not keyed:
            return
        operator, key = self._chance.choice(keyed), keys.encode(self._chance.choice(KEYS))
        if self._chance.random() < 0.1 and operator.uid == "count":
            self._ask_storage(world, key)
            return
        state = self._chance.choice([*_states(operator), "no such state"])

        def on_result(outcome: Answer | QueryRefused) -> None:
            self._note(world, state, outcome)

        supervision.query(LiveQuery(operator.uid, state, key, on_result, is_given_up=self._chance.random() < 0.1))

    def _note(self, world: Asked, state: str, outcome: Answer | QueryRefused) -> None:
        if isinstance(outcome, QueryRefused):
            self.outcomes["refused"] += 1
        elif outcome.error:
            self.outcomes["an error"] += 1
            if state != "no such state" and "has no state" not in outcome.error:
                raise AssertionError(f"seed {world.seed}: a query failed: {outcome.error}")
        else:
            value = peeking.value_of(
                peeking.Peeked(outcome.kind, outcome.stored_type, peeking.from_bytes(outcome.rows))
            )
            self.outcomes["nothing" if value is None else "a value"] += 1

    def _ask_storage(self, world: Asked, key: bytes) -> None:
        try:
            snapshot = LocatedSnapshot(world.store, newest(world.store), is_savepoint=False)
            values = [look_up(snapshot, "count", state, key) for state in COUNTS]
        except SnapshotCorrupt:
            if not world.injection.damaged:
                raise
            self.outcomes["a damaged checkpoint"] += 1
        except MoorlineError:
            self.outcomes["no checkpoint"] += 1  # there is none yet, or the job counts in another way
        else:
            value, reduced, aggregated, loose, elements = values
            counts = {value, reduced, aggregated, loose and loose["n"], elements and len(elements)}
            if len(counts) > 1:
                raise AssertionError(f"seed {world.seed}: the states of a key in {snapshot} disagree: {values}")
            self.outcomes["a checkpoint"] += value is not None


def _states(operator: Operator) -> list[str]:
    """The states that a function declares; those of windows have names of their own."""
    return sorted(declared_states(operator.function)) or ["contents"]
