"""Snapshots of functions with every kind of state, taken by each backend, at any parallelism."""

from __future__ import annotations

import moorline as mo
from moorline.model.config.state import StateConfig
from moorline.testing import OperatorHarness
from moorline.testing.harness import HarnessSnapshot

BACKENDS = ("heap", "increments", "rocksdb", "rocksdb-full")


def state_config(backend: str, folder) -> StateConfig:
    rocksdb = mo.RocksDb(folder=str(folder)) if backend.startswith("rocksdb") else None
    return StateConfig(rocksdb=rocksdb, incremental=backend in ("increments", "rocksdb"))


class Everything(mo.KeyedProcessFunction):
    """``(key, n)``: n goes into a state of each kind. A negative n clears them all."""

    value = mo.ValueState(int)
    several = mo.ListState(tuple[int, str])
    table = mo.MapState(str, float)
    best = mo.ReducingState(int, max)
    anything = mo.ValueState()
    brief = mo.ValueState(str, ttl="1h")

    def process_element(self, record, ctx):
        key, n = record
        if n < 0:
            for state in (self.value, self.several, self.table, self.best, self.anything, self.brief):
                state.clear()
            return
        self.value.update(n)
        self.several.add((n, str(n)))
        self.table.put(f"m{n % 3}", n / 2)
        self.best.add(n)
        self.anything.update({"n": n})
        self.brief.update(str(n))
        ctx.timer_service().register_processing_time_timer(1_000_000 + n)
        yield key

    def on_timer(self, timestamp, ctx):
        """Timers are looked at in snapshots, and make nothing."""


def everything(parallelism: int, config: StateConfig, snapshot: HarnessSnapshot | None = None) -> OperatorHarness:
    return OperatorHarness.of(
        lambda stream: stream.key_by(lambda r: r[0]).process(Everything(), uid="all"),
        parallelism=parallelism,
        state=config,
        snapshot=snapshot,
    )


class Model:
    """What the states of :class:`Everything` must hold, kept in dicts."""

    def __init__(self) -> None:
        self.keys: dict = {}
        self.timers: set = set()

    def process(self, key, n: int) -> None:
        if n < 0:
            self.keys.pop(key, None)
            return
        found = self.keys.setdefault(key, {"several": [], "table": {}, "best": n})
        found["value"] = n
        found["several"].append((n, str(n)))
        found["table"][f"m{n % 3}"] = n / 2
        found["best"] = max(found["best"], n)
        self.timers.add((key, 1_000_000 + n))

    def rows(self, state: str) -> set:
        match state:
            case "several":
                return {(k, at, *e) for k, f in self.keys.items() for at, e in enumerate(f["several"])}
            case "table":
                return {(k, m, v) for k, f in self.keys.items() for m, v in f["table"].items()}
            case "brief":
                return {(k, str(f["value"])) for k, f in self.keys.items()}
        return {(k, f[state]) for k, f in self.keys.items()}
