"""What all tests share: one Spark, the settings of property tests, and the order that several workers take tests in.

What they write lies in memory if the machine has a place for it: thousands of snapshots wait for a disk, and no process
that is killed can tell the difference. ``TMPDIR`` is another place.

Property tests find the same cases on every run, so a red build stays red until it is mended. ``MOORLINE_THOROUGH=10``
gives each ten times as many.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil
import pytest
import server_files
from hypothesis import HealthCheck, settings
from kafka_server import kafka_server  # noqa: F401  here, so that all files of tests share one broker
from nats_server import nats_server  # noqa: F401
from thoroughness import examples

pytest.register_assert_rewrite("moorline.testing.contracts")

settings.register_profile(
    "moorline",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("moorline")

# Of every Spark that tests start: on two cores a compiler that optimises for hours to come costs more than it brings.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
# Tests are to find and to leave the same whatever ran before them: no archive of Java's classes is made or used.
os.environ.setdefault("MOORLINE_CACHE", "off")

IN_MEMORY = Path("/dev/shm")
ROOM = 10 << 30
if "TMPDIR" not in os.environ and IN_MEMORY.is_mount():
    has_room = min(shutil.disk_usage(IN_MEMORY).free, psutil.virtual_memory().available) > ROOM
    if has_room:
        os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)

#: Fixtures that start a server for all tests that one worker runs.
SERVERS = (
    "postgres_server",
    "mariadb_server",
    "redis_server",
    "redis_cluster",
    "kafka_server",
    "nats_server",
    "s3_server",
    "zookeeper_server",
)


@pytest.fixture(scope="session")
def spark():
    """One Spark for all tests that need one; they never stop it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    import moorline as mo  # noqa: PLC0415

    # Workers of jobs that are none of ours run on the same Python, whichever one stands first on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[24]")
        .appName("moorline tests")
        .config(map=mo.spark_config())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    yield session
    session.stop()


def pytest_sessionstart(session):
    """Fetch servers while the first tests run, if there are to be several workers and tests that need them."""
    config = session.config
    is_worker = hasattr(config, "workerinput")
    if not is_worker and getattr(config.option, "numprocesses", None) and "not server" not in config.option.markexpr:
        subprocess.Popen([sys.executable, server_files.__file__])


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers, and before xdist looks for groups
def pytest_collection_modifyitems(items):
    """Tests that share a Spark, a server or what their file prepares go to one worker, and what takes long comes first.

    There are two lines of Spark tests, each with a Spark for all of its tests: ``tests/spark``, and pages, examples and
    those that need a process of their own. With a worker for each of them and one for the rest, none waits for the
    others at the end.
    """
    for item in items:
        if " at 0x" in item.nodeid:
            # xdist compares the names of tests between its processes, and stops if they differ.
            raise pytest.UsageError(f"{item.nodeid}: an address in memory is no name (tests/stable_ids.py)")
        if "spark" in fixtures_of(item):
            item.add_marker(pytest.mark.spark)
        for server in SERVERS:
            if server in fixtures_of(item):
                item.add_marker(pytest.mark.server(server))
        if group := shared_by(item):
            item.add_marker(pytest.mark.xdist_group(group))
    size = Counter(shared_by(item) for item in items)
    items.sort(key=lambda item: (*rank(item), -size[shared_by(item)]))


def fixtures_of(item):
    return getattr(item, "fixturenames", ())


def shared_by(item):
    """The group of tests that must not be spread over several workers."""
    if item.get_closest_marker("spark"):
        # A broker takes long to start: what needs both goes to the line that has one.
        is_first = "kafka_server" in fixtures_of(item) or (
            item.path.parent.name == "spark" and "spark" in fixtures_of(item)
        )
        return "spark" if is_first else "spark-beside"
    if server := item.get_closest_marker("server"):
        return server.args[0]
    if item.get_closest_marker("slow"):
        return None
    return item.path.stem


def rank(item):
    group = shared_by(item)
    if group in ("spark", "spark-beside"):
        return 0, group
    if item.get_closest_marker("slow"):
        return 1, ""
    return (2, group) if item.get_closest_marker("server") else (3, "")
