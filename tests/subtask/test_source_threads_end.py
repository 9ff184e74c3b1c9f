"""The thread of a source function ends, whatever it does or waits for."""

from __future__ import annotations

import sys

import pytest
from source_functions import Counter, of, source_threads
from waiting import eventually

import moorline as mo
from moorline.errors import InvalidArgument, UserCodeFailed
from moorline.subtask.operators import source_thread


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    eventually(lambda: source_threads() == [], "its thread is over")


@pytest.fixture
def small_queue(monkeypatch):
    monkeypatch.setattr(source_thread, "QUEUED", 10)


def test_an_error_in_run_is_told_after_what_was_emitted_before_it():
    class Broken(mo.SourceFunction):
        def run(self, ctx):
            ctx.collect(1)
            raise OSError("no such queue")

    with of(Broken()) as harness:
        assert harness.read() == [1]
        with pytest.raises(UserCodeFailed, match="OSError: no such queue in operator 'source'") as failure:
            harness.read()
        assert "in run" in str(failure.value), "the traceback is the user's"


def test_a_source_that_exits_fails_instead_of_leaving_the_job_waiting():
    class Exits(mo.SourceFunction):
        def run(self, ctx):
            sys.exit(3)

    with of(Exits()) as harness, pytest.raises(UserCodeFailed, match="SystemExit"):
        harness.read()


def test_our_own_errors_come_through_as_they_are():
    class Asks(mo.SourceFunction):
        def run(self, ctx):
            raise InvalidArgument("address", "x", "Give another one.")

    with of(Asks()) as harness, pytest.raises(InvalidArgument, match="Give another one"):
        harness.read()


def test_close_cancels_and_then_closes():
    harness = of(Counter())
    harness.read(1)
    harness.close()
    function = harness.functions[0]
    assert function.was_cancelled and function.was_closed


class Deaf(Counter):
    """Does not listen to cancel."""

    def cancel(self):
        pass


@pytest.mark.usefixtures("small_queue")
def test_a_thread_that_waits_in_collect_ends_when_it_is_closed():
    harness = of(Deaf())
    harness.read(1)
    harness.close()
    eventually(lambda: source_threads() == [], "its thread is over")


def test_a_thread_that_waits_for_the_lock_ends_when_it_is_closed():
    harness = of(Deaf())
    harness.read(1)
    harness._subtasks[0].operator.before_barrier()  # and the snapshot fails, so that nobody gives the lock back
    harness.close()
    eventually(lambda: source_threads() == [], "its thread is over")


def test_a_failure_downstream_before_the_barrier_gives_the_lock_back():
    harness = of(Deaf())
    harness.read(1)
    operator = harness._subtasks[0].operator

    def fail(*_):
        raise RuntimeError("full")

    operator.targets[0].process = fail
    with pytest.raises(RuntimeError, match="full"):
        while True:
            operator.before_barrier()
            operator.after_snapshot()
    harness.close()
    eventually(lambda: source_threads() == [], "its thread is over")


def test_what_is_collected_after_the_close_goes_nowhere():
    late = []

    class Late(mo.SourceFunction):
        def run(self, ctx):
            self.ctx = ctx
            ctx.collect(1)

    harness = of(Late())
    assert harness.read() == [1]
    harness.close()
    try:
        harness.functions[0].ctx.collect(2)
    except BaseException as error:
        late.append(type(error).__name__)
    assert late == ["_Stopped"]
    assert harness._subtasks[0].taken() == []


def test_a_cancel_that_raises_does_not_keep_the_thread():
    class Clumsy(Counter):
        def cancel(self):
            raise OSError("gone already")

    harness = of(Clumsy())
    harness.read(1)
    with pytest.raises(OSError, match="gone already"):
        harness.close()
    eventually(lambda: source_threads() == [], "its thread is over")
    assert harness.functions[0].was_closed
