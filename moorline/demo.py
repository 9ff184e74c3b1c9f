"""A job that loses a worker half-way, and the proof that nothing was lost: ``python -m moorline.demo``.

A stream of card payments is watched for two things: an amount far above what is usual for the card, and three
payments within a few seconds. What is usual, and when the last payments were, is state per card. When half of the
stream is through, the demo kills one of its own workers with SIGKILL. The job recovers from its newest checkpoint, and
at the end the published alerts are compared with what a plain loop over the same payments finds, one by one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import moorline as mo
from moorline.model.manifest import Manifest
from moorline.state.types import plain
from moorline.storage.history import History
from moorline.storage.stores.open import open_store

try:
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text
except ImportError:  # an extra, moorline[demo]; plain lines do as well
    Console = None

RECORDS = 2_000_000
CARDS = 20_000
#: Each card belongs to one split of the source, so that the order of its payments is certain.
SPLITS = 2
#: Not faster than this, so that a quick machine gets to take a few checkpoints and a slow one keeps up.
RECORDS_PER_SECOND = 100_000
#: This many payments of a card within this time are suspicious.
SOON_MS = 10_000

#: Count, sum and sum of squares of the amounts; the times of the last two payments.
Usual = tuple[int, int, int, int, int]
NEW_CARD: Usual = (0, 0, 0, -SOON_MS, -SOON_MS)


def payment(number: int) -> tuple[int, int, int]:
    """Payment ``number``: card, cents, time in ms. The same each time it is asked for."""
    turn, split = divmod(number, SPLITS)
    mixed = number * 0x9E3779B97F4A7C15 >> 16 & 0xFFFFFFFF
    cents = 500 + mixed % 9_000
    if mixed % 997 == 0:
        cents *= 20
    # Now and then three payments of a card follow each other.
    same = turn - turn % 400 if turn % 400 < 3 else turn
    return (same * 2654435761 >> 7) % (CARDS // SPLITS) * SPLITS + split, cents, turn * 100


def judge(usual: Usual, cents: int, at_ms: int) -> tuple[Usual, list[str]]:
    """The card's state after one more payment, and the reason for an alert."""
    count, total, squares, before, last = usual
    why = []
    if count >= 10:
        above = count * cents - total
        # More than six standard deviations above the mean, in whole numbers.
        if above > 0 and above * above > 36 * (count * squares - total * total):
            why.append("unusual amount")
    if at_ms - before < SOON_MS:
        why.append("three in a row")
    return (count + 1, total + cents, squares + cents * cents, last, at_ms), why


class Watch(mo.KeyedProcessFunction):
    """Keeps what is usual for each card and raises alerts."""

    usual = mo.ValueState(Usual, default=NEW_CARD)

    def process_element(self, value: tuple[int, int, int], ctx: Any) -> Iterable[dict[str, Any]]:
        card, cents, at_ms = value
        usual, why = judge(self.usual.value(), cents, at_ms)
        self.usual.update(usual)
        return [_alert(card, cents, at_ms, reason) for reason in why] if why else ()


def _alert(card: int, cents: int, at_ms: int, why: str) -> dict[str, Any]:
    return {"card": card, "cents": cents, "at_ms": at_ms, "why": why}


def build(records: int, folder: Path) -> mo.Job:
    """The job: generated payments in, alerts as JSON lines out."""
    job = mo.Job("payments", parallelism=2)
    (
        job.source(mo.generate(payment, count=records, splits=SPLITS, rate=RECORDS_PER_SECOND), uid="payments")
        .key_by(lambda p: p[0])
        .process(Watch(), uid="watch")
        .sink(mo.write_files(folder, format="jsonl"), uid="alerts")
    )
    return job


def plain_loop(records: int) -> list[dict[str, Any]]:
    """The same alerts from a loop and a dict."""
    cards: dict[int, Usual] = {}
    alerts = []
    for number in range(records):
        card, cents, at_ms = payment(number)
        cards[card], why = judge(cards.get(card, NEW_CARD), cents, at_ms)
        alerts += [_alert(card, cents, at_ms, reason) for reason in why]
    return alerts


def published(folder: Path) -> list[dict[str, Any]]:
    """The alerts in the sink's folder, as any reader sees them."""
    return [json.loads(line) for file in sorted(folder.glob("part-*.jsonl")) for line in file.read_text().splitlines()]


def covered(location: Path, checkpoint: int) -> int:
    """The number of payments read at a checkpoint: its manifest has the position of every split."""
    for record in History(open_store(f"{location}/payments"), "payments").read():
        if isinstance(record.entry, Manifest) and record.entry.checkpoint == checkpoint:
            handles = [h for o in record.entry.operators if o.uid == "payments" for h in o.subtasks]
            positions = dict(plain.decode(e) for h in handles for s in h.elements for e in s.inline)
            return sum((at - split) // SPLITS for split, at in positions.items())
    return 0


# --- the screen -------------------------------------------------------------------------------


class PlainLines:
    """Progress as plain lines, for logs and pipes."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = 0.0

    def say(self, text: str) -> None:
        """Something has happened."""
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)

    def show(self, facts: dict[str, str], share: float) -> None:
        """Show the state of the job."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 2
            self.say(", ".join(f"{name} {value}" for name, value in facts.items()))

    def close(self) -> None:
        """No more progress."""


class Screen(PlainLines):
    """The same on a terminal, with what is happening now at the bottom."""

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._live.start()

    def say(self, text: str) -> None:
        """Above the live part."""
        self._console.print(Text(f"{time.monotonic() - self._began:5.1f} s  {text}"))

    def show(self, facts: dict[str, str], share: float) -> None:
        """The live part."""
        table = Table.grid(padding=(0, 2))
        table.add_row("", ProgressBar(total=1.0, completed=share, width=50))
        for name, value in facts.items():
            table.add_row(Text(name, style="dim"), value)
        self._live.update(table)

    def close(self) -> None:
        """Take the live part away; what was said stays."""
        self._live.stop()


class _Events(logging.Handler):
    """A handler that shows Moorline's log on our screen."""

    def __init__(self, screen: PlainLines) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.say("moorline: " + record.getMessage().strip().splitlines()[0])


# --- the run ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _standard_error_in(path: Path) -> Iterator[None]:
    """Processes started meanwhile write their standard error to a file: a killed worker makes many words."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class Demo:
    """One run, with what it has seen so far."""

    def __init__(self, records: int, folder: Path, screen: PlainLines) -> None:
        self.records, self.screen = records, screen
        self.alerts, self.location = folder / "alerts", folder / "checkpoints"
        self.alerts.mkdir()
        self.killed: int | None = None
        #: How many payments the checkpoint covers that the running attempt started from.
        self.base = 0
        self._restored = 1
        self._shown = 0
        self._read: list[tuple[float, int]] = []

    def run(self) -> mo.Result:
        """From the start of Spark to the result."""
        self.screen.say("starting Spark on this machine ...")
        with _standard_error_in(self.location.parent / "spark.log"):
            handle = mo.start(
                build(self.records, self.alerts),
                checkpoints=mo.Checkpoints(str(self.location), interval="1s", retained=3),
                restart=mo.FixedDelay(attempts=3, delay="1s"),
            )
        try:
            self.screen.say("Spark is up; the job starts")
            status = None
            while (result := handle.wait(0.1)) is None:
                if handle.status is not status:
                    status = handle.status
                    self.screen.say(f"the job is {status.value}" + self._of_attempt(handle))
                self._notice_a_restore(handle)
                done = self._done(handle)
                self.screen.show(self._facts(handle, done), done / self.records)
                if self.killed is None and done >= self.records // 2 and len(handle.checkpoints) >= 2:
                    self._kill(handle, done)
            return result
        finally:
            if handle.is_active:
                handle.cancel()

    def _of_attempt(self, handle: mo.Handle) -> str:
        return f", attempt {handle.attempt}" if handle.attempt else ""

    def _done(self, handle: mo.Handle) -> int:
        # Between two attempts there is no progress to be had, and a new one counts from where it was restored.
        if handle.attempt and len(handle.restored_from) <= self._restored:
            self._shown = min(self.base + int(handle.progress["records_in"]), self.records)
        return self._shown

    def _kill(self, handle: mo.Handle, done: int) -> None:
        # Vertex 0 is the source; 1 keeps the state and writes the alerts.
        self.killed = handle.worker_pids["1/0"]
        self.screen.say(f"{done:,} payments are through: KILLING worker {self.killed}, which holds half of the state")
        os.kill(self.killed, signal.SIGKILL)

    def _notice_a_restore(self, handle: mo.Handle) -> None:
        restored = handle.restored_from
        if len(restored) <= self._restored:
            return
        self._restored = len(restored)
        self.base = covered(self.location, restored[-1])
        self._read.clear()
        self.screen.say(f"restoring checkpoint {restored[-1]}: the payments after number {self.base:,} are read again")

    def _facts(self, handle: mo.Handle, done: int) -> dict[str, str]:
        now = time.monotonic()
        self._read = [(t, n) for t, n in self._read if t > now - 3] + [(now, done)]
        (t0, n0), (t1, n1) = self._read[0], self._read[-1]
        rate = max(n1 - n0, 0) / (t1 - t0) if t1 - t0 > 0.5 else 0.0
        checkpoints = handle.checkpoints
        last = "none yet"
        if checkpoints:
            c = checkpoints[-1]
            last = f"{len(checkpoints)} (number {c.checkpoint}: {c.size / 1024:,.0f} KiB in {c.duration_ms} ms)"
        return {
            "payments": f"{done:,} of {self.records:,}",
            "per second": f"{rate:,.0f}",
            "cards with state": f"{handle.progress['keys']:,}",
            "checkpoints": last,
            "failed attempts": str(len(handle.failures)),
        }


def verdict(records: int, folder: Path, result: mo.Result, screen: PlainLines) -> bool:
    """Compare what was published with what a plain loop finds, and say so."""
    screen.say("the job has finished; now a plain loop over the same payments ...")
    actual, expected = published(folder), plain_loop(records)
    keys = [Counter(tuple(sorted(alert.items())) for alert in alerts) for alerts in (actual, expected)]
    missing, extra = (keys[1] - keys[0]).total(), (keys[0] - keys[1]).total()
    restored = [n for n in result.restored_from if n]
    screen.say(f"checkpoints completed: {len(result.checkpoints)}; failed attempts: {len(result.failures)}")
    screen.say(f"restored from checkpoint: {', '.join(map(str, restored)) or 'none'}")
    screen.say(f"alerts published: {len(actual):,}; alerts of the plain loop: {len(expected):,}")
    if missing or extra:
        screen.say(f"DIFFERENT: {missing:,} alerts are missing and {extra:,} are too many")
        return False
    if not restored or not expected:
        screen.say("NOT PROVED: the job did not have to recover from a checkpoint")
        return False
    screen.say("IDENTICAL: a worker was killed, and every alert is there exactly once")
    return True


def main() -> int:
    """Run the demo. 0: the alerts are exactly those of the plain loop."""
    parser = argparse.ArgumentParser(prog="python -m moorline.demo", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help=f"payments in the stream ({RECORDS:,})")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="moorline-demo-"))
    screen = PlainLines() if options.plain or Console is None or not sys.stdout.isatty() else Screen()
    log = logging.getLogger("moorline")
    log.addHandler(events := _Events(screen))
    log.propagate = False
    try:
        demo = Demo(options.records, folder, screen)
        screen.say(f"{options.records:,} payments of {CARDS:,} cards; state per card; a checkpoint every second")
        try:
            result = demo.run()
        except mo.MoorlineError as error:
            screen.close()
            print(error, file=sys.stderr)
            return 1
        screen.close()
        return 0 if verdict(options.records, demo.alerts, result, screen) else 1
    except KeyboardInterrupt:
        return 130
    finally:
        screen.close()
        log.removeHandler(events)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
