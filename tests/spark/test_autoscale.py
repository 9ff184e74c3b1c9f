"""A job under load makes itself wider, and nothing is lost or doubled."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark


def test_a_step_that_cannot_keep_up_is_made_wider_by_the_job_itself(spark, tmp_path, caplog):
    out, splits = tmp_path / "out", 4

    class Slow(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, n, ctx):
            time.sleep(0.003)  # as if it asked a service: more subtasks help, also on one core
            self.seen.update(self.seen.value() + 1)
            yield {"n": n, "seen": self.seen.value()}

    job = mo.Job("self-made", parallelism=1, max_parallelism=16)
    (
        job.source(mo.generate(lambda n: n, splits=splits, rate=600), uid="numbers", parallelism=1)
        .key_by(lambda n: n % 50)
        .process(Slow(), uid="slow")
        .sink(mo.write_files(out, format="jsonl"), uid="files")
    )
    with caplog.at_level("INFO", logger="moorline"):
        handle = mo.start(
            job,
            spark,
            checkpoints=mo.Checkpoints(str(tmp_path / "chk"), interval="1s"),
            autoscale=mo.Autoscale(maximum=4, window="3s", cool_down="8s"),
        )
        eventually(lambda: sum(name.startswith("1/") for name in handle.worker_pids) > 1, "it is wider")
        shares = eventually(lambda: handle.progress["operators"].get("slow"), "it tells how it spends its time")
        assert handle.stop() is not None
    assert handle.failures == []
    assert "rescale: slow from 1 to 2" in caplog.text
    assert set(shares) >= {"busy", "back_pressured", "idle"}
    rows = [json.loads(line) for path in sorted(out.glob("part-*.jsonl")) for line in path.read_text().splitlines()]
    numbers = sorted(row["n"] for row in rows)
    for split in range(splits):  # each was read from its beginning, without a gap, however far
        mine = [n for n in numbers if n % splits == split]
        assert mine == list(range(split, split + splits * len(mine), splits))
    of_keys = Counter(n % 50 for n in numbers)
    assert Counter((row["n"] % 50, row["seen"]) for row in rows) == Counter(
        (key, k + 1) for key, total in of_keys.items() for k in range(total)
    )
