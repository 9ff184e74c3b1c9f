"""Frames of any size in rows of a bounded size: Spark and Arrow do not carry a row of tens of megabytes.

A frame above ``PIECE_BYTES`` goes over the exchange as several rows. Rows of one sending slot stay in order, those of
several mix, so each piece says which slot it comes from:

    0      1       3     4
    kind   sender  last  piece …
    0xC0   u16     u8

On its way through several stages a frame is put together and cut again at each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from moorline.subtask.output import Rows

#: No row is larger than this and a few bytes.
PIECE_BYTES = 4 << 20

#: No frame begins with it (``model/wire/elements.py``).
_KIND = 0xC0
_HEAD = struct.Struct(">BHB")


def cut(rows: Rows, sender: int) -> Iterator[tuple[int, bytes]]:
    """The rows that ``rows`` become on the exchange. ``sender``: the slot they are sent from.

    >>> [len(row) for _, row in cut([(0, bytes(PIECE_BYTES)), (0, bytes(PIECE_BYTES + 1))], 3)]
    [4194304, 4194308, 5]
    """
    for slot, frame in rows:
        if len(frame) <= PIECE_BYTES:
            yield slot, frame
            continue
        for at in range(0, len(frame), PIECE_BYTES):
            is_last = at + PIECE_BYTES >= len(frame)
            yield slot, _HEAD.pack(_KIND, sender, is_last) + frame[at : at + PIECE_BYTES]


class Pieces:
    """Puts frames together again.

    >>> pieces = Pieces()
    >>> frames = [pieces.add(row) for _, row in cut([(0, bytes(PIECE_BYTES + 1))], 3)]
    >>> frames[0], len(frames[1])
    (None, 4194305)
    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[bytes]] = {}

    def add(self, row: bytes) -> bytes | None:
        """The frame that ``row`` is, or is the end of; None if more of it is to come."""
        if row[0] != _KIND:
            return row
        _, sender, is_last = _HEAD.unpack_from(row)
        parts = self._waiting.setdefault(sender, [])
        parts.append(row[_HEAD.size :])
        if not is_last:
            return None
        return b"".join(self._waiting.pop(sender))
