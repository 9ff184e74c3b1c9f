"""Every system that is read and written exactly once, with any process killed by -9, its own server among them.

A cell kills one process in one of five phases: before a sink has prepared a checkpoint and after, between the complete
checkpoint and its commit, in the middle of the commit, and during the recovery from another kill. Or it stops the
driver and lets it go on when another one has done its work. What readers of committed data find must be what a plain
loop makes of the same input, row for row. ``make chaos`` runs all of it; the short forms of ``make test`` are in the
tests of jobs for each system.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from chaos_job import Cell
from chaos_matrix import FROM_A_WORKER, FROM_THE_DRIVER, check_driver_deaths, check_survivors, check_zombie
from chaos_systems import System, system_of
from connectors.services import mariadb_server, postgres_server, redis_server  # noqa: F401

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

#: Phases in which a worker kills, and those in which the driver does.
OF_WORKERS = {"before-prepare": "ckpt.barrier?steady", "after-prepare": "ckpt.uploaded?steady"}
OF_THE_DRIVER = {"before-commit": "publish.after?steady"}
AMID_COMMIT = "amid-commit"
#: Beside files and Kafka, which have matrices of their own.
OUTSIDE = ["postgres", "sql", "redis", "nats", "tables"]
#: A system without a server, whose commits the driver makes.
TABLES = "tables"


def plans(system: str, victim: str) -> dict[str, str]:
    """The failpoints of each phase."""
    of_a_worker, of_the_driver = FROM_A_WORKER[victim].format(kill="kill"), FROM_THE_DRIVER[victim].format(kill="kill")
    first = "kill_parent" if victim == "executor" else "kill"
    found = {phase: f"{point}:{of_a_worker}" for phase, point in OF_WORKERS.items()}
    found |= {phase: f"{point}:{of_the_driver}" for phase, point in OF_THE_DRIVER.items()}
    if system == TABLES:
        found[AMID_COMMIT] = f"committer.middle?steady:{of_the_driver}"
    else:
        found[AMID_COMMIT] = f"sink.commit.middle?steady:{of_a_worker}"
    return {**found, "recovery": f"ckpt.sync?steady:{first},restore.open:{of_a_worker}"}


def cells(system: System, victim: str) -> list[Cell]:
    return [system.cell(f"{victim}-{phase}", plan) for phase, plan in plans(system.ends, victim).items()]


@pytest.fixture
def system(request: pytest.FixtureRequest, tmp_path: Path) -> System:
    return system_of(request.param, request, tmp_path)


@pytest.mark.parametrize("system", OUTSIDE, indirect=True)
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_killed_process_of_spark_loses_and_doubles_nothing(system: System, tally: Counter, victim: str):
    check_survivors(system.folder, cells(system, victim), tally, f"{victim}s killed", beside=system.beside)


@pytest.mark.parametrize("system", OUTSIDE, indirect=True)
def test_a_killed_driver_loses_and_doubles_nothing(system: System, tally: Counter):
    check_driver_deaths(system.folder, cells(system, "driver"), tally, "drivers killed", system.beside)


@pytest.mark.parametrize("system", [name for name in OUTSIDE if name != TABLES], indirect=True)
def test_a_killed_server_loses_and_doubles_nothing(system: System, tally: Counter):
    options = {"restarts": False, "beside": system.beside}
    check_survivors(system.folder, cells(system, "server"), tally, "servers killed", **options)


@pytest.mark.parametrize("system", OUTSIDE, indirect=True)
@pytest.mark.parametrize("point", ["publish.before", "publish.after", AMID_COMMIT])
def test_a_driver_that_comes_back_to_life_changes_nothing(system: System, tally: Counter, point: str):
    amid = "committer.middle?steady:stop" if system.ends == TABLES else "sink.commit.middle?steady:stop_file(driver)"
    stop = amid if point == AMID_COMMIT else f"{point}?steady:stop"
    check_zombie(system.folder, system.cell("zombie", stop), tally, system.beside)


@pytest.mark.parametrize("victim", ["worker", "executor"])
@pytest.mark.parametrize("system", ["kafka", "windows", "join"], indirect=True)
def test_a_whole_job_that_is_rescaled_and_killed_in_it(system: System, tally: Counter, victim: str):
    """Kafka to Kafka, Kafka through windows to Delta, and changes of PostgreSQL joined with others, on a cluster."""
    kill = FROM_A_WORKER[victim].format(kill="kill")
    cell = system.cell("rescaled", f"restore.open?asked:{kill}", action="rescale")
    check_survivors(system.folder, [cell], tally, f"{victim}s killed", beside=system.beside)
