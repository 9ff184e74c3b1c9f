"""Before anything is started: can the job read what the snapshot holds?"""

from __future__ import annotations

import dataclasses
import logging

import pytest

import moorline as mo
from moorline.driver.preflight import check_types
from moorline.errors import StateIncompatible
from moorline.model.manifest import KeyedHandle, Manifest, OperatorEntry, OperatorHandles


@dataclasses.dataclass
class User:
    name: str
    visits: int = 0


class Visits(mo.KeyedProcessFunction):
    user = mo.ValueState(User)
    pages = mo.MapState(str, float)

    def process_element(self, value, ctx):
        yield value


def graph():
    job = mo.Job("visits")
    job.source(mo.from_items([1])).key_by(lambda v: v).process(Visits(), uid="visits").sink(mo.discard())
    return job.graph()


def manifest(*handles: KeyedHandle, uid: str = "visits") -> Manifest:
    return Manifest("visits", 1, 1, 0, [OperatorEntry(uid, "Visits", 1, 128, [OperatorHandles(uid, list(handles))])])


def value(type_name: str, kind: str = "value", state: str = "user") -> KeyedHandle:
    return KeyedHandle(state, kind, type_name, 0, 128, 1)


def test_what_fits_passes_in_silence(caplog):
    with caplog.at_level(logging.INFO, "moorline"):
        check_types(manifest(value("User(name: str, visits: int)"), value("str to float", "map", "pages")), graph())
    assert not caplog.records


def test_what_will_be_converted_is_told(caplog):
    with caplog.at_level(logging.INFO, "moorline"):
        check_types(manifest(value("User(name: str)"), value("str to int", "map", "pages")), graph())
    told = [record.message for record in caplog.records]
    assert any("'visits'" in line and "added" in line for line in told)
    assert any("widened from int to float" in line for line in told)


@pytest.mark.parametrize(
    ("handle", "reason"),
    [
        (value("User(name: int)"), "name"),
        (value("str to str", "map", "pages"), "str"),
        (value("User(name: str)", "list"), "list of"),
        (KeyedHandle("", "native", "", 0, 128, 0, states=[("user", "value", "User(name: int)")]), "name"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_operator_state_and_reason(handle, reason):
    with pytest.raises(StateIncompatible, match=reason) as refused:
        check_types(manifest(handle), graph())
    assert refused.value.uid == "visits"
    assert refused.value.state in ("user", "pages")


def test_operators_that_the_job_no_longer_has_are_not_its_business():
    check_types(manifest(value("whatever"), uid="other"), graph())
