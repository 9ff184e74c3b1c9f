"""The states that the operators around sources and sinks keep, beside those of a user's function."""

from __future__ import annotations

#: The position of each split, of a source.
POSITIONS = "positions"
#: What the enumerator of a source knows.
ENUMERATOR = "enumerator"
#: What the enumerator announces to all readers before a batch. Never in a snapshot.
ANNOUNCED = "announced"
#: What a sink has staged and not seen confirmed: pairs of checkpoint and committable.
COMMITTABLES = "committables"
#: The same of a sink that is committed in the background: all pairs of a subtask in their order, as one element that
#: stays whole when it is given to another subtask.
ORDERED_COMMITTABLES = "ordered-committables"
#: The same of a sink that the driver commits: pairs of checkpoint and a pair of lineage and committable.
GLOBAL_COMMITTABLES = "global-committables"
#: The state of a sink's writer.
WRITER = "writer"

CONNECTOR_STATES = frozenset(
    (POSITIONS, ENUMERATOR, ANNOUNCED, COMMITTABLES, ORDERED_COMMITTABLES, GLOBAL_COMMITTABLES, WRITER)
)
