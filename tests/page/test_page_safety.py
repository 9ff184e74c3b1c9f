"""The token, hostile names and the actions of the web page, in a real browser."""

from __future__ import annotations

import pytest
from page_worlds import SHOP, PageJob

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

HOSTILE = "</bdi><img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp.\u0007"


def test_the_token_leaves_the_address_and_stays_in_the_tab(open_page, shown):
    served = shown()
    page = open_page(served.url)
    page.locator(".box.held").wait_for()
    assert served.server.token not in page.url
    page.reload()
    page.locator(".box.held").wait_for()
    assert page.evaluate("localStorage.length") == 0
    assert page.evaluate("document.cookie") == ""


def test_with_a_wrong_token_nothing_is_shown_and_the_right_one_can_be_given(open_page, shown):
    served = shown()
    page = open_page(served.server.url + "/#token=wrong")
    page.get_by_text("That is not the token").wait_for()
    assert "fraud" not in page.content()
    page.get_by_label("Token").fill(served.server.token)
    page.keyboard.press("Enter")
    page.locator(".box.held").wait_for()


def test_without_a_token_the_page_asks_for_it(open_page, shown):
    served = shown()
    page = open_page(served.server.url + "/")
    page.get_by_label("Token").fill(served.server.token)
    page.get_by_role("button", name="Show it").click()
    page.locator(".box.held").wait_for()


def hostile_job() -> PageJob:
    vertices = [
        ([(HOSTILE, HOSTILE, kind, [HOSTILE] if states else []) for _, _, kind, states in chain], *figures)
        for chain, *figures in SHOP[2:3]
    ]
    job = PageJob(vertices=vertices, job=HOSTILE)
    job.error = job.traceback = job.failure = job.detail = HOSTILE
    job.value = {HOSTILE: [HOSTILE, {"tuple": HOSTILE}]}
    job.hot_uid, job.hot_keys = HOSTILE, [(HOSTILE, 0.5)]
    return job


@pytest.mark.parametrize(
    "view", ["", "subtasks", "time", "checkpoints/44", "failures", "state", "snapshots", "configuration"]
)
def test_hostile_names_and_values_are_text(open_page, shown, view):
    # The fixture fails a test on which a dialog opens, a script is refused or another address is asked.
    page = open_page(shown(hostile_job()).url)
    page.locator(".box").first.wait_for()
    page.evaluate(f"location.hash = '#/{view}'")
    page.wait_for_timeout(1_500)
    if view == "state":
        page.get_by_role("region", name="States").locator("tbody tr").first.click()
        page.get_by_label("Key", exact=True).fill('"' + "<b>x</b>" + '"')
        page.get_by_role("button", name="Look up").first.click()
        page.locator(".answer pre").wait_for()
        assert "<img src=x" in page.locator(".answer pre").inner_text()
    if view == "snapshots":
        page.get_by_role("region", name="Snapshots").locator("tbody tr").first.click()
        page.get_by_role("button", name="Compare").click()
        page.get_by_text("moorline diff").wait_for()
    assert page.locator("img[src='x'], main script").count() == 0
    assert "<img src=x onerror=alert(1)>" in page.locator("body").inner_text()
    assert "\u202e" not in page.locator("#page").inner_text()


def test_styles_and_scripts_that_are_put_into_the_page_do_not_count(browser, shown):
    page = browser.new_page()  # not one of those that fail a test if something is refused
    page.goto(shown().url)
    page.locator(".box.held").wait_for()
    ran = page.evaluate(
        """() => {
          const events = [];
          document.addEventListener('securitypolicyviolation', (e) => events.push(e.violatedDirective));
          const div = document.createElement('div');
          div.innerHTML = '<b style="color: red">x</b>';
          document.body.append(div);
          return getComputedStyle(div.firstChild).color === 'rgb(255, 0, 0)';
        }"""
    )
    assert ran is False
    headers = page.request.get(page.url.partition("#")[0]).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"


def test_files_of_the_page_are_for_everybody_and_nothing_else_is(open_page, shown):
    served = shown()
    page = open_page(served.url)
    asked = page.request
    assert asked.get(served.server.url + "/page/app.js").status == 200
    assert asked.get(served.server.url + "/page/vendor/LICENSE-htm").status == 401
    for path in ("/v1/page", "/v1/snapshots", "/v1/metrics"):
        assert asked.get(served.server.url + path).status == 401
        assert asked.get(served.server.url + path, headers={"Authorization": "Bearer x"}).status == 401
    for path in ("/v1/plan", "/v1/diff", "/v1/stop", "/v1/savepoint"):
        assert asked.post(served.server.url + path, data={}).status == 401
    assert asked.post(served.server.url + "/", data={}).status == 401
    # A snapshot that a request names lies where the job keeps its own.
    headers = {"Authorization": f"Bearer {served.server.token}"}
    for name in ("file:///etc", "file:///data/checkpoints/../secret"):
        assert asked.post(served.server.url + "/v1/plan", data={"snapshot": name}, headers=headers).status == 403
    for name in (0, -1, True, None, [], ""):
        assert asked.post(served.server.url + "/v1/plan", data={"snapshot": name}, headers=headers).status == 400


def test_each_action_is_asked_for_before_it_is_done(open_page, shown, picture):
    served = shown()
    page = open_page(served.url)
    page.locator(".box.held").wait_for()
    for name in ("Savepoint", "Rescale", "Stop", "Cancel"):
        page.get_by_role("button", name=name, exact=True).click()
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
    assert served.job.done == []
    page.get_by_role("button", name="Savepoint", exact=True).click()
    page.get_by_label("Folder").fill("/etc/somewhere")
    page.get_by_role("button", name="Take it").click()
    page.get_by_role("dialog").get_by_role("alert").wait_for()
    page.get_by_label("Folder").fill("/data/checkpoints/sp-1")
    page.get_by_role("button", name="Take it").click()
    page.get_by_text("The savepoint is at /data/checkpoints/sp-1").wait_for()
    page.get_by_role("button", name="Rescale", exact=True).click()
    page.get_by_label("Subtasks", exact=False).fill("8")
    picture(page, "page-rescale")
    page.get_by_role("dialog").get_by_role("button", name="Rescale").click()
    page.get_by_text("The job runs with a parallelism of 8.").wait_for()
    page.get_by_role("button", name="Rescale", exact=True).click()
    page.get_by_role("dialog").get_by_label("Operator").select_option("score")
    page.get_by_label("Subtasks", exact=False).fill("3")
    page.keyboard.press("Enter")
    page.get_by_text("The job runs with a parallelism of 3 in score.").wait_for()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_label("with a savepoint").check()
    page.get_by_label("drain").check()
    page.get_by_label("Folder").fill("/data/checkpoints/sp-2")
    page.get_by_role("button", name="Stop it").click()
    page.get_by_text("The job is stopping.").wait_for()
    assert served.job.done == [
        ("savepoint", "/data/checkpoints/sp-1"),
        ("rescale", 8),
        ("rescale", {"score": 3}),
        ("stop", "/data/checkpoints/sp-2", True),
    ]
    # A job that has ended cannot be asked for anything.
    page.locator(".pill", has_text="finished").first.wait_for()
    assert page.get_by_role("button", name="Cancel", exact=True).is_disabled()


def test_a_job_is_cancelled_and_the_page_says_that_it_is_gone(open_page, shown):
    served = shown()
    page = open_page(served.url)
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    page.get_by_text("The job is being cancelled.").wait_for()
    assert served.job.done == [("cancel",)]
    served.close()
    page.get_by_text("What is shown is what was known last.").wait_for()


@pytest.mark.parametrize("fragment", ["/checkpoints/%zz", "/%zz", "/constructor", "/__proto__/x", "token=%zz"])
def test_a_malformed_address_shows_the_page_all_the_same(open_page, shown, fragment):
    served = shown()
    page = open_page(served.url)
    page.locator(".box.held").wait_for()
    page.evaluate(f"location.hash = '#{fragment}'")
    if fragment.startswith("token"):
        page.get_by_text("That is not the token").wait_for()
    else:
        page.get_by_role("navigation", name="Views").wait_for()
        page.locator("main").get_by_text("no. 61").first.wait_for() if "checkpoints" not in fragment else None
