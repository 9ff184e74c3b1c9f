"""Real servers for tests, and what it takes to start one: processes in folders and on ports of their own.

Only processes that were started here are ever stopped. What is missing is installed where that is possible; else the
tests fail and say what to install: skipped tests look like good ones. What has to be fetched is in ``server_files.py``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import server_files

T = TypeVar("T")

#: The word that must never turn up in a log.
SECRET = "s3cret-access-word"
#: The thread that starts servers. It lives as long as the tests do: a server that a thread of one test has brought back
#: after a kill would be stopped with that thread.
_PARENT = ThreadPoolExecutor(1)


class Server:
    """One server process and how to start it again."""

    #: By then something must be wrong with it.
    start_seconds = 240.0
    #: What it is told when the tests are gone.
    farewell = "INT"

    def __init__(
        self, command: list[str], port: int, folder: Path, is_ready: Callable[[], object], user: Sequence[str] = ()
    ) -> None:
        self.command, self.port, self.folder, self._is_ready = command, port, folder, is_ready
        #: What makes a command another user's.
        self._user = user
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "log").touch()
        self.start()

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            # With the tests gone, however they went, it stops too. After the change of user, which would undo it.
            command = [*self._user, "setpriv", "--pdeathsig", self.farewell, *self.command]
            begin = partial(subprocess.Popen, command, stdout=log, stderr=log, start_new_session=True, cwd="/")
            self.process = _PARENT.submit(begin).result()
        give_up = time.monotonic() + self.start_seconds
        while True:
            try:
                self._is_ready()
                return
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > give_up:
                    log_text = (self.folder / "log").read_text(errors="replace")[-3000:]
                    pytest.fail(f"{self.command[0]} did not start: {error}\n{log_text}")
                time.sleep(0.05)

    def stop(self, sign: int = signal.SIGINT) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(sign)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(20)


class S3Server(Server):
    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [str(_moto() / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        is_ready = lambda: urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=2)  # noqa: E731
        super().__init__(command, port, folder, is_ready)

    def new_bucket(self, name: str = "") -> str:
        name = name or f"bucket-{uuid.uuid4().hex[:12]}"
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/{name}", method="PUT"), timeout=10)
        return name

    @property
    def options(self) -> dict[str, object]:
        """What ``storage_options`` are for obstore."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": "testing",
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "allow_http": True,
        }


class ZooKeeperServer(Server):
    def __init__(self, folder: Path) -> None:
        port = free_port()
        (folder / "data").mkdir()
        settings = {
            "tickTime": 200,
            "dataDir": folder / "data",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
            "minSessionTimeout": 400,
            "maxSessionTimeout": 60000,
        }
        (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = ["java", "-Xmx128m", "-cp", _zookeeper(), main, str(folder / "zoo.cfg")]
        super().__init__(command, port, folder, self._ask)

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _ask(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as line:
            line.sendall(b"ruok")
            if line.recv(16) != b"imok":
                raise ConnectionError("it does not say that it is well")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with tempfile.TemporaryDirectory(prefix="moorline-s3-", ignore_cleanup_errors=True) as folder:
        server = S3Server(Path(folder))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    with tempfile.TemporaryDirectory(prefix="moorline-zookeeper-", ignore_cleanup_errors=True) as folder:
        server = ZooKeeperServer(Path(folder))
        yield server
        server.stop()


def free_port(below: int = 65_536) -> int:
    """A port that nothing listens on. A Redis cluster also talks on the port 10,000 above its own."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port < below and (below > 55_536 or _is_free(port + 10_000)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def install(packages: str, find: Callable[[], T]) -> T:
    """What ``find`` finds once Debian's packages are there."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update"],
            ["apt-get", "install", "-y", "--no-install-recommends", *packages.split()],
        ):
            subprocess.run(command, env=quiet, capture_output=True, timeout=300, check=False)
    found = find()
    if not found:
        pytest.fail(f"these tests need {packages}: apt-get install {packages}")
    return found


def _moto() -> Path:
    """The environment of moto's server, fetched if it is not there."""
    try:
        return server_files.moto()
    except server_files.NotFetched as error:
        pytest.fail(f"these tests need moto's server, an S3 for tests: {error}")


def s3fs_packages() -> str:
    """Where s3fs lies, for a Python that is to have it."""
    (found,) = (_moto() / "lib").glob("python*/site-packages")
    return str(found)


def _zookeeper() -> str:
    """The class path of Debian's package."""
    jars = Path("/usr/share/java")
    if not (jars / "zookeeper.jar").exists():
        install("zookeeper", lambda: (jars / "zookeeper.jar").exists())
    needed = ["zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-all", "snappy-java", "metrics-core"]
    return ":".join(str(jars / f"{name}.jar") for name in needed if (jars / f"{name}.jar").exists())
