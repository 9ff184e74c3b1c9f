"""A real browser: Debian's Chromium, driven by playwright. Tests that need it are skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_worlds import PageJob, Shown

CHROMIUM = os.environ.get("MOORLINE_CHROMIUM") or shutil.which("chromium") or ""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
#: Machines may be busy.
PATIENCE_MS = 60_000


# Not for the session: as long as it is open, its loop runs on the main thread of the process, where code of others may
# want one of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the dev extra)")
    if not CHROMIUM:
        pytest.skip("there is no chromium on the path (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser) -> Iterator[Callable[..., Any]]:
    """A new tab for an address. What goes wrong in it fails the test: errors, refused scripts, foreign hosts."""
    wrong: list[str] = []
    contexts = []

    def open_page(url: str, **options: Any) -> Any:
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 860}, "reduced_motion": "reduce"} | options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        own = url.partition("/#")[0]
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda m: (
                wrong.append(m.text)
                # Refusals, and requests that break off because a server has ended, are part of what is tested.
                if m.type == "error" and "status of" not in m.text and "net::ERR_" not in m.text
                else None
            ),
        )
        page.on("request", lambda r: wrong.append(f"asks {r.url}") if not r.url.startswith(own) else None)
        page.on("dialog", lambda d: (wrong.append(f"a dialog: {d.message}"), d.dismiss()))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture
def shown() -> Iterator[Callable[..., Shown]]:
    """Serves jobs until the test ends."""
    served: list[Shown] = []

    def show(job: PageJob | None = None) -> Shown:
        served.append(Shown(job))
        return served[-1]

    yield show
    for each in served:
        each.close()


@pytest.fixture(scope="session")
def picture() -> Callable[..., None]:
    """Keeps a picture of a page, if MOORLINE_SCREENSHOTS names a folder for them: ``make pictures``."""

    def picture(page: Any, name: str, **options: Any) -> None:
        if folder := os.environ.get("MOORLINE_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(Path(folder) / f"{name}.png"), **options)

    return picture
