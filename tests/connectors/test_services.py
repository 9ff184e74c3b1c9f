"""Servers that tests have started do not outlive them, and outlive the thread that has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from services import mariadb_server, postgres_server, redis_server  # noqa: F401
from waiting import eventually

SCRIPT = """
import os, signal, sys
from pathlib import Path
from services import MariaDbServer, PostgresServer, RedisServer
kind, folder, where = sys.argv[1:]
make = {
    "postgres": lambda: PostgresServer(Path(where), Path(folder)),
    "mariadb": lambda: MariaDbServer(Path(folder)),
    "redis": lambda: RedisServer(where, Path(folder)),
}
made = make[kind]()
print(made.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "redis"])
def test_a_server_goes_when_the_tests_are_killed(kind, request):
    command = request.getfixturevalue(f"{kind}_server").command
    where = str(Path(command[0]).parent) if kind == "postgres" else command[0]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory(prefix=f"moorline-{kind}-", ignore_cleanup_errors=True) as folder:
        script = [sys.executable, "-c", SCRIPT, kind, folder, where]
        started = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
        pid = int(started.stdout or pytest.fail(started.stderr))
        eventually(lambda: not is_there(pid), f"{kind} goes with whoever started it")


def test_a_server_that_a_thread_has_brought_back_stays_when_the_thread_is_over(redis_server):  # noqa: F811
    """The kernel tells a server that its parent is gone when the thread is that has made it."""

    def bring_back() -> None:
        redis_server.stop(signal.SIGKILL)
        redis_server.start()

    thread = threading.Thread(target=bring_back)
    thread.start()
    thread.join()
    with pytest.raises(subprocess.TimeoutExpired):
        redis_server.process.wait(1)
