"""Frames that are cut into rows come out whole, however the rows of several senders mix."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from moorline.spark import pieces
from moorline.spark.pieces import Pieces, cut


@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=40).map(lambda b: b"\x01" + b), max_size=5), max_size=4),
    st.randoms(use_true_random=False),
)
def test_frames_come_out_whole_and_in_the_order_of_each_sender(senders: list[list[bytes]], chance: random.Random):
    most, pieces.PIECE_BYTES = pieces.PIECE_BYTES, 7
    try:
        queues = [[row for _, row in cut([(0, frame) for frame in frames], n)] for n, frames in enumerate(senders)]
        joined: list[list[bytes]] = [[] for _ in senders]
        together = Pieces()
        while any(queues):
            n = chance.choice([n for n, queue in enumerate(queues) if queue])
            row = queues[n].pop(0)
            assert len(row) <= 7 + 4
            frame = together.add(row)
            if frame is not None:
                joined[n].append(frame)
        assert joined == senders
    finally:
        pieces.PIECE_BYTES = most
