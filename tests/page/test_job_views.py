"""Every view of the web page, in a real browser."""

from __future__ import annotations

import re

import pytest
from page_worlds import PageJob

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


def text_of(page) -> str:
    return page.locator("main").inner_text()


def see(page, text: str) -> None:
    page.locator("main").get_by_text(text).first.wait_for()


def test_overview_shows_graph_rates_and_back_pressure(open_page, shown, picture):
    page = open_page(shown().url)
    page.get_by_role("heading", name="fraud-alerts").wait_for()
    boxes = page.locator(".box")
    boxes.nth(5).wait_for()
    page.locator(".box.held").wait_for()
    assert "payments" in page.locator(".box.held").inner_text()
    assert "score" in page.locator(".box.hot").inner_text()
    assert page.locator(".edge").count() == 5
    assert page.locator(".edge.held").count() == 1
    overview = text_of(page)
    for said in ("18.5 k/s", "64 %", "no. 61", "back-pressured 64 %", "skew 1.6×"):
        assert said in overview
    assert page.title() == "running · fraud-alerts · Moorline"
    picture(page, "page-overview")


def test_overview_in_the_dark_and_in_a_narrow_window(open_page, shown, picture):
    dark = open_page(shown().url, color_scheme="dark")
    dark.locator(".box.held").wait_for()
    assert dark.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 25)"
    picture(dark, "page-overview-dark")
    narrow = open_page(shown().url, viewport={"width": 390, "height": 844})
    narrow.locator(".box.held").wait_for()
    # The page itself never scrolls sideways: tables and the graph do, in their frames.
    assert narrow.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(narrow, "page-narrow")
    narrow.evaluate("location.hash = '#/configuration'")
    narrow.wait_for_function(
        "document.querySelector('.tabs [aria-current]').textContent.trim() === 'Configuration'"
        " && document.querySelector('.tabs [aria-current]').getBoundingClientRect().right <= innerWidth"
    )


def test_figures_follow_the_job(open_page, shown):
    served = shown()
    page = open_page(served.url)
    page.locator(".pill", has_text="running").first.wait_for()
    served.job.status = "restarting"
    page.locator(".pill", has_text="restarting").first.wait_for()


def test_event_time_that_is_no_date_breaks_nothing(open_page, shown):
    job = PageJob()
    job.ahead_ms = 10**18  # nanoseconds that are taken for milliseconds
    page = open_page(shown(job).url)
    page.get_by_role("region", name="Operators").locator("tbody tr").nth(5).wait_for()
    page.get_by_role("link", name="Subtasks").click()
    page.get_by_role("heading", name="Spread").wait_for()


def test_subtasks_show_skew(open_page, shown, picture):
    page = open_page(shown().url)
    page.locator(".box.hot").click()
    page.get_by_role("heading", name="Spread").wait_for()
    assert re.search(r"#/subtasks/2$", page.url)
    assert page.locator(".spread rect").count() == 4
    assert page.locator(".spread rect.hot").count() == 1
    hottest = page.get_by_role("region", name="Hottest keys").locator("tbody tr").first.inner_text()
    assert "'ada'" in hottest and "29 %" in hottest
    page.get_by_role("button", name="records", exact=True).click()
    first = page.get_by_role("region", name="Subtasks").locator("tbody tr").first
    assert first.locator("td").first.inner_text() == "1"
    see(page, "suspicious")
    picture(page, "page-subtasks")


def test_lines_over_time(open_page, shown, picture):
    page = open_page(shown().url)
    page.get_by_role("link", name="Over time").click()
    page.locator(".plot canvas").nth(5).wait_for()
    for title in ("Records in", "Busy", "Back-pressured", "Watermark lag", "Records behind"):
        see(page, title)
    page.get_by_role("button", name="score").click()
    page.locator(".plot canvas").nth(5).wait_for(state="detached")  # it is no source
    page.get_by_role("button", name="score").click()
    page.locator(".plot canvas").nth(5).wait_for()
    picture(page, "page-time")


def test_checkpoints_down_to_subtasks_and_why_one_failed(open_page, shown, picture):
    page = open_page(shown().url)
    page.get_by_role("link", name="Checkpoints").click()
    row = page.get_by_role("region", name="Checkpoints").locator("tr", has_text="the checkpoint took too long")
    row.focus()
    page.keyboard.press("Enter")
    see(page, "subtask 2/1: writing to s3://data/checkpoints timed out")
    parts = page.get_by_role("region", name="Subtasks of the checkpoint")
    assert parts.locator("tbody tr").count() == 24
    assert parts.locator(".phases").count() == 24
    assert "score" in page.get_by_role("region", name="Operators of the checkpoint").inner_text()
    picture(page, "page-checkpoints")


def test_failures_with_traceback_and_attempts(open_page, shown, picture):
    page = open_page(shown().url)
    page.get_by_role("link", name="Failures").click()
    see(page, "1 of 2 attempts failed.")
    assert 'File "payments.py", line 48, in process_element' in page.locator("pre").inner_text()
    assert "from checkpoint 38" in text_of(page)
    picture(page, "page-failures")


def test_state_is_explored_and_a_key_looked_up(open_page, shown, picture):
    served = shown()
    page = open_page(served.url)
    page.get_by_role("link", name="State").click()
    page.get_by_role("region", name="States").locator("tr", has_text="total").click()
    see(page, "Largest keys")
    assert "+36.1 KiB" in page.get_by_role("region", name="States").inner_text()
    assert page.locator(".spread rect").count() == 128
    page.get_by_role("region", name="Largest keys").get_by_role("button", name="Look up").nth(2).click()
    answer = page.locator(".answer pre")
    answer.wait_for()
    assert answer.inner_text() == "{'count': 3, 'last': (1.5, 'Ada')}"
    assert served.job.done == [("query", "score", "total", ("grace", 2), "live")]
    picture(page, "page-state", full_page=True)
    page.get_by_role("region", name="Hottest keys").get_by_role("button", name="Look up").first.click()
    page.locator(".answer .soft", has_text="score.total['ada']").wait_for()
    assert served.job.done.pop() == ("query", "score", "total", "ada", "live")
    page.get_by_label("Key", exact=True).fill("7")
    page.get_by_label("Of").select_option("checkpoint")
    page.get_by_label("Key", exact=True).press("Enter")
    page.locator(".answer .soft", has_text="score.total[7]").wait_for()
    assert served.job.done[1] == ("query", "score", "total", 7, "checkpoint")
    # Numbers that JavaScript would round: as a key, and as a value.
    served.job.value = {"id": (1 << 60) + 1}
    page.get_by_label("Key", exact=True).fill(str((1 << 60) + 1))
    page.get_by_label("Key", exact=True).press("Enter")
    page.locator(".answer .soft", has_text=f"[{(1 << 60) + 1}]").wait_for()
    page.locator(".answer pre", has_text=f"{{'id': {(1 << 60) + 1}}}").wait_for()
    assert served.job.done[2][3] == (1 << 60) + 1
    page.get_by_label("State", exact=True).fill("nothing")
    page.get_by_label("Key", exact=True).press("Enter")
    see(page, "the operator has no such state")


def test_an_answer_is_never_shown_for_another_key(open_page, shown):
    served = shown()
    page = open_page(served.url)
    page.get_by_role("link", name="State").click()
    key = page.get_by_label("Key", exact=True)
    key.fill("7")
    key.press("Enter")
    page.locator(".answer .soft", has_text="score.total[7]").wait_for()
    key.fill("slow")
    key.press("Enter")
    page.get_by_role("button", name="Asking").wait_for()
    assert page.locator(".answer").count() == 0
    served.job.slow_key.set()
    page.locator(".answer .soft", has_text="slow").wait_for()


def test_snapshots_with_plan_and_differences(open_page, shown, picture):
    served = shown()
    page = open_page(served.url)
    page.get_by_role("link", name="Snapshots").click()
    page.get_by_role("region", name="Snapshots").locator("tr", has_text="checkpoint 61").click()
    see(page, "it would start")
    see(page, "int becomes float")
    see(page, "[0,128)")
    page.get_by_role("button", name="Compare").click()
    see(page, "moorline diff")
    assert served.job.done == [("diff", 60, 61)]
    picture(page, "page-snapshots", full_page=True)
    page.get_by_role("region", name="Snapshots").locator("tr", has_text="before-upgrade").click()
    # What was compared before is gone with the choice.
    assert page.get_by_text("moorline diff").count() == 0
    page.get_by_role("button", name="Compare").click()
    see(page, "moorline diff")
    assert served.job.done[-1][2].endswith("before-upgrade")


def test_a_snapshot_that_goes_while_one_compares_with_it_is_replaced_by_another(open_page, shown):
    served = shown()
    page = open_page(served.url)
    page.get_by_role("link", name="Snapshots").click()
    rows = page.get_by_role("region", name="Snapshots").locator("tbody tr")
    rows.filter(has_text="checkpoint 60").click()
    page.get_by_label("from").wait_for()
    assert page.get_by_label("from").input_value() == "59"
    served.job.stored = (60, 61, 62)
    rows.filter(has_text="checkpoint 62").first.wait_for()
    page.get_by_role("button", name="Compare").click()
    see(page, "moorline diff")
    ((_, before, after),) = served.job.done
    assert before != 59 and after == 60, "59 is no longer there"
    served.job.stored = (61, 62)
    see(page, "What you have looked at has been deleted")


def test_configuration(open_page, shown, picture):
    page = open_page(shown().url)
    page.get_by_role("link", name="Configuration").click()
    see(page, "rocksdb")
    assert "ExponentialDelay" in text_of(page)
    assert "recent value, expires" in text_of(page)
    picture(page, "page-configuration")


def test_a_page_of_500_subtasks_stays_responsive(open_page, shown):
    page = open_page(shown(PageJob(parallelism=500)).url)
    page.locator(".box.hot").click()
    page.locator(".spread rect").nth(499).wait_for(state="attached")
    rows = page.get_by_role("region", name="Subtasks").locator("tbody tr")
    assert rows.count() == 100
    # What the browser itself spends on a second of the page: its own clock for work, not that of a loaded machine.
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def worked() -> float:
        metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"]

    before = worked()
    page.wait_for_timeout(5_000)
    assert worked() - before < 3.0
    page.get_by_role("button", name="Show all 500").click()
    rows.nth(499).wait_for()


def test_a_page_that_nobody_looks_at_asks_nothing(open_page, shown):
    served = shown()
    page = open_page(served.url)
    page.locator(".box.held").wait_for()
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.wait_for_timeout(1_500)
    asked = served.job.metrics_asked
    page.wait_for_timeout(3_000)
    assert served.job.metrics_asked == asked


def focused(page) -> str:
    """What the keyboard is at: its class and text."""
    return page.evaluate(
        """() => {
          const e = document.activeElement;
          return `${e.tagName}.${e.className}#${e.id} ${e.textContent.trim().slice(0, 60)}`;
        }"""
    )


def tab_to(page, wanted: str) -> None:
    """Press the tab key until something is reached."""
    passed = []
    for _ in range(60):
        page.keyboard.press("Tab")
        if wanted in (now := focused(page)):
            return
        passed.append(now)
    raise AssertionError(f"{wanted!r} is not reached: {passed}")


def test_all_of_it_can_be_done_with_the_keyboard_alone(open_page, shown):
    served = shown()
    page = open_page(served.url)
    page.locator(".box.held").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert "A.skip" in focused(page), "the head can be skipped"
    page.keyboard.press("Enter")
    assert "#main" in focused(page)
    tab_to(page, "BUTTON.box hot")
    # What is at hand is seen: an outline, and not by colour alone.
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Spread").wait_for()
    page.get_by_role("link", name="Checkpoints").focus()
    page.keyboard.press("Enter")
    page.get_by_role("region", name="Checkpoints").wait_for()
    tab_to(page, "BUTTON.# no.")
    page.keyboard.press("Enter")  # the table is sorted by a column
    assert page.locator("th[aria-sort='descending']", has_text="no.").count() == 1
    tab_to(page, "TR.open")
    page.keyboard.press("Enter")
    page.get_by_role("region", name="Subtasks of the checkpoint").wait_for()

    page.get_by_role("button", name="Rescale", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    for _ in range(12):  # the tab key stays in the dialog, or at the window itself
        page.keyboard.press("Tab")
        assert page.evaluate("!!document.activeElement.closest('dialog') || document.activeElement === document.body")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert "Rescale" in focused(page), "one is where one was"
    assert served.job.done == []
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.get_by_role("spinbutton", name="Subtasks").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("5")
    page.keyboard.press("Enter")
    page.get_by_text("The job runs with a parallelism of 5.").wait_for()
    assert served.job.done == [("rescale", 5)]
