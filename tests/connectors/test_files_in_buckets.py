"""read_files on an S3 server and on a filesystem of fsspec's: the contract, which files, and a server that is away."""

from __future__ import annotations

import gzip
import io
import json
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import fsspec
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from buckets import Bucket, Line
from real_servers import SECRET, S3Server, s3_server  # noqa: F401

import moorline as mo
from moorline.api.sources import EnumeratorContext, Source, SourceContext
from moorline.connectors.files.formats import lines
from moorline.connectors.files.remote import ranges
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError
from moorline.testing.contracts.source import RunningSource, Snapshot, SourceContract

ROWS = [{"n": n, "t": "é" * (n % 5)} for n in range(100)]


def contents(rows: list[dict[str, Any]]) -> dict[str, bytes]:
    """The same rows in every format that has types, and as lines."""
    table = pa.Table.from_pylist(rows, pa.schema([("n", pa.int64()), ("t", pa.string())]))
    parquet, orc, avro = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pq.write_table(table, parquet, row_group_size=7)
    pyarrow.orc.write_table(table, orc)
    fields = [{"name": "n", "type": "long"}, {"name": "t", "type": "string"}]
    fastavro.writer(avro, {"type": "record", "name": "R", "fields": fields}, rows, "deflate", sync_interval=90)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return {
        "jsonl": lines,
        "jsonl.gz": gzip.compress(lines),
        "parquet": parquet.getvalue(),
        "orc": orc.getvalue(),
        "avro": avro.getvalue(),
    }


def mixed() -> dict[str, bytes]:
    """All rows, spread over files of all formats."""
    endings = list(contents(ROWS[:1]))
    return {f"in/{n}/part.{end}": contents(ROWS[20 * n : 20 * n + 20])[end] for n, end in enumerate(endings)}


@pytest.fixture
def bucket(s3_server: S3Server) -> Bucket:  # noqa: F811
    return Bucket(s3_server)


class TestInABucket(SourceContract):
    @pytest.fixture
    def source(self, bucket: Bucket) -> Source:
        for key, data in mixed().items():
            bucket.put(key, data)
        return mo.read_files(f"{bucket.url}/in", storage_options=bucket.options)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return ROWS


class TestWatchedInMemory(SourceContract):
    @pytest.fixture
    def source(self) -> Source:
        place = f"memory://{uuid.uuid4().hex}"
        for key, data in mixed().items():
            fsspec.filesystem("memory").pipe_file(f"{place}/{key}", data)
        return mo.read_files(f"{place}/in", watch="1s")

    @pytest.fixture
    def expected(self) -> list[Any]:
        return ROWS


def read_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have readers ask for some bytes at a time, as if files were large."""
    monkeypatch.setattr(ranges, "BLOCK", 64)
    monkeypatch.setattr(ranges, "_BUFFER", 64)
    monkeypatch.setattr(lines, "CHUNK", 64)


# --- which files ----------------------------------------------------------------------------------


def read_all(source: Source, parallelism: int = 1, snapshot: Snapshot | None = None) -> list[Any]:
    running = RunningSource(source, parallelism, 1, snapshot or Snapshot({}))
    running.look()
    running.look()
    return read_on(running)


def read_on(running: RunningSource) -> list[Any]:
    found: list[Any] = []
    idle = 0
    while idle < 10:
        records = [r for subtask in range(running.parallelism) for r in running.read(subtask)]
        idle = 0 if records else idle + 1
        found += records
    return found


@pytest.fixture(params=["s3", "memory"])
def place(request: pytest.FixtureRequest) -> tuple[Callable[[str, str], None], Callable[..., Source]]:
    """How a text is put under a name, and how a source is made of a path: in a bucket, and in memory."""
    if request.param == "s3":
        bucket = request.getfixturevalue("bucket")
        return bucket.put, lambda path, **more: mo.read_files(
            f"{bucket.url}/{path}", **more, storage_options=bucket.options
        )
    root = f"memory://{uuid.uuid4().hex}"
    put = lambda key, text: fsspec.filesystem("memory").pipe_file(f"{root}/{key}", text.encode())  # noqa: E731
    return put, lambda path, **more: mo.read_files(f"{root}/{path}", **more)


NAMES = [
    *("in/b.txt", "in/a.txt", "in/sub/c.txt", "in/sub/_d.txt", "in/.hidden.txt", "in/_temporary/e.txt"),
    *("in/.moorline-staging/f.txt", "in/_day=1/g.txt", "in/x #?%25é.txt", "out/h.txt", "inner/i.txt"),
]
SHOWN = ["a", "b", "c", "g", "x #?%25é"]


def test_a_folder_one_file_a_pattern_or_a_glob_can_be_read(place):
    put, source = place
    for name in NAMES:
        put(name, name.rpartition("/")[2].removesuffix(".txt") + "\n")
    assert sorted(read_all(source("in"))) == SHOWN
    assert sorted(read_all(source("in/"), 3)) == SHOWN
    assert read_all(source("in/a.txt")) == ["a"]
    assert sorted(read_all(source("in", pattern="[bc].*"))) == ["b", "c"]
    assert sorted(read_all(source("in/**/*.txt"))) == SHOWN
    assert sorted(read_all(source("i*"))) == [*SHOWN[:4], "i", SHOWN[4]]
    assert sorted(read_all(source("in/s*"))) == ["c"]
    assert sorted(read_all(source("*/[ab].txt"))) == ["a", "b"]


def test_what_is_not_there_refuses_the_start(place, caplog):
    put, source = place
    put("in/a.txt", "a\n")
    for path in ("none", "in/none.txt", "in/*.csv"):
        with pytest.raises(StorageError, match="there is no such file, and none below it") as refused:
            source(path).check()
        assert refused.value.can_pass is False
    source("none", watch="1s").check()
    assert "nothing matches" in caplog.text
    put("in/b.dat", "b\n")
    with pytest.raises(StorageError, match="tell the format of"):
        source("in").check()
    source("in", format="text").check()


def test_a_bucket_that_is_not_there_and_options_that_make_no_sense_are_refused_at_once(bucket):
    with pytest.raises(StorageError, match="404") as refused:
        mo.read_files("s3://no-such-bucket/in", storage_options=bucket.options).check()
    assert refused.value.can_pass is False
    with pytest.raises(InvalidArgument, match="storage_options"):
        mo.read_files(f"{bucket.url}/in", storage_options={**bucket.options, "sceret": "x"}).check()
    with pytest.raises(InvalidArgument, match="storage_options"):
        mo.read_files("/tmp", storage_options={"key": "x"})


def test_secrets_are_not_shown(bucket):
    source = mo.read_files(f"{bucket.url}/in", storage_options=bucket.options)
    assert SECRET not in repr(source) + repr(source.__dict__)
    with pytest.raises(StorageError) as refused:
        source.check()
    assert SECRET not in str(refused.value)


def test_new_objects_are_found_and_those_that_are_gone_are_forgotten(place):
    put, source = place
    put("in/a.txt", "a\n")
    running = RunningSource(source("in", watch="1s"), 2, 1, Snapshot({}))
    running.look()
    assert read_on(running) == ["a"]
    put("in/b.txt", "b\n")
    running.look()
    again = RunningSource(source("in", watch="1s"), 3, 2, running.snapshot())
    put("in/c.txt", "c\n")
    again.look()
    assert sorted(read_on(again)) == ["b", "c"]
    assert again.snapshot().positions == {}


def test_an_object_that_is_gone_before_it_was_read(bucket):
    for watch in (None, "1s"):
        bucket.put("in/a.txt", "a\n")
        bucket.put("in/b.txt", "b\n")
        running = RunningSource(
            mo.read_files(f"{bucket.url}/in", watch=watch, storage_options=bucket.options), 1, 1, Snapshot({})
        )
        running.look()
        bucket.remove("in/b.txt")
        if watch is None:
            with pytest.raises(StorageError, match=r"in/b\.txt: it was there when it was listed, and is gone now"):
                read_on(running)
        else:
            assert read_on(running) == ["a"]


def test_the_beginnings_of_files_are_fetched_ahead(bucket, monkeypatch):
    """Several at a time: one after the other, each would cost a wait."""
    for n in range(10):
        bucket.put(f"in/{n}.txt", f"{n}\n")
    source = mo.read_files(f"{bucket.url}/in", storage_options=bucket.options)
    files = type(source.folder.location.files)
    together = threading.Barrier(ranges.AHEAD, timeout=60)
    real = files.read

    def read(self: Any, *args: Any) -> bytes:
        if args[0] < "8.txt":
            together.wait()  # until as many have asked
        return real(self, *args)

    monkeypatch.setattr(files, "read", read)
    assert read_all(source) == [str(n) for n in range(10)]


# --- other content --------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "orc", "avro", "jsonl.gz"])
def test_an_object_that_was_exchanged_is_an_error(bucket, monkeypatch, ending):
    """Before it is begun, in the middle, and between a snapshot and the restore."""
    read_little(monkeypatch)
    path = f"{bucket.url}/in/a.{ending}"
    source = mo.read_files(f"{bucket.url}/in", storage_options=bucket.options)
    bucket.put(f"in/a.{ending}", contents(ROWS)[ending])
    unread, begun = (RunningSource(source, 1, 1, Snapshot({})) for _ in range(2))
    unread.look()
    begun.look()
    first = begun.read(0)
    snapshot = begun.snapshot()
    assert 0 < len(first) < 10
    bucket.put(f"in/a.{ending}", contents(list(reversed(ROWS)))[ending])
    for running in (unread, RunningSource(source, 2, 2, snapshot)):
        with pytest.raises(StorageError, match=rf"{path}: .*was it replaced\?") as refused:
            read_on(running)
        assert refused.value.can_pass is False
    if ending in ("jsonl", "avro"):  # of the others, all that is read next is at hand
        with pytest.raises(StorageError, match="was it replaced"):
            read_on(begun)


def test_a_watched_object_that_was_exchanged_after_it_was_read_is_an_error(place):
    put, source = place
    put("in/a.txt", "one\n")
    running = RunningSource(source("in", watch="1s"), 1, 1, Snapshot({}))
    running.look()
    assert read_on(running) == ["one"]
    put("in/a.txt", "two\n")
    for enumerator in (running, RunningSource(source("in", watch="1s"), 1, 2, running.snapshot())):
        with pytest.raises(StorageError, match=r"in/a\.txt: it does not look as it did.*was it replaced\?"):
            enumerator.look()


def test_a_file_of_fsspec_that_was_exchanged_while_it_was_read_is_an_error(monkeypatch):
    read_little(monkeypatch)
    root = f"memory://{uuid.uuid4().hex}"
    fsspec.filesystem("memory").pipe_file(f"{root}/a.jsonl", contents(ROWS)["jsonl"])
    running = RunningSource(mo.read_files(root), 1, 1, Snapshot({}))
    running.look()
    assert running.read(0)
    fsspec.filesystem("memory").pipe_file(f"{root}/a.jsonl", contents(ROWS)["jsonl"])
    with pytest.raises(StorageError, match="was it replaced"):
        read_on(running)


@pytest.mark.parametrize(
    ("split", "position"),
    [
        ("../a.txt", {"seen": [2, "v"]}),
        ("/etc/passwd", {"seen": [2, "v"]}),
        ("a//b", {"seen": [2, "v"]}),
        ("a\0b", {"seen": [2, "v"]}),
        ("a.txt", {"seen": [-2, "v"]}),
        ("a.txt", {"seen": ["2", "v"]}),
        ("a.txt", {"seen": [2]}),
        ("a.txt", {"offset": 2}),
        ("a.txt", None),
        (".", {"seen": "x"}),
    ],
    ids=repr,
)
def test_positions_that_reach_elsewhere_or_are_none_are_refused(split, position):
    reader = mo.read_files("memory://somewhere").open(SourceContext("in", 0, 1, 1))
    with pytest.raises(SnapshotCorrupt, match="is not a position in a file"):
        reader.add_splits({split: position})


@pytest.mark.parametrize("state", [b"12345", "text", 7, {}])
def test_what_a_listing_cannot_have_remembered_is_refused(state):
    with pytest.raises(SnapshotCorrupt, match="is not what a listing remembers"):
        mo.read_files("memory://somewhere").open_enumerator(EnumeratorContext("job", "in", 2, restored=state))


# --- a server that is away ------------------------------------------------------------------------


@pytest.fixture
def line(s3_server: S3Server) -> Iterator[Line]:  # noqa: F811
    line = Line(s3_server.port)
    yield line
    line.cut()


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "orc", "avro", "jsonl.gz"])
def test_a_server_that_comes_back_in_time_costs_nothing(s3_server, line, monkeypatch, ending):  # noqa: F811
    read_little(monkeypatch)
    bucket = Bucket(s3_server, line)
    for n in range(3):
        bucket.put(f"in/{n}.{ending}", contents(ROWS[30 * n : 30 * n + 30])[ending])
    reported: list[str | None] = []
    source = mo.read_files(f"{bucket.url}/in", storage_options=bucket.options)
    reader = source.open(SourceContext("in", 0, 1, 1, outage=reported.append))
    reader.add_splits(source.open_enumerator(EnumeratorContext("job", "in", 1)).discover() or {})
    reader.no_more_splits()
    found: list[Any] = []
    for _ in range(3):
        while not (records := reader.read(9)):
            pass
        found += records
        line.cut()
        reader.positions()
        for _ in range(20):
            found += reader.read(9) or []  # never blocks
        line.mend()
    while (records := reader.read(9)) is not None:
        found += records
    assert found == ROWS[:90]
    assert reported[-1] is None and any("error sending request" in str(cause) for cause in reported)


def test_a_server_that_stays_away_fails_the_attempt_in_its_own_words(s3_server, line):  # noqa: F811
    bucket = Bucket(s3_server, line)
    bucket.put("in/a.txt", "a\n")
    source = mo.read_files(f"{bucket.url}/in", storage_options=bucket.options, patience=0.3)
    reader = source.open(SourceContext("in", 0, 1, 1))
    enumerator = source.open_enumerator(EnumeratorContext("job", "in", 1))
    reader.add_splits(enumerator.discover() or {})
    line.cut()

    with pytest.raises(StorageError, match="error sending request") as failed:
        while True:
            assert reader.read(5) == []
    assert failed.value.can_pass is True
    with pytest.raises(StorageError, match="error sending request"):
        source.check()
    with pytest.raises(StorageError, match="error sending request"):
        source.open_enumerator(EnumeratorContext("job", "in", 1)).discover()
    assert enumerator.snapshot() == b""


def test_a_server_that_is_killed_and_started_again_is_read_on(tmp_path: Path, monkeypatch):
    """Moto forgets everything when it dies; an object with the same content is the same version."""
    read_little(monkeypatch)
    server = S3Server(tmp_path)
    try:
        bucket = Bucket(server)
        data = contents(ROWS)["jsonl"]
        bucket.put("in/a.jsonl", data)
        source = mo.read_files(f"{bucket.url}/in", storage_options=bucket.options)
        running = RunningSource(source, 1, 1, Snapshot({}))
        running.look()
        found = running.read(0)
        server.stop(signal.SIGKILL)
        for _ in range(10):
            found += running.read(0)
        assert len(found) < len(ROWS)
        server.start()
        server.new_bucket(bucket.name)
        bucket.put("in/a.jsonl", data)
        while len(found) < len(ROWS):
            found += running.read(0)
        assert found == ROWS
    finally:
        server.stop(signal.SIGKILL)
