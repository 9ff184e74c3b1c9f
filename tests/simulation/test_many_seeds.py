"""A run of many seeds: interrupted and gone on with, and what it says of seeds that fail."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moorline.testing.simulation.many_seeds import SeedChunk, Summary, simulate_chunk, simulate_many
from moorline.testing.simulation.simulator import Simulation

#: Each starts several processes.
pytestmark = pytest.mark.slow


def fail_at_three(seed: int) -> Simulation:
    if seed == 3:
        raise AssertionError("lost a record")
    return Simulation(seed, records=5, fault_steps=50, rocksdb=0).run()


def die_at_three(seed: int) -> Simulation:
    if seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return fail_at_three(seed)


def run(seeds: int, file: Path, **options: object) -> Summary:
    return simulate_many(seeds, file, processes=1, run=fail_at_three, chunk=2, progress=io.StringIO(), **options)


def test_the_outcome_of_several_processes_is_that_of_one(tmp_path: Path):
    many = simulate_many(8, tmp_path / "many", processes=2, run=fail_at_three, chunk=3, progress=io.StringIO())
    one = simulate_chunk(0, 8, fail_at_three)
    assert many.seeds == 8
    assert dict(many.seen) == one.seen
    assert many.failures == one.failures == ["seed 3: AssertionError: lost a record"]


def test_a_later_run_goes_on_where_an_earlier_one_ended(tmp_path: Path):
    file = tmp_path / "seeds"
    first = run(5, file)
    before = file.read_bytes()
    second = run(8, file)
    assert (first.seeds, second.seeds) == (5, 8)
    assert file.read_bytes().startswith(before)
    assert second.failures == first.failures
    assert dict(second.seen) == simulate_chunk(0, 8, fail_at_three).seen


def test_a_line_that_was_not_written_to_its_end_is_run_again(tmp_path: Path):
    file = tmp_path / "seeds"
    whole = run(4, file)
    content = file.read_bytes()
    file.write_bytes(content[:-9])
    again = run(4, file)
    assert (again.seeds, again.seen, again.failures) == (whole.seeds, whole.seen, whole.failures)
    assert file.read_bytes() == content


def test_results_of_other_code_are_refused(tmp_path: Path):
    file = tmp_path / "seeds"
    file.write_text('{"code":"0123456789abcdef"}\n{"first":0,"end":2,"seen":{},"failures":[]}\n')
    with pytest.raises(ValueError, match="has the results of other code"):
        run(4, file)


def test_a_process_that_dies_is_an_error_with_the_seeds_it_was_at(tmp_path: Path):
    with pytest.raises(RuntimeError, match="a process died in one of the seeds 2 to 3"):
        simulate_many(6, tmp_path / "seeds", processes=1, run=die_at_three, chunk=2, progress=io.StringIO())
    assert run(6, tmp_path / "seeds").seeds == 6, "what was done before is kept"


def test_the_progress_says_how_many_are_done_and_how_many_failed(tmp_path: Path):
    told = io.StringIO()
    simulate_many(4, tmp_path / "seeds", processes=1, run=fail_at_three, chunk=4, progress=told)
    assert told.getvalue().startswith("4 of 4 seeds, 1 failed, ")


def test_failures_come_last_in_the_summary():
    summary = Summary()
    summary.add(SeedChunk(0, 1500, {"worker": 1234, "driver": 7}, ["seed 9: AssertionError: lost"]))
    assert str(summary).splitlines() == [
        "1,500 seeds, 1 FAILED",
        "         7 driver",
        "     1,234 worker",
        "seed 9: AssertionError: lost",
    ]


def test_the_command_writes_its_file_and_the_summary(tmp_path: Path):
    file = tmp_path / "seeds"
    command = [sys.executable, "-m", "moorline.testing.simulation.many_seeds", "--seeds", "2", "--file", str(file)]
    done = subprocess.run([*command, "--processes", "1"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 seeds, none failed\n")
    file.write_text('{"code":"0123456789abcdef"}\n')
    refused = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert refused.returncode == 1
    assert "Remove it, or name another file." in refused.stderr
