"""An entry of the history that will not come back is given up by its number: on record, and by name alone."""

from __future__ import annotations

import uuid

import pytest
from driver_worlds import World, small_job

import moorline as mo
from moorline.errors import HistoryBroken, InvalidArgument, JobNotEnded
from moorline.model.manifest import Claim
from moorline.snapshots.inspection import Verdict
from moorline.storage.log import read_history
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store


def lost(ended: bool = True) -> tuple[str, int]:
    """The folder of a job whose one checkpoint has no entry any more, and the number that it had."""
    url = f"memory://{uuid.uuid4().hex}/small"
    store = open_store(url)
    world = World(store=store)
    if not ended:
        assert world.history is not None
        world.history.process = "5a1f0b0e-another-boot/pid:[4026531836]/4711/123456"
    world.run().complete()
    newest = store.list("history/")[-1].path
    store.delete([newest])
    return url, int(newest[-15:-5])


def test_a_job_begins_empty_after_its_lost_checkpoint_was_given_up_and_sinks_take_back_what_it_had_published():
    taken_back = []

    class Ledger(mo.Sink):
        def open(self, ctx):
            return mo.SinkWriter()

        def roll_back(self, job, uid, checkpoint, lineages):
            taken_back.append(checkpoint)

    url, number = lost()
    store = open_store(url)
    refused = World(store=store, restore="latest").start()
    assert isinstance(refused.supervision.error, HistoryBroken)
    assert mo.fsck(url).verdict is Verdict.LOST
    mo.give_up(url, [number])
    assert mo.fsck(url).verdict is Verdict.SOUND
    world = World(store=store, restore="latest", job=small_job(Ledger())).run()
    assert world.supervision.restored_from == [0]
    assert taken_back == [0]
    assert world.complete() == 2, "no number is used twice"


def test_that_it_was_given_up_is_on_record():
    url, number = lost()
    mo.give_up(url, [number])
    claims = [r.entry for r in read_history(open_store(url)) if isinstance(r.entry, Claim)]
    assert any(claim.given_up_entries == [number] for claim in claims)
    assert claims[-1].ended


def test_an_entry_that_can_be_read_cannot_be_given_up():
    url, number = lost()
    with pytest.raises(InvalidArgument, match=f"can be given up are: {number}"):
        mo.give_up(url, [1])


def test_nothing_is_given_up_beside_a_driver_that_may_run():
    url, number = lost(ended=False)
    before = open_store(url).list()
    with pytest.raises(JobNotEnded):
        mo.give_up(url, [number])
    assert open_store(url).list() == before
    mo.give_up(url, [number], take_over=True)


def test_a_job_that_ends_beside_a_damaged_entry_says_that_unused_files_may_be_left(caplog):
    store = MemoryStore()
    checkpoints = mo.Checkpoints("memory://small", interval="1s", retained=3)
    world = World(store=store, checkpoints=checkpoints).run()
    world.complete()
    newest = store.list("history/")[-1].path
    store.delete([newest])
    store.put(newest, b"not an entry")
    world.finish()
    assert world.status is mo.JobStatus.FINISHED
    assert not world.supervision.is_tidy
    assert "`moorline fsck` names it" in caplog.text
