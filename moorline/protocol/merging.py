"""The merge of a new window with those of its key, where windows that touch become one (sessions).

Each record comes with a window of its own. Windows that overlap, or where one ends as the other starts, become one that
covers them all. Moving contents about is dear, so a merged window keeps its contents where one of its parts had them:
the set of a key's windows says for each under which window its contents are stored.

    the new window touches   the record belongs to    contents are kept
    nothing                  the new window           under its own name
    one that covers it       that one                 where they are
    any others               one that covers all      where the earliest has its own; those of the others move there

- The windows of a set never touch each other. So those that a new one touches are all there is to merge.
- The earliest one's contents stay, so lists are in the order of the windows.
- ``ended`` are the windows that are not in the set any more: their triggers and clean-up timers are to be cleared,
  after the trigger has heard of the new window (``on_merge``).
- What is to be moved is moved before the record is added.

A merged window ends no earlier than any of its parts: it is late only if all of them are. Such a record is dropped and
the set stays as it is, so :func:`merge` changes nothing; :func:`merged` says what the set looks like afterwards.

``subtask/windows/batches.py`` asks for every record of a session window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Start and end.
Span = tuple[int, int]
#: The windows of one key, and under which each has its contents.
Windows = Mapping[Span, Span]


@dataclass(frozen=True, slots=True)
class Merge:
    """The effect of a new window."""

    #: The window that the record belongs to.
    window: Span
    #: Under which window its contents are stored.
    contents: Span
    #: Windows that are no more.
    ended: tuple[Span, ...] = ()
    #: Where there are contents that have to move to :attr:`contents`.
    moved: tuple[Span, ...] = ()

    def __str__(self) -> str:
        text = f"window {_text(self.window)}, contents under {_text(self.contents)}"
        if self.ended:
            text += f"; end {', '.join(map(_text, self.ended))}"
        if self.moved:
            text += f"; move contents of {', '.join(map(_text, self.moved))}"
        return text


def merge(windows: Windows, new: Span) -> Merge:
    """The effect of ``new`` on a set of windows.

    >>> print(merge({(0, 10): (0, 10), (15, 25): (15, 25)}, (8, 18)))
    window [0,25), contents under [0,10); end [0,10), [15,25); move contents of [15,25)
    """
    first, end = new
    touched = [window for window in windows if window[0] <= end and window[1] >= first]
    if not touched:
        return Merge(new, new)
    touched.sort()
    whole = (min(first, touched[0][0]), max(end, touched[-1][1]))
    contents = windows[touched[0]]
    if touched[0] == whole:
        return Merge(whole, contents)
    return Merge(whole, contents, tuple(touched), tuple([windows[window] for window in touched[1:]]))


def merged(windows: Windows, merge: Merge) -> dict[Span, Span]:
    """The set after a merge.

    >>> merged({(0, 10): (0, 10)}, Merge((0, 12), (0, 10), ended=((0, 10),)))
    {(0, 12): (0, 10)}
    """
    left = {window: contents for window, contents in windows.items() if window not in merge.ended}
    left[merge.window] = merge.contents
    return left


def _text(span: Span) -> str:
    return f"[{span[0]},{span[1]})"
