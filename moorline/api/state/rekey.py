"""Changing the keys of state that exists already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moorline.model.options import checks_options


@checks_options()
@dataclass(frozen=True)
class Rekey:
    """Give restored state other keys: given to a step as ``rekey=``, it is done once, when a snapshot is restored.

    >>> lower = Rekey("lower-case-users", str.lower, merge={"visits": lambda a, b: a + b})

    ``key`` makes the new key from the old one; return ``None`` to drop a key. Where several old keys become one,
    ``merge`` says for each state how two of its values become one (for a map state: two values under one entry).
    List states are joined and timers are kept without asking. ``name`` is recorded in the snapshots taken
    afterwards, so that a restart does not do it again; choose a new name for the next change.
    """

    name: str
    key: Callable[[Any], object]
    merge: Mapping[str, Callable[[Any, Any], object]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Rekey], tuple[Any, ...]]:
        return Rekey, (self.name, self.key, dict(self.merge))
