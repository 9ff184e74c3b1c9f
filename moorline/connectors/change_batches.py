"""Changes of state in batches of bounded size, for servers that would be busy too long with all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorline.api.state.external import Change


def batches(changes: Sequence[Change], max_rows: int, max_bytes: int) -> Iterator[Sequence[Change]]:
    """The changes, in order, in batches that end with the change that reaches one of the limits.

    >>> from moorline.api.state.external import Place
    >>> changes = [Change(Place("s", 0, b"k"), b"v" * size) for size in (1, 1, 1, 9, 1)]
    >>> [len(batch) for batch in batches(changes, max_rows=2, max_bytes=10)]
    [2, 2, 1]
    """
    first = size = 0
    for n, change in enumerate(changes):
        size += len(change.content or b"") + len(change.place.key)
        if n + 1 - first >= max_rows or size >= max_bytes:
            yield changes[first : n + 1]
            first, size = n + 1, 0
    if first < len(changes):
        yield changes[first:]
