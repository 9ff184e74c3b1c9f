"""What a job stores is for its owner alone, unless somebody asks otherwise. Its output is for others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import moorline as mo
from moorline.api.sinks import SinkContext
from moorline.errors import InvalidArgument
from moorline.model.manifest import Manifest
from moorline.snapshots.folders import write_savepoint
from moorline.storage import segments as snapshots
from moorline.storage.history import History
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.open import open_store, remember_options
from moorline.subtask.restore.scratch_dir import make_local_folder


@pytest.fixture(autouse=True)
def open_handed() -> Iterator[None]:
    """As open as it gets: whatever is private is so because of us."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, set[str]]:
    """Permissions of everything at and below a folder."""
    found: dict[str, set[str]] = {"folders": set(), "files": set()}
    for path in [folder, *folder.rglob("*")]:
        found["folders" if path.is_dir() else "files"].add(oct(stat.S_IMODE(path.stat().st_mode)))
    return found


PRIVATE = {"folders": {"0o700"}, "files": {"0o600"}}
OPEN = {"folders": {"0o777"}, "files": {"0o666"}}


def fill(url: str) -> None:
    """A history, a file of state and a savepoint."""
    store = open_store(url)
    History(store, "orders").claim(True, 1)
    rows = pa.table({"key_group": pa.array([1], pa.int32()), "key": [1], "value": [b"secret"]})
    snapshots.write_rows(store, "data/chk-1/count/seen-0-1-aaaaaaaa.parquet", rows)
    write_savepoint(open_store(f"{url}/savepoints/first"), Manifest("orders", 1, 1, 0, operators=[]))


@pytest.mark.parametrize("nameless", [True, False], ids=["O_TMPFILE", "named"])
def test_every_folder_and_file_of_a_snapshot_is_for_its_owner_alone(tmp_path, nameless, monkeypatch):
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE")
    fill(str(tmp_path / "made" / "checkpoints"))
    assert modes(tmp_path / "made") == PRIVATE


def test_who_asks_for_it_shares_them_and_the_savepoints_too(tmp_path):
    location = tmp_path / "made"
    remember_options(str(location), {"shared": True})
    try:
        fill((location / "checkpoints").as_uri())
        assert modes(location) == OPEN
        fill(str(tmp_path / "savepoints"))  # a savepoint beside the location is opened in the same way
        assert modes(tmp_path / "savepoints") == OPEN
    finally:
        remember_options(str(location), None)
    fill(str(tmp_path / "later"))
    assert modes(tmp_path / "later") == PRIVATE


def test_a_folder_that_is_there_keeps_its_permissions(tmp_path):
    (tmp_path / "there").mkdir(mode=0o755)
    LocalStore(tmp_path / "there").put("data/x", b"1")
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o755
    assert modes(tmp_path / "there" / "data") == PRIVATE


def test_an_option_that_a_folder_does_not_have_is_refused(tmp_path):
    for options in ({"share": True}, {"shared": "yes"}, {"key": "x"}):
        with pytest.raises(InvalidArgument, match="'shared' alone"):
            remember_options(str(tmp_path), options)


def test_the_worker_s_local_folder_is_for_its_owner_alone(tmp_path):
    folder = make_local_folder(str(tmp_path / "disk"), "orders", "count", 0, 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_output_of_a_sink_follows_the_umask(tmp_path):
    os.umask(0o022)
    sink = mo.write_files(tmp_path / "out", format="jsonl")
    writer = sink.open(SinkContext("orders", "files", 0, 1, 1))
    writer.write({"n": 1})
    sink.commit(writer.prepare(1))
    (made,) = (tmp_path / "out").glob("part-*")
    assert stat.S_IMODE(made.stat().st_mode) == 0o644
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o755
