"""Several drivers that stand ready for one job, in one thread from one seed.

Real are the decisions (``protocol/supervision/leadership.py``), the files (``storage/lease.py``) and the history. A
seed decides who moves next and what goes wrong:

    clocks          each driver has its own, slower or faster than the others by up to a fifth, with its own zero
    requests        are carried out at any time between the question and the answer; some fail, done or not done
    partitions      a driver cannot reach storage for longer than its lease; its requests wait, and arrive then
    pauses          a driver stands still for longer than its lease, and goes on as if nothing had happened
    deaths          and new drivers in their place

At every moment at most one driver that is awake leads. A driver that slept may try to publish before it notices: the
history refuses it. As long as no driver has ended the job, all go on with what the first of them began.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from moorline.driver.leadership.election import perform
from moorline.errors import Fenced, StorageError
from moorline.model.manifest import Claim, Manifest
from moorline.protocol.supervision import leadership as le
from moorline.storage.blobs import Blob, BlobStore
from moorline.storage.history import History
from moorline.storage.lease import LeaseFiles
from moorline.storage.stores.memory import MemoryStore

JOB = "simulated"
TTL_MS = 300


class TwoLeaders(AssertionError):
    """Two drivers lead at the same time, which must not happen."""


class _FlakyStore:
    """Fails now and then, before or after having done what it was asked."""

    def __init__(self, store: BlobStore, world: Leaders) -> None:
        self._store, self._world = store, world
        self.url = store.url

    def _unsure(self) -> bool:
        """Is this one to fail, although it is done? Raises if it fails undone."""
        if not self._world.happens(0.04):
            return False
        self._world.seen["failed requests"] += 1
        if self._world.chance.random() < 0.5:
            raise StorageError("here", "reach", "simulated failure")
        return True

    def put(self, path: str, data: bytes) -> None:
        self._store.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        fails = self._unsure()
        done = self._store.put_if_absent(path, data)
        if fails:
            raise StorageError("here", "reach", "simulated failure, done all the same")
        return done

    def get(self, path: str) -> bytes:
        return self._store.get(path)

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        return self._store.get_range(path, offset, size)

    def list(self, prefix: str = "") -> list[Blob]:
        return self._store.list(prefix)

    def delete(self, paths: object) -> None:
        self._unsure()
        self._store.delete(paths)  # type: ignore[arg-type]

    def modified_ms(self, path: str) -> int:
        return self._store.modified_ms(path)


@dataclass
class _Driver:
    world: Leaders
    speed: float
    zero_ms: float
    machine: le.Leadership
    lease: LeaseFiles
    history: History
    is_alive: bool = True
    asleep_until: float = 0.0
    cut_off_until: float = 0.0
    has_claimed: bool = False
    #: The number with which its lead began.
    led_since: int = 0
    published: int = 0
    #: What was asked of the lease and not done yet; and what was done and not answered yet.
    asked: list[le.Action] = field(default_factory=list)
    answers: list[le.Event] = field(default_factory=list)

    @property
    def is_awake(self) -> bool:
        return self.is_alive and self.world.now_ms >= self.asleep_until

    @property
    def leads(self) -> bool:
        return self.machine.state is le.LeadershipState.LEADING

    def now(self) -> int:
        return int(self.zero_ms + self.speed * self.world.now_ms)

    def tell(self, event: le.Event) -> None:
        for action in self.machine.handle(event):
            match action:
                case le.Lead(term):
                    self.world.seen["leaders"] += 1
                    self.history.run, self.history.term = term.run, term.number
                    self.has_claimed, self.led_since = False, term.number
                case le.LookAtLease() | le.Take() | le.LeaseRecord():
                    self.asked.append(action)
                case _:
                    self.world.seen[type(action).__name__] += 1

    def work(self) -> None:
        """Work as a leader, or as one that thinks so: claim, then publish one checkpoint after the other."""
        try:
            if not self.has_claimed:
                attempt = self.history.claim(True, self.now())
                self.has_claimed = True
                self.world.claimed.append(self.led_since)
                claims = [r.entry for r in self.history.read() if isinstance(r.entry, Claim)]
                self.world.seen["fresh starts"] += any(c.fresh for c in claims if c.attempt == attempt)
            else:
                number = self.world.next_checkpoint()
                self.history.publish(Manifest(JOB, self.history.attempt, number, 0, []))
                self.world.publications.append((self.history.attempt, self))
                self.published += 1
                self.history.remove(self.world.old_checkpoints(self.history))
        except Fenced:
            self.world.seen["fenced"] += 1
            self.is_alive = False
        except StorageError:
            pass


class Leaders:
    """One world. ``run()`` it; afterwards :attr:`seen` says what happened in it."""

    def __init__(self, seed: int, *, steps: int = 5000, fault_steps: int = 4000) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.now_ms, self.steps, self._steps, self._fault_steps = 0.0, 0, steps, fault_steps
        self.store = MemoryStore(f"leaders-{seed}")
        self.seen: Counter[str] = Counter()
        self.publications: list[tuple[int, _Driver]] = []
        self.claimed: list[int] = []
        self._checkpoint = 0
        self.drivers = [self._driver() for _ in range(self.chance.choice([2, 2, 3]))]

    def happens(self, probability: float) -> bool:
        return self.steps < self._fault_steps and self.chance.random() < probability

    def next_checkpoint(self) -> int:
        self._checkpoint += 1
        return self._checkpoint

    def old_checkpoints(self, history: History) -> list[int]:
        return [r.entry.checkpoint for r in history.read() if isinstance(r.entry, Manifest)][:-2]

    def run(self) -> Leaders:
        while self.steps < self._steps:
            self.steps += 1
            self.now_ms += self.chance.choice([0.5, 1, 2])
            self._step()
            self._check()
        self._audit()
        return self

    def _driver(self) -> _Driver:
        store = _FlakyStore(self.store, self)
        history = History(store, JOB)
        speed, zero = self.chance.uniform(0.82, 1.2), self.chance.uniform(0, 1e6)
        machine = le.Leadership(history.writer, f"run-{self.chance.random()}", TTL_MS)
        driver = _Driver(self, speed, zero, machine, LeaseFiles(store), history)
        machine.due_ms = driver.now()
        return driver

    def _step(self) -> None:
        chance = self.chance
        for number, driver in enumerate(self.drivers):
            if driver.asleep_until and driver.is_awake:
                driver.asleep_until = 0.0
                if driver.leads and chance.random() < 0.7:
                    driver.work()  # it was in the middle of something
            # The thread that keeps the time is never late, unless the whole process stands still.
            if driver.is_awake:
                driver.tell(le.TimePassed(driver.now()))
            is_reachable = driver.is_alive and self.now_ms >= driver.cut_off_until
            if driver.asked and chance.random() < 0.3 and is_reachable:
                # A request that is on its way arrives whether or not its sender is awake.
                event = perform(driver.lease, driver.asked.pop(0), driver.now)
                driver.answers += [event] if event is not None else []
            has_ended = not driver.is_alive or driver.machine.state in (
                le.LeadershipState.LOST,
                le.LeadershipState.OVER,
            )
            if has_ended and chance.random() < 0.01:
                self.drivers[number] = self._driver()
        driver = chance.choice(self.drivers)
        if not driver.is_awake:
            return
        if driver.leads and self.happens(0.004):
            self.seen["pauses"] += 1
            driver.asleep_until = self.now_ms + chance.uniform(0.2, 4) * TTL_MS
        elif driver.leads and self.happens(0.004):
            self.seen["partitions"] += 1
            driver.cut_off_until = self.now_ms + chance.uniform(0.2, 4) * TTL_MS
        elif self.happens(0.001):
            self.seen["deaths"] += 1
            driver.is_alive = False
        elif driver.answers and chance.random() < 0.5:
            answer = driver.answers.pop(0)
            # The clock is read when the answer is there, and not when the request was carried out.
            driver.tell(_at(answer, driver.now()))
        elif driver.leads and chance.random() < 0.08 and self.now_ms >= driver.cut_off_until:
            driver.work()
            if driver.is_alive and chance.random() < 0.5:
                driver.tell(le.TimePassed(driver.now()))

    def _check(self) -> None:
        leading = [d for d in self.drivers if d.is_awake and d.leads]
        # One that has slept gets the time before anything else is asked of it, except for what the history refuses.
        for driver in leading:
            driver.tell(le.TimePassed(driver.now()))
        leading = [d for d in leading if d.leads]
        if len(leading) > 1:
            raise TwoLeaders(f"seed {self.seed}, step {self.steps}: {[d.machine.term for d in leading]} all lead")

    def _audit(self) -> None:
        attempts = [attempt for attempt, _ in self.publications]
        if attempts != sorted(attempts):
            raise TwoLeaders(f"seed {self.seed}: a driver published after another had taken over")
        if not any(d.is_awake and d.leads for d in self.drivers):
            raise AssertionError(f"seed {self.seed}: no driver leads in the end")
        claims = [r.entry for r in History(self.store, JOB).read() if isinstance(r.entry, Claim)]
        if len({claim.run for claim in claims}) != 1:
            raise AssertionError(f"seed {self.seed}: runs were mixed up: {claims}")
        if self.claimed != sorted(self.claimed):
            raise TwoLeaders(f"seed {self.seed}: a driver that had lost the lead took the job back: {self.claimed}")
        if self.seen["fresh starts"] > 1:
            raise AssertionError(f"seed {self.seed}: a successor started afresh: {claims}")
        self.seen["publications"] = len(self.publications)


def _at(event: le.Event, now_ms: int) -> le.Event:
    match event:
        case le.Looked(term):
            return le.Looked(term, now_ms)
        case le.Got(term):
            return le.Got(term, now_ms)
        case le.LeaseRefused():
            return le.LeaseRefused(now_ms)
        case _:
            return le.LeaseFailed(now_ms)
