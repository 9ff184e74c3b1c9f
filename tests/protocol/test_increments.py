"""When chains are folded, and what that costs."""

from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.model.config.thresholds import Folding
from moorline.model.manifest import RowsHandle, Segment, SnapshotFile
from moorline.model.type_tree.tree import INT
from moorline.protocol.increments import is_fold_due

MAX_INCREMENTS, MAX_FILES = Folding().max_increments, Folding().max_files


def handle(rows, increment=False, first=0, end=128, width=None):
    file = None
    if width is not None:
        file = SnapshotFile("f", 10, [Segment(0, width, 0, 5, ""), Segment(0, 0, 5, 5, "")])
    return RowsHandle("s", "value", INT, first, end, rows, file, increment)


def test_increments_of_half_the_base_are_kept_and_more_are_folded():
    base = handle(100)
    assert not is_fold_due([base], 50)
    assert is_fold_due([base], 51)
    assert not is_fold_due([base, handle(20, True)], 30)
    assert is_fold_due([base, handle(20, True)], 31)


def test_a_chain_of_many_small_increments_is_folded():
    base = handle(1_000_000)
    steps = [handle(1, True)] * (MAX_INCREMENTS - 1)
    assert not is_fold_due([base, *steps], 1)
    assert is_fold_due([base, *steps, steps[0]], 1)


def test_a_large_increment_in_several_files_is_one_increment():
    files = [handle(1, True, first=first, end=first + 32) for first in range(0, 128, 32)]
    base = handle(1_000_000)
    assert not is_fold_due([base, *files * (MAX_INCREMENTS - 1)], 1)
    assert is_fold_due([base, *files * MAX_INCREMENTS], 1)


def test_small_increments_that_look_like_one_do_not_pile_up():
    ascending = [handle(1, True, first=group, end=group + 1) for group in range(128)]
    assert not is_fold_due([handle(1_000_000), *ascending[: MAX_FILES - 1]], 1)
    assert is_fold_due([handle(1_000_000), *ascending[:MAX_FILES]], 1)


def test_after_a_rescale_only_the_own_share_of_a_file_counts():
    share = handle(1000, first=0, end=16, width=128)
    assert not is_fold_due([share], 60)
    assert is_fold_due([share], 63)


@settings(max_examples=examples(200), deadline=None)
@given(size=st.integers(1, 5000), changes=st.lists(st.integers(1, 5000), min_size=1, max_size=120))
def test_a_checkpoint_writes_little_more_than_what_has_changed(size, changes):
    """The bound of the docstring: four times the changes, and a part of the state per checkpoint."""
    chain = [handle(size)]
    written = changed = 0
    for change in changes:
        change = min(change, size)
        changed += change
        if is_fold_due(chain, change):
            written += size
            chain = [handle(size)]
        else:
            written += change
            chain.append(handle(change, True))
        assert written <= 4 * changed + size * len(changes) / MAX_INCREMENTS
        # What a restore reads.
        assert sum(h.rows for h in chain) <= 1.5 * size
        assert len(chain) <= MAX_INCREMENTS + 1
