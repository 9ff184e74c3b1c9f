"""The files that a snapshot may build on.

Each snapshot ends with the handles that it consists of, by state: the *chain* of a base and its increments. The next
one can be an increment on top only of what will still be there when it completes:

    completed is a snapshot of ours, its files are durable      its chain
    completed is older than all of ours                         what was restored: nothing newer has completed
    anything else; completed is 0                               nothing: a full base
    a state whose chain was to be folded, and was not           nothing: a full base of that state

The files of a checkpoint that was given up are deleted, so a snapshot that was only written is nothing to build on:
``completed``, which comes with the barrier, is the one thing that counts. A chain that could not be folded may be one
that storage has lost a file of; that is no loss while the state is here. Used by ``state/heap/backend.py`` and
``state/columns/backend.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

from moorline.model.manifest import FileHandle

Chain = dict[str, list[FileHandle]]


class Chains:
    """The handles of the snapshots that may still complete.

    >>> from moorline.model.manifest import RowsHandle
    >>> from moorline.model.type_tree.tree import INT
    >>> chains, base = Chains(), RowsHandle("counts", "value", INT, 0, 128, rows=3)
    >>> chains.base(completed=0), chains.begin(1), chains.ended(1, [base])
    ({}, None, None)
    >>> chains.base(completed=0), list(chains.base(completed=1))
    ({}, ['counts'])
    """

    def __init__(self) -> None:
        self._restored: Chain = {}
        #: None: its files are not durable yet.
        self._taken: dict[int, Chain | None] = {}
        self._first: int | None = None
        #: States whose chain should have been folded by now.
        self._unfolded: set[str] = set()

    def restored(self, state: str, handles: Iterable[FileHandle]) -> None:
        """Note the handles that a state was restored from, and still is row by row."""
        self._restored[state] = list(handles)

    def begin(self, checkpoint: int) -> None:
        """A snapshot is taken."""
        self._taken[checkpoint] = None
        if self._first is None:
            self._first = checkpoint

    def ended(
        self, checkpoint: int, handles: Iterable[FileHandle] | None, folded: frozenset[str] = frozenset()
    ) -> None:
        """A snapshot is durable, or (None) never will be. ``folded``: the states whose chains it was to fold."""
        self._unfolded |= folded
        if checkpoint not in self._taken:
            return
        if handles is None:
            del self._taken[checkpoint]
            return
        chain: Chain = {}
        for handle in handles:
            chain.setdefault(handle.state, []).append(handle)
        self._unfolded &= {state for state, parts in chain.items() if any(part.increment for part in parts)}
        self._taken[checkpoint] = chain

    def may_be_built_on(self, state: str) -> bool:
        """Is there a snapshot, or a restored chain, that a later snapshot may come to build on?"""
        return bool(self._taken) or bool(self._restored.get(state))

    def base(self, completed: int) -> Chain:
        """The chain to build on, by state. None for a state: write all of it."""
        if not completed:
            return {}
        for checkpoint in [c for c in self._taken if c < completed]:
            del self._taken[checkpoint]  # given up: a newer one has completed
        if self._first is None or completed < self._first:
            chain = self._restored
        else:
            self._restored = {}
            chain = self._taken.get(completed) or {}
        return {state: handles for state, handles in chain.items() if state not in self._unfolded}
