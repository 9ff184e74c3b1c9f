"""``moorline serve``: the jobs and savepoints of a location over HTTP, and nothing else."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from stored_jobs import write_job_and_savepoint
from waiting import PATIENCE

from moorline.http import served_location
from moorline.http.served_location import ServedLocation
from moorline.http.server import ConsoleServer


@pytest.fixture
def location(tmp_path: Path) -> Path:
    write_job_and_savepoint(tmp_path / "chk/shop", tmp_path / "chk/before-upgrade")
    return tmp_path / "chk"


@pytest.fixture
def ask(location: Path):
    """Ask the server of a location: the status, and the answer."""
    with closing(ConsoleServer(ServedLocation(str(location), version="1.2"), read=served_location.read)) as server:

        def ask(path: str, content: object = None, token: str | None = None) -> tuple[int, dict]:
            headers = {"Authorization": f"Bearer {token or server.token}", "Content-Type": "application/json"}
            data = None if content is None else json.dumps(content).encode()
            request = urllib.request.Request(server.url + path, data, headers)
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        yield ask


def test_jobs_and_savepoints_are_listed(ask):
    status, found = ask("/v1/jobs")
    (job,), (savepoint,) = found["jobs"], found["savepoints"]
    assert (status, job["folder"], job["job"], job["status"]) == (200, "shop", "harness", "not ended")
    assert (job["newest"], job["checkpoints"], job["damaged"]) == (1, 1, 0)
    assert (savepoint["place"], savepoint["checkpoint"], savepoint["job"]) == ("before-upgrade", 1, "harness")


def test_a_job_shows_its_checkpoints_and_what_is_in_them(ask):
    _, job = ask("/v1/jobs/shop")
    (checkpoint,) = job["checkpoints"]
    for place in (checkpoint["place"], "before-upgrade"):
        _, inside = ask("/v1/snapshot", {"snapshot": place})
        assert {name for state in inside["states"] for name in state["state"].split(", ")} >= {"total", "days"}
    _, differences = ask("/v1/diff", {"before": "before-upgrade", "after": "shop/1"})
    assert differences == {"changes": [], "there_are_more": False}


@pytest.mark.parametrize("place", ["../shop/1", "shop", "shop/2", "/etc", "shop/1/..", "nothing", "before-upgrade/1"])
def test_a_place_that_is_not_there_is_refused(ask, place):
    status, answer = ask("/v1/snapshot", {"snapshot": place})
    assert status == 404
    assert "error" in answer and "states" not in answer


@pytest.mark.parametrize("folder", ["..", "..%2F..%2Fetc", "before-upgrade", ""])
def test_a_folder_that_is_no_job_is_refused(ask, folder):
    status, answer = ask(f"/v1/jobs/{folder}")
    assert status == 404
    assert "checkpoints" not in answer


def test_data_is_for_the_token_alone(ask):
    assert [ask(path, token="wrong")[0] for path in ("/v1/page", "/v1/jobs", "/v1/jobs/shop")] == [401] * 3


def test_a_job_that_cannot_be_read_is_shown_beside_the_others(location, ask):
    history = location / "broken" / "history"
    history.mkdir(parents=True)
    (history / "0000000001.json").write_bytes(b"no entry")
    _, found = ask("/v1/jobs")
    jobs = {job["folder"]: job for job in found["jobs"]}
    assert jobs["shop"]["checkpoints"] == 1
    assert jobs["broken"]["damaged"] or jobs["broken"]["status"] == "unreadable"


def test_the_command_prints_an_address_and_ends_when_it_is_told_to(location):
    command = [sys.executable, "-m", "moorline.cli.main", "serve", str(location)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"(http://127\.0\.0\.1:\d+)/#token=(\S+)", process.stdout.readline())
    assert found is not None
    with urllib.request.urlopen(found[1] + "/", timeout=PATIENCE) as page:
        assert b"Moorline" in page.read()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
