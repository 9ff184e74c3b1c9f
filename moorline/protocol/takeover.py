"""Taking an outside store over: go on, clear it or refuse, before a single document is read.

The facts are the marks that subtasks have left there (``model/store_marks.py``), the checkpoint that is restored, and
how far that checkpoint says the store had come. No I/O: ``state/external/connection.py`` asks, and the session of the
store carries the decision out in one transaction.

    a mark of a higher attempt                          -> raise: another one has taken over
    starts empty   marks that have reached something    -> raise, or clear, or keep, as the user has said
    restores n     a mark that may be past n            -> raise: the store is ahead and cannot go back
                   a key group that has not reached
                   what n builds on                     -> raise: the store is behind, it has lost something
                   else                                 -> go on

For a key group the newest mark counts that has reached anything. A subtask that restores sets a mark which has not
(``NOT_YET``) until it has applied what it was restored from; older marks stay as long as they are needed for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moorline.errors import (
    ExternalStateAhead,
    ExternalStateBehind,
    ExternalStateLeftOver,
    ExternalStateTaken,
    StateIncompatible,
)
from moorline.model.store_marks import NOT_YET, FreshStart, Mark, Owner, TakeOver


@dataclass(frozen=True)
class StoreStart:
    """The facts that a subtask starts with."""

    owner: Owner
    #: For messages.
    where: str
    #: The states it has now and how each is stored.
    types: Mapping[str, str]
    on_fresh_start: FreshStart
    #: The checkpoint it is restored from; None: it starts empty.
    restored: int | None = None
    #: By key group: how far the checkpoint says that the store had come. Empty: it knows nothing of the store.
    built_on: Mapping[int, int] | None = None
    #: States that may be given up; None: any.
    allow_dropped: frozenset[str] | None = frozenset()
    #: The number that the mark gets when the restored checkpoint is applied: its own, or a lower one if nothing has
    #: changed since. None: its own.
    as_of: int | None = None


def take_over(marks: Sequence[Mark], start: StoreStart) -> TakeOver:
    """The decision, or an error that names what was found."""
    owner = start.owner
    others = [m for m in marks if m.token != owner.token]
    highest = max((m.attempt for m in others), default=0)
    if highest > owner.attempt:
        raise ExternalStateTaken(owner.uid, start.where, owner.attempt, highest)
    if start.restored is not None and start.built_on:
        return _go_on(others, marks, start)
    return _begin(others, start)


def _begin(others: list[Mark], start: StoreStart) -> TakeOver:
    """The store should have nothing for us."""
    owner, used = start.owner, [m for m in others if m.reaching > 0]
    if used and start.on_fresh_start == "error":
        raise ExternalStateLeftOver(owner.uid, start.where, max(m.reaching for m in used))
    types = dict(start.types)
    if start.on_fresh_start == "keep":
        _check_types(used, start)
    # Subtasks of this attempt that came before us have reached nothing yet, and do not overlap with us.
    drop = [m for m in others if m.reaching > 0 or m.attempt != owner.attempt or _overlap(m, owner)]
    # Whatever the marks say: a sibling may have dropped those of the documents in our key groups.
    clear = tuple(types) + tuple(s for m in used for s, _ in m.types if s not in types)
    number = 0 if start.restored is None else NOT_YET
    mark = Mark(owner.attempt, owner.first, owner.end, owner.token, start.restored or 0, number, tuple(types.items()))
    return TakeOver(mark, tuple(drop), clear if start.on_fresh_start == "clear" else ())


def _go_on(others: list[Mark], marks: Sequence[Mark], start: StoreStart) -> TakeOver:
    owner, restored, built_on = start.owner, start.restored, start.built_on
    assert restored is not None and built_on is not None
    ahead = max((m.reaching for m in others), default=0)
    if ahead > restored:
        raise ExternalStateAhead(owner.uid, start.where, restored, ahead)
    newest = newest_marks(marks)
    for key_group in range(owner.first, owner.end):
        needed, mark = built_on.get(key_group, 0), newest.get(key_group)
        reached = 0 if mark is None else mark.reached
        if reached < needed:
            raise ExternalStateBehind(owner.uid, start.where, needed, reached)
    dropped = _check_types([m for m in marks if _overlap(m, owner)], start)
    # A mark that counts for no key group any more, and that does not fence off anybody who is not fenced anyway.
    drop = tuple(
        m for m in others if not any(newest.get(g) is m for g in range(m.first, m.end)) and m.attempt < owner.attempt
    )
    types = tuple(start.types.items())
    as_of = restored if start.as_of is None else start.as_of
    mark = Mark(owner.attempt, owner.first, owner.end, owner.token, as_of, NOT_YET, types)
    return TakeOver(mark, drop, dropped)


def newest_marks(marks: Iterable[Mark]) -> dict[int, Mark]:
    """The mark that counts for each key group.

    >>> old, new, not_yet = Mark(1, 0, 8, "a", 5, 5), Mark(2, 0, 4, "b", 6, 6), Mark(3, 0, 8, "c", 6, NOT_YET)
    >>> newest = newest_marks([not_yet, new, old])
    >>> newest[3].reached, newest[4].reached, len(newest)
    (6, 5, 8)
    """
    newest: dict[int, Mark] = {}
    for mark in sorted(marks, key=lambda m: m.attempt):
        if mark.reached != NOT_YET:
            newest.update(dict.fromkeys(range(mark.first, mark.end), mark))
    return newest


def _check_types(marks: Iterable[Mark], start: StoreStart) -> tuple[str, ...]:
    """The states that are dropped, if they may be. Raises if a state is stored in another way than it is declared."""
    dropped = []
    for state, stored in {s: t for m in sorted(marks, key=lambda m: m.attempt) for s, t in m.types}.items():
        declared = start.types.get(state)
        if declared is None and (start.allow_dropped is None or state in start.allow_dropped):
            dropped.append(state)
        elif declared != stored:
            declared = declared or "nothing: the operator has no such state there"
            raise StateIncompatible(start.owner.uid, state, f"{stored}, in {start.where},", declared)
    return tuple(dropped)


def _overlap(mark: Mark, owner: Owner) -> bool:
    return mark.first < owner.end and owner.first < mark.end
