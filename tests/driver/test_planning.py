"""What would become of each state, told before anything starts."""

from __future__ import annotations

import dataclasses

import pytest

import moorline as mo
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import ElementsHandle, Manifest, OperatorEntry, OperatorHandles, SnapshotFile, file_handle
from moorline.model.type_tree.stored import state_type
from moorline.snapshots.folders import delete_savepoint, new_folder, open_snapshot, write_savepoint
from moorline.snapshots.planning import plan_restore
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store


@dataclasses.dataclass
class User:
    name: str
    visits: int = 0


class Visits(mo.KeyedProcessFunction):
    user = mo.ValueState(User)
    pages = mo.MapState(str, float)
    fresh = mo.ListState(int)

    def process_element(self, value, ctx):
        yield value


class Asks(Visits):
    def open(self, runtime_context):
        self.more = runtime_context.get_state(mo.ValueStateDescriptor("more", int))


def job(function=None, **options):
    made = mo.Job("visits", max_parallelism=8)
    source = made.source(mo.from_items([1]), uid="source")
    source.key_by(lambda v: v).process(function or Visits(), uid="visits", **options).sink(mo.discard(), uid="sink")
    return made


def manifest(*handles, uid="visits", elements=(), key_groups=8):
    entry = OperatorEntry(uid, "Visits", 1, key_groups, [OperatorHandles(uid, list(handles), list(elements))])
    return Manifest("visits", 1, 7, 0, [entry])


def keyed(state, kind, type_name):
    return file_handle(
        state, kind, state_type(kind, type_name), KeyGroupRange(0, 8), 3, SnapshotFile("data/chk-7/visits/s", 0, [])
    )


def verdicts(plan):
    return {(s.uid, s.state): s.verdict for s in plan.states}


def test_each_state_gets_a_verdict():
    stored = manifest(keyed("user", "value", "User(name: str)"), keyed("pages", "map", "str to float"))
    plan = plan_restore(stored, job().graph(), "here")
    assert verdicts(plan) == {
        ("visits", "user"): "converted",
        ("visits", "pages"): "matches",
        ("visits", "fresh"): "new",
    }
    assert plan.is_safe
    assert "added" in str(plan)
    assert "would start" in str(plan)


@pytest.mark.parametrize(
    ("stored", "verdict"),
    [
        (keyed("user", "value", "User(name: int)"), "IMPOSSIBLE"),
        (keyed("user", "list", "User(name: str, visits: int)"), "IMPOSSIBLE"),
        (keyed("gone", "value", "int"), "LOST"),
    ],
)
def test_what_would_be_lost_or_cannot_be_read_is_not_safe(stored, verdict):
    plan = plan_restore(manifest(stored), job().graph(), "here")
    assert verdicts(plan)["visits", stored.state] == verdict
    assert not plan.is_safe
    assert "REFUSE" in str(plan)


def test_a_state_that_is_dropped_by_name_is_safe():
    plan = plan_restore(manifest(keyed("gone", "value", "int")), job(drop_states=["gone"]).graph(), "here")
    assert verdicts(plan)["visits", "gone"] == "dropped"
    assert plan.is_safe


def test_a_function_that_asks_in_open_may_want_what_is_not_declared():
    plan = plan_restore(manifest(keyed("more", "value", "int")), job(Asks()).graph(), "here")
    assert verdicts(plan)["visits", "more"] == "unknown"
    assert plan.is_safe


@pytest.mark.parametrize(("allowed", "verdict"), [(False, "LOST"), (True, "dropped")])
def test_an_operator_that_is_gone(allowed, verdict):
    stored = manifest(keyed("user", "value", "int"), uid="old", elements=[ElementsHandle("held", "split", 2)])
    plan = plan_restore(stored, job().graph(), "here", allowed)
    assert verdicts(plan)["old", "user"] == verdict
    assert verdicts(plan)["old", "held"] == verdict
    assert plan.is_safe == allowed


def test_another_number_of_key_groups_is_told():
    plan = plan_restore(manifest(keyed("user", "value", "User(name: str)"), key_groups=4), job().graph(), "here")
    assert plan.is_safe
    assert "the snapshot has 4 key groups and the job 8: all keyed state is dealt out anew" in str(plan)


def test_key_groups_that_cannot_change_are_a_problem():
    plan = plan_restore(manifest(keyed("files", "raw", "bytes"), key_groups=4), job().graph(), "here")
    assert not plan.is_safe
    assert "raw keyed state cannot be dealt out anew" in str(plan)


def test_a_savepoint_is_planned_from_its_folder():
    store = open_store("memory://planned")
    assert isinstance(store, MemoryStore)
    assert new_folder("memory://planned") == "memory://planned"
    write_savepoint(store, manifest(keyed("user", "value", "User(name: str)")))
    plan = mo.plan(job(), restore="memory://planned")
    assert (plan.checkpoint, plan.key_groups, plan.is_safe) == (7, 8, True)
    with pytest.raises(mo.MoorlineError, match="already"):
        new_folder("memory://planned")
    found, _ = open_snapshot("memory://planned")
    assert found.checkpoint == 7
    delete_savepoint(store)
    with pytest.raises(mo.MoorlineError, match="no snapshot"):
        open_snapshot("memory://planned")


def test_operators_with_state_that_have_no_uid_are_named():
    unnamed = mo.Job("visits", max_parallelism=8)
    source = unnamed.source(mo.from_items([1]), uid="source")
    source.key_by(lambda v: v).process(Visits()).sink(mo.discard(), uid="sink")
    plan = plan_restore(manifest(), unnamed.graph(), "here", allow_non_restored=True)
    assert "uid='process-Visits-after-source'" in str(plan)
    assert plan_restore(manifest(), job().graph(), "here").notes == []


def test_keys_of_another_kind_are_a_problem_of_the_plan():
    made = mo.Job("visits", max_parallelism=8)
    source = made.source(mo.from_items([1]), uid="source")
    source.key_by(str).process(Visits(), uid="visits").sink(mo.discard(), uid="sink")
    entry = OperatorEntry("visits", "Visits", 1, 8, [OperatorHandles("visits", keys=["number"])])
    stored = Manifest("visits", 1, 7, 0, [entry])
    plan = plan_restore(stored, made.graph(), "here")
    assert not plan.is_safe
    assert "PROBLEM: the state of operator 'visits' is stored under keys of kind number" in str(plan)


def test_a_plan_says_of_which_kind_the_keys_must_be_if_the_job_does_not():
    entry = OperatorEntry("visits", "Visits", 1, 8, [OperatorHandles("visits", keys=["number"])])
    plan = plan_restore(Manifest("visits", 1, 7, 0, [entry]), job().graph(), "here")
    assert plan.is_safe
    assert "note: operator 'visits': its state is under keys of kind number" in str(plan)
    rekeyed = plan_restore(Manifest("visits", 1, 7, 0, [entry]), job(rekey=mo.Rekey("text", str)).graph(), "here")
    assert "rekey 'text' makes new keys of those of kind number" in str(rekeyed)
