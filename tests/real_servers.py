"""An S3 server and a ZooKeeper for tests: real processes, in folders and on ports of their own.

Only processes that were started here are ever stopped. What is missing is installed where that is possible; else the
tests fail and say what to install: skipped tests look like good ones.

The S3 server is moto. It gets a Python environment of its own, below the one the tests run in: the AWS libraries it is
made of pin versions of packages that the rest should be free to choose.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

#: The word that must never turn up in a log.
SECRET = "s3cret-access-word"
_SERVERS = Path(sys.prefix) / "servers"


class Process:
    """One server process and how to start it again."""

    def __init__(self, command: list[str], folder: Path, is_ready: Callable[[], object]) -> None:
        self.command, self.folder, self._is_ready = command, folder, is_ready
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            # With the tests gone, however they went, it stops too.
            command = ["setpriv", "--pdeathsig", "TERM", *self.command]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=self.folder)
        give_up = time.monotonic() + 60
        while True:
            try:
                self._is_ready()
                return
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > give_up:
                    told = (self.folder / "log").read_text(errors="replace")[-3000:]
                    pytest.fail(f"{self.command[0]} did not start: {error}\n{told}")
                time.sleep(0.1)

    def stop(self, sign: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(sign)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


class S3Server(Process):
    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [str(_moto()), "-H", "127.0.0.1", "-p", str(port)]
        super().__init__(command, folder, lambda: urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=2))

    def new_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
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


class ZooKeeperServer(Process):
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        (folder / "data").mkdir()
        settings = {
            "tickTime": 200,
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
            "minSessionTimeout": 400,
            "maxSessionTimeout": 60000,
        }
        (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = ["java", "-Xmx128m", "-cp", _zookeeper(), main, str(folder / "zoo.cfg")]
        super().__init__(command, folder, self._ask)

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


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _moto() -> Path:
    found = _SERVERS / "moto" / "bin" / "moto_server"
    if not found.exists():
        _SERVERS.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(_SERVERS / "moto")], check=True, capture_output=True)
        pip = [
            str(_SERVERS / "moto" / "bin" / "pip"),
            "install",
            "-q",
            "moto[server]>=5.2",
            "s3fs",
            "python-dateutil<3",
        ]
        subprocess.run(pip, check=True, capture_output=True)
    return found


def s3fs_packages() -> str:
    """Where s3fs lies, for a Python that is to have it."""
    _moto()
    (found,) = (_SERVERS / "moto" / "lib").glob("python*/site-packages")
    return str(found)


def _zookeeper() -> str:
    """The class path of Debian's package."""
    jars = Path("/usr/share/java")
    if not (jars / "zookeeper.jar").exists():
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            pytest.fail("these tests need ZooKeeper: apt-get install zookeeper")
        quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "zookeeper"]
        subprocess.run(command, check=True, capture_output=True, env=quietly)
    needed = ["zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-all", "snappy-java", "metrics-core"]
    return ":".join(str(jars / f"{name}.jar") for name in needed if (jars / f"{name}.jar").exists())
