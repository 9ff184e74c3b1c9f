"""Into which ranges of key groups the reading of a state is cut, so that Spark's tasks share it evenly.

What a key group weighs is taken from the segments of the files, which the manifest lists: nothing is read for it.
Native files cannot be cut, so there each handle is one range.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, NativeHandle

#: About so many bytes of files per range.
SPLIT_BYTES = 32 << 20


def splits(
    handles: Sequence[KeyedHandle], wanted: Collection[int], max_parallelism: int, split_bytes: int = SPLIT_BYTES
) -> list[KeyGroupRange]:
    """Ranges that cover the wanted key groups as far as they have rows, of about the same weight.

    >>> handle = NativeHandle(0, 64)
    >>> [str(r) for r in splits([handle], range(10, 20), 128)]
    ['[10,20)']
    >>> [str(r) for r in splits([handle], {3, 4, 9}, 128)]
    ['[3,5)', '[9,10)']
    """
    weights = np.zeros(max_parallelism)
    cuts = {0}
    for handle in handles:
        covered = handle.key_groups & KeyGroupRange(0, max_parallelism)
        if isinstance(handle, NativeHandle) or handle.file is None:
            weights[covered.first : covered.end] += 1
            cuts |= {covered.first, covered.end}
            continue
        for segment in handle.file.segments:
            common = KeyGroupRange(segment.first, segment.end) & covered
            if common:
                weights[common.first : common.end] += max(segment.size, 0) / len(common)
    pieces: list[KeyGroupRange] = []
    first, weight = -1, 0.0
    for group in range(max_parallelism + 1):
        is_wanted = group < max_parallelism and group in wanted and weights[group] > 0
        if first >= 0 and (not is_wanted or weight >= split_bytes or group in cuts):
            pieces.append(KeyGroupRange(first, group))
            first, weight = -1, 0.0
        if is_wanted:
            first = group if first < 0 else first
            weight += weights[group]
    return pieces
