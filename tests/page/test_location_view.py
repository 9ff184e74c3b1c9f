"""The web page of a checkpoint location, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from console.stored_jobs import write_job_and_savepoint
from location_worlds import Shop

from moorline.http import served_location
from moorline.http.served_location import ServedLocation
from moorline.http.server import ConsoleServer
from moorline.snapshots.folders import open_snapshot
from moorline.storage import entries

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    for folder in ("payments", "shop"):
        write_job_and_savepoint(tmp_path / folder, tmp_path / f"{folder}-before")
    with closing(ConsoleServer(ServedLocation(str(tmp_path), version="1.2"), read=served_location.read)) as server:
        yield server.page


def test_jobs_savepoints_and_what_is_in_them(open_page, address):
    page = open_page(address)
    jobs = page.locator("[aria-label='Jobs'] tbody tr")
    jobs.nth(1).wait_for()
    assert page.get_by_text("not ended").count() >= 2
    page.get_by_text("shop-before", exact=True).first.click()
    page.get_by_text("totals").first.wait_for()
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("Nothing has changed.").wait_for()


def test_a_location_of_many_jobs(open_page, picture):
    with closing(ConsoleServer(Shop(), read=served_location.read)) as server:
        page = open_page(server.page)
        assert page.locator("[aria-label='Jobs'] tbody tr").nth(4).inner_text().startswith("backfill-2025")
        assert page.locator("[aria-label='Snapshots'] tbody tr").count() == 2
        assert page.locator("[aria-label='Jobs'] .warn-text").all_inner_texts() == ["3 h 10 min ago"]
        picture(page, "page-jobs", clip={"x": 0, "y": 0, "width": 1280, "height": 720})


def test_a_job_is_opened_by_its_name(open_page, address):
    page = open_page(address)
    page.locator("[aria-label='Jobs'] tbody a").last.click()
    page.get_by_text("checkpoint 1", exact=True).first.click()
    page.get_by_text("totals").first.wait_for()
    assert "#/job/" in page.url


HOSTILE = "</bdi><img src=x onerror=alert(1)>\u202egnp.\u0007"


def test_a_hostile_snapshot_is_shown_as_text(open_page, tmp_path):
    """Whoever can write to the location chooses these names, and the times."""
    job, savepoint = tmp_path / "chk/shop", tmp_path / "chk/before"
    write_job_and_savepoint(job, savepoint)
    manifest, _ = open_snapshot(str(savepoint))
    operators = [msgspec.structs.replace(o, uid=HOSTILE, name=HOSTILE) for o in manifest.operators]
    hostile = msgspec.structs.replace(manifest, job=HOSTILE, created_ms=10**18, operators=operators)
    (savepoint / "manifest.json").write_bytes(entries.encode(hostile, "", ""))
    (job / "history" / "0000000003.json").write_bytes(HOSTILE.encode())
    served = ServedLocation(str(tmp_path / "chk"), version="1.2")
    with closing(ConsoleServer(served, read=served_location.read)) as server:
        # The fixture fails a test on which a dialog opens, a script is refused or another address is asked.
        page = open_page(server.page)
        page.locator("[aria-label='Snapshots'] tbody tr").first.click()
        page.get_by_text("<img src=x onerror=alert(1)>").first.wait_for()
        page.locator("[aria-label='Jobs'] tbody a").first.click()
        page.get_by_text("Attempts").first.wait_for()
        assert page.locator("img[src='x']").count() == 0
        assert "\u202e" not in page.locator("#page").inner_text()
