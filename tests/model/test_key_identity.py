"""What stands for a key in memory is equal to another exactly when their encodings are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from key_samples import Account, Colour, Level, Name, Point, Purse, all_keys, are_one_in_a_dict, clashing
from thoroughness import examples

from moorline.errors import KeyClassesClash, KeyClassUnknown
from moorline.model.keys import ClassKey, NotAKey, decode_identity, encode
from moorline.model.keys.identity import KeyIdentities, compares_as_encoded, stands_for_itself

BERLIN = ZoneInfo("Europe/Berlin")
BEFORE, AFTER = (datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1))

repeated_hour = st.sampled_from(
    [BEFORE, AFTER, BEFORE.astimezone(UTC), AFTER.astimezone(UTC), ("a", BEFORE), ("a", AFTER)]
)
keys = clashing | repeated_hour | st.tuples(clashing | repeated_hour, clashing)


@settings(max_examples=examples(500))
@given(keys, keys)
def test_what_stands_for_two_keys_is_equal_exactly_when_their_encodings_are(a, b):
    identities = KeyIdentities("op")
    is_one = encode(a) == encode(b)
    assert (len({identities.of(a), identities.of(b)}) == 1) == is_one
    assert (len({identities.of(a), decode_identity(encode(b))}) == 1) == is_one
    assert (decode_identity(encode(b)) == identities.of(a)) == is_one


@given(keys)
def test_it_has_the_encoding_of_the_key_and_gives_the_key_back(key):
    identities = KeyIdentities("op")
    identity = identities.of(key)
    assert encode(identity) == encode(key)
    assert encode(identities.shown(identity)) == encode(key)
    if "READ|" not in repr(key):  # a name that no member has
        assert encode(identities.shown(decode_identity(encode(key)))) == encode(key)


@settings(max_examples=examples(500))
@given(keys, keys)
def test_in_a_dict_of_keys_that_compare_as_they_are_encoded_no_other_key_is_found(a, b):
    if compares_as_encoded(a) and are_one_in_a_dict(a, b):
        assert encode(a) == encode(b)


@given(st.lists(st.integers() | st.text() | st.binary() | st.booleans()))
def test_plain_keys_stand_for_themselves_and_are_not_even_copied(some):
    assert KeyIdentities("op").of_batch(some) is some


@given(all_keys)
def test_what_stands_for_itself_is_left_as_it_is(key):
    if stands_for_itself(key):
        assert KeyIdentities("op").of(key) is key


@pytest.mark.parametrize(
    "key", [BEFORE, AFTER, Colour.RED, Level.LOW, Name.ANN, Point(1, 2), Account("a", 1, "note")], ids=repr
)
def test_user_code_gets_the_very_object_that_its_record_brought(key):
    identities = KeyIdentities("op")
    assert identities.shown(identities.of(key)) is key


def test_a_number_of_numpy_is_a_number():
    identities = KeyIdentities("op")
    found = [identities.of(np.int32(1)), identities.of(np.float32(0.5)), identities.of(np.bool_(True))]
    assert [(type(one), one) for one in found] == [(int, 1), (float, 0.5), (int, 1)]


def test_a_restored_key_is_made_when_its_class_is_declared_or_was_seen():
    restored = [decode_identity(encode(key)) for key in (Colour.RED, Purse("a", 1), ("a", Colour.BLUE))]
    assert type(restored[0]) is ClassKey
    unknown, declared, seen = KeyIdentities("op"), KeyIdentities("op", Colour | Purse), KeyIdentities("op")
    seen.of((Colour.RED, Purse("b", 2)))
    for identity in restored:
        with pytest.raises(KeyClassUnknown, match=r"'(Colour|Purse)'"):
            unknown.shown(identity)
    for identities in (declared, seen):
        assert [identities.shown(one) for one in restored] == [Colour.RED, Purse("a", 1), ("a", Colour.BLUE)]


def test_two_classes_of_one_name_and_of_two_modules_are_refused_wherever_they_are():
    elsewhere = Enum("Colour", "RED BLUE", module="elsewhere")
    for one, other in (
        (Colour.RED, elsewhere.RED),
        (("a", Colour.RED), elsewhere.BLUE),
        (Purse(Colour.RED, 1), (elsewhere.RED,)),
    ):
        identities = KeyIdentities("op")
        identities.of(one)
        with pytest.raises(KeyClassesClash, match=r"'op'.*'Colour'.*'elsewhere'"):
            identities.of(other)


def test_a_class_that_was_made_anew_in_its_module_is_the_same_class():
    def made():
        @dataclass(frozen=True)
        class Again:
            x: int

        return Again(1)

    identities = KeyIdentities("op")
    assert identities.of(made()) == identities.of(made())


@pytest.mark.parametrize("key", [[1], {1}, None, object(), float])
def test_what_is_no_key_stands_for_nothing(key):
    with pytest.raises(NotAKey):
        KeyIdentities("op").of(key)


def test_the_zone_of_a_moment_does_not_matter():
    identities = KeyIdentities("op")
    zones = [BERLIN, UTC, timezone(timedelta(hours=5))]
    assert len({identities.of(AFTER.astimezone(zone)) for zone in zones}) == 1
    assert len({identities.of((AFTER.astimezone(zone), Decimal("1.0"))) for zone in zones}) == 1
