"""A Spark standalone cluster on this machine: a master, and workers in network namespaces of their own.

    root namespace: master, drivers       10.<a>.<b>.1  on the bridge
        bridge --- veth --- namespace 0:  10.<a>.<b>.10  worker daemon and its executors
               --- veth --- namespace 1:  10.<a>.<b>.11

A worker can be killed, started again, and cut off: its link goes down, as if a cable had been pulled.
All share one file system. Needs root and iproute2: :func:`why_not` says what is missing. Without namespaces everything
is on loopback.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
#: Short timeouts: a lost worker is noticed in seconds.
WORKER_TIMEOUT_SECONDS = 12
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@cache
def why_not() -> str:
    """Why there can be no network namespaces here; empty if there can."""
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    name = f"mlwhy{uuid.uuid4().hex[:6]}"
    made = run("ip", "netns", "add", name)
    if made.returncode:
        return f"no network namespace can be made: {made.stderr.strip()[:100]}"
    linked = run("ip", "link", "add", f"{name[:9]}a", "type", "veth", "peer", "name", f"{name[:9]}b", "netns", name)
    run("ip", "netns", "del", name)
    return f"no virtual link can be made: {linked.stderr.strip()[:100]}" if linked.returncode else ""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def must(*command: str) -> None:
    done = run(*command)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


class Network:
    """A bridge, and a namespace for each worker with a link to it."""

    def __init__(self, workers: int) -> None:
        self._id = uuid.uuid4().hex[:6]
        digits = int(self._id, 16)
        self._prefix = f"10.{digits % 200 + 20}.{digits // 200 % 250}"
        self.bridge, self.host = f"mlb{self._id}", f"{self._prefix}.1"
        self.namespaces = [f"ml{self._id}n{n}" for n in range(workers)]
        self.addresses = [f"{self._prefix}.{10 + n}" for n in range(workers)]
        must("ip", "link", "add", self.bridge, "type", "bridge")
        must("ip", "addr", "add", f"{self.host}/24", "dev", self.bridge)
        must("ip", "link", "set", self.bridge, "up")
        for n, (space, address) in enumerate(zip(self.namespaces, self.addresses)):
            must("ip", "netns", "add", space)
            must("ip", "link", "add", self._link(n), "type", "veth", "peer", "name", "eth0", "netns", space)
            must("ip", "link", "set", self._link(n), "master", self.bridge)
            must("ip", "link", "set", self._link(n), "up")
            for inside in (
                ("addr", "add", f"{address}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("link", "set", "lo", "up"),
            ):
                must("ip", "-n", space, *inside)

    def cut(self, n: int) -> None:
        must("ip", "link", "set", self._link(n), "down")

    def join(self, n: int) -> None:
        must("ip", "link", "set", self._link(n), "up")

    def close(self) -> None:
        for n, space in enumerate(self.namespaces):
            run("ip", "link", "del", self._link(n))
            run("ip", "netns", "del", space)
        run("ip", "link", "del", self.bridge)

    def _link(self, n: int) -> str:
        return f"ml{self._id}v{n}"


class Standalone:
    """A master and workers with so many cores each."""

    def __init__(
        self, folder: Path, workers: int = 2, cores: int = 4, *, spaced: bool = True, python: str = sys.executable
    ) -> None:
        self.folder, self.cores, self.python = folder, cores, python
        self.network = Network(workers) if spaced else None
        self.host = self.network.host if self.network else "127.0.0.1"
        self._log = open(folder / "cluster.log", "ab")  # noqa: SIM115  closed at the end
        self.port, self._ui = free_port(self.host), free_port(self.host)
        self.master_url = f"spark://{self.host}:{self.port}"
        place = ("--host", self.host, "--port", str(self.port), "--webui-port", str(self._ui))
        self._master = self._daemon("master.Master", *place)
        self.workers: list[subprocess.Popen[bytes] | None] = [None] * workers
        for n in range(workers):
            self.start_worker(n)

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self._master):
            if process is not None:
                _kill_family(process)
        if self.network is not None:
            self.network.close()
        self._log.close()

    def start_worker(self, n: int) -> None:
        address = self.network.addresses[n] if self.network else self.host
        inside = ("ip", "netns", "exec", self.network.namespaces[n]) if self.network else ()
        folder = self.folder / f"worker-{n}"
        options = ("--host", address, "--cores", str(self.cores), "--memory", "1g", "--webui-port", "0")
        self.workers[n] = self._daemon(
            "worker.Worker", *options, "--work-dir", str(folder), self.master_url, inside=inside
        )

    def kill_worker(self, n: int) -> None:
        """Kill the daemon; its executors end when they miss it."""
        worker = self.workers[n]
        assert worker is not None
        worker.send_signal(signal.SIGKILL)
        worker.wait(60)
        self.workers[n] = None

    def alive_workers(self) -> int:
        """The number of workers that the master counts as alive."""
        with suppress(OSError), urllib.request.urlopen(f"http://{self.host}:{self._ui}/json/", timeout=5) as page:
            found = re.search(rb'"aliveworkers"\s*:\s*(\d+)', page.read())
            return int(found[1]) if found else 0
        return 0

    def _daemon(self, name: str, *options: str, inside: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        timeout = f"-Dspark.worker.timeout={WORKER_TIMEOUT_SECONDS} -Dspark.network.timeout=20s {SMALL}"
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": timeout,
            "PYSPARK_PYTHON": self.python,
        }
        environment.pop("PYTHONPATH", None)  # what an executor has is what is installed there
        command = [*inside, str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
        return subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)


def free_port(host: str) -> int:
    """A port on which nobody listens at the moment."""
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


def _kill_family(process: subprocess.Popen[bytes]) -> None:
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in family:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.wait(60)
