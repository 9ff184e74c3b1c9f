"""Which checkpoint an attempt starts from, told as histories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.model.facts import HistoryRecord
from moorline.model.manifest import Claim, Manifest, next_checkpoint
from moorline.protocol.recovery import Refuse, RestoreFrom, StartEmpty, choose, line, lineage, own_lineages


def history(*words: str) -> list[HistoryRecord]:
    """``claim``, ``fresh``, a checkpoint's number, or ``damaged``; oldest first."""
    records = []
    for number, word in enumerate(words, 1):
        path = f"history/{number}"
        match word:
            case "claim" | "fresh":
                records.append(HistoryRecord(path, Claim("job", number, 0, word == "fresh")))
            case "damaged":
                records.append(HistoryRecord(path, None, "its checksum is wrong"))
            case _:
                records.append(HistoryRecord(path, Manifest("job", 1, int(word), 0, [])))
    return records


def chosen(words: str, refused: dict[int, str] | None = None) -> str:
    decision = choose(history(*words.split()), refused or {})
    passed_over = [path for path, _ in getattr(decision, "passed_over", ())]
    return str(decision) + (f", passing over {' '.join(passed_over)}" if passed_over else "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "start with empty state"),
        ("claim", "start with empty state"),
        ("fresh", "start with empty state"),
        ("fresh 1 2 3", "restore checkpoint 3"),
        ("fresh 1 2 claim claim", "restore checkpoint 2"),
        ("fresh 1 claim 2 claim", "restore checkpoint 2"),
        ("fresh 1 2 fresh", "start with empty state"),
        ("fresh 1 2 fresh 3", "restore checkpoint 3"),
        ("fresh 1 damaged fresh", "start with empty state"),
        ("fresh 1 2 damaged", "restore checkpoint 2, passing over history/4"),
        ("fresh 1 damaged damaged", "restore checkpoint 1, passing over history/4 history/3"),
        ("fresh 1 damaged 2", "restore checkpoint 2"),
        ("fresh damaged", "refuse to start: every checkpoint is damaged, passing over history/2"),
        ("damaged damaged", "refuse to start: every checkpoint is damaged, passing over history/2 history/1"),
    ],
)
def test_the_newest_whole_checkpoint_of_the_lineage_is_restored(words, expected):
    assert chosen(words) == expected


def test_a_checkpoint_that_turned_out_to_be_damaged_is_passed_over_with_the_reason():
    decision = choose(history("fresh", "1", "2", "3"), {3: "a file is missing", 2: "a checksum is wrong"})
    assert isinstance(decision, RestoreFrom)
    assert decision.manifest.checkpoint == 1
    assert decision.passed_over == (("history/4", "a file is missing"), ("history/3", "a checksum is wrong"))


def test_when_every_checkpoint_was_refused_the_job_does_not_start_empty_in_silence():
    decision = choose(history("fresh", "1", "2"), {1: "gone", 2: "gone"})
    assert isinstance(decision, Refuse)
    assert len(decision.passed_over) == 2


def test_a_refused_checkpoint_of_another_lineage_is_no_matter():
    assert chosen("fresh 1 fresh", {1: "gone"}) == "start with empty state"


def test_the_lineage_begins_after_the_last_fresh_claim():
    assert [r.path for r in lineage(history("fresh", "1", "claim", "2"))] == ["history/2", "history/3", "history/4"]
    assert [r.path for r in lineage(history("fresh", "1", "fresh", "2", "claim"))] == ["history/4", "history/5"]
    assert [r.path for r in lineage(history("1", "claim"))] == ["history/1", "history/2"]


def stopped(*after: HistoryRecord, number: int = 3, reached: int = 5) -> list[HistoryRecord]:
    """Checkpoints 1 and 2, a stop with savepoint 3, the final checkpoint 4, the end; and what comes after it."""
    end = Claim("job", 1, 0, False, reached, savepoint="file:///stop", stopped_at=number, ended="finished")
    return [*history("fresh", "1", "2", "4"), HistoryRecord("history/5", end), *after]


def test_the_final_checkpoint_of_a_stop_is_restored_while_it_is_whole():
    assert str(choose(stopped(), {})) == "restore checkpoint 4"


def test_a_final_checkpoint_that_cannot_be_used_leaves_the_savepoint_of_the_stop_before_older_checkpoints():
    decision = choose(stopped(), {4: "a file is missing"})
    assert decision == StartEmpty("file:///stop", 3, (("history/4", "a file is missing"),), 3)
    given_up = HistoryRecord("history/6", Claim("job", 2, 0, False, 5, [4]))
    assert choose(stopped(given_up), {}) == StartEmpty("file:///stop", 3, (), 3), "and the next start finds the same"


def test_a_savepoint_of_a_stop_that_cannot_be_used_either_leaves_the_older_checkpoints():
    decision = choose(stopped(), {4: "a file is missing", 3: "it is gone"})
    assert isinstance(decision, RestoreFrom)
    assert decision.manifest.checkpoint == 2
    assert decision.passed_over == (("history/4", "a file is missing"), ("file:///stop", "it is gone"))


def test_when_the_final_checkpoint_and_the_savepoint_are_lost_and_nothing_else_is_left_both_are_told():
    decision = choose([r for r in stopped() if r.path not in ("history/2", "history/3")], {4: "bad", 3: "gone"})
    assert decision == Refuse((("history/4", "bad"), ("file:///stop", "gone")))


def test_the_savepoint_of_a_stop_does_not_count_once_a_newer_checkpoint_was_complete():
    newer = HistoryRecord("history/6", Manifest("job", 2, 5, 0, []))
    assert str(choose(stopped(newer), {4: "bad", 5: "bad"})) == "restore checkpoint 2"
    removed = HistoryRecord("history/6", Claim("job", 2, 0, False, 6))
    assert str(choose(stopped(removed), {4: "bad"})) == "restore checkpoint 2", "also if that one has been removed"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("", 1), ("fresh", 1), ("fresh 1 2", 3), ("fresh 7", 8), ("fresh 1 2 fresh", 3), ("fresh 5 fresh 6 claim", 7)],
)
def test_ids_are_never_used_twice_not_even_by_a_fresh_start(words, expected):
    assert next_checkpoint([r.entry for r in history(*words.split()) if r.entry is not None]) == expected


words = st.lists(st.sampled_from(["claim", "fresh", "manifest", "manifest", "damaged"]), max_size=12)


@given(words, st.sets(st.integers(1, 12)))
def test_the_decision_agrees_with_a_naive_one(kinds, refused):
    story = [str(n) if kind == "manifest" else kind for n, kind in enumerate(kinds, 1)]
    since = max((n for n, word in enumerate(story, 1) if word == "fresh"), default=0)
    mine = story[since:]
    usable = [int(w) for w in mine if w.isdigit() and int(w) not in refused]
    decision = choose(history(*story), dict.fromkeys(refused, "bad"))
    if usable:
        assert isinstance(decision, RestoreFrom)
        assert decision.manifest.checkpoint == max(usable)
    elif any(w == "damaged" or w.isdigit() for w in mine):
        assert isinstance(decision, Refuse)
    else:
        assert isinstance(decision, StartEmpty)


def test_lineages_of_a_history_begin_alike_until_it_begins_anew():
    words = ["fresh", "1", "claim", "2", "fresh", "3", "claim"]
    anew = [replace(record, seq=n) for n, record in enumerate(history(*words), 1)]
    first = anew[:4]
    assert line(first) == line(first[:1]) != line(anew) == line(anew[:5])
    assert own_lineages(first) == (line(first),)
    assert own_lineages(anew) == (line(anew),)


def test_lineages_of_earlier_versions_are_known_by_their_checkpoints():
    old = Manifest("job", 1, 1, 0, [], lineage="5f1e" * 8)
    records = [*history("fresh"), HistoryRecord("history/2", old), *history("claim")]
    assert own_lineages(records) == tuple(sorted(["5f1e" * 4, line(records)]))
    # There is no fresh claim in a history that has always been gone on with.
    assert line(records[1:]) == "5f1e" * 4
    assert own_lineages(records[1:]) == ("5f1e" * 4,)
    assert own_lineages(history("claim")) == (), "any, if nothing tells"
