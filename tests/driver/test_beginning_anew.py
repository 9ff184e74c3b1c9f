"""A job begins anew only where no earlier run of it may be alive, unless somebody says so by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from driver_worlds import World
from waiting import eventually

import moorline as mo
from moorline.driver import processes
from moorline.errors import Fenced, JobNotEnded
from moorline.model.manifest import Claim
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore

S = mo.JobStatus
ELSEWHERE = "5a1f0b0e-another-boot/pid:[4026531836]/4711/123456"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def production(store) -> Iterator[World]:
    """A job that runs in this process and has completed a checkpoint."""
    world = World(store=store)
    processes.driver_runs(world.supervision.writer)
    world.run().complete()
    yield world
    processes.driver_ended(world.supervision.writer)


def test_a_fresh_start_beside_a_living_driver_is_refused_and_nothing_is_written(store, production):
    before = store.list()
    fresh = World(store=store).start()
    assert fresh.status is S.FAILED
    error = fresh.supervision.error
    assert isinstance(error, JobNotEnded)
    assert (error.job, error.lives, error.attempt) == ("small", True, 1)
    assert "take_over=True" in str(error) and 'restore="latest"' in str(error)
    assert store.list() == before
    assert production.complete() == 2, "and the job goes on"


def test_so_is_one_from_a_savepoint(store, production):
    fresh = World(store=store, restore="memory://nightly").start()
    assert isinstance(fresh.supervision.error, JobNotEnded)


def test_to_take_over_by_name_fences_the_living_driver(store, production):
    fresh = World(store=store, take_over=True).run()
    assert fresh.supervision.restored_from == [0]
    production.complete()
    production.end_attempt(error="cancelled")
    assert production.status is S.FAILED and isinstance(production.supervision.error, Fenced)


def test_to_go_on_from_the_latest_checkpoint_needs_no_permission(store, production):
    assert World(store=store, restore="latest").run().supervision.restored_from == [1]


def test_after_a_driver_that_died_on_this_machine_a_job_begins_anew(store, production):
    processes.driver_ended(production.supervision.writer)
    assert World(store=store).run().supervision.restored_from == [0]


def test_whether_a_driver_elsewhere_lives_cannot_be_told_so_it_is_not_taken_for_dead(store):
    world = World(store=store)
    assert world.history is not None
    world.history.process = ELSEWHERE
    world.run().complete()
    fresh = World(store=store).start()
    error = fresh.supervision.error
    assert isinstance(error, JobNotEnded) and not error.lives
    assert "may be running elsewhere" in str(error)
    world.finish()
    assert World(store=store).run().supervision.restored_from == [0], "its end is on record"


@pytest.mark.parametrize("how", ["finished", "cancelled", "failed"])
def test_an_end_is_put_on_record_however_it_came(store, how):
    world = World(store=store, restart=mo.NoRestart()).run()
    world.complete()
    if how == "finished":
        world.finish()
    elif how == "cancelled":
        world.supervision.cancel(world.now_ms)
        world.end_attempt(error="cancelled")
    else:
        world.supervision.line_lost(1, world.subtasks[0])
        world.end_attempt(error="lost")
    newest = History(store, "small").read()[-1].entry
    assert isinstance(newest, Claim) and newest.ended == how == world.status.value


def test_a_driver_that_was_taken_over_puts_no_end_on_record(store):
    first = World(store=store).run()
    World(store=store, restore="latest").run()
    first.pass_time(1_000)
    first.acknowledge(1)
    first.end_attempt(error="cancelled")
    assert isinstance(first.supervision.error, Fenced)
    newest = History(store, "small").read()[-1].entry
    assert isinstance(newest, Claim) and not newest.ended


def test_claims_of_earlier_versions_keep_nobody_from_beginning_anew(store):
    world = World(store=store)
    assert world.history is not None
    world.history.process = ""
    world.run().complete()
    assert World(store=store).run().supervision.restored_from == [0]


def test_a_start_that_storage_interrupted_is_not_taken_for_another_driver(store):
    history = History(store, "small")
    history.process = ELSEWHERE
    history.claim(True, 0)
    world = World(store=store, history=history)
    assert world.run().supervision.restored_from == [0]


def test_a_process_is_alive_until_it_is_dead():
    script = "from moorline.driver.processes import this_process; print(this_process(), flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=None
    )
    assert child.stdout is not None
    word = child.stdout.readline().strip()
    assert processes.is_alive(word, "its writer") is True
    child.kill()
    eventually(lambda: processes.is_alive(word, "its writer") is False, "its end to be seen")
    child.wait()
    assert processes.is_alive(word, "its writer") is False
    assert processes.is_alive(ELSEWHERE, "its writer") is None
    assert processes.is_alive("", "its writer") is None


def test_a_process_that_got_the_number_of_a_dead_one_is_another():
    where, _, started = processes.this_process().rpartition("/")
    assert processes.is_alive(f"{where}/{int(started) - 1}", "its writer") is False
