"""PostgreSQL, MariaDB and Redis for tests: started from Debian's packages, in folders and on ports of their own.

Only processes that were started here are ever stopped. A missing package is installed where that is possible (as
root); else the tests fail and say what to install: skipped tests look like good ones.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import sqlalchemy as sa
from real_servers import Server, free_port, install
from waiting import PATIENCE

PASSWORD = "s3cret-word"


class PostgresServer(Server):
    def __init__(self, binaries: Path, folder: Path) -> None:
        user = _unprivileged(folder)
        data, word = folder / "data", folder / "word"
        word.write_text(PASSWORD)
        word.chmod(0o644)
        auth = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={word}", "--username=postgres"]
        init = [*user, str(binaries / "initdb"), "-D", str(data), "--no-sync", "-E", "UTF8", "--locale=C", *auth]
        subprocess.run(init, check=True, capture_output=True, cwd="/")
        port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(folder),
            "fsync": "off",
            "full_page_writes": "off",
            "shared_buffers": "16MB",
            "max_connections": "60",
            "wal_level": "logical",
            "max_wal_senders": "20",
            "max_replication_slots": "100",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(data), "-p", str(port), *options]
        self.url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{port}/postgres"
        super().__init__(command, port, folder, lambda: psycopg.connect(self.url, connect_timeout=2).close(), user)

    def query(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a statement, which is committed by itself."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text, parameters)
            return cursor.fetchall() if cursor.description else []

    def stop(self, sign: int = signal.SIGQUIT) -> None:
        """Stop it at once. A gentler stop waits until readers of changes have confirmed all of them."""
        super().stop(sign)

    def crash(self) -> None:
        """Kill it and all of its processes at one moment, as when the power goes."""
        assert self.process is not None
        processes = [self.process.pid, *_children(self.process.pid)]
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(20)
        while any(Path(f"/proc/{pid}").exists() and not _is_zombie(pid) for pid in processes):
            time.sleep(0.01)


class MariaDbServer(Server):
    #: It passes over SIGINT.
    farewell = "TERM"

    def __init__(self, folder: Path) -> None:
        user = _unprivileged(folder)
        data, port = folder / "data", free_port()
        make = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
        subprocess.run([*user, *make, "--skip-test-db"], check=True, capture_output=True, cwd="/")
        options = [f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket"]
        small = ["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
        command = [_mariadb(), "--no-defaults", *options, *small, "--skip-name-resolve"]
        self.url = f"mysql+pymysql://root@127.0.0.1:{port}/mysql"
        super().__init__(command, port, folder, lambda: sa.create_engine(self.url).connect().close(), user)


class RedisServer(Server):
    def __init__(self, binary: str, folder: Path, *more: str) -> None:
        port = free_port(below=55_536)
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", str(folder)]
        command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--requirepass", PASSWORD, *durable, *more]
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
        super().__init__(command, port, folder, lambda: redis.Redis.from_url(self.url, socket_timeout=2).ping())


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres")) or install("postgresql", _postgres)
    with tempfile.TemporaryDirectory(prefix="moorline-postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(found[-1].parent, Path(folder))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDbServer]:
    _mariadb()
    with tempfile.TemporaryDirectory(prefix="moorline-mariadb-", ignore_cleanup_errors=True) as folder:
        server = MariaDbServer(Path(folder))
        yield server
        server.stop(signal.SIGTERM)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with _redis() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisServer]:
    """A cluster of one node."""
    with _redis("--cluster-enabled", "yes") as server:
        client = redis.Redis.from_url(server.url)
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        give_up = time.monotonic() + PATIENCE
        while "ok" not in str(client.execute_command("CLUSTER INFO")["cluster_state"]):
            assert time.monotonic() < give_up, "the cluster did not come up"
            time.sleep(0.02)
        client.close()
        yield server


@contextlib.contextmanager
def _redis(*more: str) -> Iterator[RedisServer]:
    binary = shutil.which("redis-server") or install("redis-server", lambda: shutil.which("redis-server"))
    with tempfile.TemporaryDirectory(prefix="moorline-redis-", ignore_cleanup_errors=True) as folder:
        server = RedisServer(binary, Path(folder), *more)
        yield server
        server.stop()


class Proxy:
    """Stands between client and server: cuts the line when a request with ``cut_after`` in it has gone through."""

    def __init__(self, port, own_port=0):
        self.port, self.server_port = own_port or free_port(), port
        self.cut_after, self.cuts = b"", 0
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.server_port))
            except OSError:
                client.close()
                continue
            state = {"cut": False}
            threading.Thread(target=self._forward, args=(client, server, state, True), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, state, False), daemon=True).start()

    def _forward(self, source, target, state, is_client):
        try:
            while data := source.recv(1 << 16):
                if is_client and self.cut_after and self.cut_after in data:
                    state["cut"], self.cut_after = True, b""
                if state["cut"] and not is_client:
                    self.cuts += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else whoever waits for a client keeps the port
        self._listener.close()


def _children(parent: int) -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                children.append(int(stat.parent.name))
    return children


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _mariadb() -> str:
    # Debian has it where only root looks, and what makes its folder needs a program of another package.
    find = lambda: shutil.which("my_print_defaults") and shutil.which("mariadbd", path="/usr/bin:/usr/sbin")  # noqa: E731
    return find() or install("mariadb-server-core mariadb-client-core", find) or ""


def _postgres() -> list[Path]:
    return sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


def _unprivileged(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root: what to put before its commands. The folder becomes that user's."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
