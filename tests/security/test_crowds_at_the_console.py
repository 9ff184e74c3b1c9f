"""The price of a request to a console: bodies, slow clients and crowds hold nobody up."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from console_worlds import World
from waiting import PATIENCE, eventually

from moorline.http import server
from moorline.http.console import HttpEndpoint


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.server.close()


@pytest.fixture
def hasty_world() -> Iterator[World]:
    """One where a request has to be here in no time; but an honest client on a busy machine has enough."""
    world = World(HttpEndpoint(request_seconds=2.0))
    yield world
    world.server.close()


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
    assert ended.wait(PATIENCE)


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
            thread.join(PATIENCE)


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
