"""Too many connections that have proved nothing: who goes, and who is never turned away."""

from hypothesis import given
from hypothesis import strategies as st

from moorline.model.wire.waiting_room import WaitingRoom


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(1, 6))
def test_the_newcomer_always_comes_in_and_the_oldest_of_the_largest_crowd_goes(addresses, limit):
    room = WaitingRoom[int](limit, 5.0)
    inside: list[tuple[int, str]] = []
    for number, address in enumerate(addresses):
        evicted = room.enter(number, address, now=float(number))
        if evicted is not None:
            crowds = [a for _, a in inside]
            (victim,) = [entry for entry in inside if entry[0] == evicted]
            assert crowds.count(victim[1]) == max(map(crowds.count, crowds))
            assert victim == next(entry for entry in inside if entry[1] == victim[1])
            inside.remove(victim)
        inside.append((number, address))
        assert number in room
        assert len(room) == len(inside) <= limit


def test_a_crowd_from_one_address_leaves_the_others_alone():
    room = WaitingRoom[str](4, 5.0)
    room.enter("honest", "10.0.0.1", now=0.0)
    for number in range(100):
        assert room.enter(f"crowd {number}", "10.0.0.2", now=1.0) != "honest"
    assert room.leave("honest")


def test_the_deadline_is_for_the_whole_of_the_waiting():
    room = WaitingRoom[str](4, 5.0)
    room.enter("first", "a", now=0.0)
    room.enter("second", "a", now=3.0)
    assert room.overdue(now=5.0) == []
    assert room.overdue(now=5.1) == ["first"]
    assert not room.leave("first")
    assert room.leave("second")
    assert room.overdue(now=100.0) == []
