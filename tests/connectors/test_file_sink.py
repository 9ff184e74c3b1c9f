"""The file sink: its contract, crashes at any call, and committables that are not to be trusted."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from published_files import open_writer, published

from moorline import failpoints
from moorline.api.sinks import Sink
from moorline.connectors.files.sink import STAGING, write_files
from moorline.errors import StorageError
from moorline.testing.contracts.sink import SinkContract, Visible


class TestParquet(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> Sink:
        return write_files(tmp_path / "out")

    @pytest.fixture
    def visible(self, tmp_path: Path) -> Visible:
        return lambda: published(tmp_path / "out")


class TestJsonLines(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> Sink:
        return write_files(tmp_path / "out", format="jsonl")

    @pytest.fixture
    def visible(self, tmp_path: Path) -> Visible:
        return lambda: published(tmp_path / "out")


class TestWithoutHardLinks(TestJsonLines):
    """The same on a file system that can only rename."""

    @pytest.fixture(autouse=True)
    def no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(failpoints.Plan())


def staged_files(sink: Sink, count: int = 3) -> list[Any]:
    """``count`` committables with one record each: 0, 1, …"""
    writer = open_writer(sink)
    out = []
    for n in range(count):
        writer.write([n])
        out += writer.prepare(n + 1)
    return out


def names_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


# --- crashes and repetitions ------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before", "middle", "after"])
def test_a_commit_that_crashed_is_completed_by_the_next(folder: Path, point: str, disarmed: None) -> None:
    sink = write_files(folder, format="jsonl")
    committables = staged_files(sink)
    failpoints.arm(failpoints.Plan(f"sink.commit.{point}:raise"))
    with pytest.raises(RuntimeError, match=f"failpoint sink.commit.{point}"):
        sink.commit(committables)
    assert published(folder) == {"before": [], "middle": [0], "after": [0, 1, 2]}[point]
    sink.commit(committables)
    assert published(folder) == [0, 1, 2]
    assert len(names_below(folder)) == 3


def test_a_commit_of_nothing_passes_no_failpoint(folder: Path, disarmed: None) -> None:
    failpoints.arm(failpoints.Plan("sink.commit.before:raise"))
    write_files(folder).commit([])


@pytest.mark.parametrize("call", ["link", "unlink"])
@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_crash_at_any_call_of_the_file_system_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, when: int
) -> None:
    sink = write_files(folder, format="jsonl")
    committables = staged_files(sink)
    real, count = getattr(os, call), 0

    class Crash(BaseException):
        pass

    def crash(*args: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if count == when:
            raise Crash
        real(*args, **options)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(os, call, crash)
        sink.commit(committables)
    sink.commit(committables)
    assert published(folder) == [0, 1, 2]
    assert len(names_below(folder)) == 3


def test_a_lost_file_is_told(folder: Path) -> None:
    sink = write_files(folder, format="jsonl")
    [committable] = staged_files(sink, 1)
    os.remove(folder / committable["staged"])
    with pytest.raises(StorageError, match="its 2 bytes are lost: it is neither published nor staged"):
        sink.commit([committable])


def test_a_damaged_file_is_not_published(folder: Path) -> None:
    sink = write_files(folder, format="jsonl")
    [committable] = staged_files(sink, 1)
    with open(folder / committable["staged"], "r+b") as file:
        file.truncate(1)
    with pytest.raises(StorageError, match="staged with 2 bytes and has 1 now"):
        sink.commit([committable])
    assert published(folder) == []


def test_a_published_file_that_was_changed_is_told(folder: Path) -> None:
    sink = write_files(folder, format="jsonl")
    [committable] = staged_files(sink, 1)
    sink.commit([committable])
    (folder / committable["final"]).write_text("something else\n")
    with pytest.raises(StorageError, match="15 bytes instead of 2"):
        sink.commit([committable])


def test_rolling_back_also_takes_what_a_zombie_could_still_publish(folder: Path) -> None:
    sink = write_files(folder, format="jsonl")
    committables = staged_files(sink)
    sink.roll_back("job", "out", 1)
    with pytest.raises(StorageError, match="lost"):
        sink.commit(committables[1:])
    sink.commit(committables[:1])
    assert published(folder) == [0]


def test_jobs_that_share_a_folder_do_not_touch_each_others_files(folder: Path) -> None:
    sink = write_files(folder, format="jsonl")
    for job, uid in [("job", "a"), ("job", "a/b"), ("job", "a b"), ("other", "a"), ("job", "ü")]:
        writer = open_writer(sink, job=job, uid=uid)
        writer.write([f"{job} {uid}"])
        sink.commit(writer.prepare(5))
        writer.write(["never"])
        writer.prepare(6)
    sink.roll_back("job", "a", 0)
    sink.clean_up("job", "a")
    assert sorted(published(folder)) == ["job a b", "job a/b", "job ü", "other a"]
    assert len(os.listdir(folder / STAGING)) == 4


def test_cleaning_up_leaves_no_trace_and_may_find_none(folder: Path) -> None:
    sink = write_files(folder, format="jsonl")
    sink.clean_up("job", "out")
    sink.roll_back("job", "out", 0)
    sink.commit(staged_files(sink, 1))
    sink.clean_up("job", "out")
    [name] = os.listdir(folder)
    assert name.startswith("part-out-") and "-0000000001-00000-1-" in name and name.endswith(".jsonl")


def test_a_new_attempt_removes_what_the_old_one_left_open(folder: Path) -> None:
    sink = write_files(folder, format="jsonl")
    old = open_writer(sink)
    old.write([1])
    other = open_writer(sink, subtask=1)
    other.write([2])
    new = open_writer(sink, attempt=2)
    assert [name.rpartition("/")[2].split("-")[1] for name in names_below(folder)] == ["00001"]
    new.write([1])
    sink.commit(new.prepare(1) + other.prepare(1))
    with pytest.raises(StorageError, match="could not stage files"):
        old.prepare(1)
    assert sorted(published(folder)) == [1, 2]


def test_closing_removes_what_was_not_prepared(folder: Path) -> None:
    writer = open_writer(write_files(folder))
    writer.write([{"a": 1}])
    writer.close()
    writer.close()
    assert names_below(folder) == []


# --- committables are data --------------------------------------------------------------------


def hostile() -> list[Any]:
    name = f"part-out-{'0' * 16}-0000000001-00000-1-{'a' * 32}.jsonl"
    place = f"job-out-{'0' * 16}"
    good = {"staged": f"{STAGING}/{place}/{name}", "final": name, "size": 1}
    return [
        None,
        [],
        "part",
        {},
        {**good, "more": 1},
        {**good, "size": "1"},
        {**good, "size": -1},
        {**good, "final": "../" + name},
        {**good, "final": "/etc/passwd"},
        {**good, "final": "part-x.jsonl"},
        {**good, "final": name + "\n"},
        {**good, "final": name + "/.."},
        {**good, "final": name.replace("part-out", "part-../out"), "staged": f"{STAGING}/{place}/../{name}"},
        {**good, "staged": "/etc/passwd"},
        {**good, "staged": f"{STAGING}/../{place}/{name}"},
        {**good, "staged": f"{STAGING}/../{name}"},
        {**good, "staged": f"{STAGING}/{place}/{name}\0"},
        {**good, "staged": name},
        {**good, "staged": f"./{STAGING}/{place}/{name}"},
        {"staged": f"{STAGING}/{place}/١{name}", "final": f"١{name}", "size": 1},
    ]


@pytest.mark.parametrize("committable", hostile(), ids=range(len(hostile())))
def test_names_that_reach_elsewhere_are_refused_before_anything_is_published(folder: Path, committable: Any) -> None:
    sink = write_files(folder, format="jsonl")
    with pytest.raises(StorageError, match=r"names no file|not a file that was staged here"):
        sink.commit([*staged_files(sink, 1), committable])
    assert published(folder) == []


def test_a_link_in_the_place_of_a_staged_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    sink = write_files(folder, format="jsonl")
    [committable] = staged_files(sink, 1)
    (tmp_path / "secret").write_text("xy")
    os.remove(folder / committable["staged"])
    os.symlink(tmp_path / "secret", folder / committable["staged"])
    with pytest.raises(StorageError, match="damaged"):
        sink.commit([committable])
