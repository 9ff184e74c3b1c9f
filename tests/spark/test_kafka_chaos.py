"""From Kafka through keyed state to Kafka, with any process killed by -9: workers, executors, drivers, the broker.

What a reader of committed messages finds must be what a plain loop makes of the same input, message for message. The
input topic is filled once; each cell writes to a topic of its own. ``make test`` runs a short form, ``make chaos`` all
phases.
"""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import chaos_job
import pytest
from chaos_drivers import CLUSTER, LOCAL, Driver, expected
from chaos_job import RECORDS, SPLITS, Cell
from kafka_server import KafkaServer
from test_chaos import DOUBLE_FAULTS, DRIVER_PHASES, WORKER_PHASES, plan
from waiting import eventually

pytestmark = pytest.mark.spark

#: A sink of workers has no table, and files are removed as ever.
PHASES = [*WORKER_PHASES, *(phase for phase in DRIVER_PHASES if "table" not in phase)]


class Topics:
    """The input topic, and an output topic for each cell."""

    def __init__(self, server: KafkaServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.source = server.new_topic(SPLITS, exact=f"{folder.name}-in")
        for split in range(SPLITS):
            numbers = range(split, RECORDS, SPLITS)
            server.produce(self.source, (json.dumps(chaos_job.reading(n)) for n in numbers), split)
        # The plain loop is right only if the topic has each record once and in order.
        values = (json.dumps(chaos_job.reading(n)).encode() for s in range(SPLITS) for n in range(s, RECORDS, SPLITS))
        assert server.values(self.source) == list(values)

    def cell(self, name: str, failpoints: str, **options: Any) -> Cell:
        """A cell that writes to a topic of its own."""
        self.server.new_topic(2, exact=self.output(name))
        return Cell(name, failpoints, kafka=self.server.brokers, **options)

    def output(self, cell: str) -> str:
        return f"{self.folder.name}-{cell}"

    def check(self, report: dict[str, Any], tally: Counter, what: str, faults: int = 1) -> None:
        """What was committed is what a plain loop finds, and the run was not vacuous."""
        assert "error" not in report, report
        found: Counter[Any] = Counter()
        for value in self.server.values(self.output(report["cell"])):
            row = json.loads(value or b"null")
            found[row["key"], row["count"], row["sum"], row["last"]] += 1
        missing, doubled = expected() - found, found - expected()
        assert (sum(missing.values()), sum(doubled.values())) == (0, 0), report
        assert len(report["fired"]) >= faults, report
        restored = [n for n in report["restored_from"] if n > 0]
        tally[what] += len(report["fired"])
        tally["checkpoints above 0 restored"] += len(restored)
        assert restored or what == "brokers killed", report


@pytest.fixture
def topics(kafka_server: KafkaServer, tmp_path: Path) -> Topics:
    return Topics(kafka_server, tmp_path)


@pytest.fixture
def reviving(kafka_server: KafkaServer) -> Iterator[None]:
    """A broker that is killed comes back after a while."""
    over = threading.Event()

    def revive() -> None:
        while not over.wait(0.5):
            assert kafka_server.process is not None
            if kafka_server.process.poll() is not None:
                over.wait(1)
                kafka_server.start()

    thread = threading.Thread(target=revive)
    thread.start()
    yield
    over.set()
    thread.join()


def check_survivors(topics: Topics, cells: list[Cell], tally: Counter, what: str, faults: int = 1) -> None:
    with Driver(topics.folder, CLUSTER) as driver:
        for cell in cells:
            report = driver.run(cell)
            assert report is not None, driver.log()
            topics.check(report, tally, what, faults)


def check_driver_deaths(topics: Topics, cells: list[Cell], tally: Counter) -> None:
    with Driver(topics.folder, LOCAL) as successor:
        for cell in cells:
            with Driver(topics.folder, LOCAL) as victim:
                assert victim.run(cell) is None, "the driver was not killed"
            assert victim.process.returncode == -signal.SIGKILL, victim.log()
            report = successor.run(replace(cell, plan="", restore="latest"))
            assert report is not None, successor.log()
            topics.check(report, tally, "drivers killed")


def kill_the_broker(topics: Topics, cell: Cell) -> Cell:
    """Have failpoints know the number of the broker's process."""
    points = topics.folder / cell.name / "points"
    points.mkdir(parents=True)
    assert topics.server.process is not None
    (points / "broker.pid").write_text(str(topics.server.process.pid))
    return cell


def test_a_killed_worker_broker_or_driver_loses_and_doubles_nothing(topics: Topics, tally: Counter, reviving: None):
    """All in one Spark, the driver last."""
    with Driver(topics.folder, LOCAL) as driver:
        for name, failpoints, what in (
            ("worker", plan("worker", "P10-amid-commit"), "workers killed"),
            ("broker", "sink.commit.middle?steady:kill_file(broker)", "brokers killed"),
        ):
            report = driver.run(kill_the_broker(topics, topics.cell(name, failpoints)))
            assert report is not None, driver.log()
            topics.check(report, tally, what)
        last = topics.cell("driver", plan("driver", "P8-after-publish"))
        assert driver.run(last) is None, "the driver was not killed"
    assert driver.process.returncode == -signal.SIGKILL, driver.log()
    with Driver(topics.folder, LOCAL) as successor:
        report = successor.run(replace(last, plan="", restore="latest"))
        assert report is not None, successor.log()
    topics.check(report, tally, "drivers killed")


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_the_whole_matrix_of_survivors(topics: Topics, tally: Counter, victim: str):
    cells = [topics.cell(phase, plan(victim, phase)) for phase in PHASES]
    check_survivors(topics, cells, tally, f"{victim}s killed")


@pytest.mark.chaos
def test_the_whole_matrix_of_driver_deaths(topics: Topics, tally: Counter):
    check_driver_deaths(topics, [topics.cell(phase, plan("driver", phase)) for phase in PHASES], tally)


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["ckpt.sync", "sink.commit.before", "sink.commit.middle", "sink.commit.after"])
def test_a_broker_that_is_killed_in_any_phase(topics: Topics, tally: Counter, reviving: None, point: str):
    cell = kill_the_broker(topics, topics.cell("broker", f"{point}?steady:kill_file(broker)"))
    check_survivors(topics, [cell], tally, "brokers killed")
    eventually(lambda: topics.server.process.poll() is None, "the broker is back", 60)  # type: ignore[union-attr]


@pytest.mark.chaos
@pytest.mark.parametrize("fault", DOUBLE_FAULTS)
def test_a_fault_during_the_recovery_from_a_fault(topics: Topics, tally: Counter, fault: str):
    cell = topics.cell("twice", DOUBLE_FAULTS[fault].format(kill="kill"))
    check_survivors(topics, [cell], tally, "workers killed", faults=2)


@pytest.mark.chaos
def test_a_rescale_in_the_middle_with_a_worker_killed_in_it(topics: Topics, tally: Counter):
    cell = topics.cell("rescaled", "restore.open?asked:kill", action="rescale")
    check_survivors(topics, [cell], tally, "workers killed")
