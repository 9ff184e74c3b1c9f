"""Lines of the log say which job, attempt, operator and subtask they come from."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import threading

import pytest

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.model.log_lines import KEPT_LINES, LogPlace, LogTail, formatter, work_for

log = logging.getLogger("moorline")


@pytest.fixture
def written():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter())
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield out
    log.removeHandler(handler)
    log.setLevel(level)


def in_thread(place: LogPlace | None, message: str) -> None:
    def work() -> None:
        if place is not None:
            work_for(place)
        log.info(message)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_line_names_the_place_that_its_thread_works_for(written):
    in_thread(LogPlace("orders", 3), "checkpoint 7 is late")
    in_thread(None, "of nobody in particular")
    in_thread(LogPlace("orders", 3), "job orders, attempt 3: runs")
    lines = [line.partition("moorline")[2] for line in written.getvalue().splitlines()]
    assert lines == [
        " [job=orders attempt=3]: checkpoint 7 is late",
        ": of nobody in particular",
        ": job orders, attempt 3: runs",
    ]


def test_a_tail_has_the_lines_of_its_own_job_and_not_for_ever(written):
    tail = LogTail("orders")
    log.addHandler(tail)
    try:
        in_thread(LogPlace("other"), "not mine")
        for n in range(KEPT_LINES + 5):
            in_thread(LogPlace("orders"), f"line {n}") if n > KEPT_LINES else log.info("line %d", n)
    finally:
        log.removeHandler(tail)
    lines = tail.after(0)
    assert (len(lines), lines[-1]["text"], lines[0]["text"]) == (KEPT_LINES, f"line {KEPT_LINES + 4}", "line 5")
    assert [line["number"] for line in tail.after(KEPT_LINES + 3)] == [KEPT_LINES + 4, KEPT_LINES + 5]


def test_a_workers_lines_go_to_standard_error_from_its_level_on():
    code = """
import logging
from moorline.model.log_lines import LogPlace, show_in_worker
show_in_worker(LogPlace("orders", 3, "count,out", "1/0"), "warning")
show_in_worker(LogPlace("orders", 4, "count,out", "1/0"), "warning")
logging.getLogger("moorline").info("quiet")
logging.getLogger("moorline").warning("loud")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.endswith("WARNING moorline [job=orders attempt=4 operators=count,out subtask=1/0]: loud")


def test_a_control_port_that_nobody_can_reach_is_refused():
    assert mo.ControlPort(port=7000, advertise="driver").hosts("10.0.0.1", "10.0.0.1") == ("10.0.0.1", "driver")
    for wrong in ({"port": 70_000}, {"port": -1}, {"advertise": "0.0.0.0"}, {"advertise": "::"}, {"bind": "http://x"}):
        with pytest.raises(InvalidArgument):
            mo.ControlPort(**wrong)


def test_a_log_level_that_does_not_exist_is_refused():
    job = mo.Job("levels")
    job.source(mo.from_items([1])).sink(mo.discard())
    with pytest.raises(InvalidArgument, match="'warning'"):
        mo.start(job, log_level="loud")


def test_no_module_silences_the_log_by_being_imported():
    script = (
        "import importlib, logging, pkgutil, moorline\n"
        "for module in pkgutil.walk_packages(moorline.__path__, 'moorline.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "assert logging.getLogger('moorline').level == logging.NOTSET\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_an_exception_says_neither_moves_the_cursor_nor_looks_like_a_line_of_ours():
    hostile = "bad\x1b[2J\u202e\n12:00:01 INFO moorline: job orders: finished\r\u2028"
    record = logging.LogRecord("moorline", logging.WARNING, "", 0, "fails: %s", (hostile,), None)
    log.filter(record)
    first, second = formatter().format(record).split("\n")
    assert first.endswith("fails: bad\\x1b[2J\\u202e")
    assert second == "  12:00:01 INFO moorline: job orders: finished\\r\\u2028"
