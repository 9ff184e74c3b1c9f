"""An embedded Spark's JVM, started by ourselves: when, with which archive of Java's classes, and who makes that."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import moorline as mo
from moorline.spark.session import archive, jvm, training


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    made = archive.folder({"HOME": str(tmp_path)})
    assert made is not None
    return made


@pytest.fixture
def java(tmp_path: Path) -> str:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("one")
    return str(program)


# --- who gets spark-submit ------------------------------------------------------------------------


def test_without_settings_of_the_users_the_command_line_is_known(tmp_path: Path):
    assert jvm.is_plain({"HOME": "/root", "SPARK_LOCAL_DIRS": "/scratch", "SPARK_SUBMIT_OPTS": "-Xint"}, tmp_path)


@pytest.mark.parametrize(
    "name", ["SPARK_CONF_DIR", "SPARK_HOME", "SPARK_DRIVER_MEMORY", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR"]
)
def test_settings_in_the_environment_are_for_spark_submit(tmp_path: Path, name: str):
    assert not jvm.is_plain({name: "anything"}, tmp_path)


@pytest.mark.parametrize("name", ["spark-defaults.conf", "spark-env.sh"])
def test_files_with_settings_are_for_spark_submit(tmp_path: Path, name: str):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / name).write_text("")
    assert not jvm.is_plain({}, tmp_path)


def test_the_jars_come_in_one_order_with_the_logging_interface_first(tmp_path: Path):
    (tmp_path / "jars").mkdir()
    for name in ("zstd.jar", "slf4j-api-2.jar", "arrow.jar", "README"):
        (tmp_path / "jars" / name).write_text("")
    assert [jar.name for jar in jvm.class_path(tmp_path)] == ["slf4j-api-2.jar", "arrow.jar", "zstd.jar"]


# --- the archive ----------------------------------------------------------------------------------


def test_the_cache_is_for_its_owner_alone(cache: Path):
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_folder_that_others_may_write_to_is_not_used(cache: Path):
    cache.chmod(0o777)
    assert archive.folder({archive.VARIABLE: str(cache)}) is None


def test_where_no_folder_can_be_made_there_is_no_archive(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert archive.folder({archive.VARIABLE: str(tmp_path / "file" / "below")}) is None
    assert archive.folder({"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


def test_it_can_be_switched_off(tmp_path: Path):
    assert archive.folder({"HOME": str(tmp_path), archive.VARIABLE: archive.OFF}) is None
    assert list(tmp_path.iterdir()) == []


def test_another_java_and_other_jars_have_another_archive(cache: Path, java: str, tmp_path: Path):
    jar = tmp_path / "spark.jar"
    jar.write_text("one")
    first = archive.archive_in(cache, java, [jar])
    assert archive.archive_in(cache, java, [jar]) == first
    jar.write_text("another")
    second = archive.archive_in(cache, java, [jar])
    Path(java).write_text("another")
    assert len({first, second, archive.archive_in(cache, java, [jar])}) == 3


def test_an_archive_is_used_when_it_is_there_and_not_before(cache: Path):
    made = cache / "spark-1.jsa"
    assert archive.options_to_use(made) == [] and archive.is_wanted(made)
    made.write_bytes(b"classes")
    assert archive.options_to_use(made) == [], "it is not known to be whole"
    made.with_suffix(".sum").write_text(archive.checksum(made))
    assert f"-XX:SharedArchiveFile={made}" in archive.options_to_use(made) and not archive.is_wanted(made)


@pytest.mark.parametrize("content", [b"", b"class", b"klasses"])
def test_a_damaged_archive_is_told_of_and_removed(cache: Path, caplog: pytest.LogCaptureFixture, content: bytes):
    made = cache / "spark-1.jsa"
    made.write_bytes(b"classes")
    made.with_suffix(".sum").write_text(archive.checksum(made))
    made.write_bytes(content)
    assert archive.options_to_use(made) == []
    assert archive.is_wanted(made) and "is damaged and is removed" in caplog.text


def test_what_cannot_be_made_is_not_tried_again(cache: Path):
    made = cache / "spark-1.jsa"
    made.with_suffix(".failed").write_text("no room")
    assert not archive.is_wanted(made)


def test_of_two_makers_one_gives_way(cache: Path):
    made = cache / "spark-1.jsa"
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not training.make(made)
    assert not made.exists() and archive.is_wanted(made)


def test_what_a_killed_maker_left_and_what_nobody_uses_is_removed(cache: Path):
    made, other = cache / "spark-1.jsa", cache / "spark-2.jsa"
    part, of_another = cache / "spark-1.77.part", cache / "spark-2.78.part"
    for file in (made, other, part, of_another):
        file.write_bytes(b"")
    os.utime(other, (0, 0))
    training._clean_up(made)
    assert sorted(cache.iterdir()) == [made, of_another]


SCRIPT = """
import json, sys
from pathlib import Path
import moorline as mo
from pyspark import SparkContext
job = mo.Job("small")
job.source(mo.from_items([1, 2, 3])).map(lambda n: 2 * n).sink(mo.collect("out"))
found = mo.run(job).collected("out")
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
print(json.dumps([found, [line.split()[-1] for line in maps.splitlines() if line.endswith(".jsa")]]))
"""


@pytest.mark.spark
@pytest.mark.chaos  # two minutes: an archive is made
def test_a_made_archive_is_mapped_and_a_spoilt_one_is_left_aside(cache: Path):
    home = jvm.spark_home()
    java = jvm.find_java()
    assert java is not None
    made = archive.archive_in(cache, java, jvm.class_path(home))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
        "PYTHONPATH": str(Path(mo.__file__).parents[1]),
        archive.VARIABLE: str(cache),
    }

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)

    make = f"from moorline.spark.session import training; from pathlib import Path; training.make(Path({str(made)!r}))"
    done = python("-c", make)  # at the usual priority
    assert made.exists(), done.stderr
    assert not list(cache.glob("*.part"))
    used = python("-c", SCRIPT)
    assert used.returncode == 0, used.stderr
    assert used.stdout.startswith("[[2, 4, 6], [") and str(made) in used.stdout
    made.chmod(0o600)
    made.write_bytes(made.read_bytes()[:4096])
    made.with_suffix(".failed").write_text("no maker is to be left behind by this test")
    spoilt = python("-c", SCRIPT)
    assert spoilt.returncode == 0, spoilt.stderr
    assert spoilt.stdout.startswith("[[2, 4, 6], [") and str(made) not in spoilt.stdout
    assert f"{made} is damaged and is removed" in spoilt.stderr
