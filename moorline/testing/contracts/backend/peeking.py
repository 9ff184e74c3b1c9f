"""Looking at a key from outside: the value is right, whatever class the key is of, and nothing is changed by it."""

from __future__ import annotations

from typing import Any

import pytest

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.errors import UnknownState
from moorline.model import keys
from moorline.model.manifest import StoreHandle
from moorline.state.backend import OperatorClock
from moorline.state.peeking import value_of
from moorline.testing.contracts.backend.base import (
    ALL,
    BASKET,
    BASKET_MAP,
    DAY,
    HOUR,
    KEYS,
    LIST,
    MAP,
    VALUE,
    Basket,
    Colour,
    Subtask,
)
from moorline.testing.contracts.backend.ttl.rules import LENGTH, START, TtlTests, living, write

COLOUR = ValueStateDescriptor("colour", Colour)


def looked_at(subtask: Subtask, state: str, key: Any) -> Any:
    """Queries between two batches."""
    subtask.backend.flush()
    return value_of(subtask.backend.peek(state, keys.encode(key)))


class Peeking(TtlTests):
    """The answer to a query."""

    def test_a_look_shows_every_kind_of_state(self) -> None:
        subtask = self.subtask(*ALL, BASKET, BASKET_MAP, COLOUR)
        subtask.at("a")
        for state in subtask.states[: len(ALL)]:
            write(state, 5)
        basket, basket_map, colour = subtask.states[len(ALL) :]
        basket.update(Basket("ada", ["pear"]))
        basket_map.put("x", Basket("bob"))
        colour.update(Colour.RED)
        names = [d.name for d in ALL] + ["basket", "basket_map", "colour"]
        assert {name: looked_at(subtask, name, "a") for name in names} == {
            "value": 5,
            "list": ["5"],
            "map": {"k": 5},
            "reducing": 5,
            "aggregating": (1, 5.0),
            "basket": {"owner": "ada", "items": ["pear"]},
            "basket_map": {"x": {"owner": "bob", "items": []}},
            "colour": "RED",
        }

    def test_a_look_finds_keys_of_every_class(self) -> None:
        subtask = self.subtask(VALUE)
        for n, key in enumerate(KEYS):
            subtask.at(key)
            subtask.states[0].update(n)
        assert [looked_at(subtask, "value", key) for key in KEYS] == list(range(len(KEYS)))

    def test_a_look_at_a_key_without_state_shows_nothing(self) -> None:
        subtask = self.subtask(VALUE, LIST, MAP)
        subtask.at("a")
        subtask.states[0].update(1)
        assert [looked_at(subtask, name, "b") for name in ("value", "list", "map")] == [None] * 3
        assert looked_at(subtask, "list", "a") is None

    def test_a_look_at_an_unknown_state_says_which_there_are(self) -> None:
        subtask = self.subtask(VALUE, timers=["event"])
        for name in ("valeu", "timers:event"):
            with pytest.raises(UnknownState, match="value"):
                looked_at(subtask, name, "a")

    def test_a_look_shows_all_windows_of_a_key(self) -> None:
        subtask = self.subtask(windows=[VALUE, MAP])
        for key, window, number in (("a", HOUR, 1), ("a", DAY, 2), ("b", DAY, 3)):
            subtask.at(key, window)
            subtask.windows[0].update(number)
            subtask.windows[1].put("n", number)
        assert looked_at(subtask, "value", "a") == {HOUR: 1, DAY: 2}
        assert looked_at(subtask, "map", "b") == {DAY: {"n": 3}}
        assert looked_at(subtask, "value", "c") is None

    def test_a_look_after_a_restore_needs_no_class(self) -> None:
        subtask = self.subtask(BASKET)
        subtask.at(Colour.BLUE)
        subtask.states[0].update(Basket("eve"))
        again = self.subtask(BASKET, restored=subtask.checkpoint(), completed=subtask.completed, key_type=Colour)
        assert looked_at(again, "basket", Colour.BLUE) == {"owner": "eve", "items": []}

    def test_a_look_does_not_keep_state_alive(self, moment: OperatorClock) -> None:
        read_counts = [living(d, update="on_read_and_write") for d in ALL]
        subtask = self.under(moment, *read_counts)
        for state in subtask.states:
            write(state)
        moment.processing_ms = START + LENGTH - 1
        assert all(looked_at(subtask, d.name, "a") is not None for d in ALL)
        moment.processing_ms = START + LENGTH
        assert [looked_at(subtask, d.name, "a") for d in ALL] == [None] * len(ALL)

    def test_a_look_is_no_change_that_an_increment_would_hold(self) -> None:
        subtask = self.subtask(BASKET, LIST)
        subtask.at("a")
        subtask.states[0].update(Basket("ada"))
        subtask.states[1].add("x")
        subtask.checkpoint()
        before = [part.handle for part in subtask.checkpoint()]
        looked_at(subtask, "basket", "a"), looked_at(subtask, "list", "a")
        after = [part.handle for part in subtask.checkpoint()]
        assert [h.all_files() for h in after if not isinstance(h, StoreHandle)] == [
            h.all_files() for h in before if not isinstance(h, StoreHandle)
        ]

    def test_a_look_while_a_snapshot_is_written_spoils_neither(self) -> None:
        subtask = self.subtask(BASKET)
        subtask.at("a")
        subtask.states[0].update(Basket("ada", ["pear"]))
        snapshot = subtask.begin()
        subtask.at("a")
        subtask.states[0].update(Basket("ada", ["fig"]))
        assert looked_at(subtask, "basket", "a") == {"owner": "ada", "items": ["fig"]}
        parts = subtask.complete(snapshot)
        assert self.held(parts, BASKET, ["a"]) == {"a": Basket("ada", ["pear"])}
