"""Which unnamed files go, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorline.model.facts import UnnamedFile
from moorline.protocol.housekeeping import Housekeeping


def file(checkpoint: int, attempt: int = 3) -> UnnamedFile:
    return UnnamedFile(f"data/chk-{checkpoint}/count/sum-0-{attempt}-c0ffee.parquet", checkpoint, attempt)


def paths(*files: UnnamedFile) -> list[str]:
    return [f.path for f in files]


def test_a_file_goes_when_it_was_unnamed_for_the_grace_time():
    keeping = Housekeeping(attempt=3, grace_ms=1000, looked_ms=0)
    assert not keeping.is_due(999)
    assert keeping.is_due(1000)
    assert keeping.looked([file(1)], (), (), 1000) == []
    assert keeping.looked([file(1), file(2)], (), (), 1999) == []
    assert keeping.looked([file(1), file(2)], (), (), 2000) == paths(file(1))
    assert keeping.looked([file(2)], (), (), 3000) == paths(file(2))


def test_the_files_of_a_checkpoint_in_flight_never_go_however_long_it_takes():
    keeping = Housekeeping(attempt=3, grace_ms=1000, looked_ms=0)
    for now in range(0, 100_000, 1000):
        assert keeping.looked([file(7)], {7}, (), now) == []
    # Given up at last: its time begins now.
    assert keeping.looked([file(7)], (), (), 100_000) == []
    assert keeping.looked([file(7)], (), (), 101_000) == paths(file(7))


def test_the_files_of_a_checkpoint_that_may_have_been_published_wait_until_that_is_certain():
    keeping = Housekeeping(attempt=3, grace_ms=1000, looked_ms=0)
    assert keeping.looked([file(7)], (), {7}, 0) == []
    assert keeping.looked([file(7)], (), {7}, 5000) == []
    assert keeping.at_the_end([file(7), file(6)], {7}) == paths(file(6))


def test_the_files_of_earlier_attempts_go_whatever_their_checkpoint_and_those_of_later_ones_never():
    keeping = Housekeeping(attempt=3, grace_ms=0, looked_ms=0)
    assert keeping.looked([file(7, attempt=2), file(7, attempt=4)], {7}, {7}, 0) == paths(file(7, attempt=2))
    assert keeping.at_the_end([file(7, attempt=4)], ()) == []


def test_a_file_that_was_named_in_between_starts_anew():
    keeping = Housekeeping(attempt=3, grace_ms=1000, looked_ms=0)
    keeping.looked([file(1)], (), (), 0)
    keeping.looked([], (), (), 900)
    assert keeping.looked([file(1)], (), (), 1000) == []


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4))), st.sets(st.integers(1, 5)), st.sets(st.integers(1, 5))
)
def test_what_may_still_be_named_is_never_among_them(origins, in_flight, unsure):
    keeping = Housekeeping(attempt=3, grace_ms=0, looked_ms=0)
    found = [file(checkpoint, attempt) for checkpoint, attempt in origins]
    doomed = set(keeping.looked(found, in_flight, unsure, 0))
    for f in found:
        may_be_named = f.attempt > 3 or (f.attempt == 3 and f.checkpoint in in_flight | unsure)
        assert (f.path in doomed) is not may_be_named
