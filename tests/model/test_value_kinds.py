"""The table of value kinds: each row is whole, and what it says is what was stored from the beginning."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from moorline.model.keys.leaves import LEAF_DECODERS
from moorline.model.value_kinds import KINDS, LOWERED, TYPES, LoweredKind

SAMPLES = {
    datetime: datetime(2024, 5, 1, 12, 30, 0, 5, tzinfo=UTC),
    date: date(2024, 5, 1),
    time: time(12, 30, 0, 5),
    timedelta: timedelta.max,
    Decimal: Decimal("1.20"),
    UUID: UUID(int=5),
}


def test_no_two_kinds_share_a_name_a_type_or_a_number():
    assert len({kind.name for kind in KINDS}) == len(KINDS) == len(TYPES)
    assert len({kind.extension for kind in LOWERED}) == len(LOWERED)


def test_the_tags_of_the_kinds_are_those_of_keys_without_parts():
    tags = {tag.encode() for kind in KINDS for tag in kind.key_tags}
    assert tags == LEAF_DECODERS.keys()


def test_a_subclass_stands_before_its_base():
    for number, kind in enumerate(KINDS):
        assert not any(issubclass(later.type, kind.type) for later in KINDS[number + 1 :])


@pytest.mark.parametrize("kind", LOWERED, ids=lambda kind: kind.name)
def test_a_form_gives_its_value_back(kind: LoweredKind):
    value = SAMPLES[kind.type]
    for form in (kind.json, kind.packed or kind.json):
        lowered = form.lower(value)
        assert type(lowered) is form.wire
        assert form.lift(lowered) == value


def test_the_numbers_and_forms_are_those_of_the_storage_format():
    assert {kind.name: kind.extension for kind in LOWERED} == {
        "date": 4,
        "datetime": 5,
        "time": 6,
        "timedelta": 7,
        "Decimal": 8,
        "UUID": 9,
    }
    assert [kind.json.lower(SAMPLES[kind.type]) for kind in LOWERED] == [
        "2024-05-01T12:30:00.000005+00:00",
        "2024-05-01",
        "12:30:00.000005",
        86399999999999999999,
        "1.20",
        "00000000-0000-0000-0000-000000000005",
    ]
