"""Requests to a console: there are no others, and none that is half understood is granted."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
from console_worlds import World, query
from prometheus_client.parser import text_string_to_metric_families

from moorline.errors import InvalidArgument, QueryFailed, QueryUnavailable
from moorline.http import routes


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.server.close()


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/page/",
        "/page/../server.py",
        "/page/vendor/../../server.py",
        "/page/app.js?x",
        "/v1/../v1/status",
        "/../../etc/passwd",
        "/v1/status/..%2f..%2fetc/passwd",
        "*",
    ],
)
def test_there_are_no_other_paths(world, path):
    status, content = world.request(path)
    assert status == 404
    assert "passwd" not in content


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/series", "/v1/history", "/v1/checkpoints/1"])
def test_figures_are_for_those_with_the_token_alone(world, path):
    assert world.request(path)[0] == 200
    assert world.request(path, Authorization=None)[0] == 401
    assert world.request(path, Authorization="Bearer wrong")[0] == 401


def test_prometheus_reads_text_with_the_token_alone(world):
    request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n"
    token = f"Authorization: Bearer {world.server.token}\r\n"
    head, _, text = world.send(request.format(token).encode()).decode().partition("\r\n\r\n")
    assert "200 OK" in head and "Content-Type: text/plain; version=0.0.4" in head and "nosniff" in head
    (family,) = [f for f in text_string_to_metric_families(text) if f.name == "moorline_job_attempt"]
    assert [(s.labels, s.value) for s in family.samples] == [({"job": "<script>alert(1)</script>"}, 1.0)]
    assert b"401" in world.send(request.format("").encode())


@pytest.mark.parametrize(
    "path", ["/v1/checkpoints/2", "/v1/checkpoints/-1", "/v1/checkpoints/1/..", "/v1/checkpoints/"]
)
def test_there_is_no_checkpoint_that_is_not_known(world, path):
    assert world.request(path)[0] == 404


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
