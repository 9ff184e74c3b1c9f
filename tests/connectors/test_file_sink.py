"""write_files: the contract of all sinks, then what is its own: crashes inside commit, names, schemas."""

import dataclasses
import enum
import json
import os
import pickle
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_files_source import read_all

from moorline import failpoints
from moorline.api.sinks import Sink, SinkContext, SinkWriter
from moorline.connectors.files import rows as row_files
from moorline.connectors.files.rows import UnfitRecord
from moorline.connectors.files.sink import STAGING, write_files
from moorline.connectors.files.source import read_files
from moorline.errors import InvalidArgument, StorageError
from moorline.subtask.failure_report import describe_failure
from moorline.testing.contracts.sink import SinkContract, Visible


def published(folder: Path) -> list[Any]:
    """The records as a reader of the folder finds them, who knows nothing of Moorline."""
    out: list[Any] = []
    for file in sorted(folder.iterdir()) if folder.exists() else []:
        if file.name == STAGING:
            continue
        if file.suffix == ".parquet":
            out += pq.read_table(file).to_pylist()
        else:
            out += [json.loads(line) for line in file.read_text().splitlines()]
    return out


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


def open_writer(sink: Sink, subtask: int = 0, attempt: int = 1, job: str = "job", uid: str = "out") -> SinkWriter:
    return sink.open(SinkContext(job, uid, subtask, 1, attempt))


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


# --- records ----------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Address:
    street: str


@dataclasses.dataclass
class Person:
    name: str
    age: int | None
    address: Address | None = None


class Click(msgspec.Struct):
    user: str
    at: float


class Point(NamedTuple):
    x: int
    y: int


def write_all(sink: Sink, *batches: list[Any]) -> None:
    writer = open_writer(sink)
    for batch in batches:
        writer.write(batch)
    sink.commit(writer.prepare(1))


@pytest.mark.parametrize(
    ("records", "rows"),
    [
        ([{"a": 1}, {"b": "x"}], [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
        ([Click("u", 1.5)], [{"user": "u", "at": 1.5}]),
        ([Point(1, 2)], [{"x": 1, "y": 2}]),
        (
            [Person("Ada", 36, Address("here")), Person("Bob", None)],
            [{"name": "Ada", "age": 36, "address": {"street": "here"}}, {"name": "Bob", "age": None, "address": None}],
        ),
        ([{"c": Colour.RED, "p": [Point(1, 2)]}], [{"c": "red", "p": [{"x": 1, "y": 2}]}]),
        ([{"n": 1}, {"n": 2.5}], [{"n": 1.0}, {"n": 2.5}]),
    ],
)
def test_records_with_names_become_rows(folder: Path, records: list[Any], rows: list[Any]) -> None:
    write_all(write_files(folder), records)
    assert published(folder) == rows
    assert read_all(read_files(folder)) == rows


@pytest.mark.parametrize("record", [(1, 2), 7, "text", [1], None])
def test_records_without_names_are_refused_with_advice(folder: Path, record: Any) -> None:
    with pytest.raises(UnfitRecord, match=r"has no column names\. Map the records to dicts.* schema="):
        write_all(write_files(folder), [record])


def test_a_schema_gives_names_to_tuples_and_to_single_values(folder: Path) -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    write_all(write_files(folder, schema=schema), [(1, "x"), {"b": "y"}])
    assert published(folder) == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    with pytest.raises(UnfitRecord, match="it has 3 values and the schema the 2 columns"):
        write_all(write_files(folder, schema=schema), [(1, "x", 3)])
    write_all(write_files(folder / "one", schema=pa.schema([("word", pa.string())])), ["to", "be"])
    assert published(folder / "one") == [{"word": "to"}, {"word": "be"}]


@pytest.mark.parametrize(
    ("late", "text"),
    [
        ({"a": "x"}, "its column 'a' is not int64"),
        ({"a": 1.5}, "its column 'a' is not int64"),
        ({"a": 2**70}, "its column 'a' is not int64"),
        ({"a": Decimal("0.5")}, "0.5 is not a whole number"),
        ({"d": datetime(2026, 1, 1, 12)}, "a datetime has a time of day too"),
        ({"l": [{"t": 1}, {"t": 0.5}]}, "0.5 is not a whole number"),
        ({"a": 1, "b": 2, "z": 3}, "the file has no column 'b', 'z'"),
        ({"s": {"t": 1, "u": 2}}, "its column 's' is not struct<t: int64>: it has no field 'u'"),
        ({"l": [{"t": 1}, {"v": 2}]}, "it has no field 'v'"),
        ({"n": 1}, "its column 'n' is not null"),
    ],
)
def test_a_later_record_that_does_not_fit_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, late: dict[str, Any], text: str
) -> None:
    monkeypatch.setattr(row_files, "_GROUP", 2)
    first = {"a": 1, "s": {"t": 1}, "l": [{"t": 1}], "n": None, "d": date(2026, 1, 1)}
    with pytest.raises(UnfitRecord) as caught:
        write_all(write_files(folder), [first] * 2, [{"a": 2}, late])
    assert text in str(caught.value)
    assert f"the record {late!r}" in str(caught.value)
    assert "gave it the columns (a: int64, s: struct<t: int64>" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert published(folder) == []


def test_first_records_that_do_not_go_together_are_named(folder: Path) -> None:
    with pytest.raises(UnfitRecord, match=r"the record \{'a': 'x'\}.*column 'a' does not go with those before it"):
        write_all(write_files(folder), [{"a": 1}, {"a": 2}, {"a": "x"}, {"a": 3}])


@pytest.mark.parametrize(("record", "text"), [({}, "no columns"), ({1: 2}, "column name 1 is not a text")])
def test_records_that_no_table_can_hold_are_refused(folder: Path, record: Any, text: str) -> None:
    with pytest.raises(UnfitRecord, match=text):
        write_all(write_files(folder), [record])


def test_a_given_schema_is_kept_to(folder: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False), ("s", pa.struct([("t", pa.int64())]))])
    write_all(write_files(folder, schema=schema), [{"a": 1, "s": {"t": 1}}])
    [file] = folder.glob("*.parquet")
    assert pq.read_schema(file) == schema
    for wrong in ({"a": 2**40}, {"a": 1, "b": 1}, {"a": 1, "s": {"u": 1}}, {"s": None}):
        with pytest.raises(UnfitRecord, match="The schema has the columns"):
            write_all(write_files(folder, schema=schema), [{"a": 1}, wrong])


def test_many_rows_become_several_row_groups(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "_GROUP", 10)
    write_all(write_files(folder), *[[{"i": 4 * n + k} for k in range(4)] for n in range(10)])
    [file] = folder.glob("*.parquet")
    assert pq.ParquetFile(file).metadata.num_row_groups == 4
    assert read_all(read_files(folder)) == [{"i": i} for i in range(40)]


def test_json_lines_take_whatever_json_can_express(folder: Path) -> None:
    records = [1, "é\n", (1, 2), None, {"a": [1.5]}, Person("Ada", 36), Point(1, 2), Click("u", 1.0), Colour.RED]
    write_all(write_files(folder, format="jsonl"), records)
    ada = {"name": "Ada", "age": 36, "address": None}
    expected = [1, "é\n", [1, 2], None, {"a": [1.5]}, ada, [1, 2], {"user": "u", "at": 1.0}, "red"]
    assert read_all(read_files(folder)) == expected


@pytest.mark.parametrize("record", [object(), {"a": object()}, "\ud800", {(1, 2): 3}])
def test_what_json_cannot_express_is_named(folder: Path, record: Any) -> None:
    with pytest.raises(UnfitRecord) as caught:
        write_all(write_files(folder, format="jsonl"), [1, record, 2])
    assert caught.value.record == repr(record)


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "csv"},
        {"schema": "a int"},
        {"schema": pa.schema([])},
        {"schema": pa.schema([("a", pa.int8()), ("a", pa.int8())])},
        {"schema": pa.schema([("a", pa.int8())]), "format": "jsonl"},
        {"path": "hdfs://x/y"},
    ],
)
def test_arguments_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        write_files(**{"path": "/tmp/out", **wrong})


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StorageError, match="could not stage files in"):
        open_writer(write_files(tmp_path / "out"))
    with pytest.raises(StorageError, match="could not stage files in") as refused:
        write_files(tmp_path / "out").check()
    assert refused.value.can_pass is False


def test_a_check_writes_for_a_trial_and_leaves_what_others_have_staged(tmp_path: Path) -> None:
    write_files(tmp_path / "out").check()
    assert list((tmp_path / "out").iterdir()) == []
    staged = tmp_path / "out" / STAGING / "job-sink"
    staged.mkdir(parents=True)
    write_files(tmp_path / "out").check()
    assert list((tmp_path / "out").rglob("*")) == [staged.parent, staged]


def test_a_record_that_the_format_cannot_express_does_not_pass_by_itself(tmp_path: Path) -> None:
    writer = open_writer(write_files(tmp_path / "out", format="jsonl"))
    with pytest.raises(UnfitRecord) as refused:
        writer.write([object()])
    assert describe_failure(refused.value).can_pass is False
