"""What real servers for tests are made of, fetched once per machine: the packages of the S3 server, the broker's jars.

    python tests/server_files.py    fetches both at once; make does so while it installs everything else

They lie below the user's cache, where the next clone and the next environment find them; ``MOORLINE_TEST_SERVERS`` is
another place. The S3 server is moto. It has a Python environment of its own: the AWS libraries it is made of pin
versions of packages that the rest should be free to choose. Several processes may want a thing at the same moment: the
first one fetches it, and what is not complete is fetched again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KAFKA = "4.3.1"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>moorline</groupId><artifactId>test-broker</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class NotFetched(Exception):
    """A server's files cannot be had: the command, and what it said."""


def folder() -> Path:
    """Where the files of all servers lie on this machine."""
    named = os.environ.get("MOORLINE_TEST_SERVERS")
    return Path(named or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "moorline-tests"))


def moto() -> Path:
    """The Python environment of the S3 server, with s3fs in it."""
    return _fetched(f"moto-5.2-python{sys.version_info.major}.{sys.version_info.minor}", _install_moto)


def kafka_jars() -> Path:
    """The folder with the Kafka broker's jars."""
    return _fetched(f"kafka-{KAFKA}", _copy_jars)


def _install_moto(made: Path) -> None:
    _run([sys.executable, "-m", "venv", "--without-pip", str(made)])
    # Not compiled: most of what it brings is never imported.
    pip = [sys.executable, "-m", "pip", "--python", str(made), "--disable-pip-version-check", "install", "-q"]
    _run([*pip, "--no-compile", "moto[server]>=5.2", "s3fs"])


def _copy_jars(made: Path) -> None:
    made.mkdir()
    (made / "pom.xml").write_text(_POM)
    _run(["mvn", "-q", "-B", _COPY, "-DoutputDirectory=.", "-DincludeScope=runtime"], made)


def _fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    """The folder ``name``, filled by ``fetch`` if it is not there. It is complete when it says so."""
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    found, complete = place / name, place / f"{name}.complete"
    with open(place / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # An environment goes bad with the Python it was made of.
        is_good = complete.exists() and (not (found / "bin").exists() or (found / "bin" / "python").exists())
        if not is_good:
            complete.unlink(missing_ok=True)
            shutil.rmtree(found, ignore_errors=True)
            fetch(found)
            complete.touch()
    return found


def _run(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotFetched(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def fetch_all() -> None:
    """Fetch what is not there. What cannot be had is told here, and again by the tests that need it."""
    wanted = [moto, kafka_jars] if shutil.which("mvn") else [moto]
    with ThreadPoolExecutor(len(wanted)) as pool:
        for task in [pool.submit(fetch) for fetch in wanted]:
            try:
                task.result()
            except (NotFetched, OSError) as error:
                print(f"a server for tests cannot be had: {error}", file=sys.stderr)


if __name__ == "__main__":
    fetch_all()
