"""From Kafka through keyed state to Kafka, with any process killed by -9: workers, executors, drivers, the broker.

What a reader of committed messages finds must be what a plain loop makes of the same input, message for message. The
input topic is filled once; each cell writes to a topic of its own. ``make test`` runs a short form, ``make chaos`` all
phases.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from chaos_drivers import LOCAL, Driver
from chaos_matrix import (
    DOUBLE_FAULTS,
    DRIVER_PHASES,
    WORKER_PHASES,
    check,
    check_driver_deaths,
    check_survivors,
    check_zombie,
    plan,
)
from chaos_systems import Topics
from kafka_server import KafkaServer

pytestmark = pytest.mark.spark

#: A sink of workers has no table, and files are removed as ever.
PHASES = [*WORKER_PHASES, *(phase for phase in DRIVER_PHASES if "table" not in phase)]
#: The last one while the job recovers from another kill.
BROKER_KILLS = {
    **{
        f"broker-{n}": f"{n}?steady:kill_file(server)" for n in ("ckpt.sync", "sink.commit.before", "sink.commit.after")
    },
    "broker-amid-commit": "sink.commit.middle?steady:kill_file(server)",
    "broker-recovery": "ckpt.sync?steady:kill,restore.open:kill_file(server)",
}


@pytest.fixture
def topics(kafka_server: KafkaServer, tmp_path: Path) -> Topics:
    return Topics(tmp_path, None, kafka_server)


def test_a_killed_worker_broker_or_driver_loses_and_doubles_nothing(topics: Topics, tally: Counter):
    """All in one Spark, the driver last."""
    folder = topics.folder
    with Driver(folder, LOCAL) as driver:
        for name, failpoints in (
            ("worker", plan("worker", "P10-amid-commit")),
            ("broker", plan("server", "P10-amid-commit")),
        ):
            cell = topics.cell(name, failpoints)
            with topics.beside(cell):
                report = driver.run(cell)
            assert report is not None, driver.log()
            check(folder, [report], tally, f"{name}s killed", restarts=name == "worker")
        last = topics.cell("driver", plan("driver", "P8-after-publish"))
        assert driver.run(last) is None, "the driver was not killed"
    assert driver.process.returncode == -signal.SIGKILL, driver.log()
    with Driver(folder, LOCAL) as successor:
        report = successor.run(replace(last, plan="", restore="latest"))
        assert report is not None, successor.log()
    check(folder, [{**report, "failures": ["the driver was killed"]}], tally, "drivers killed")


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_the_whole_matrix_of_survivors(topics: Topics, tally: Counter, victim: str):
    cells = [topics.cell(phase, plan(victim, phase)) for phase in PHASES]
    check_survivors(topics.folder, cells, tally, f"{victim}s killed")


@pytest.mark.chaos
def test_the_whole_matrix_of_driver_deaths(topics: Topics, tally: Counter):
    cells = [topics.cell(phase, plan("driver", phase)) for phase in PHASES]
    check_driver_deaths(topics.folder, cells, tally, "drivers killed")


@pytest.mark.chaos
def test_a_broker_that_is_killed_in_any_phase(topics: Topics, tally: Counter):
    cells = [topics.cell(name, failpoints) for name, failpoints in BROKER_KILLS.items()]
    check_survivors(topics.folder, cells, tally, "brokers killed", restarts=False, beside=topics.beside)


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_fault_during_the_recovery_from_a_fault(topics: Topics, tally: Counter, victim: str):
    kill = "kill" if victim == "worker" else "kill_parent"
    cells = [topics.cell(phase, both.format(kill=kill)) for phase, both in DOUBLE_FAULTS.items()]
    check_survivors(topics.folder, cells, tally, f"{victim}s killed", faults=2)


@pytest.mark.chaos
@pytest.mark.parametrize("stop", ["publish.before?steady:stop", "sink.commit.middle?steady:stop_file(driver)"])
def test_a_driver_that_comes_back_to_life_changes_nothing(topics: Topics, tally: Counter, stop: str):
    check_zombie(topics.folder, topics.cell("zombie", stop), tally)
