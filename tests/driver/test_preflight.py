"""Before anything is started: can the job read what the snapshot holds?"""

from __future__ import annotations

import dataclasses
import logging

import msgspec
import pytest

import moorline as mo
from moorline.errors import KeysChanged, StateIncompatible
from moorline.model.manifest import (
    KeyedHandle,
    Manifest,
    NativeHandle,
    OperatorEntry,
    OperatorHandles,
    RowsHandle,
    StoredState,
)
from moorline.model.type_tree.old_text import read_type
from moorline.model.type_tree.stored import state_type
from moorline.snapshots.compatibility import check_keys, check_types, with_key_kinds
from moorline.testing import OperatorHarness


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
    return RowsHandle(state, kind, state_type(kind, type_name), 0, 128, 1)


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
        (NativeHandle(0, 128, states=[StoredState("user", "value", read_type("User(name: int)"))]), "name"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_operator_state_and_reason(handle, reason):
    with pytest.raises(StateIncompatible, match=reason) as refused:
        check_types(manifest(handle), graph())
    assert refused.value.uid == "visits"
    assert refused.value.state in ("user", "pages")


def test_operators_that_the_job_no_longer_has_are_not_its_business():
    check_types(manifest(value("int"), uid="other"), graph())


# --- keys ---------------------------------------------------------------------------------------


def keyed_by(key, rekey=None, **options):
    job = mo.Job("visits")
    stream = job.source(mo.from_items([1])).key_by(key, **options)
    stream.process(Visits(), uid="visits", rekey=rekey).sink(mo.discard())
    return job.graph()


def with_keys(*kinds, rekeyed=""):
    handles = OperatorHandles("visits", [value("User(name: str)")], keys=list(kinds))
    return Manifest("visits", 1, 1, 0, [OperatorEntry("visits", "Visits", 1, 128, [handles], rekeyed)])


def name_of(record) -> str:
    return record["name"]


@pytest.mark.parametrize(
    ("stored", "now"),
    [
        ("number", keyed_by(str)),
        ("number", keyed_by(name_of)),
        ("str", keyed_by(lambda r: r, key_type=int)),
        ("str", keyed_by(lambda r: r, key_type=tuple[str, int])),
        ("(str, number)", keyed_by(lambda r: r, key_type=tuple[str, int, str])),
    ],
)
def test_keys_of_another_kind_are_refused_before_anything_starts(stored, now):
    with pytest.raises(KeysChanged, match=r"operator 'visits' is stored under keys of kind .*rekey="):
        check_keys(with_keys(stored), now)


@pytest.mark.parametrize(
    ("stored", "now"),
    [
        (["number"], keyed_by(int)),
        (["number"], keyed_by(lambda r: r["name"])),
        (["number", "str"], keyed_by(str)),
        (["number"], keyed_by(lambda r: r, key_type=int | str)),
        ([], keyed_by(str)),
        (["number"], keyed_by(str, mo.Rekey("as-text", str))),
    ],
)
def test_keys_that_may_come_again_or_are_changed_on_purpose_pass(stored, now):
    check_keys(with_keys(*stored), now)


def test_a_change_of_keys_that_was_made_already_does_not_excuse_another():
    with pytest.raises(KeysChanged):
        check_keys(with_keys("number", rekeyed="as-text"), keyed_by(str, mo.Rekey("as-text", str)))


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        yield self.seen.value()


@pytest.mark.parametrize(
    ("key", "kinds"), [(7, ["number"]), ("a", ["str"]), (("a", 1), ["(str, number)"]), (b"x", ["bytes"])], ids=repr
)
def test_a_snapshot_without_kinds_of_keys_is_asked_for_some_of_its_rows(key, kinds):
    harness = OperatorHarness(Count(), key=lambda r: r, uid="visits")
    harness.process(key)
    snapshot = harness.snapshot()
    assert snapshot.manifest.operators[0].keys == kinds
    (entry,) = snapshot.manifest.operators
    before = [msgspec.structs.replace(subtask, keys=[]) for subtask in entry.subtasks]
    old = msgspec.structs.replace(snapshot.manifest, operators=[msgspec.structs.replace(entry, subtasks=before)])
    assert with_key_kinds(old, graph(), snapshot.store).operators[0].keys == kinds
