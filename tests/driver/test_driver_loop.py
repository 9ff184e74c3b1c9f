"""The driver's thread: it handles one thing at a time, and if it fails the job fails with it and nobody waits."""

from __future__ import annotations

import threading

import pytest
from driver_worlds import RecordingCluster, World

import moorline as mo
from moorline.driver.loop import DriverLoop
from moorline.errors import JobCancelled, JobFailed
from moorline.model.wire.messages import Running
from moorline.storage.stores.memory import MemoryStore

SECONDS = 30


def started(world: World) -> DriverLoop:
    loop = DriverLoop("small")
    loop.start(world.supervision)
    return loop


def done(loop: DriverLoop) -> None:
    """Wait until the loop has handled everything posted so far."""
    reached = threading.Event()
    loop.post(lambda supervision, now: reached.set())
    assert reached.wait(SECONDS)


def test_wishes_are_handled_in_order_on_one_thread():
    world = World()
    loop = started(world)
    seen: list[tuple[int, str]] = []
    for number in range(100):
        loop.post(lambda s, now, n=number: seen.append((n, threading.current_thread().name)))
    done(loop)
    assert seen == [(n, "moorline-small") for n in range(100)]
    assert loop.status is mo.JobStatus.STARTING
    assert loop.wait(0.01) is False
    loop.post(lambda s, now: s.cancel(now))
    loop.post(lambda s, now: s.attempt_ended(1, None, "cancelled", now))
    assert loop.wait(SECONDS)
    assert loop.status is mo.JobStatus.CANCELLED
    assert isinstance(loop.error, JobCancelled)


def test_a_step_that_fails_fails_the_job_and_takes_the_attempt_down(caplog):
    world = World()
    loop = started(world)
    loop.post(lambda supervision, now: 1 // 0)
    assert loop.wait(SECONDS)
    assert loop.status is mo.JobStatus.FAILED
    assert isinstance(loop.error, JobFailed)
    assert "ZeroDivisionError" in loop.error.last
    assert world.cluster.cancelled == 1
    assert "the driver loop of job 'small' failed" in caplog.text


@pytest.mark.parametrize("store", [None, MemoryStore("launch")])
def test_a_cluster_that_cannot_launch_fails_the_job(store):
    class Full(RecordingCluster):
        def launch(self, deployment):
            raise OSError("no port is free")

    loop = started(World(cluster=Full(), store=store))
    assert loop.wait(SECONDS)
    assert isinstance(loop.error, JobFailed)
    assert "no port is free" in str(loop.error)


def test_a_cluster_that_cannot_even_cancel_keeps_nobody_waiting():
    class Broken(RecordingCluster):
        def cancel(self):
            raise ConnectionError("the JVM is gone")

    world = World(cluster=Broken())
    loop = started(world)
    loop.post(lambda supervision, now: 1 // 0)
    assert loop.wait(SECONDS)
    assert isinstance(loop.error, JobFailed)


def test_time_passes_without_anything_being_posted():
    triggered = threading.Event()

    class Noticing(RecordingCluster):
        def send(self, subtask, order):
            super().send(subtask, order)
            triggered.set()

    config = mo.Checkpoints("memory://ticking", interval="20ms")
    world = World(store=MemoryStore("ticking"), checkpoints=config, cluster=Noticing())
    loop = started(world)
    done(loop)
    for subtask in world.subtasks:
        loop.post(lambda s, now, who=subtask: s.reported(1, who, Running(pid=1), now))
    assert triggered.wait(SECONDS)
    loop.post(lambda s, now: s.cancel(now))
    loop.post(lambda s, now: s.attempt_ended(1, None, "cancelled", now))
    assert loop.wait(SECONDS)
