"""Jobs on real Spark that go on from their checkpoints: at another parallelism, past damage, past another driver."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from waiting import PATIENCE, eventually

import moorline as mo
from moorline.errors import Fenced, JobFailed, SnapshotCorrupt
from moorline.model import keys

pytestmark = pytest.mark.spark

SPLITS, KEYS = 4, 20


def totals(out: Path, *, count: int | None = None, rate: float | None = 4_000, **options) -> mo.Job:
    """Running totals per key, one published row per record."""
    splits, key_count = SPLITS, KEYS

    class Total(mo.KeyedProcessFunction):
        total = mo.ValueState(tuple[int, int], default=(0, 0))
        parity = mo.MapState(int, int)

        def open(self, runtime_context):
            self.groups = runtime_context.max_parallelism

        def process_element(self, n, ctx):
            seen, total = self.total.value()
            self.total.update((seen + 1, total + n))
            self.parity[n % 3] = self.parity.get(n % 3, 0) + 1
            yield {"n": n, "count": seen + 1, "sum": total + n, "groups": self.groups}

    job = mo.Job("totals", **options)
    (
        job.source(mo.generate(lambda n: n, count=count, splits=splits, rate=rate), uid="numbers")
        .key_by(lambda n: n % key_count)
        .process(Total(), uid="total")
        .sink(mo.write_files(out, format="jsonl"), uid="files")
    )
    return job


def published(out: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(out.glob("part-*.jsonl")) for line in path.read_text().splitlines()]


def audit(out: Path, upto: int | None = None) -> int:
    """The published rows are those of a plain loop over what was read: all of it, once. Returns how many."""
    rows = published(out)
    numbers = sorted(row["n"] for row in rows)
    if upto is None:
        # Each split is read from its beginning without a gap, however far.
        for split in range(SPLITS):
            mine = [n for n in numbers if n % SPLITS == split]
            assert mine == list(range(split, split + SPLITS * len(mine), SPLITS))
    else:
        assert numbers == list(range(upto))
    state: dict[int, tuple[int, int]] = {}
    expected = []
    for n in numbers:
        seen, total = state.get(n % KEYS, (0, 0))
        state[n % KEYS] = seen + 1, total + n
        expected.append((n, seen + 1, total + n))
    assert sorted((row["n"], row["count"], row["sum"]) for row in rows) == expected
    return len(numbers)


def checkpoints(folder: Path, **options) -> mo.Checkpoints:
    return mo.Checkpoints(str(folder), **{"interval": "100ms", "timeout": "60s", **options})


def run_until(spark, job: mo.Job, config: mo.Checkpoints, completed: int, **options) -> mo.Result:
    """Start, wait for some checkpoints, stop."""
    handle = mo.start(job, spark, checkpoints=config, **options)
    eventually(lambda: len(handle.checkpoints) >= completed or not handle.is_active, "checkpoints")
    time.sleep(0.1)  # so that something happens after the last of them
    result = handle.stop()
    assert result is not None
    return result


def manifests(folder: Path) -> list[Path]:
    """The entries that are checkpoints, oldest first."""
    found = sorted((folder / "totals" / "history").glob("*.json"))
    return [path for path in found if json.loads(path.read_text())["entry"]["kind"] == "checkpoint"]


def number_of(manifest: Path) -> int:
    return json.loads(manifest.read_text())["entry"]["checkpoint"]


def keyed_files(folder: Path, checkpoint: int, state: str = "total") -> list[Path]:
    return sorted((folder / "totals" / "data" / f"chk-{checkpoint}" / "total").glob(f"{state}-*.parquet"))


# --- going on -----------------------------------------------------------------------------------


def test_a_job_goes_on_at_another_parallelism_with_the_key_groups_it_began_with(spark, tmp_path):
    chk, out = tmp_path / "chk", tmp_path / "out"
    first = run_until(spark, totals(out, parallelism=2, max_parallelism=4), checkpoints(chk), 2)
    read = audit(out)
    for parallelism in (3, 1):
        result = run_until(spark, totals(out), checkpoints(chk), 2, restore="latest", parallelism=parallelism)
        assert result.restored_from == [first.checkpoints[-1].checkpoint]
        assert audit(out) > read, "it went on"
        read, first = audit(out), result
    assert {row["groups"] for row in published(out)} == {4}

    run_until(spark, totals(out), checkpoints(chk), 2, restore="latest", parallelism=5)
    assert audit(out) > read, "it went on with more subtasks than there were key groups"
    assert {row["groups"] for row in published(out)} == {4, 128}


def test_a_finished_job_that_is_run_again_from_its_end_adds_nothing(spark, tmp_path):
    def run(**options):
        job = mo.Job("again", parallelism=2)
        job.source(mo.from_items(range(100)), uid="numbers").key_by(lambda n: n).map(lambda n: {"n": n}).sink(
            mo.write_files(tmp_path / "out", format="jsonl"), uid="files"
        )
        job.source(mo.from_items("abc"), uid="letters").sink(mo.collect("letters"), uid="letters-out")
        return mo.run(job, spark, checkpoints=mo.Checkpoints(str(tmp_path / "chk"), interval="1h"), **options)

    assert sorted(run().collected("letters")) == ["a", "b", "c"]
    again = run(restore="latest")
    assert again.restored_from == [1]
    assert sorted(again.collected("letters")) == ["a", "b", "c"]
    assert sorted(row["n"] for row in published(tmp_path / "out")) == list(range(100))
    # Without restore= it begins anew, beside what is there.
    assert run().restored_from == [0]
    assert len(published(tmp_path / "out")) == 200


def test_without_checkpoints_a_lost_worker_ends_the_job(spark, tmp_path):
    handle = mo.start(totals(tmp_path / "out"), spark)
    eventually(lambda: handle.status is mo.JobStatus.RUNNING and handle.worker_pids, "running")
    os.kill(handle.worker_pids["1/0"], signal.SIGKILL)
    with pytest.raises(JobFailed, match="checkpoints turn one on") as failed:
        handle.wait()
    assert len(failed.value.history) == 1
    assert published(tmp_path / "out") == []


def test_with_checkpoints_a_lost_worker_is_a_restart(spark, tmp_path):
    handle = mo.start(
        totals(tmp_path / "out", parallelism=2),
        spark,
        checkpoints=checkpoints(tmp_path / "chk"),
        restart=mo.FixedDelay(attempts=3, delay="10ms"),
    )
    eventually(lambda: len(handle.checkpoints) >= 2 and handle.worker_pids, "two checkpoints")
    os.kill(handle.worker_pids["1/1"], signal.SIGKILL)
    eventually(lambda: len(handle.restored_from) == 2 and handle.status is mo.JobStatus.RUNNING, "a second attempt")
    result = handle.stop()
    assert len(result.failures) == 1
    assert result.restored_from[0] == 0 < result.restored_from[1]
    audit(tmp_path / "out")


# --- what is kept -------------------------------------------------------------------------------


def test_as_many_checkpoints_are_kept_as_were_asked_for_and_no_file_of_any_other(spark, tmp_path):
    result = run_until(spark, totals(tmp_path / "out"), checkpoints(tmp_path / "chk", retained=3), 6)
    kept = manifests(tmp_path / "chk")
    assert [number_of(m) for m in kept] == [c.checkpoint for c in result.checkpoints[-3:]]
    named = {
        keyed["file"]["path"]
        for m in kept
        for operator in json.loads(m.read_text())["entry"]["operators"]
        for subtask in operator["subtasks"]
        for keyed in subtask["keyed"]
    }
    root = tmp_path / "chk" / "totals"
    assert {str(p.relative_to(root)) for p in (root / "data").rglob("*.parquet")} == named
    assert len(named) == 6, "two states, three checkpoints"


def test_at_the_end_checkpoints_are_deleted_if_that_was_asked_for(spark, tmp_path):
    run_until(spark, totals(tmp_path / "out"), checkpoints(tmp_path / "chk", retained=3, at_end="delete"), 3)
    assert manifests(tmp_path / "chk") == []
    assert list((tmp_path / "chk").rglob("*.parquet")) == []
    audit(tmp_path / "out")


def test_numbers_of_checkpoints_are_not_used_again_after_they_were_deleted(spark, tmp_path):
    config = checkpoints(tmp_path / "chk", at_end="delete")
    first = run_until(spark, totals(tmp_path / "out"), config, 3)
    second = run_until(spark, totals(tmp_path / "out"), config, 1)
    assert second.checkpoints[0].checkpoint > first.checkpoints[-1].checkpoint


def test_a_checkpoint_is_plain_parquet_that_any_tool_reads(spark, tmp_path):
    config = checkpoints(tmp_path, incremental=False)  # else its rows may be in files of several checkpoints
    result = run_until(spark, totals(tmp_path / "out", parallelism=2, max_parallelism=32), config, 1)
    newest = result.checkpoints[-1].checkpoint
    total: dict[int, tuple[int, int]] = {}
    parity: dict[tuple[int, int], int] = {}
    for n in sorted(row["n"] for row in published(tmp_path / "out")):
        seen, before = total.get(n % KEYS, (0, 0))
        total[n % KEYS] = seen + 1, before + n
        parity[n % KEYS, n % 3] = parity.get((n % KEYS, n % 3), 0) + 1

    rows = [row for path in keyed_files(tmp_path, newest) for row in pq.read_table(path).to_pylist()]
    assert {row["key"]: tuple(row["value"].values()) for row in rows} == total
    assert all(row["key_group"] == keys.key_group(row["key"], 32) for row in rows)
    rows = [row for path in keyed_files(tmp_path, newest, "parity") for row in pq.read_table(path).to_pylist()]
    assert {(row["key"], row["map_key"]): row["value"] for row in rows} == parity
    for path in keyed_files(tmp_path, newest):
        groups = pq.read_table(path)["key_group"].to_pylist()
        assert groups == sorted(groups)


# --- another driver -----------------------------------------------------------------------------


def test_a_second_driver_takes_over_and_the_first_is_fenced(spark, tmp_path):
    chk, out = tmp_path / "chk", tmp_path / "out"
    first = mo.start(totals(out, parallelism=2), spark, checkpoints=checkpoints(chk))
    eventually(lambda: len(first.checkpoints) >= 2, "checkpoints of the first")
    second = mo.start(totals(out, parallelism=3), spark.newSession(), checkpoints=checkpoints(chk), restore="latest")
    with pytest.raises(Fenced) as fenced:
        first.wait(PATIENCE)
    assert (fenced.value.ours, fenced.value.theirs) == (1, 2)
    assert first.status is mo.JobStatus.FAILED
    eventually(lambda: len(second.checkpoints) >= 2, "checkpoints of the second")
    assert second.restored_from[0] >= first.checkpoints[-1].checkpoint
    result = second.stop()
    assert result.failures == []
    audit(out)
    assert not list(out.rglob(".moorline*"))


# --- damage -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(spark, tmp_path_factory) -> Path:
    """A job that was stopped, with three checkpoints. Tests work on copies."""
    folder = tmp_path_factory.mktemp("stopped")
    for completed in (3, 1, 1, 1, 1, 1):
        job = totals(folder / "out", parallelism=2)
        # Each with files of its own: it is these that are damaged.
        config = checkpoints(folder / "chk", interval="300ms", retained=3, incremental=False)
        result = run_until(spark, job, config, completed, restore="latest")
        newest = result.checkpoints[-1].checkpoint
        rows = sum(len(p.read_text().splitlines()) for p in (folder / "out").glob(f"part-*-{newest:010}-*"))
        if rows > 50:
            break
    assert rows > 50, "the newest checkpoint has published next to nothing, so these tests would say nothing"
    audit(folder / "out")
    assert len(manifests(folder / "chk")) == 3
    return folder


def truncate(path: Path, sibling: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flip(path: Path, sibling: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


def remove(path: Path, sibling: Path) -> None:
    path.unlink()


def swap(path: Path, sibling: Path) -> None:
    ours, theirs = path.read_bytes(), sibling.read_bytes()
    assert ours != theirs
    path.write_bytes(theirs)
    sibling.write_bytes(ours)


CELLS = [
    pytest.param("manifest", truncate, id="manifest-truncated"),
    pytest.param("manifest", flip, id="manifest-flipped"),
    pytest.param("manifest", remove, id="manifest-removed"),
    pytest.param("manifest", swap, id="manifest-swapped"),
    pytest.param("keyed file", truncate, id="file-truncated"),
    pytest.param("keyed file", flip, id="file-flipped"),
    pytest.param("keyed file", remove, id="file-removed"),
    pytest.param("keyed file", swap, id="file-swapped"),
]


@pytest.mark.parametrize(("kind", "damage"), CELLS)
def test_the_newest_checkpoint_is_damaged_and_the_one_before_it_is_used(spark, stopped, tmp_path, caplog, kind, damage):
    folder = tmp_path / "copy"
    shutil.copytree(stopped, folder)
    entries = manifests(folder / "chk")
    newest, before = number_of(entries[-1]), number_of(entries[-2])
    victim, sibling, unusable = entries[-1], entries[-2], [entries[-1].name]
    if (kind, damage) == ("manifest", swap):
        # Neither of two entries that have changed places is where it was written.
        before, unusable = number_of(entries[-3]), [entries[-1].name, entries[-2].name]
    if kind == "keyed file":
        victim, sibling = keyed_files(folder / "chk", newest)
    damage(victim, sibling)

    upto = max(row["n"] for row in published(folder / "out")) + 2_000
    with caplog.at_level(logging.INFO, "moorline"):
        result = mo.run(
            totals(folder / "out", count=upto, rate=None, parallelism=2),
            spark,
            checkpoints=checkpoints(folder / "chk", retained=3),
            restore="latest",
        )
    assert result.restored_from[-1] == before
    audit(folder / "out", upto)
    refused = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR and "CANNOT BE USED" in r.message]
    assert refused
    assert all(any(name in line for name in unusable) for line in refused), "the entry"
    assert any(victim.name in line for line in refused), "the file itself"
    assert f"going back to checkpoint {before}" in caplog.text


@pytest.mark.parametrize("kind", ["manifest", "keyed file"])
def test_when_all_are_damaged_the_job_fails_and_does_not_start_empty(spark, stopped, tmp_path, kind):
    folder = tmp_path / "copy"
    shutil.copytree(stopped, folder)
    entries = manifests(folder / "chk")
    victims = entries
    if kind == "keyed file":
        victims = [keyed_files(folder / "chk", number_of(entry))[0] for entry in entries]
    for victim in victims:
        flip(victim, victim)
    before = sorted(path.name for path in (folder / "out").glob("part-*"))
    handle = mo.start(
        totals(folder / "out", count=10_000, rate=None, parallelism=2),
        spark,
        checkpoints=checkpoints(folder / "chk", retained=3),
        restore="latest",
    )
    with pytest.raises(SnapshotCorrupt) as refused:
        handle.wait()
    assert "no older checkpoint is whole" in str(refused.value)
    assert victims[-1].name in str(refused.value)
    assert 0 not in handle.restored_from, "it has not started empty"
    after = sorted(path.name for path in (folder / "out").glob("part-*"))
    assert after == before, "nothing is published, and nothing is taken back for a start that cannot be"
