"""A sink into Redis streams, on a real server: each entry once, whatever is killed and whoever else commits."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import pytest
import redis
from redis_streams import new_name, written
from services import PASSWORD, Proxy, free_port, redis_cluster, redis_server  # noqa: F401
from waiting import eventually

import moorline as mo
from moorline.connectors.redis import stream_sink
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError
from moorline.testing.contracts.sink import SinkContract


@pytest.fixture
def server(redis_server):  # noqa: F811
    return redis_server


@pytest.fixture
def client(server):
    client = redis.Redis.from_url(server.url)
    yield client
    client.close()


@pytest.fixture
def stream():
    return new_name("out")


def context(subtask=0, attempt=1, lineage="5f1e", restored=(), **more):
    return mo.SinkContext(more.pop("job", "job"), "out", subtask, 2, attempt, tuple(restored), lineage, **more)


def sink_into(url, stream, **options):
    """A sink with marks of its own: all tests have the same job."""
    return mo.write_redis_stream(url, stream, prefix=new_name("marks"), **options)


def stage(sink, records, checkpoint=1, **place):
    """Committables of one subtask for one checkpoint."""
    writer = sink.open(context(**place))
    writer.write(records)
    return writer.prepare(checkpoint)


def commit(sink, committables, **place):
    committer = sink.open_subtask_committer(context(**place))
    try:
        committer.commit(committables)
    finally:
        committer.close()


def rows(first, end):
    return [{"n": str(n)} for n in range(first, end)]


class TestRedisStreams(SinkContract):
    can_roll_back = False

    @pytest.fixture
    def sink(self, server, stream):
        return sink_into(server.url, stream)

    @pytest.fixture
    def visible(self, client, stream):
        return lambda: written(client, stream)

    def record(self, number):
        return {"number": str(number), "text": f"record {number}"}


@pytest.mark.parametrize("seed", range(5))
def test_chunks_of_three_keep_the_promises_too(server, client, stream, monkeypatch, seed):
    monkeypatch.setattr(stream_sink, "ENTRIES_AT_ONCE", 3)
    sink, contract = sink_into(server.url, stream), TestRedisStreams()
    contract.test_each_record_comes_out_once_whatever_crashes(sink, lambda: written(client, stream), seed)


@pytest.mark.parametrize("seed", [3, 11])
def test_a_cluster_keeps_the_promises_too(redis_cluster, seed):  # noqa: F811
    """Several streams, each with a hash slot and so a mark of its own."""
    name, contract = new_name("out"), TestRedisStreams()
    sink = sink_into(redis_cluster.url, lambda record: f"{name}-{int(record['number']) % 3}", cluster=True)
    client = redis.RedisCluster.from_url(redis_cluster.url)

    def visible():
        return [record for n in range(3) for record in written(client, f"{name}-{n}")]

    contract.test_each_record_comes_out_once_whatever_crashes(sink, visible, seed)
    client.close()


class TestRecords:
    def test_fields_are_texts_numbers_and_bytes(self, server, client, stream):
        sink = sink_into(server.url, stream)
        sink.check()
        commit(sink, stage(sink, [{"text": "ü", "int": -7, "float": 0.5, "raw": b"\x00\xff", "empty": ""}]))
        ((_, fields),) = client.xrange(stream)
        assert fields == {b"text": "ü".encode(), b"int": b"-7", b"float": b"0.5", b"raw": b"\x00\xff", b"empty": b""}

    def test_a_format_puts_the_record_into_one_field(self, server, client, stream):
        sink = sink_into(server.url, stream, format="json", field="order")
        commit(sink, stage(sink, [{"n": [1, None]}, "text", 7]))
        assert [fields[b"order"] for _, fields in client.xrange(stream)] == [b'{"n":[1,null]}', b'"text"', b"7"]

    def test_a_function_chooses_the_stream_of_each_record(self, server, client, stream):
        sink = sink_into(server.url, lambda record: f"{stream}:{record['to']}")
        sink.check()
        commit(sink, stage(sink, [{"to": "a", "n": 1}, {"to": "b", "n": 2}, {"to": "a", "n": 3}]))
        assert [fields[b"n"] for _, fields in client.xrange(f"{stream}:a")] == [b"1", b"3"]
        assert [fields[b"n"] for _, fields in client.xrange(f"{stream}:b")] == [b"2"]

    def test_the_order_of_a_subtask_is_kept(self, server, client, stream):
        sink = sink_into(server.url, stream)
        commit(sink, stage(sink, rows(0, 2_500)) + stage(sink, rows(2_500, 2_510), 2))
        assert written(client, stream) == rows(0, 2_510)

    def test_a_stream_is_trimmed_to_about_maxlen(self, server, client, stream):
        sink = sink_into(server.url, stream, maxlen=100)
        commit(sink, stage(sink, rows(0, 2_000)))
        assert 100 <= client.xlen(stream) < 400
        assert written(client, stream)[-1] == {"n": "1999"}

    @pytest.mark.parametrize(
        ("record", "words"),
        [
            ("text", "a str has no fields"),
            ({}, "an entry needs a field"),
            ({1: "a"}, "the name 1 is not a text"),
            ({"a": None}, "Redis has no word"),
            ({"a": True}, "Redis has no word"),
            ({"a": [1]}, "the value of 'a' is a list"),
            (dict.fromkeys(map(str, range(4_000)), "x"), "it has 4000 fields"),
        ],
    )
    def test_a_record_that_does_not_fit_is_named(self, server, stream, record, words):
        writer = sink_into(server.url, stream).open(context())
        with pytest.raises(UnfitRecord, match=words):
            writer.write([{"good": "one"}, record])

    def test_the_largest_record_that_fits_is_added(self, server, client, stream):
        sink = sink_into(server.url, stream, maxlen=10)
        commit(sink, stage(sink, [dict.fromkeys(map(str, range(3_900)), "x")]))
        assert client.xlen(stream) == 1

    @pytest.mark.parametrize("name", [None, "", 7])
    def test_a_function_that_gives_no_name_is_an_error_that_shows_the_record(self, server, name):
        writer = sink_into(server.url, lambda record: name).open(context())
        with pytest.raises(UnfitRecord, match=r"cannot write the record \{'n': '0'\}.*not the name of a stream"):
            writer.write(rows(0, 1))


class TestMarks:
    def test_a_mark_is_kept_for_each_slot_and_lineage_and_not_for_each_checkpoint(self, server, client, stream):
        sink = sink_into(server.url, stream)
        for checkpoint in range(1, 6):
            commit(sink, stage(sink, rows(0, 1), checkpoint) + stage(sink, rows(0, 1), checkpoint, subtask=1))
        commit(sink, stage(sink, rows(0, 1), 1, lineage="b2"))
        marks = client.hgetall(f"{sink.prefix}:job/out")
        assert marks == {b"5f1e/0": b"5 0 1", b"5f1e/1": b"5 0 1", b"b2/0": b"1 0 1"}
        assert client.xlen(stream) == 11

    def test_names_of_jobs_cannot_run_into_each_other(self, server):
        sink = sink_into(server.url, "s")
        assert sink.marks("", "a/b", "c") != sink.marks("", "a", "b/c")

    def test_what_was_staged_before_a_rescale_is_committed_by_another_subtask(self, server, client, stream):
        sink = sink_into(server.url, stream)
        old = [c for slot in range(3) for n in (1, 2) for c in stage(sink, rows(n, n + 1), n, subtask=slot)]
        commit(sink, old, subtask=0, attempt=2)
        commit(sink, old, subtask=1, attempt=3)
        assert client.xlen(stream) == 6

    def test_committers_that_race_add_each_entry_once(self, server, client, stream, monkeypatch):
        monkeypatch.setattr(stream_sink, "ENTRIES_AT_ONCE", 5)
        sink = sink_into(server.url, stream)
        staged = [c for n in range(1, 21) for c in stage(sink, rows(n * 20, n * 20 + 20), n)]
        start = threading.Barrier(5)

        def race():
            copy = cloudpickle.loads(cloudpickle.dumps(sink))
            start.wait()
            commit(copy, staged)

        with ThreadPoolExecutor(5) as zombies:
            for done in [zombies.submit(race) for _ in range(5)]:
                done.result()
        assert written(client, stream) == rows(20, 420)

    def test_a_script_that_fails_half_way_goes_on_where_it_stopped(self, server, client, stream):
        """Redis undoes nothing: here the second stream has no ids left."""
        client.xadd(f"{stream}:b", {"n": "full"}, id="18446744073709551615-18446744073709551615")
        sink = sink_into(server.url, lambda record: f"{stream}:{record['to']}")
        staged = stage(sink, [{"to": "a", "n": 1}, {"to": "b", "n": 2}, {"to": "a", "n": 3}])
        for _ in range(2):
            with pytest.raises(StorageError, match="exhausted") as caught:
                commit(sink, staged)
            assert caught.value.can_pass is False
        assert [f[b"n"] for _, f in client.xrange(f"{stream}:a")] == [b"1"]
        client.delete(f"{stream}:b")
        commit(sink, staged)
        commit(sink, staged)
        assert [f[b"n"] for _, f in client.xrange(f"{stream}:a")] == [b"1", b"3"]
        assert [f[b"n"] for _, f in client.xrange(f"{stream}:b")] == [b"2"]

    def test_a_user_who_may_not_write_to_one_of_the_streams_gets_nothing_twice(self, server, client, stream):
        keys = [f"~{stream}:a", "~marks-*", f"%R~{stream}:b"]
        client.execute_command("ACL", "SETUSER", "clerk", "on", ">clerk-word", "+@all", *keys)
        url = f"redis://clerk:clerk-word@127.0.0.1:{server.port}/0"
        sink = sink_into(url, lambda record: f"{stream}:{record['to']}")
        staged = stage(sink, [{"to": "a", "n": 1}, {"to": "b", "n": 2}])
        for _ in range(2):
            with pytest.raises(StorageError, match="ermission") as caught:
                commit(sink, staged)
            assert caught.value.can_pass is False and "clerk-word" not in str(caught.value)
        client.execute_command("ACL", "SETUSER", "clerk", f"~{stream}:b")
        commit(sink, staged)
        assert client.xlen(f"{stream}:a") == client.xlen(f"{stream}:b") == 1

    def test_something_else_than_a_stream_is_found_before_anything_is_added(self, server, client, stream):
        client.hset(f"{stream}:b", "a", "b")
        sink = sink_into(server.url, lambda record: f"{stream}:{record['to']}")
        with pytest.raises(StorageError, match=f"{stream}:b is a hash and not a stream"):
            commit(sink, stage(sink, [{"to": "a", "n": 1}, {"to": "b", "n": 2}]))
        assert client.xlen(f"{stream}:a") == 0

    def test_a_chunk_does_not_keep_the_server_for_long(self, server, client, stream):
        sink = sink_into(server.url, stream)
        before = client.info("commandstats").get("cmdstat_eval", {"calls": 0})["calls"]
        commit(sink, stage(sink, [{"n": n, "text": "x" * 100} for n in range(2_500)]))
        commit(sink, stage(sink, [{"text": "x" * 300_000} for _ in range(10)], 2))
        assert client.info("commandstats")["cmdstat_eval"]["calls"] - before == 5 + 3


class TestLostMarks:
    """A server that has come back with less than was committed to it."""

    def test_a_server_that_lost_its_data_is_noticed_by_the_next_commit(self, server, client, stream):
        sink = sink_into(server.url, stream)
        committer = sink.open_subtask_committer(context())
        committer.commit(stage(sink, rows(0, 5), 3))
        client.delete(stream, f"{sink.prefix}:job/out")
        with pytest.raises(StorageError, match=r"checkpoint 3 was committed to it, .* is not there") as caught:
            committer.commit(stage(sink, rows(5, 6), 4))
        committer.close()
        assert caught.value.can_pass is False
        assert client.xlen(stream) == 0

    def test_so_is_one_that_went_back_to_an_older_mark(self, server, client, stream):
        sink = sink_into(server.url, stream)
        committer = sink.open_subtask_committer(context())
        committer.commit(stage(sink, rows(0, 5), 3))
        client.hset(f"{sink.prefix}:job/out", "5f1e/0", "2 0 5")
        with pytest.raises(StorageError, match="has come to checkpoint 2"):
            committer.commit(stage(sink, rows(5, 6), 4))
        committer.close()

    def test_what_was_seen_goes_through_snapshots_to_whichever_subtask(self, server, client, stream):
        sink = sink_into(server.url, stream)
        writer, committer = sink.open(context()), sink.open_subtask_committer(context())
        assert writer.snapshot() == []
        writer.write(rows(0, 5))
        committer.commit(writer.prepare(3))
        committer.close()
        snapshot = writer.snapshot()
        assert snapshot == [[f"{sink.prefix}:job/out", "5f1e/0", 3, 0]]
        place = {"subtask": 1, "attempt": 2, "restored": snapshot}
        again = cloudpickle.loads(cloudpickle.dumps(sink))
        assert again.open(context(**place)).snapshot() == snapshot, "it has seen nothing newer yet"
        commit(again, stage(again, rows(5, 6), 4, **place), **place)
        client.delete(f"{sink.prefix}:job/out")
        other = cloudpickle.loads(cloudpickle.dumps(sink))
        with pytest.raises(StorageError, match="checkpoint 3 was committed to it"):
            commit(other, stage(other, rows(6, 7), 5, **place), **place)

    def test_a_mark_that_says_nothing_is_refused(self, server, client, stream):
        sink = sink_into(server.url, stream)
        client.hset(f"{sink.prefix}:job/out", "5f1e/0", "hello")
        with pytest.raises(StorageError, match="is not a mark of this sink"):
            commit(sink, stage(sink, rows(0, 1)))

    @pytest.mark.parametrize("element", [None, 7, ["a", "b", 1], ["a", "b", "1", 2]])
    def test_marks_in_a_snapshot_that_are_none_are_refused(self, server, element):
        with pytest.raises(SnapshotCorrupt, match="not a mark"):
            sink_into(server.url, "s").open(context(restored=[element]))

    @pytest.mark.parametrize(
        "committable",
        [None, [], ["marks", "5f1e/0", 1, 0], ["marks", "5f1e/0", "1", 0, b"\x90"], ["marks", "5f1e/0", 1, 0, b"\xc1"]],
    )
    def test_what_nobody_has_staged_is_refused(self, server, committable):
        with pytest.raises(SnapshotCorrupt, match="not what a sink of Redis streams has staged"):
            commit(sink_into(server.url, "s"), [committable])


KILLED = """
import os, signal, sys
import cloudpickle, msgspec, redis
from moorline.connectors.redis import stream_sink
folder, moment = sys.argv[1:]
sink, context, staged = cloudpickle.loads(open(folder + "/job", "rb").read())
stream_sink.ENTRIES_AT_ONCE = 10
committer = sink.open_subtask_committer(context)
half = len(staged) // 2
committer.commit(staged[:half] if moment == "between" else [])
if moment == "during":
    # The request goes out, and the answer finds nobody.
    send = redis.connection.Connection.send_packed_command
    def last_words(self, command, check_health=True):
        send(self, command, check_health)
        if any(b"5f1e/0" in bytes(part) for part in command):
            os.kill(os.getpid(), signal.SIGKILL)
    redis.connection.Connection.send_packed_command = last_words
    committer.commit(staged)
os.kill(os.getpid(), signal.SIGKILL)
"""


class TestKills:
    @pytest.fixture
    def small(self, monkeypatch):
        """Scripts of ten entries."""
        monkeypatch.setattr(stream_sink, "ENTRIES_AT_ONCE", 10)

    @pytest.mark.parametrize("moment", ["between", "during"])
    def test_a_worker_that_is_killed_is_made_good_by_the_next(
        self, server, client, stream, tmp_path, monkeypatch, moment
    ):
        monkeypatch.setattr(stream_sink, "ENTRIES_AT_ONCE", 10)
        sink = sink_into(server.url, stream)
        staged = stage(sink, rows(0, 95), 7)
        (tmp_path / "job").write_bytes(cloudpickle.dumps((sink, context(), staged)))
        environment = {**os.environ, "PYTHONPATH": str(Path(mo.__file__).parents[1])}
        command = [sys.executable, "-c", KILLED, str(tmp_path), moment]
        assert subprocess.run(command, env=environment, timeout=600, check=False).returncode == -signal.SIGKILL
        assert client.xlen(stream) == 50 if moment == "between" else client.xlen(stream) <= 10
        commit(sink, staged, attempt=2)
        assert written(client, stream) == rows(0, 95)

    def test_a_server_that_is_killed_in_the_middle_of_a_commit_and_comes_back(self, server, stream, small):
        sink = sink_into(server.url, stream)
        staged = [c for n in range(1, 31) for c in stage(sink, rows(n * 50, n * 50 + 50), n)]
        outages = []
        committer = sink.open_subtask_committer(context(outage=outages.append))
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(committer.commit, staged)
            eventually(lambda: redis.Redis.from_url(server.url).xlen(stream) > 100, "it has begun")
            server.stop(signal.SIGKILL)
            try:
                eventually(lambda: outages or done.done(), "it was noticed")
            finally:
                server.start()
            done.result()
        committer.close()
        assert written(redis.Redis.from_url(server.url), stream) == rows(50, 1_550)
        assert outages[0].startswith("ConnectionError") and outages[-1] is None

    def test_a_line_that_is_cut_when_the_script_has_run_is_asked_about(self, server, client, stream):
        proxy = Proxy(server.port)
        sink = sink_into(server.url.replace(str(server.port), str(proxy.port)), stream)
        staged = stage(sink, rows(0, 10))
        proxy.cut_after = b"5f1e/0"
        commit(sink, staged)
        proxy.close()
        assert proxy.cuts == 1
        assert written(client, stream) == rows(0, 10)

    def test_a_server_that_is_full_is_waited_for(self, server, client, stream):
        sink = sink_into(server.url, stream)
        staged, outages = stage(sink, rows(0, 10)), []
        client.config_set("maxmemory", 1)
        committer = sink.open_subtask_committer(context(outage=outages.append))
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(committer.commit, staged)
            try:
                eventually(lambda: outages, "it was noticed")
            finally:
                client.config_set("maxmemory", 0)
            done.result()
        committer.close()
        assert written(client, stream) == rows(0, 10)

    def test_a_server_that_stays_away_fails_the_attempt(self, stream):
        sink = sink_into(f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0", stream, patience=0.2)
        with pytest.raises(StorageError, match=r"commit checkpoint 1 to stream .* refused") as caught:
            commit(sink, stage(sink, rows(0, 1)))
        assert caught.value.can_pass is True and PASSWORD not in str(caught.value)


class TestCheck:
    def test_it_leaves_nothing_behind(self, server, client, stream):
        sink = sink_into(server.url, stream)
        sink.check()
        assert client.exists(stream) == 0 and list(client.scan_iter(match=f"{sink.prefix}*")) == []
        client.xadd(stream, {"a": "b"})
        before = client.eval("return redis.call('XINFO', 'STREAM', KEYS[1])", 1, stream)
        sink.check()
        assert client.eval("return redis.call('XINFO', 'STREAM', KEYS[1])", 1, stream) == before

    def test_something_else_than_a_stream_is_refused(self, server, client, stream):
        client.hset(stream, "a", "b")
        with pytest.raises(InvalidArgument, match="has a hash under this name"):
            sink_into(server.url, stream).check()

    def test_a_user_who_may_not_write_is_refused(self, server, client, stream):
        client.execute_command("ACL", "SETUSER", "reader", "on", ">reader-word", "+@all", "-xadd", "~*")
        sink = sink_into(f"redis://reader:reader-word@127.0.0.1:{server.port}/0", stream)
        with pytest.raises(StorageError, match="ermission") as caught:
            sink.check()
        assert caught.value.can_pass is False and "reader-word" not in str(caught.value)

    def test_a_wrong_password_is_refused_at_once_and_shown_nowhere(self, server, stream):
        wrong = sink_into(server.url.replace(PASSWORD, "wr0ng-word"), stream)
        with pytest.raises(StorageError) as caught:
            wrong.check()
        assert caught.value.can_pass is False
        good = sink_into(server.url, stream)
        shown = [
            str(caught.value),
            repr(caught.value.__cause__),
            repr(wrong),
            repr(good),
            repr(stage(good, rows(0, 1))),
        ]
        assert not [text for text in shown if PASSWORD in text or "wr0ng-word" in text]

    def test_a_server_that_throws_keys_away_is_refused(self, server, client, stream):
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(StorageError, match="Set it to noeviction"):
                sink_into(server.url, stream).check()
        finally:
            client.config_set("maxmemory-policy", "noeviction")

    def test_a_server_without_an_append_only_file_is_warned_about(self, server, client, stream, caplog):
        client.config_set("appendonly", "no")
        try:
            with caplog.at_level(logging.WARNING, "moorline"):
                sink_into(server.url, stream).check()
        finally:
            client.config_set("appendonly", "yes")
        assert "no append-only file" in caplog.text and "appendonly no" in caplog.text

    def test_a_cluster_must_be_called_one(self, redis_cluster, server, stream):  # noqa: F811
        with pytest.raises(InvalidArgument, match="cluster=True"):
            sink_into(redis_cluster.url, stream).check()
        sink_into(redis_cluster.url, stream, cluster=True).check()

    @pytest.mark.parametrize("name", ["{eu}.orders", "orders", "a{b", "{a}{}"])
    def test_marks_are_where_their_stream_is(self, redis_cluster, name):  # noqa: F811
        sink = sink_into(redis_cluster.url, f"{new_name()}-{name}", cluster=True)
        sink.check()
        for _ in range(2):
            commit(sink, stage(sink, rows(0, 2)))
        client = redis.RedisCluster.from_url(redis_cluster.url)
        assert client.xlen(sink.stream) == 2
        client.close()

    @pytest.mark.parametrize("name", ["a}b", "{}orders", "}"])
    def test_names_that_no_mark_can_stand_beside_are_refused(self, redis_cluster, name):  # noqa: F811
        with pytest.raises(InvalidArgument, match="closing brace"):
            sink_into(redis_cluster.url, name, cluster=True)
        writer = sink_into(redis_cluster.url, lambda record: name, cluster=True).open(context())
        with pytest.raises(UnfitRecord, match="closing brace"):
            writer.write(rows(0, 1))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"stream": ""}, "name of a stream"),
            ({"stream": 7}, "name of a stream"),
            ({"maxlen": 0}, "at least 1"),
            ({"format": "jsn"}, "json"),
            ({"format": "json", "field": ""}, "name of the field"),
            ({"prefix": "a{b}"}, "letters, digits"),
            ({"on_roll_back": "undo"}, '"fail" or "repeat"'),
            ({"patience": -1}, "in seconds"),
            ({"timeout": 0}, "in seconds"),
        ],
    )
    def test_options_that_mean_nothing_are_refused(self, options, words):
        with pytest.raises(InvalidArgument, match=words):
            mo.write_redis_stream("redis://localhost", **{"stream": "s", **options})

    def test_what_was_added_cannot_be_taken_back_and_the_user_says_what_then(self):
        assert mo.write_redis_stream("redis://localhost", "s").on_roll_back == "fail"
        assert mo.write_redis_stream("redis://localhost", "s", on_roll_back="repeat").on_roll_back == "repeat"
