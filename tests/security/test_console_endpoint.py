"""Who may ask a console, from where, and who may read what it says."""

from __future__ import annotations

import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from console_worlds import Job, World, query

from moorline.errors import ConsoleRefused, InvalidArgument
from moorline.http import wire as typed_json
from moorline.http.client import JobClient
from moorline.http.console import HttpEndpoint
from moorline.http.server import ConsoleServer
from moorline.model import keys


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.server.close()


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
            JobClient(world.server.url, other.token).status()
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
    console = ConsoleServer(Job(), HttpEndpoint("127.0.0.1:0", str(path)))
    assert path.read_text().strip() == console.token
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    console.close()
    assert not path.exists()
    kept = tmp_path / "precious"
    kept.write_text("precious")
    path.symlink_to(kept)
    console = ConsoleServer(Job(), HttpEndpoint("127.0.0.1:0", str(path)))
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


# --- what it costs -----------------------------------------------------------------------------------


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
        JobClient(f"http://127.0.0.1:{port}", "t").status()
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


# --- a token that is known before, and other names ------------------------------------------------------


def test_a_given_token_is_used_and_its_file_stays(tmp_path, caplog):
    path = tmp_path / "token"
    path.write_text("a" * 40 + "\n")
    with caplog.at_level(logging.DEBUG):
        console = ConsoleServer(Job(), HttpEndpoint(token_from=str(path)))
        assert JobClient(console.url, "a" * 40).status()["status"] == "running"
        with pytest.raises(ConsoleRefused, match="token"):
            JobClient(console.url, "a" * 39).status()
        console.close()
    assert path.read_text() == "a" * 40 + "\n"
    assert "aaaa" not in caplog.text


@pytest.mark.parametrize(
    "content", ["", "\n", "short", "a" * 31, "a" * 40 + "\n" + "b" * 40, "a" * 40 + " b", "ä" * 40]
)
def test_a_given_token_that_could_be_guessed_or_sent_by_nobody_is_refused(tmp_path, content):
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(InvalidArgument, match="token_from") as caught:
        ConsoleServer(Job(), HttpEndpoint(token_from=str(path)))
    assert not content.strip() or content.strip() not in str(caught.value)


def test_a_token_is_given_or_made(tmp_path):
    with pytest.raises(InvalidArgument, match="It cannot be read"):
        ConsoleServer(Job(), HttpEndpoint(token_from=str(tmp_path / "nothing")))
    with pytest.raises(InvalidArgument, match="Give one of"):
        HttpEndpoint(token_from="a", token_file="b")


def test_a_console_answers_to_the_names_that_it_is_given(world):
    named = World(HttpEndpoint(hosts=["shop-driver", "Metrics.example.com"]))
    for host, status in (("shop-driver:8090", 200), ("metrics.example.com", 200), ("evil.example", 421)):
        assert named.request(Host=host)[0] == status
    named.server.close()
    assert world.request(Host="shop-driver")[0] == 421
    for wrong in ("shop-driver", ["a b"], [""], ["a:80"]):
        with pytest.raises(InvalidArgument, match="hosts"):
            HttpEndpoint(hosts=wrong)


@pytest.mark.parametrize("number", [(1 << 53), -(1 << 53), (1 << 60) + 1, 1 << 90])
def test_a_number_that_browsers_would_round_is_a_text(number):
    assert typed_json.to_json(number) == {"int": str(number)}
    assert typed_json.from_json({"int": str(number)}) == number
    assert typed_json.key_from_json({"int": str(number)}) == typed_json.key_from_json(number)
    assert typed_json.to_json({"int": "7"}) == {"dict": [["int", "7"]]}, "a dict that looks like one"


@pytest.mark.parametrize("wrong", ["", "1.5", "1_000", " 7", "٣", "9" * 5_000, 7, None, "0x10"])
def test_what_is_no_whole_number_is_refused(wrong):
    with pytest.raises(ValueError):
        typed_json.from_json({"int": wrong})


def test_an_answer_that_json_cannot_say_is_an_error_and_no_broken_line(world):
    world.job.series = lambda: {"rate": float("nan")}
    status, content = world.request("/v1/series")
    assert status == 500 and "driver's log" in content
    assert world.request("/v1/status")[0] == 200
