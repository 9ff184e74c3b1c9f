"""Whole simulated jobs, crashes and takeovers included, with their checkpoints in a bucket of a real S3 server."""

from __future__ import annotations

import pytest
from real_servers import S3Server, s3_server  # noqa: F401

from moorline.storage.fsck import check
from moorline.storage.open import open_store, remember_options
from moorline.testing import simulator
from moorline.testing.simulator import Simulation


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_jobs_lose_and_double_nothing_with_checkpoints_on_s3(seed: int, s3_server: S3Server, monkeypatch) -> None:  # noqa: F811
    bucket = f"s3://{s3_server.new_bucket()}"
    remember_options(bucket, s3_server.options)
    monkeypatch.setattr(simulator, "MemoryStore", lambda name: open_store(f"{bucket}/{name}"))
    simulation = Simulation(seed, rocksdb=0).run()
    assert simulation.store.url == f"{bucket}/sim-{seed}"
    assert simulation.injected["worker"] + simulation.injected["driver"] > 0
    report = check(simulation.store, now_ms=1 << 60)
    assert {p.path for p in report.problems} <= simulation.damaged
    assert not report.unreferenced
