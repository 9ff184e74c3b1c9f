"""The frames on the exchange: what is packed is what is unpacked."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.model.ids import CheckpointId
from moorline.model.wire import elements
from moorline.model.wire.elements import BARRIER, BATCH, HEAD, NO_STAGE, RESULT, Barrier, FrameHead

heads = st.builds(
    FrameHead,
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    st.integers(0, 255),
    *[st.integers(0, 2**16 - 1)] * 3,
)
records = st.lists(st.one_of(st.none(), st.integers(), st.text(), st.tuples(st.text(), st.floats(allow_nan=False))))


@given(heads)
def test_a_head_comes_back_as_it_was(head):
    assert elements.head(HEAD.pack(*head) + b"body") == head


@given(heads, st.lists(records, max_size=4))
def test_a_batch_comes_back_part_by_part(head, parts):
    frame = HEAD.pack(*head) + b"".join(map(elements.pack_records, parts))
    assert elements.head(frame) == head
    assert [records for _, records, _ in elements.unpack_batch(frame)] == parts


@given(heads, st.integers(1, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_a_barrier_comes_back_as_it_was(head, checkpoint, triggered_ms, final):
    barrier = Barrier(CheckpointId(checkpoint), triggered_ms, final, checkpoint - 1)
    frame = elements.pack_barrier(HEAD.pack(*head), barrier)
    assert elements.head(frame) == head
    assert elements.unpack_barrier(frame) == barrier


def test_the_layout_of_a_frame_is_fixed():
    head = HEAD.pack(BARRIER, 7, 2, 3, 4, 5)
    frame = elements.pack_barrier(head, Barrier(CheckpointId(9), 1000, True, 8))
    assert (
        frame.hex()
        == "02" + "00000007" + "02" + "0003" + "0004" + "0005" + f"{9:016x}" + f"{1000:016x}" + "01" + f"{8:016x}"
    )
    assert frame[5] == 2, "subtask/task.py reads the stage off the frame"
    assert BATCH == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["out", "größe", ""]), records), max_size=6))
def test_results_are_gathered_by_name_in_the_order_of_their_subtasks(sent):
    frames = [elements.pack_result(1, sender, name, batch) for sender, name, batch in sent]
    expected = {}
    for _, name, batch in sorted(sent, key=lambda s: s[0]):
        expected.setdefault(name, []).extend(batch)
    assert elements.unpack_results(frames) == expected
    assert all(elements.head(f).kind == RESULT and elements.head(f).stage == NO_STAGE for f in frames)


@pytest.mark.parametrize("shift", range(8))
def test_columns_begin_where_numbers_may_begin_wherever_they_stand_in_a_frame(shift):
    """NumPy's kernels are up to forty times slower on arrays that do not."""
    batch = pa.RecordBatch.from_pydict({"key": [1, 2, 3], "number": [4, 5, 6]})
    frame = bytes(shift) + elements.pack_columns(batch)
    _, found, _, _ = elements.unpack_part(frame, shift)
    assert found.batch == batch
    assert all(np.asarray(column).flags.aligned for column in found.batch.columns)
