"""A job's console against whoever may reach it: strangers get nothing, and cost nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from waiting import eventually

from moorline.errors import ConsoleRefused, InvalidArgument, QueryFailed, QueryUnavailable, SavepointFailed
from moorline.http import routes, server
from moorline.http import wire as typed_json
from moorline.http.client import QueryClient
from moorline.http.server import Console, ConsoleServer
from moorline.model import keys
from moorline.storage.stores.permitted import check_savepoint


class Job:
    """A job that knows one key."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes, str, int]] = []
        self.ended: list[bool] = []
        self.rescaled: list[int | dict[str, int]] = []
        self.refuses_to_rescale: Exception | None = None

    def status_told(self) -> dict[str, Any]:
        return {"job": "<script>alert(1)</script>", "status": "running"}

    def checkpoints_told(self) -> list[dict[str, Any]]:
        return [{"checkpoint": 1}]

    def query_encoded(self, uid: str, state: str, key: bytes, level: str, timeout_ms: int) -> Any:
        self.asked.append((uid, state, key, level, timeout_ms))
        if uid != "count":
            raise QueryFailed(uid, state, "the job has no such operator")
        if state == "busy":
            raise QueryUnavailable(uid, state, "no answer in time")
        if state == "broken":
            raise RuntimeError("secret detail")
        return {"seen": (1, b"x"), 7: {2.5}} if key == keys.encode("a") else None

    def savepoint(self, path: str, timeout_ms: int) -> str:
        if timeout_ms < 1000:
            raise TimeoutError
        if path.startswith("s3:"):
            check_savepoint(path, ["/data"])
        if path == "full":
            raise SavepointFailed(path, "there is no room")
        return f"file:///{path}"

    def rescale(self, parallelism: int | dict[str, int], timeout_ms: int) -> None:
        if self.refuses_to_rescale is not None:
            raise self.refuses_to_rescale
        self.rescaled.append(parallelism)

    def end(self, *, cancel: bool, savepoint: str, drain: bool, timeout_ms: int) -> None:
        self.ended.append(cancel)


class World:
    def __init__(self, console: Console | bool = True) -> None:
        self.job = Job()
        self.server = ConsoleServer(self.job, console)
        host, port = self.server.url.removeprefix("http://").split(":")
        self.address = host, int(port)
        self.client = QueryClient(self.server.url, self.server.token)

    def send(self, data: bytes, seconds: float = 10.0, *, ends: bool = False) -> bytes:
        """Everything that comes back until the connection is closed. ``ends``: nothing more will be sent."""
        with socket.create_connection(self.address, timeout=seconds) as line:
            try:
                line.sendall(data)
                if ends:
                    line.shutdown(socket.SHUT_WR)
                received = b""
                while piece := line.recv(65_536):
                    received += piece
            except (ConnectionResetError, BrokenPipeError):
                return b""
            return received

    def request(
        self, path: str = "/v1/status", *, method: str = "GET", body: bytes | None = None, **headers: str | None
    ) -> tuple[int, str]:
        """A request by hand. A header that is None is left out."""
        sent: dict[str, str | None] = {"Host": "127.0.0.1", "Authorization": f"Bearer {self.server.token}"}
        if body is not None:
            sent |= {"Content-Length": str(len(body)), "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in sent.items() if v is not None)]
        received = self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")).decode()
        head, _, content = received.partition("\r\n\r\n")
        assert "application/json" in head
        return int(head.split()[1]), content


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.server.close()


@pytest.fixture
def hasty_world() -> Iterator[World]:
    """One where a request has to be here in no time."""
    world = World(Console(request_seconds=0.5))
    yield world
    world.server.close()


def query(**content: Any) -> bytes:
    return json.dumps({"uid": "count", "state": "seen", "key": "a"} | content).encode()


# --- who may ask ----------------------------------------------------------------------------------


def test_who_has_the_token_is_answered(world):
    assert world.client.query("count", "seen", "a") == {"seen": (1, b"x"), 7: {2.5}}
    assert world.client.query("count", "seen", ("b", 2), level="checkpoint", timeout="3s") is None
    assert world.job.asked[1] == ("count", "seen", keys.encode(("b", 2)), "checkpoint", 3_000)
    assert world.client.status()["status"] == "running"
    assert world.client.checkpoints() == [{"checkpoint": 1}]
    world.client.stop()
    world.client.stop(cancel=True)
    assert world.job.ended == [False, True]


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic {token}",
        "{token}",
        "Bearer {token}x",
        "Bearer \xff",
        "half",
    ],
)
def test_without_the_right_token_nothing_is_said(world, given, caplog):
    token = world.server.token
    if given == "half":
        given = f"Bearer {token[:20]}"
    authorization = None if given is None else given.format(token=token)
    with caplog.at_level(logging.DEBUG):
        for path, method, body in (
            ("/v1/status", "GET", None),
            ("/v1/query", "POST", query()),
            ("/v1/stop", "POST", b"{}"),
        ):
            status, content = world.request(path, method=method, body=body, Authorization=authorization)
            assert status == 401
            assert "running" not in content
    assert not world.job.asked
    assert not world.job.ended
    assert token not in caplog.text
    assert token[:20] not in caplog.text


def test_the_token_of_another_job_is_of_no_use(world):
    other = ConsoleServer(Job(), "127.0.0.1:0")
    try:
        assert other.token != world.server.token
        with pytest.raises(ConsoleRefused, match="token"):
            QueryClient(world.server.url, other.token).status()
    finally:
        other.close()


def test_a_token_in_the_url_is_not_taken_and_not_logged(world, caplog):
    with caplog.at_level(logging.DEBUG):
        status, _ = world.request(f"/v1/status?token={world.server.token}", Authorization=None)
        assert status == 401
        status, _ = world.request(f"/v1/status?token={world.server.token}")
        assert status == 404
    assert world.server.token not in caplog.text
    assert world.server.token not in repr(world.server)


def test_the_token_file_is_for_its_owner_alone_and_goes_with_the_job(tmp_path):
    path = tmp_path / "token"
    path.write_text("what was there before")
    path.chmod(0o666)
    console = ConsoleServer(Job(), Console("127.0.0.1:0", str(path)))
    assert path.read_text().strip() == console.token
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    console.close()
    assert not path.exists()
    kept = tmp_path / "precious"
    kept.write_text("precious")
    path.symlink_to(kept)
    console = ConsoleServer(Job(), Console("127.0.0.1:0", str(path)))
    console.close()
    assert kept.read_text() == "precious"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", None])
def test_a_request_for_another_host_is_turned_away(world, host):
    """DNS rebinding: somebody's page has its own name lead to this machine."""
    status, _ = world.request(Host=host)
    assert status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80", "10.1.2.3"])
def test_a_request_for_an_address_or_for_this_machine_is_fine(world, host):
    assert world.request(Host=host)[0] == 200


def test_a_cross_site_post_gets_nowhere(world):
    """What a form or a simple fetch of another site can send: no Authorization header, no JSON, an Origin."""
    status, _ = world.request(
        "/v1/stop",
        method="POST",
        body=b"{}",
        Authorization=None,
        Origin="http://evil.example",
        Content_Type="text/plain",
    )
    assert status == 401
    assert world.request("/v1/stop", method="POST", body=b"{}", Content_Type="text/plain")[0] == 415
    preflight = world.send(b"OPTIONS /v1/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\n\r\n")
    assert b"Access-Control-Allow" not in preflight
    assert not world.job.ended


# --- what may be asked ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/../v1/status", "/../../etc/passwd", "/v1/status/..%2f..%2fetc/passwd", "*"]
)
def test_there_are_no_other_paths(world, path):
    status, content = world.request(path)
    assert status == 404
    assert "passwd" not in content


@pytest.mark.parametrize("method", ["PUT", "DELETE", "TRACE", "CONNECT", "<script>"])
def test_there_are_no_other_methods(world, method):
    status, content = world.request(method=method)
    assert status == 405
    assert "script" not in content


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        ("savepoint", {"path": "tmp/sp"}, 200),
        ("savepoint", {"path": "full"}, 500),
        ("savepoint", {"path": "tmp/sp", "timeout_ms": 5}, 504),
        ("savepoint", {"path": 7}, 400),
        ("savepoint", {}, 400),
        ("savepoint", {"path": "tmp/sp", "wait": 1}, 400),
        ("rescale", {"parallelism": 4}, 200),
        ("rescale", {"parallelism": {"count": 3}}, 200),
        ("rescale", {"parallelism": {}}, 400),
        ("rescale", {"parallelism": {"count": "3"}}, 400),
        ("rescale", {"parallelism": True}, 400),
        ("rescale", {"parallelism": "4"}, 400),
        ("stop", {"savepoint": "tmp/sp", "drain": True}, 200),
        ("stop", {"savepoint": True}, 400),
        ("stop", {"cancle": True}, 400),
    ],
)
def test_a_wish_that_is_none_is_refused(world, path, body, wanted):
    status, content = world.request(f"/v1/{path}", method="POST", body=json.dumps(body).encode())
    assert status == wanted, content
    assert world.request(f"/v1/{path}", method="POST", body=b"{}", Authorization="Bearer other")[0] == 401
    assert len(world.job.rescaled) == (path == "rescale" and wanted == 200)
    assert len(world.job.ended) == (path == "stop" and wanted == 200)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 60_000, 400),
        (b"\xff\xfe", 400),
        (query(key=None), 400),
        (query(key={"dict": []}), 400),
        (query(key=[[[{"float": "nan"}]]]), 400),
        (query(key=[[[None]]]), 200),  # a part of a tuple may be None, though no key is
        (query(key={"float": "nan"}), 400),
        (query(key={"bytes": "?"}), 400),
        (query(key={"encoded": "?"}), 400),
        (query(key={"encoded": base64.b64encode(b"?nonsense").decode()}), 400),
        (query(key={"encoded": 7}), 400),
        (query(key={"array": {"dtype": "O", "shape": [1], "data": "AAAAAAAAAAA="}}), 400),
        (query(key={"array": {"dtype": "u1", "shape": [1 << 60], "data": ""}}), 400),
        (query(uid=7), 400),
        (query(timeout_ms="1s"), 400),
        (query(timeout_ms=True), 400),
        (query(evil=1), 400),
        (query(uid="nobody"), 404),
        (query(uid="../../etc"), 404),
        (query(state="busy"), 503),
        (query(state="broken"), 500),
        (query(), 200),
    ],
)
def test_a_query_that_is_none_is_refused(world, body, wanted):
    status, content = world.request("/v1/query", method="POST", body=body)
    assert status == wanted
    assert "secret detail" not in content
    assert "Traceback" not in content
    assert world.client.status()["status"] == "running"


def test_no_query_waits_longer_than_the_limit(world):
    world.request("/v1/query", method="POST", body=query(timeout_ms=10**12))
    world.request("/v1/query", method="POST", body=query(timeout_ms=-5))
    assert [asked[4] for asked in world.job.asked] == [routes.MAX_QUERY_MS, 0]


def test_the_errors_of_a_query_are_those_of_the_handle(world):
    with pytest.raises(QueryFailed) as failed:
        world.client.query("nobody", "seen", "a")
    assert (failed.value.uid, failed.value.cause) == ("nobody", "the job has no such operator")
    with pytest.raises(QueryUnavailable, match="no answer in time"):
        world.client.query("count", "busy", "a")
    with pytest.raises(InvalidArgument, match="No record can have it"):
        world.client.query("count", "seen", [])


def test_what_was_stored_cannot_become_a_page(world):
    """JSON is sent as JSON, and no browser may guess otherwise."""
    raw = world.send(
        f"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {world.server.token}\r\n\r\n".encode()
    ).lower()
    assert b"content-type: application/json" in raw
    assert b"x-content-type-options: nosniff" in raw
    assert b"cache-control: no-store" in raw


# --- what it costs -----------------------------------------------------------------------------------


def test_a_body_of_100_mb_is_refused_unread(world):
    status, _ = world.request("/v1/query", method="POST", body=b"{}", Content_Length=str(100 << 20))
    assert status == 413
    assert world.request("/v1/query", method="POST", body=b"{}", Content_Length="lots")[0] == 411
    assert world.request("/v1/query", method="POST", body=b"{}", Content_Length="-1")[0] == 411


def test_strangers_bodies_are_not_read_at_all(world):
    assert world.request("/v1/query", method="POST", body=None, Content_Length="1000", Authorization=None)[0] == 401


@pytest.mark.parametrize("start", [b"", b"GET /v1/status HTTP/1.1\r\nHost: localh"])
def test_a_slow_client_is_cut_off_in_time_and_holds_nobody_up(hasty_world, start):
    world = hasty_world
    ended = threading.Event()

    def trickle() -> None:
        with socket.create_connection(world.address) as line:
            line.settimeout(0.05)
            try:
                line.sendall(start)
                while True:
                    line.sendall(b"x")
                    try:
                        if not line.recv(1000):
                            break
                    except TimeoutError:
                        continue
            except OSError:
                pass
        ended.set()

    threading.Thread(target=trickle, daemon=True).start()
    assert world.client.status()["status"] == "running"
    assert ended.wait(20)


def threads_of_requests() -> int:
    return sum("process_request" in thread.name for thread in threading.enumerate())


@pytest.mark.slow
def test_idle_connections_are_limited_and_forgotten(hasty_world):
    world = hasty_world
    idle = [socket.create_connection(world.address) for _ in range(200)]
    try:
        eventually(lambda: threads_of_requests() <= server.MAX_UNAUTHENTICATED, "those beyond the limit have gone")
        assert world.client.status()["status"] == "running"
        eventually(lambda: threads_of_requests() == 0, "all of them are cut off")
    finally:
        for line in idle:
            line.close()


def test_who_has_the_token_gets_through_a_crowd_that_trickles(world):
    """More tricklers than there is room for, each back as soon as it is cut off: sixty of sixty are answered."""
    stop = threading.Event()

    def trickle() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(world.address, timeout=0.05) as line:
                line.sendall(b"GET /v1/status HTTP/1.1\r\nHost: ")
                while not stop.is_set():
                    line.sendall(b"x")
                    with contextlib.suppress(TimeoutError):
                        if not line.recv(1000):
                            break

    crowd = [threading.Thread(target=trickle, daemon=True) for _ in range(server.MAX_UNAUTHENTICATED + 20)]
    for thread in crowd:
        thread.start()
    eventually(lambda: threads_of_requests() >= server.MAX_UNAUTHENTICATED, "the crowd is there")
    try:
        for _ in range(60):
            assert world.client.query("count", "seen", "a") == {"seen": (1, b"x"), 7: {2.5}}
    finally:
        stop.set()
        for thread in crowd:
            thread.join(20)


def test_a_token_holder_who_does_not_send_his_body_is_cut_off_and_many_are_told_to_wait(hasty_world):
    world = hasty_world
    head = (
        f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {world.server.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    ).encode()
    slow = [socket.create_connection(world.address) for _ in range(server.MAX_CONNECTIONS)]
    try:
        for line in slow:
            line.sendall(head)
        eventually(lambda: world.server._server._admitted in (server.MAX_CONNECTIONS, 0), "all of them wait")
        status, content = world.request()
        assert status in (200, 503), content
        eventually(lambda: world.server._server._admitted == 0, "they are cut off")
        assert world.client.status()["status"] == "running"
    finally:
        for line in slow:
            line.close()


def test_random_bytes_are_no_request(world):
    for data in (
        b"\0" * 1000,
        os.urandom(5000),
        b"GET\r\n\r\n",
        b"A" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ):
        world.send(data + b"\r\n\r\n")
    world.send(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n")
    assert world.client.status()["status"] == "running"


def test_it_listens_on_this_machine_alone_unless_told_otherwise(world):
    assert world.address[0] == "127.0.0.1"
    for address in ("nonsense", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ":1", "203.0.113.1:1"):
        with pytest.raises(InvalidArgument):
            ConsoleServer(Job(), address)


def test_after_the_job_nobody_listens(world):
    world.server.close()
    with pytest.raises(ConsoleRefused, match="cannot be reached"):
        world.client.status()


def test_the_client_follows_nobody_elsewhere():
    """A redirect would carry the token away."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def redirect() -> None:
        line, _ = listener.accept()
        line.recv(10_000)
        line.sendall(f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/x\r\nContent-Length: 0\r\n\r\n".encode())
        line.close()

    threading.Thread(target=redirect, daemon=True).start()
    with pytest.raises(ConsoleRefused):
        QueryClient(f"http://127.0.0.1:{port}", "t").status()
    listener.settimeout(0.2)
    with pytest.raises(TimeoutError):
        listener.accept()
    listener.close()


def test_values_survive_the_way_through_json():
    value = {"a": (1, 2.5, None), 7: {b"x"}, "f": float("inf"), "deep": [{"bytes": "no bytes"}], "big": 1 << 90}
    assert typed_json.from_json(json.loads(json.dumps(typed_json.to_json(value)))) == value


def test_a_moment_of_an_arrow_state_keeps_its_nanoseconds_as_json():
    moment = pa.scalar(1, pa.timestamp("ns")).as_py()
    assert typed_json.to_json(moment) == {"datetime": "1970-01-01T00:00:00.000000001"}
