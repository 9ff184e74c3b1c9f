"""Several drivers for one job, on real threads: who leads, who waits, who takes over, who stops."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from election_driver import Driver
from real_servers import ZooKeeperServer, zookeeper_server  # noqa: F401
from waiting import PATIENCE, eventually

import moorline as mo
from moorline.errors import InvalidArgument, JobCancelled, JobFailed, LeadershipLost, StorageError
from moorline.model.config.run import RunConfig
from moorline.model.manifest import Claim
from moorline.model.wire.messages import Running
from moorline.storage.history import History
from moorline.storage.lease import LeaseFiles
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.memory import MemoryStore

pytestmark = pytest.mark.slow

S = mo.JobStatus


class CutStore(MemoryStore):
    """A driver's way to storage, which can be cut."""

    def __init__(self, behind: MemoryStore) -> None:
        super().__init__("cut")
        self._files, self._lock = behind._files, behind._lock
        self.is_cut = False

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.is_cut:
            raise StorageError(path, "reach", "the network is down")
        return super().put_if_absent(path, data)

    def list(self, prefix: str = "") -> list:
        if self.is_cut:
            raise StorageError(prefix, "reach", "the network is down")
        return super().list(prefix)


@pytest.fixture
def drivers() -> Iterator[Callable[..., Driver]]:
    made: list[Driver] = []

    def make(*args: object, **options: object) -> Driver:
        made.append(Driver(*args, **options))
        return made[-1]

    yield make
    for driver in made:
        driver.loop.post(lambda s, now: s.cancel(now))
        driver.loop.post(lambda s, now: s.attempt_ended(s.attempt, None, "over", now))
        assert driver.loop.wait(PATIENCE)
        driver.close()


#: Where nobody is to lose the lead: not even a driver that gets no processor for many seconds.
LEASE = mo.StorageLease(ttl="12s")
#: Where somebody is to lose it, so that another need not be waited for longer than that.
SHORT = "5s"


@pytest.fixture(params=["files", pytest.param("zookeeper", marks=pytest.mark.server("zookeeper_server"))])
def ha(request: pytest.FixtureRequest) -> mo.StorageLease | mo.ZooKeeper:
    if request.param == "files":
        return LEASE
    server = request.getfixturevalue("zookeeper_server")
    return mo.ZooKeeper(server.hosts, path=f"/test-{random.getrandbits(64):x}", ttl=LEASE.ttl)


def test_the_first_driver_leads_and_the_second_waits_while_it_lives(drivers, ha, caplog):
    caplog.set_level(logging.INFO, logger="moorline")
    store = MemoryStore()
    # A leader that gets no processor for two thirds of this has lost the lead, and rightly.
    ha = replace(ha, ttl="6s")
    first = drivers(store, ha)
    eventually(lambda: first.leads, "the first leads")
    second = drivers(store, ha)
    eventually(lambda: second.status is S.WAITING, "the second waits")
    # Twice as long as a dead leader would be waited for.
    time.sleep(12)
    assert (second.leads, second.status, first.status) == (False, S.WAITING, S.STARTING)
    assert "waiting, because process" in caplog.text


@pytest.fixture
def process(ha, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver that leads, in a process of its own. It is to lose the lead."""
    script = Path(__file__).with_name("election_driver.py")
    where = [ha.hosts, ha.path] if isinstance(ha, mo.ZooKeeper) else []
    command = [sys.executable, str(script), str(tmp_path), SHORT, *where]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as started:
        assert started.stdout is not None
        while (line := started.stdout.readline().strip()) != "leads":
            assert line in ("waiting", "starting")
        yield started
        started.kill()


def test_a_standby_takes_over_from_a_driver_that_was_killed_and_goes_on_with_its_run(drivers, ha, process, tmp_path):
    store = LocalStore(tmp_path)
    second = drivers(store, replace(ha, ttl=SHORT))
    eventually(lambda: second.election.waits_for, "the second waits")
    time.sleep(1)
    assert not second.leads
    process.kill()
    eventually(lambda: second.leads, "the second takes over")
    claims = [r.entry for r in History(store, "small").read() if isinstance(r.entry, Claim)]
    # Both were started without restore=: the second goes on all the same, for its run had begun.
    assert [claim.fresh for claim in claims] == [True, False]
    assert claims[0].run == claims[1].run != ""


def test_a_leader_that_stood_still_finds_out_that_it_no_longer_leads(drivers, ha, process, tmp_path):
    second = drivers(LocalStore(tmp_path), replace(ha, ttl=SHORT))
    eventually(lambda: second.election.waits_for, "the second waits")
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: second.leads, "the second takes over")
    process.send_signal(signal.SIGCONT)
    assert process.stdout.readline().strip() == "failed"
    assert process.stdout.readline().strip() == "LeadershipLost"
    assert process.wait(PATIENCE) == 0
    assert second.status is S.STARTING


def test_a_job_that_has_finished_is_finished_for_those_who_waited(drivers, ha):
    store = MemoryStore()
    first = drivers(store, ha)
    eventually(lambda: first.leads, "the first leads")
    second = drivers(store, ha)
    eventually(lambda: second.status is S.WAITING, "the second waits")
    time.sleep(0.3)
    first.loop.post(
        lambda s, now: [s.reported(1, t, Running(pid=1), now) for t in first.cluster.launched[0].plan.subtasks()]
    )
    first.end()
    eventually(lambda: second.status is S.FINISHED, "the second has heard of it")
    assert not second.leads
    # And whoever starts the job anew starts a run of its own.
    third = drivers(store, ha)
    eventually(lambda: third.leads, "the third leads")
    claims = [r.entry for r in History(store, "small").read() if isinstance(r.entry, Claim)]
    assert claims[-1].fresh
    assert claims[-1].run != claims[0].run


@pytest.mark.parametrize(("outcome", "error"), [("cancelled", JobCancelled), ("failed", JobFailed)])
def test_a_job_that_ended_badly_is_not_taken_up_by_those_who_waited(drivers, outcome, error):
    store = MemoryStore()
    first = drivers(store, LEASE)
    eventually(lambda: first.leads, "the first leads")
    second = drivers(store, LEASE)
    eventually(lambda: second.status is S.WAITING and second.election.waits_for, "the second waits")
    if outcome == "cancelled":
        first.loop.post(lambda s, now: s.cancel(now))
    first.loop.post(lambda s, now: s.attempt_ended(1, None, "it broke", now))
    assert first.loop.wait(PATIENCE)
    first.close()
    eventually(lambda: second.status.is_terminal, "the second has heard of it")
    assert second.status is S(outcome)
    assert isinstance(second.loop.error, error)


def test_a_leader_that_cannot_reach_storage_stops_before_another_takes_over(drivers):
    behind = MemoryStore()
    ways = [CutStore(behind), CutStore(behind)]
    first = drivers(ways[0], mo.StorageLease(ttl=SHORT))
    eventually(lambda: first.leads, "the first leads")
    second = drivers(ways[1], mo.StorageLease(ttl=SHORT))
    eventually(lambda: second.status is S.WAITING and second.election.waits_for, "the second waits")
    ways[0].is_cut = True
    eventually(lambda: first.cluster.cancelled, "the first stops")
    assert not second.leads
    first.loop.post(lambda s, now: s.attempt_ended(1, None, "cancelled", now))
    assert first.loop.wait(PATIENCE)
    assert first.status is S.FAILED
    assert isinstance(first.loop.error, LeadershipLost)
    assert "Start this one again" in str(first.loop.error)
    eventually(lambda: second.leads, "the second takes over")


def test_a_standby_can_be_cancelled_and_stopped(drivers):
    store = MemoryStore()
    first = drivers(store, LEASE)
    eventually(lambda: first.leads, "the first leads")
    for end, status in ((lambda s, now: s.cancel(now), S.CANCELLED), (lambda s, now: s.stop(now), S.FINISHED)):
        second = drivers(store, LEASE)
        eventually(lambda d=second: d.status is S.WAITING, "it waits")
        second.loop.post(end)
        assert second.loop.wait(PATIENCE)
        assert second.status is status
        second.close()
    time.sleep(1.0)
    assert first.status is S.STARTING, "what a standby does is nothing to the leader"


def test_the_lease_is_one_readable_file(drivers, tmp_path: Path):
    store = LocalStore(tmp_path)
    first = drivers(store, mo.StorageLease(ttl=SHORT))
    eventually(lambda: first.leads, "the first leads")
    eventually(lambda: [int(b.path[-15:-5]) > 2 for b in store.list("leader/")] == [True], "it renews")
    term = LeaseFiles(store).look()
    assert term is not None
    assert term.holder == first.history.writer


def test_a_lease_that_cannot_be_read_is_waited_for(drivers):
    store = MemoryStore()
    store.put("leader/0000000007.json", b"who knows")
    driver = drivers(store, mo.StorageLease(ttl=SHORT))
    eventually(lambda: driver.leads, "it takes over")
    assert driver.election._machine.term.number >= 8


def test_a_standby_that_ends_leaves_no_connection_to_zookeeper(drivers, zookeeper_server):  # noqa: F811
    ha = mo.ZooKeeper(zookeeper_server.hosts, path=f"/test-{random.getrandbits(64):x}", ttl=LEASE.ttl)
    store, before = MemoryStore(), set(threading.enumerate())
    first = drivers(store, ha)
    eventually(lambda: first.leads, "the first leads")
    leaders = set(threading.enumerate())
    second = drivers(store, ha)
    eventually(lambda: second.status is S.WAITING and second.election.waits_for, "the second waits")
    assert any("zk_loop" in t.name for t in leaders - before), "a connection is seen by its thread"
    second.loop.post(lambda s, now: s.cancel(now))
    assert second.loop.wait(PATIENCE)
    second.close()
    eventually(lambda: not any("zk_loop" in t.name for t in set(threading.enumerate()) - leaders), "it is closed")


def test_zookeeper_that_is_not_there_keeps_a_driver_waiting(drivers):
    driver = drivers(MemoryStore(), mo.ZooKeeper("127.0.0.1:1", ttl="500ms"))
    eventually(lambda: driver.status is S.WAITING, "it waits")
    driver.loop.post(lambda s, now: s.cancel(now))
    assert driver.loop.wait(PATIENCE)


def test_what_cannot_be_configured_is_told():
    with pytest.raises(InvalidArgument, match="checkpoints="):
        RunConfig(ha=mo.StorageLease())
    with pytest.raises(InvalidArgument, match="500 ms"):
        mo.StorageLease(ttl="100ms")
    with pytest.raises(InvalidArgument, match="begins with a slash"):
        mo.ZooKeeper("host:2181", path="moorline")
    assert "word" not in repr(mo.ZooKeeper("host:2181", auth=("digest", "user:word")))
