"""Whatever a client of the console sends, what it gets is an answer or a 4xx with a sentence, and never a traceback."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from console_worlds import Job, World, query
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.errors import ParallelismTooHigh, SavepointNotPermitted, SparkUnsuitable
from moorline.http import routes
from moorline.http import wire as typed_json
from moorline.storage.stores.permitted import check_savepoint

FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.server.close()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == [], "a request has failed in the server"


ODD_KEYS: list[Any] = [
    {"uuid": 5},
    {"uuid": None},
    {"uuid": ["x"]},
    {"date": 5},
    {"datetime": {}},
    {"time": []},
    {"timedelta": "x"},
    {"timedelta": 10**30},
    {"decimal": {"a": 1}},
    {"decimal": [0, [1], "x"]},
    {"bytes": 7},
    {"bytes": {"a": 1}},
    {"tuple": 7},
    {"tuple": {"a": 1}},
    {"set": [[1]]},
    {"dict": [1]},
    {"dict": [[[1], 2]]},
    {"array": 5},
    {"array": {"dtype": "{", "shape": [], "data": ""}},
    {"array": {"dtype": "(9999999,9999999)f8", "shape": [1], "data": ""}},
    {"array": {"dtype": "u1", "shape": "x", "data": 5}},
    {"datetime64": 7},
    {"datetime64": [1, "x"]},
    {"datetime64": [10**30, "s"]},
    {"encoded": None},
    {"float": {}},
    "\ud800",
    10**4000,
    {"frozenset": [{"uuid": 5}]},
]


@pytest.mark.parametrize("key", ODD_KEYS, ids=lambda key: json.dumps(key)[:50])
def test_what_is_no_key_is_said_to_be_none(world, key):
    status, content = world.request("/v1/query", method="POST", body=query(key=key))
    if key != 10**4000:  # a number that a record could have
        assert status == 400, content
        assert "is no key" in json.loads(content)["error"]
    assert status < 500


@pytest.mark.parametrize(
    "length", ["\xb2", "1\xb3", "9" * 5000, "-1", "+1", "1.0", "0x10", "1_0", " ", "", "1 2", "\u0663", "lots"]
)
def test_a_strange_length_is_said_to_be_strange(world, length):
    sent = (
        f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {world.server.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode("utf-8" if length == "\u0663" else "latin-1")
    answer = world.send(sent + b"{}").decode()
    assert answer.split()[1] in ("411", "413", "400"), answer
    assert json.loads(answer.partition("\r\n\r\n")[2])["error"]


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=()), max_size=10)
    | st.sampled_from(["live", "checkpoint", "count", "seen", "eA==", "u1", "2024-01-01", "nan", "s"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*typed_json._BUILDS, "encoded", "dtype", "shape", "data"]) | st.text(max_size=5),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
fields = st.sampled_from(
    ["uid", "state", "key", "level", "timeout_ms", "path", "parallelism", "cancel", "savepoint", "drain", "other"]
)


@FUZZ
@given(
    method=st.sampled_from(["GET", "POST"]),
    path=st.sampled_from([f"/v1/{p}" for p in ("status", "checkpoints", "query", "savepoint", "rescale", "stop", "x")]),
    content=st.dictionaries(fields, anything, max_size=6),
)
def test_any_json_is_understood_or_refused_before_the_job_is_asked(method, path, content):
    """In process: thousands of requests, and nothing but a Refusal may come out."""
    content = json.loads(json.dumps(content))  # what the server gets: NaN and all
    try:
        asked = routes.read(method, path, content, Job())
    except routes.Refusal as refusal:
        assert 400 <= refusal.status < 500
    else:
        assert callable(asked)


@FUZZ
@given(key=anything)
def test_any_json_is_a_key_or_a_value_error(key):
    try:
        encoded = typed_json.key_from_json(key)
    except (ValueError, TypeError, OverflowError):
        return
    assert isinstance(encoded, bytes)


@settings(FUZZ, max_examples=examples(60))
@given(
    line=st.binary(max_size=60) | st.sampled_from([b"POST /v1/query HTTP/1.1", b"GET /v1/status", b"HEAD / HTTP/2.7"]),
    headers=st.lists(
        st.tuples(
            st.sampled_from([b"Host", b"Authorization", b"Content-Length", b"Content-Type", b"Transfer-Encoding", b"X"])
            | st.binary(max_size=10),
            st.binary(max_size=30) | st.sampled_from([b"localhost", b"application/json", b"2", b"chunked"]),
        ),
        max_size=6,
    ),
    has_token=st.booleans(),
    body=st.binary(max_size=60),
)
def test_any_bytes_are_answered_with_2xx_or_4xx_or_nothing(world, line, headers, has_token, body):
    if has_token:
        headers = [*headers, (b"Host", b"localhost"), (b"Authorization", f"Bearer {world.server.token}".encode())]
    head = b"\r\n".join([line, *(name + b": " + value for name, value in headers)])
    answer = world.send(head + b"\r\n\r\n" + body, ends=True)
    if answer.startswith(b"HTTP/"):
        assert answer.split()[1][:1] in (b"2", b"4"), answer
        assert b"Traceback" not in answer


def test_the_job_says_no_with_4xx_where_it_is_the_request_that_is_wrong(world):
    errors = {
        400: ParallelismTooHigh("count", 500, 128),
        409: SparkUnsuitable(["the job would need 500 slots"]),
    }
    for status, error in errors.items():
        world.job.refuses_to_rescale = error
        found, content = world.request("/v1/rescale", method="POST", body=b'{"parallelism": 500}')
        assert (found, json.loads(content)["error"]) == (status, str(error))
    world.job.refuses_to_rescale = None


# --- where a savepoint may go ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "permitted"),
    [
        ("/data/ck/sp", ["/data/ck"]),
        ("file:///data/ck/sp", ["/data/ck/"]),
        ("file:/data/ck/2024-01-01/sp_1", ["file:///data/ck"]),
        ("/data/ck/sp", ["file://localhost/data/ck"]),
        ("s3://bucket/ck/sp/", ["s3://bucket/ck"]),
        ("s3://bucket/sp", ["/data/ck", "s3://bucket"]),
    ],
)
def test_a_savepoint_may_go_below_what_was_configured(path, permitted):
    check_savepoint(path, permitted)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/x",
        "/data/ck",
        "/data/ck/",
        "/data/ck2/sp",
        "/data/ck/../other",
        "/data/ck/sp/../../../etc/x",
        "file:///data/ck/%2e%2e/%2e%2e/etc",
        "file:///data/ck/..%2f..%2fetc",
        "file://evil/data/ck/sp",
        "/data/ck/~root",
        "/data/ck/a\0b",
        "/data/ck/a\nb",
        "s3://evil/ck/sp",
        "s3://bucket/ck2/sp",
        "s3://bucket/ck/../../other/sp",
        "s3://bucket/ck/sp?endpoint=http://evil",
        "s3://bucket/ck/sp#x",
        "s3://bucket/ck/x::file:///etc",
        "s3://bucket/ck//sp",
        "S3://bucket/ck/sp",
        "ftp://evil/sp",
        "http://evil/sp",
        "sp",
        "",
    ],
)
def test_a_savepoint_goes_nowhere_else(path):
    with pytest.raises(SavepointNotPermitted):
        check_savepoint(path, ["/data/ck", "s3://bucket/ck"])
    with pytest.raises(SavepointNotPermitted, match="nowhere"):
        check_savepoint(path, [])


def test_a_savepoint_elsewhere_is_403_with_a_sentence(world):
    status, content = world.request("/v1/savepoint", method="POST", body=b'{"path": "s3://evil/sp"}')
    assert status == 403
    assert "s3://evil/sp" in json.loads(content)["error"]
    assert "savepoints=" in json.loads(content)["error"]
