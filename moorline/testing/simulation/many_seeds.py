"""Many seeds of the simulator on all processors, in a file that a later run goes on with.

    python -m moorline.testing.simulation.many_seeds --seeds 100000 --file simulation.jsonl

The file has a line per chunk of seeds that is done: what happened in it, and which seeds failed. A run that is
interrupted, however, loses the chunks it was at and no others. The first line names the code that was simulated:
results of two versions in one file would be the results of neither.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import msgspec

import moorline
from moorline.testing.simulation.simulator import Simulation

#: Seeds in one line of the file. A run that is interrupted repeats at most so many for each processor.
CHUNK = 50

_PR_SET_PDEATHSIG = 1

#: A run of one seed. It returns its world, or raises.
RunSeed = Callable[[int], Simulation]


class SeedChunk(msgspec.Struct, frozen=True):
    """The outcome of the seeds ``[first,end)``: a line of the file.

    >>> SeedChunk(0, 50, {"worker": 71}, [])
    SeedChunk(first=0, end=50, seen={'worker': 71}, failures=[])
    """

    first: int
    end: int
    #: How often each fault was injected, and what else is counted.
    seen: dict[str, int]
    #: A line for each seed that failed.
    failures: list[str]


class _Head(msgspec.Struct, frozen=True):
    code: str


@dataclass
class Summary:
    """All chunks that are done.

    >>> summary = Summary()
    >>> summary.add(SeedChunk(0, 50, {"worker": 71}, []))
    >>> print(summary)
    50 seeds, none failed
            71 worker
    """

    seeds: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, chunk: SeedChunk) -> None:
        self.seeds += chunk.end - chunk.first
        self.seen.update(chunk.seen)
        self.failures += chunk.failures

    def __str__(self) -> str:
        failed = f"{len(self.failures):,} FAILED" if self.failures else "none failed"
        counted = [f"{count:10,} {what}" for what, count in sorted(self.seen.items())]
        return "\n".join([f"{self.seeds:,} seeds, {failed}", *counted, *self.failures])


def simulate_chunk(first: int, end: int, run: RunSeed | None = None) -> SeedChunk:
    """Run the seeds ``[first,end)``, one after the other, in this process.

    >>> simulate_chunk(3, 4).failures
    []
    """
    failures: list[str] = []
    seen: Counter[str] = Counter()
    for seed in range(first, end):
        try:
            world = run(seed) if run else Simulation(seed).run()
        except Exception as error:  # whatever it is, the seed is the bug report
            failures.append(f"seed {seed}: {type(error).__name__}: {error}")
            continue
        seen.update(world.injected)
        tally = world.tally
        seen["checkpoints"] += tally.checkpoints
        seen["full checkpoints"] += tally.full
        seen["restored"] += len(tally.restored)
        seen["restored with records in flight"] += len(set(tally.restored) & set(tally.unaligned))
        seen["runs that restored a checkpoint"] += bool(tally.restored)
    return SeedChunk(first, end, dict(seen), failures)


def simulate_many(
    seeds: int,
    file: Path,
    *,
    processes: int | None = None,
    run: RunSeed | None = None,
    progress: TextIO = sys.stderr,
    chunk: int = CHUNK,
) -> Summary:
    """Run the seeds ``[0,seeds)`` but those that ``file`` has, and add them to it.

    :raises ValueError: the file has the results of other code.
    """
    summary = Summary()
    known = _read(file)
    for part in known:
        summary.add(part)
    left = _missing(seeds, known, chunk)
    shown = _Progress(progress, seeds, summary.seeds)
    with open(file, "ab") as out:
        for finished in _finished(left, processes or os.cpu_count() or 1, run):
            out.write(msgspec.json.encode(finished) + b"\n")
            out.flush()
            summary.add(finished)
            shown.show(summary)
    return summary


def _missing(seeds: int, known: list[SeedChunk], most: int) -> list[tuple[int, int]]:
    """The ranges of seeds that no chunk has, none longer than ``most``."""
    done = {seed for part in known for seed in range(part.first, part.end)}
    left: list[tuple[int, int]] = []
    for seed in range(seeds):
        if seed in done:
            continue
        if left and left[-1][1] == seed and seed - left[-1][0] < most:
            left[-1] = (left[-1][0], seed + 1)
        else:
            left.append((seed, seed + 1))
    return left


def _finished(left: list[tuple[int, int]], processes: int, run: RunSeed | None) -> Iterator[SeedChunk]:
    # Not by a fork: a caller may have threads, and a lock that one of them holds would be held for ever.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_prepare)
    waiting = iter(left)
    running: dict[Future[SeedChunk], tuple[int, int]] = {}
    try:
        while True:
            # Not all at once: who interrupts this waits for what has been handed out.
            while len(running) < processes and (part := next(waiting, None)):
                running[pool.submit(simulate_chunk, *part, run)] = part
            if not running:
                return
            for over in wait(running, return_when=FIRST_COMPLETED).done:
                part = running.pop(over)
                try:
                    yield over.result()
                except BrokenProcessPool as error:
                    parts = sorted([part, *running.values()])
                    ranges = ", ".join(f"{first} to {end - 1}" for first, end in parts)
                    raise RuntimeError(
                        f"a process died in one of the seeds {ranges}. Run these one by one "
                        "(python -m moorline.testing.simulation SEED) to find out which."
                    ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _prepare() -> None:
    """End with the process that asked for seeds, and leave the garbage collector little to do."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt is no failure of a seed
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # What is loaded stays, and the collector need not go through it again and again: a tenth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _read(file: Path) -> list[SeedChunk]:
    """The chunks that are done. Begins the file if there is none; cuts off a line that was not written to its end."""
    code = _fingerprint()
    content = file.read_bytes() if file.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if not whole:
        file.write_bytes(msgspec.json.encode(_Head(code)) + b"\n")
        return []
    if whole != content:
        os.truncate(file, len(whole))
    head, *lines = whole.splitlines()
    recorded = msgspec.json.decode(head, type=_Head).code
    if recorded != code:
        raise ValueError(
            f"{file} has the results of other code ({recorded}; this is {code}). Remove it, or name another file."
        )
    return [msgspec.json.decode(line, type=SeedChunk) for line in lines]


def _fingerprint() -> str:
    """All of the package's code in a few letters."""
    root = Path(moorline.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class _Progress:
    """One line that says how far it is: in place in a terminal, else a new one each minute."""

    def __init__(self, out: TextIO, seeds: int, already: int) -> None:
        self._out, self._seeds, self._already = out, seeds, already
        self._begun = time.monotonic()
        self._every = 0.0 if out.isatty() else 60.0
        self._shown = -self._every

    def show(self, summary: Summary) -> None:
        elapsed = time.monotonic() - self._begun
        is_last = summary.seeds >= self._seeds
        if elapsed - self._shown < self._every and not is_last:
            return
        self._shown = elapsed
        pace = (summary.seeds - self._already) / max(elapsed, 0.001)
        left = (self._seeds - summary.seeds) / pace / 60
        line = (
            f"{summary.seeds:,} of {self._seeds:,} seeds, {len(summary.failures):,} failed, "
            f"{pace:.1f} per second, {left:.0f} minutes left"
        )
        end = "\r" if self._every == 0 and not is_last else "\n"
        self._out.write(line + end)
        self._out.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Run many seeds of the simulator. A later run goes on with the file.")
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--file", type=Path, default=Path("simulation.jsonl"))
    parser.add_argument("--processes", type=int, default=None, help="as many as there are processors if not given")
    asked = parser.parse_args()
    try:
        summary = simulate_many(asked.seeds, asked.file, processes=asked.processes)
    except KeyboardInterrupt:
        sys.exit(f"\ninterrupted; the same command goes on with {asked.file}")
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))
    print(summary)
    sys.exit(1 if summary.failures else 0)


if __name__ == "__main__":
    main()
