"""write_files in buckets and on filesystems of fsspec's: the contract, zombies, crashes, and a place that is away."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import obstore
import pyarrow.parquet as pq
import pytest
from buckets import Bucket, Line
from fsspec.implementations.memory import MemoryFileSystem
from published_files import open_writer
from real_servers import SECRET, S3Server, s3_server, s3fs_packages  # noqa: F401
from services import Proxy

import moorline as mo
from moorline import failpoints
from moorline.api.sinks import Sink, SinkContext
from moorline.connectors.files.part_names import STAGING
from moorline.connectors.files.remote import fsspec_files, object_store
from moorline.connectors.files.remote import place as remote_place
from moorline.errors import InvalidArgument, StorageError
from moorline.testing.contracts.sink import SinkContract, Visible


@pytest.fixture
def bucket(s3_server: S3Server) -> Bucket:  # noqa: F811
    return Bucket(s3_server)


def published(bucket: Bucket, folder: str = "out") -> list[Any]:
    """The records as a reader of the bucket finds them, who knows nothing of Moorline."""
    keys = [key for key in bucket.keys(folder) if f"/{STAGING}/" not in key]
    return [json.loads(line) for key in keys for line in bucket.get(key).splitlines()]


LINEAGE = "5f1e" * 8


class TestJsonLinesInABucket(SinkContract):
    crash_seeds = 4  # each takes some hundred requests

    @pytest.fixture
    def sink(self, bucket: Bucket) -> Sink:
        return mo.write_files(f"{bucket.url}/out", format="jsonl", storage_options=bucket.options)

    @pytest.fixture
    def visible(self, bucket: Bucket) -> Visible:
        return lambda: published(bucket)


class TestPartitionedParquetInMemory(SinkContract):
    crash_seeds = 8

    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"

    @pytest.fixture
    def sink(self, url: str) -> Sink:
        return mo.write_files(url, partition_by="text", roll_size=1)

    @pytest.fixture
    def visible(self, url: str) -> Visible:
        return lambda: in_memory(url)

    def record(self, number: int) -> Any:
        return {"number": number, "text": f"t/{number % 3}"}


class TestWhereFilesAreRenamed(SinkContract):
    """As HDFS and SFTP do: the other way to publish."""

    @pytest.fixture
    def sink(self, tmp_path: Path) -> Sink:
        return mo.write_files(f"fsspec+file://{tmp_path}/out", format="jsonl", partition_by="half")

    @pytest.fixture
    def visible(self, tmp_path: Path) -> Visible:
        def look() -> list[Any]:
            files = [path for path in tmp_path.rglob("part-*") if STAGING not in path.parts]
            return [
                {**json.loads(line), "half": file.parent.name.removeprefix("half=")}
                for file in files
                for line in file.read_text().splitlines()
            ]

        return look

    def record(self, number: int) -> Any:
        return {"number": number, "half": f"{number % 2}"}


def test_nothing_is_left_where_there_are_real_folders(tmp_path: Path) -> None:
    sink = mo.write_files(f"fsspec+file://{tmp_path}/out", format="jsonl")
    sink.check()
    writer = open_writer(sink)
    writer.write([1])
    sink.commit(writer.prepare(1))
    writer.close()
    sink.clean_up("job", "out")
    [name] = os.listdir(tmp_path / "out")
    assert name.startswith("part-")


def test_s3fs_reads_and_writes_as_obstore_does(s3_server: S3Server, tmp_path: Path) -> None:  # noqa: F811
    """In a process of its own: s3fs pins versions that the rest of the tests should be free of."""
    bucket = Bucket(s3_server)
    script = tmp_path / "through_s3fs.py"
    script.write_text(_S3FS.format(endpoint=s3_server.endpoint, bucket=bucket.name, secret=SECRET))
    here = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, s3fs_packages()])}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert published(bucket) == [{"n": 1}, {"n": 1}], "one of two was exchanged on purpose"


_S3FS = """
import moorline as mo
from moorline.api.sinks import SinkContext
from moorline.errors import StorageError
from moorline.testing.contracts.source import RunningSource, Snapshot

options = dict(key="testing", secret="{secret}", endpoint_url="{endpoint}")
sink = mo.write_files("fsspec+s3://{bucket}/out", format="jsonl", partition_by="day", storage_options=options)
sink.check()
writer = sink.open(SinkContext("job", "out", 0, 1, 1, lineage="5f1e" * 8))
writer.write([dict(day="a/b", n=1), dict(day="c", n=2)])
staged = writer.prepare(1)
sink.commit(staged)
sink.commit(staged)
writer.write([dict(day="c", n=3)])
sink.commit(writer.prepare(2))
sink.roll_back("job", "out", 1)
sink.clean_up("job", "out")

source = mo.read_files("fsspec+s3://{bucket}/out", partitions=True, watch="1s", storage_options=options)
source.check()
running = RunningSource(source, 1, 1, Snapshot(dict()))
running.look()
rows = []
while len(rows) < 2:
    rows += running.read(0)
assert sorted(row["day"] for row in rows) == ["a/b", "c"], rows
files = sink.place.location.files
[first, second] = files.list()
files.publish(first.path, second.path)
try:
    running.look()
except StorageError as error:
    assert "was it replaced" in str(error)
else:
    raise AssertionError("an object that was exchanged went unnoticed")
"""


def in_memory(url: str) -> list[Any]:
    fs = fsspec.filesystem("memory")
    out = []
    for path in fs.find(url.removeprefix("memory:/")):
        if STAGING not in path:
            folder = path.split("/")[-2].removeprefix("text=").replace("%2F", "/")
            with fs.open(path, "rb") as file:
                out += [{**row, "text": folder} for row in pq.ParquetFile(file).read().to_pylist()]
    return out


@pytest.fixture
def sink(bucket: Bucket) -> Sink:
    return mo.write_files(f"{bucket.url}/out", format="jsonl", storage_options=bucket.options)


def staged_files(sink: Sink, count: int = 3) -> list[Any]:
    """``count`` committables with one record each: 0, 1, …"""
    writer = open_writer(sink)
    out = []
    for n in range(count):
        writer.write([n])
        out += writer.prepare(n + 1)
    writer.close()
    return out


# --- before the start ---------------------------------------------------------------------------


def test_a_place_is_tried_before_the_start_and_left_as_it_was(bucket, sink):
    sink.check()
    assert bucket.keys() == []
    assert sink.commits_in_background


def test_a_bucket_that_is_not_there_refuses_the_start(bucket):
    with pytest.raises(StorageError, match=r"NoSuchBucket|not found") as refused:
        mo.write_files("s3://no-such-bucket/out", storage_options=bucket.options).check()
    assert refused.value.can_pass is False


def test_a_filesystem_that_can_neither_rename_nor_copy_is_refused():
    with pytest.raises(StorageError, match=r"neither a rename nor a copy") as refused:
        fsspec_files.publishes_by_copy(fsspec.filesystem("data"))
    assert refused.value.can_pass is False
    assert fsspec_files.publishes_by_copy(fsspec.filesystem("memory"))
    assert not fsspec_files.publishes_by_copy(fsspec.filesystem("local"))


def test_options_that_cannot_work_are_refused(bucket):
    with pytest.raises(InvalidArgument, match="storage_options"):
        mo.write_files("/tmp/out", storage_options={"key": "x"})
    with pytest.raises(InvalidArgument, match="storage_options"):
        mo.write_files(f"{bucket.url}/out", storage_options={**bucket.options, "sceret": "x"}).check()
    with pytest.raises(InvalidArgument, match="patience"):
        mo.write_files("/tmp/out", patience=-1)


def test_secrets_are_not_shown(bucket, sink):
    assert SECRET not in repr(sink) + repr(sink.__dict__) + repr(sink.place.__dict__)
    assert SECRET not in repr(staged_files(sink))


# --- crashes and repetitions ----------------------------------------------------------------------


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(failpoints.Plan())


def test_a_commit_that_crashed_is_completed_by_the_next(bucket, sink, disarmed):
    committables = staged_files(sink)
    failpoints.arm(failpoints.Plan("sink.commit.middle:raise"))
    with pytest.raises(RuntimeError, match="failpoint"):
        sink.commit(committables)
    assert published(bucket) == [0]
    sink.commit(committables)
    assert published(bucket) == [0, 1, 2]
    sink.clean_up("job", "out")
    assert len(bucket.keys()) == 3


@pytest.mark.parametrize("request_number", range(1, 14))
def test_a_crash_at_any_request_of_a_commit_loses_nothing(bucket, sink, monkeypatch, request_number):
    committables = staged_files(sink)
    count = 0

    class Crash(BaseException):
        pass

    def crashing(real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == request_number:
                raise Crash
            return real(*args, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("put", "copy", "head", "delete"):
            patch.setattr(object_store.obstore, name, crashing(getattr(obstore, name)))
        # One at a time, so that every request is the crashing one once.
        patch.setattr(remote_place, "_LINES", 1)
        try:
            sink.commit(committables)
            assert request_number > 11
        except Crash:
            assert request_number <= 11
    sink.commit(committables)
    assert published(bucket) == [0, 1, 2]


def test_a_reader_never_sees_a_part_of_a_file(bucket, sink):
    """While files are uploaded, published and published again."""
    writer = open_writer(sink)
    writer.write([{"n": n, "x": "y" * 1000} for n in range(20_000)])
    seen: set[int] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for key in bucket.keys("out"):
                if STAGING not in key:
                    seen.add(len(bucket.get(key).splitlines()))

    watcher = threading.Thread(target=look)
    watcher.start()
    committables = writer.prepare(1)
    with ThreadPoolExecutor(3) as attempts:
        for commit in [attempts.submit(sink.commit, committables) for _ in range(3)]:
            commit.result()
    while not seen:
        time.sleep(0.01)
    done.set()
    watcher.join()
    assert seen == {20_000}


def test_lost_and_damaged_files_are_errors(bucket, sink):
    lost, damaged, changed = staged_files(sink)
    bucket.remove(f"out/{lost['staged']}")
    with pytest.raises(StorageError, match="its 2 bytes are lost: it is neither published nor staged"):
        sink.commit([lost])
    bucket.put(f"out/{damaged['staged']}", "too long")
    with pytest.raises(StorageError, match="staged with 2 bytes and has 8 now"):
        sink.commit([damaged])
    sink.commit([changed])
    bucket.put(f"out/{changed['final']}", "something else")
    with pytest.raises(StorageError, match="14 bytes instead of 2"):
        sink.commit([changed])


def test_a_restore_lists_all_output_only_if_something_has_to_be_taken_back(bucket, sink, monkeypatch):
    files = type(sink.place.location.files)
    listed: list[str] = []
    real = files.list
    monkeypatch.setattr(files, "list", lambda self, folder="": listed.append(folder) or real(self, folder))
    committables = staged_files(sink)
    committer = sink.open_subtask_committer(SinkContext("job", "out", 0, 1, 1, lineage=LINEAGE))
    for committable in committables:
        committer.commit([committable])
    assert len([key for key in bucket.keys("out") if "/reached-" in key]) == 1
    sink.roll_back("job", "out", 3)
    assert "" not in listed
    assert published(bucket) == [0, 1, 2]
    sink.commit(committables)
    sink.roll_back("job", "out", 1)
    assert "" in listed
    assert published(bucket) == [0]
    listed.clear()
    sink.roll_back("job", "out", 1)
    assert "" not in listed


def test_the_highest_mark_outlives_those_of_slower_committers(bucket, sink):
    first, second, third = staged_files(sink)
    quick, slow = (sink.open_subtask_committer(SinkContext("job", "out", n, 2, 1, lineage=LINEAGE)) for n in range(2))
    quick.commit([third])
    slow.commit([first])
    slow.commit([second])
    quick.commit([first])
    sink.roll_back("job", "out", 2)
    assert published(bucket) == [0, 1]


def test_rolling_back_also_takes_what_a_zombie_could_still_publish(bucket, sink):
    committables = staged_files(sink)
    sink.roll_back("job", "out", 1)
    with pytest.raises(StorageError, match="lost"):
        sink.commit(committables[1:])
    sink.commit(committables[:1])
    assert published(bucket) == [0]


def test_names_that_reach_elsewhere_are_refused_before_anything_is_published(bucket, sink):
    [good] = staged_files(sink, 1)
    for wrong in (
        {**good, "final": f"../{good['final']}"},
        {**good, "final": f"/{good['final']}"},
        {**good, "final": f"day=1/../{good['final']}"},
        {**good, "final": f"a/{good['final']}"},
        {**good, "final": f"=1/{good['final']}"},
        {**good, "staged": good["final"]},
        {**good, "staged": f"{STAGING}/../x/{good['final']}"},
        {**good, "size": -1},
    ):
        with pytest.raises(StorageError, match="not a file that was staged here") as refused:
            sink.commit([good, wrong])
        assert refused.value.can_pass is False
    assert published(bucket) == []


class LosesBytes(MemoryFileSystem):
    """A filesystem that loses the end of every other file, without a word."""

    protocol = "losing"
    writes = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("losing://", "memory://"))

    def _open(self, path: str, mode: str = "rb", *args: Any, **options: Any) -> Any:
        file = super()._open(path, mode, *args, **options)
        if mode == "wb":
            LosesBytes.writes += 1
            if LosesBytes.writes % 2:
                write = file.write
                file.write = lambda data: write(data[:-1])
        return file


def test_an_upload_that_did_not_arrive_whole_is_repeated():
    fsspec.register_implementation("losing", LosesBytes, clobber=True)
    url = f"losing://{uuid.uuid4().hex}"
    sink = mo.write_files(url, format="jsonl")
    reported: list[str | None] = []
    writer = sink.open(SinkContext("job", "out", 0, 1, 1, outage=reported.append, lineage=LINEAGE))
    writer.write([1, 2, 3])
    staged = writer.prepare(1)
    assert "5 of its 6 bytes have arrived" in str(reported[0])
    sink.commit(staged)
    [path] = [path for path in fsspec.filesystem("memory").find(f"/{url[9:]}") if STAGING not in path]
    assert fsspec.filesystem("memory").cat_file(path) == b"1\n2\n3\n"


# --- temporary files ------------------------------------------------------------------------------


def scratch() -> list[str]:
    return [name for name in os.listdir(tempfile.gettempdir()) if "-files-" in name and name.startswith("moorline-")]


def test_a_writer_leaves_no_temporary_files(sink):
    before = set(scratch())
    writer = open_writer(sink)
    writer.write([1])
    assert len(set(scratch()) - before) == 1
    writer.prepare(1)
    writer.write([2])
    writer.close()
    writer.close()
    assert set(scratch()) - before == set()
    abandoned = open_writer(sink)
    abandoned.write([3])
    del abandoned
    gc.collect()
    assert set(scratch()) - before == set(), "also without being closed"


def test_temporary_files_of_a_killed_process_are_removed_by_the_next(sink):
    host = "".join(c if c.isalnum() else "_" for c in socket.gethostname())
    dead = Path(tempfile.gettempdir(), f"moorline-{host}-4194304-files-test")  # no process has so high a number
    dead.mkdir()
    (dead / "part").write_text("x")
    open_writer(sink).close()
    assert not dead.exists()


# --- a place that is away -------------------------------------------------------------------------


@pytest.fixture
def line(s3_server: S3Server) -> Iterator[Line]:  # noqa: F811
    line = Line(s3_server.port)
    yield line
    line.cut()


def test_a_place_that_comes_back_in_time_costs_nothing(s3_server, line):  # noqa: F811
    bucket = Bucket(s3_server, line)
    sink = mo.write_files(f"{bucket.url}/out", format="jsonl", storage_options=bucket.options)
    reported: list[str | None] = []
    ctx = SinkContext("job", "out", 0, 1, 1, outage=reported.append, lineage=LINEAGE)
    writer, committer = sink.open(ctx), sink.open_subtask_committer(ctx)
    writer.write([1])
    staged: list[Any] = []
    for work in (lambda: staged.extend(writer.prepare(1)), lambda: committer.commit(staged)):
        line.cut()
        reported.clear()
        thread = threading.Thread(target=work)
        thread.start()
        while not reported:
            time.sleep(0.01)
        assert "error sending request" in str(reported[0])
        assert published(bucket) == []
        line.mend()
        thread.join()
        assert reported[-1] is None
    assert published(bucket) == [1]


def test_a_place_that_stays_away_fails_in_its_own_words(s3_server, line):  # noqa: F811
    bucket = Bucket(s3_server, line)
    sink = mo.write_files(f"{bucket.url}/out", format="jsonl", storage_options=bucket.options, patience=0.2)
    [committable] = staged_files(sink, 1)
    writer = open_writer(sink)
    writer.write([1])
    line.cut()
    for work in (lambda: sink.commit([committable]), lambda: writer.prepare(1), sink.check):
        with pytest.raises(StorageError, match="error sending request") as failed:
            work()
        assert failed.value.can_pass is True
    writer.close()


def test_a_server_that_is_killed_and_started_again_in_the_middle_of_an_upload(tmp_path: Path):
    server = S3Server(tmp_path)
    try:
        bucket = Bucket(server)
        # The server forgets its buckets. The proxy is back when they are.
        proxy = Proxy(server.port)
        options = {**bucket.options, "endpoint": f"http://127.0.0.1:{proxy.port}"}
        sink = mo.write_files(f"{bucket.url}/out", format="jsonl", storage_options=options)
        reported: list[str | None] = []
        writer = sink.open(SinkContext("job", "out", 0, 1, 1, outage=reported.append, lineage=LINEAGE))
        writer.write(["x" * 1000] * 40_000)
        staged: list[Any] = []
        thread = threading.Thread(target=lambda: staged.extend(writer.prepare(1)))
        thread.start()
        server.stop(signal.SIGKILL)
        while not reported:
            time.sleep(0.01)
        proxy.close()
        server.start()
        server.new_bucket(bucket.name)
        proxy = Proxy(server.port, proxy.port)
        thread.join()
        sink.commit(staged)
        proxy.close()
        assert len(published(bucket)) == 40_000
    finally:
        server.stop(signal.SIGKILL)
