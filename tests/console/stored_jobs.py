"""A job's folder with one checkpoint, and a savepoint of the same state, as commands and the web page find them."""

from __future__ import annotations

from pathlib import Path

import moorline as mo
from moorline.model.config.state import StateConfig
from moorline.storage import entries
from moorline.storage.history import History
from moorline.storage.stores.local import LocalStore
from moorline.testing import OperatorHarness


class Totals(mo.KeyedProcessFunction):
    total = mo.ValueState(int, default=0)
    days = mo.MapState(str, tuple[int, float])

    def process_element(self, value, ctx):
        self.total.update(self.total.value() + 1)
        self.days.put("mon", (1, 2.5))
        yield value


def write_job_and_savepoint(job: Path, savepoint: Path, state: StateConfig | None = None) -> None:
    def step(stream: mo.Stream) -> mo.Stream:
        return stream.key_by(lambda n: n).process(Totals(), uid="totals")

    with OperatorHarness.of(step, parallelism=2, state=state or StateConfig()) as harness:
        harness.process_all(["ada", "ada", "bob", 7])
        taken = harness.snapshot()
    for folder in (job, savepoint):
        for file in taken.manifest.files():
            LocalStore(folder).put(file.path, taken.store.get(file.path))
    history = History(LocalStore(job), "harness")
    history.claim(True, 1)
    history.publish(taken.manifest)
    (savepoint / "manifest.json").write_bytes(entries.encode(taken.manifest, "", ""))
