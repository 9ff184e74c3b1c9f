"""The windows of each key, where windows merge: read when a key is first met in a batch, written when it is over.

What merges is decided by ``protocol/merging.py``; this is where the decision is looked up, kept and stored.
"""

from __future__ import annotations

from typing import Any

from moorline.api.state.descriptors import ListStateDescriptor
from moorline.api.state.states import ListState
from moorline.api.windows.assigners import Span
from moorline.protocol.merging import Merge, merged
from moorline.state.backend import NO_KEY, KeyedBackend

#: Start and end of each window, and of the one under which its contents are.
MERGING = ListStateDescriptor("merging-window-set", tuple[int, int, int, int])


class WindowSets:
    """The windows of the keys of a batch. The current key must be set for :meth:`of`."""

    def __init__(self, backend: KeyedBackend) -> None:
        self._state: ListState[Any] = backend.bind(MERGING)  # type: ignore[assignment]
        self._current = backend.current
        self._known: dict[Any, dict[Span, Span]] = {}
        self._changed: dict[Any, None] = {}

    def of(self, key: Any) -> dict[Span, Span]:
        """A key's windows, and under which each has its contents."""
        windows = self._known.get(key)
        if windows is None:
            windows = {(start, end): (first, last) for start, end, first, last in self._state.get()}
            self._known[key] = windows
        return windows

    def merge(self, key: Any, merge: Merge) -> None:
        self._known[key] = merged(self.of(key), merge)
        self._changed[key] = None

    def retire(self, key: Any, window: Span) -> None:
        """A window is over."""
        self.of(key).pop(window, None)
        self._changed[key] = None

    def store(self) -> None:
        """The batch is over: write what has changed, and forget the rest."""
        try:
            for key in self._changed:
                self._current.key = key
                self._state.update([(*window, *contents) for window, contents in self._known[key].items()])
        finally:
            self._current.key = NO_KEY
            self._changed.clear()
            self._known.clear()
