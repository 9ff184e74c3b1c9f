"""Whole simulated jobs, crashes and takeovers included, with their checkpoints in a bucket of a real S3 server."""

from __future__ import annotations

from collections import Counter

import pytest
from real_servers import S3Server, s3_server  # noqa: F401

from moorline.snapshots.inspection import check
from moorline.storage.stores.open import open_store, remember_options
from moorline.testing.simulation import simulator
from moorline.testing.simulation.simulator import Simulation


def test_jobs_lose_and_double_nothing_with_checkpoints_on_s3(
    s3_server: S3Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = f"s3://{s3_server.new_bucket()}"
    remember_options(bucket, s3_server.options)
    monkeypatch.setattr(simulator, "MemoryStore", lambda name: open_store(f"{bucket}/{name}"))
    injected: Counter[str] = Counter()
    for seed in (3, 5, 9):
        simulation = Simulation(seed, rocksdb=0).run()
        injected += simulation.injected
        assert simulation.store.url == f"{bucket}/sim-{seed}"
        report = check(simulation.store, now_ms=1 << 60)
        assert {p.path for p in report.problems} <= simulation.injection.damaged
        assert not report.unreferenced
    assert injected["worker"]
    assert injected["driver"]
