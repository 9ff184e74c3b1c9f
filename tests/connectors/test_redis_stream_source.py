"""Redis streams as a source, on a real server."""

from __future__ import annotations

import logging
import signal
import threading
from datetime import UTC, datetime, timedelta

import pytest
import redis
from hand_driven import Waiting, reading
from redis_streams import entries, fill, new_name, numbers
from services import PASSWORD, free_port, redis_cluster, redis_server  # noqa: F401
from waiting import eventually

import moorline as mo
from moorline.connectors.redis import stream_reader
from moorline.connectors.redis.entries import BEGINNING, Cursor, EntryId, StreamFacts, find_loss
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError, UnreadableRecord
from moorline.testing.contracts.source import SourceContract


@pytest.fixture
def server(redis_server):  # noqa: F811
    return redis_server


@pytest.fixture
def client(server):
    client = redis.Redis.from_url(server.url)
    yield client
    client.close()


@pytest.fixture
def stream(client):
    name = new_name()
    fill(client, name, 0, 20)
    return name


class TestEndless(SourceContract):
    @pytest.fixture
    def source(self, server, client):
        names = [new_name() for _ in range(5)]
        for n, name in enumerate(names):
            fill(client, name, n * 25, n * 25 + 25)
        return Waiting(mo.read_redis_stream(server.url, names))

    @pytest.fixture
    def expected(self):
        return entries(0, 125)


class TestBounded(SourceContract):
    @pytest.fixture
    def source(self, server, client):
        prefix = new_name()
        for n in range(4):
            fill(client, f"{prefix}:{n}", n * 30, n * 30 + 30)
        return Waiting(mo.read_redis_stream(server.url, pattern=f"{prefix}:*", end="latest"))

    @pytest.fixture
    def expected(self):
        return entries(0, 120)


@pytest.mark.parametrize(
    "promise",
    [
        "test_a_source_that_is_read_to_the_end_has_nothing_after_a_restore",
        "test_the_split_of_a_batch_is_named_if_splits_are",
    ],
)
def test_a_cluster_keeps_the_promises_too(redis_cluster, promise):  # noqa: F811
    client = redis.RedisCluster.from_url(redis_cluster.url)
    prefix = new_name()
    for n in range(4):
        for number in range(n * 30, n * 30 + 30):
            client.xadd(f"{prefix}:{n}", {"number": number, "text": f"entry {number}"})
    client.close()
    source = mo.read_redis_stream(redis_cluster.url, pattern=f"{prefix}:*", cluster=True)
    source.check()
    getattr(TestEndless(), promise)(source, entries(0, 120))


class TestStart:
    def test_from_the_latest_on(self, server, client, stream):
        with reading(mo.read_redis_stream(server.url, stream, start="latest")) as source:
            assert source.reader.read(10) == []
            fill(client, stream, 20, 22)
            assert numbers(source.read(2)) == [20, 21]

    def test_from_an_id_on_which_is_read_too(self, server, stream):
        with reading(mo.read_redis_stream(server.url, stream, start="18-0", end="latest")) as source:
            assert numbers(source.read_to_the_end()) == [17, 18, 19]

    def test_from_a_time_on(self, server, stream):
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=19)
        with reading(mo.read_redis_stream(server.url, stream, start=at, end="latest")) as source:
            assert numbers(source.read_to_the_end()) == [18, 19]

    def test_from_a_time_that_is_still_to_come(self, server, client, stream):
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=31)
        with reading(mo.read_redis_stream(server.url, stream, start=at)) as source:
            fill(client, stream, 20, 35)
            assert numbers(source.read(5)) == [30, 31, 32, 33, 34]
            client.xtrim(stream, maxlen=0)  # what was read by now
            fill(client, stream, 35, 36)
            assert numbers(source.read(1)) == [35]

    def test_a_stream_that_is_not_there_yet_is_waited_for(self, server, client, caplog):
        name = new_name()
        source = mo.read_redis_stream(server.url, name)
        with caplog.at_level(logging.WARNING, "moorline"):
            source.check()
        assert f"there is no stream {name}" in caplog.text
        with reading(source) as running:
            assert running.reader.read(10) == []
            fill(client, name, 0, 3)
            assert numbers(running.read(3)) == [0, 1, 2]

    def test_the_end_is_what_was_there_at_the_first_start(self, server, client, stream):
        source = mo.read_redis_stream(server.url, stream, end="latest")
        with reading(source) as running:
            snapshot = running.snapshot()
        fill(client, stream, 20, 30)
        with reading(source, snapshot) as again:
            assert numbers(again.read_to_the_end()) == list(range(20))

    def test_a_source_that_had_an_end_can_go_on_without_one(self, server, client, stream):
        with reading(mo.read_redis_stream(server.url, stream, end="latest")) as running:
            running.read_to_the_end()
            snapshot = running.snapshot()
        fill(client, stream, 20, 23)
        with reading(mo.read_redis_stream(server.url, stream), snapshot) as again:
            assert numbers(again.read(3)) == [20, 21, 22]

    def test_a_source_without_an_end_can_be_given_one(self, server, client, stream):
        with reading(mo.read_redis_stream(server.url, stream)) as running:
            running.read(20)
            snapshot = running.snapshot()
        fill(client, stream, 20, 23)
        with reading(mo.read_redis_stream(server.url, stream, end="latest"), snapshot) as again:
            assert numbers(again.read_to_the_end()) == [20, 21, 22]


class TestStreams:
    def test_a_pattern_finds_streams_while_it_runs_and_reads_them_from_their_beginning(self, server, client):
        prefix = new_name()
        fill(client, f"{prefix}:a", 0, 3)
        client.hset(f"{prefix}:no-stream", "a", "b")
        source = mo.read_redis_stream(server.url, pattern=f"{prefix}:*", start="latest", interval="1s")
        assert source.open_enumerator(mo.EnumeratorContext("job", "in", 1)).interval_ms == 1000
        with reading(source) as running:
            fill(client, f"{prefix}:b", 3, 5)
            running.look()
            assert numbers(running.read(2)) == [3, 4]
            snapshot = running.snapshot()
            assert snapshot[1] == [f"{prefix}:a", f"{prefix}:b"]
        fill(client, f"{prefix}:c", 5, 6)
        with reading(source, snapshot) as again:
            assert numbers(again.read(1)) == [5]

    def test_streams_that_are_added_to_the_list_begin_at_the_start(self, server, client, stream):
        with reading(mo.read_redis_stream(server.url, stream)) as running:
            running.read(20)
            snapshot = running.snapshot()
        other = new_name()
        fill(client, other, 20, 24)
        with reading(mo.read_redis_stream(server.url, [stream, other], start="3"), snapshot) as again:
            assert again.reader.read(10) == []
            fill(client, other, 24, 25)
            assert numbers(again.read(5)) == [20, 21, 22, 23, 24]

    def test_a_stream_that_is_taken_out_of_the_list_is_not_read_and_said(self, server, client, stream):
        other = new_name()
        fill(client, other, 20, 24)
        with reading(mo.read_redis_stream(server.url, [stream, other])) as running:
            running.read(24)
            snapshot = running.snapshot()
        fill(client, stream, 20, 22)
        with reading(mo.read_redis_stream(server.url, [other]), snapshot) as again:
            fill(client, other, 24, 25)
            assert numbers(again.read(1)) == [24]
            assert list(again.reader.positions()) == [other]
            assert [kind for kind, _ in again.notices] == [f"dropped {stream}"]

    def test_many_streams_share_one_reader(self, server, client):
        prefix = new_name()
        for n in range(40):
            fill(client, f"{prefix}:{n}", n, n + 1)
        with reading(mo.read_redis_stream(server.url, pattern=f"{prefix}:*")) as running:
            assert sorted(numbers(running.read(40))) == list(range(40))
            assert len(running.reader.splits()) == 40

    def test_timestamps_are_those_of_the_ids(self, server, stream):
        with reading(mo.read_redis_stream(server.url, stream)) as running:
            records = eventually(lambda: running.reader.read(5), "records came")
            assert running.reader.timestamps == [int(record["number"]) + 1 for record in records]
            assert running.reader.split == stream


class TestRecords:
    def test_one_field_can_be_decoded_by_a_format(self, server, client):
        name = new_name()
        client.xadd(name, {"value": '{"n": 1}', "other": "x"})
        for format, expected in (("json", {"n": 1}), ("text", '{"n": 1}'), ("bytes", b'{"n": 1}'), (len, 8)):
            with reading(mo.read_redis_stream(server.url, name, format=format, end="latest")) as running:
                assert running.read_to_the_end() == [expected]
        with reading(mo.read_redis_stream(server.url, name, format="text", field="other")) as running:
            assert running.read(1) == ["x"]

    def test_a_record_can_have_its_stream_and_id(self, server, client, stream):
        with reading(mo.read_redis_stream(server.url, stream, as_records=True, start="20")) as running:
            assert running.read(1) == [mo.RedisEntry(stream, "20-0", {"number": "19", "text": "entry 19"})]

    @pytest.fixture
    def poisoned(self, client):
        name = new_name()
        for value in ("1", "{oops", "2"):
            client.xadd(name, {"value": value, "from": "x"})
        client.xadd(name, {"other": "3"})
        client.xadd(name, {"value": "4"})
        return name

    def test_a_poison_entry_fails_the_job(self, server, poisoned):
        refused = pytest.raises(UnreadableRecord, match=f"stream {poisoned}.*cannot be decoded: DecodeError")
        with reading(mo.read_redis_stream(server.url, poisoned, format="json")) as running, refused as caught:
            running.read(5)
        assert caught.value.position != 0 and caught.value.can_pass is False

    def test_poison_entries_can_be_skipped_and_are_counted(self, server, poisoned):
        source = mo.read_redis_stream(server.url, poisoned, format="json", on_error="skip", end="latest")
        with reading(source) as running:
            assert running.read_to_the_end() == [1, 2, 4]
            assert running.counters == {"broken_records": 2}
            assert len(running.notices) == 1

    def test_poison_entries_can_go_to_a_side_output(self, server, poisoned):
        tag, broken = mo.OutputTag("broken"), []
        source = mo.read_redis_stream(server.url, poisoned, format="json", on_error=tag, end="latest")
        with reading(source) as running:
            found = []
            while (records := running.reader.read(100)) is not None:
                found += records
                broken += (running.reader.side_outputs or {}).get("broken", [])
                running.look()
        assert found == [1, 2, 4]
        assert [record.content for record in broken] == [b"{oops", b""]
        assert broken[0].details == {"fields": {"value": b"{oops", "from": b"x"}}
        assert "has no field 'value'" in broken[1].cause
        assert poisoned in broken[0].origin

    def test_fields_that_are_no_text_are_poison(self, server, client):
        name = new_name()
        client.xadd(name, {"a": b"\xff"})
        with reading(mo.read_redis_stream(server.url, name)) as running, pytest.raises(UnreadableRecord, match="utf-8"):
            running.read(1)

    def test_a_format_whose_server_is_away_is_waited_for(self, server, stream):
        tries = []

        def decode(data):
            tries.append(data)
            if len(tries) < 4:
                raise StorageError("registry", "ask", "away")
            return data

        source = mo.read_redis_stream(server.url, stream, format=decode, field="number")
        with reading(source) as running:
            assert running.read(20) == [str(n).encode() for n in range(20)]
            assert running.outages[-1] is None and "away" in running.outages[0]

    def test_a_format_that_cannot_work_ends_it(self, server, stream):
        def decode(data):
            raise StorageError("registry", "ask", "no such schema", can_pass=False)

        source = mo.read_redis_stream(server.url, stream, format=decode, field="number")
        with reading(source) as running, pytest.raises(StorageError, match="no such schema"):
            running.read(1)

    def test_large_entries_are_fetched_a_few_at_a_time(self, server, client, monkeypatch):
        name = new_name()
        for n in range(300):
            client.xadd(name, {"value": f"{n:05}" * 20_000})
        asked = []
        fetch = stream_reader.fetch
        monkeypatch.setattr(stream_reader, "fetch", lambda c, s, cursor, n: asked.append(n) or fetch(c, s, cursor, n))
        with reading(mo.read_redis_stream(server.url, name, format=lambda data: int(data[:5]))) as running:
            assert running.read(300) == list(range(300))
        assert min(asked[2:]) == max(asked[2:]) == (1 << 20) // 100_055


class TestLostEntries:
    """Whatever takes unread entries away is noticed, and what takes away read ones is not."""

    @pytest.fixture
    def half_read(self, server, client, stream):
        """A stream of 20 entries, of which the first 7 were read."""
        with reading(mo.read_redis_stream(server.url, stream)) as running:
            assert len(running.reader.read(0) or []) == 0
            found = []
            while len(found) < 7:
                found += running.reader.read(7 - len(found))
            return stream, running.snapshot()

    def refused(self, server, half_read, match):
        stream, snapshot = half_read
        source, refused = mo.read_redis_stream(server.url, stream), pytest.raises(StorageError, match=match)
        with reading(source, snapshot) as running, refused as caught:
            running.read(13)
        assert caught.value.can_pass is False and f"stream {stream}" in caught.value.path
        return str(caught.value)

    def test_entries_that_were_read_may_be_trimmed(self, server, client, half_read):
        stream, snapshot = half_read
        client.xtrim(stream, maxlen=13, approximate=False)
        with reading(mo.read_redis_stream(server.url, stream), snapshot) as running:
            assert numbers(running.read(13)) == list(range(7, 20))
            client.xtrim(stream, maxlen=0, approximate=False)
            fill(client, stream, 20, 22)
            assert numbers(running.read(2)) == [20, 21]

    def test_entries_that_were_not_are_an_error_that_says_how_many(self, server, client, half_read):
        client.xtrim(half_read[0], maxlen=10, approximate=False)
        text = self.refused(server, half_read, "3 entries after 7-0 are gone")
        assert "the first entry that is left is 11-0" in text and 'on_lost="skip"' in text

    def test_so_are_all_of_them(self, server, client, half_read):
        client.xtrim(half_read[0], maxlen=0, approximate=False)
        self.refused(server, half_read, "13 entries after 7-0 are gone")

    def test_so_are_those_that_were_deleted_one_by_one(self, server, client, half_read):
        client.xdel(half_read[0], "12-0", "14-0")
        self.refused(server, half_read, "2 entries after 7-0 are gone")

    def test_those_that_were_gone_at_the_first_start_are_none_of_ours(self, server, client, stream):
        client.xtrim(stream, maxlen=15, approximate=False)
        client.xdel(stream, "12-0", "19-0")
        with reading(mo.read_redis_stream(server.url, stream)) as running:
            assert numbers(running.read(13)) == [n for n in range(5, 20) if n not in (11, 18)]
            client.xtrim(stream, maxlen=0, approximate=False)
            fill(client, stream, 20, 21)
            assert numbers(running.read(1)) == [20]

    def test_a_stream_that_was_made_anew_is_an_error(self, server, client, half_read):
        client.delete(half_read[0])
        client.xadd(half_read[0], {"number": 0, "text": "another"})
        self.refused(server, half_read, "made anew")

    def test_a_stream_that_was_made_anew_and_is_longer_is_one_too(self, server, client, half_read):
        client.delete(half_read[0])
        for n in range(40):
            client.xadd(half_read[0], {"number": n, "text": "another"})
        self.refused(server, half_read, "made anew")

    def test_a_stream_that_is_gone_is_an_error(self, server, client, half_read):
        client.delete(half_read[0])
        self.refused(server, half_read, "the stream is gone")

    def test_a_stream_that_goes_when_all_of_it_was_read_is_no_error(self, server, client, stream):
        with reading(mo.read_redis_stream(server.url, stream)) as running:
            running.read(20)
            client.delete(stream)
            eventually(lambda: running.reader.read(10) or running.notices, "it was noticed")
            fill(client, stream, 30, 32)
            assert numbers(running.read(2)) == [30, 31]

    def test_it_reads_on_without_them_if_that_was_chosen_and_counts_them(self, server, client, half_read):
        stream, snapshot = half_read
        client.xtrim(stream, maxlen=10, approximate=False)
        with reading(mo.read_redis_stream(server.url, stream, on_lost="skip"), snapshot) as running:
            assert numbers(running.read(10)) == list(range(10, 20))
            assert running.counters == {"lost_entries": 3}
            assert "without 3 entries that are gone" in running.notices[0][1]
            snapshot = running.snapshot()
        client.delete(stream)
        fill(client, stream, 3, 5)
        with reading(mo.read_redis_stream(server.url, stream, on_lost="skip"), snapshot) as again:
            assert numbers(again.read(2)) == [3, 4]

    def test_a_start_in_the_middle_is_told_apart_from_a_loss_once_the_end_was_reached(self, server, client, stream):
        source = mo.read_redis_stream(server.url, stream, start="10-0")
        with reading(source) as running:
            before = running.snapshot()
            assert before[0][stream]["added"] is None
            running.read(11)
            after = running.snapshot()
            assert after[0][stream]["added"] == 20
        client.xtrim(stream, maxlen=3, approximate=False)
        with reading(source, after) as again:
            fill(client, stream, 20, 21)
            assert numbers(again.read(1)) == [20]
        with reading(source, before) as unknown, pytest.raises(StorageError, match="are gone, perhaps"):
            unknown.read(1)

    def test_a_model_agrees(self):
        """Counting in a stream of numbers, against doing what Redis does to it."""
        live = list(range(1, 31))

        def facts(added, last):
            first = EntryId(live[0], 0) if live else BEGINNING
            return StreamFacts(len(live), first, EntryId(last, 0), added)

        for read in range(31):
            for trimmed in range(31):
                for deleted in ((), (30,), (5, 17, 18)):
                    live = list(range(1, 31))
                    cursor = Cursor.at(BEGINNING, facts(30, 30)).after(EntryId(read, 0), read)
                    live = [n for n in live if n > trimmed and n not in deleted]
                    unread = [n for n in live if n > read]
                    lost = 30 - read - len(unread)
                    loss = find_loss(cursor, facts(30, 30), len(unread))
                    assert (0 if loss is None else loss.count) == lost, (read, trimmed, deleted)


class TestOutages:
    def test_a_server_that_is_killed_and_comes_back_loses_and_repeats_nothing(self, server, client):
        name, end = new_name(), 4_000
        fill(client, name, 0, end // 2)
        with reading(mo.read_redis_stream(server.url, name)) as running:
            found = running.read(500)
            server.stop(signal.SIGKILL)
            try:
                # What was fetched before is there; then there is nothing, and nothing blocks.
                eventually(lambda: found.extend(running.reader.read(100)) or running.outages, "it was noticed")
            finally:
                server.start()
            fill(redis.Redis.from_url(server.url), name, end // 2, end)
            found += running.read(end - len(found))
            assert numbers(found) == list(range(end))
            assert running.outages[0].startswith("ConnectionError: ") and running.outages[-1] is None

    def test_a_server_that_stays_away_ends_the_attempt_and_not_the_job(self):
        source = mo.read_redis_stream(f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0", "a", patience=0.3)
        position = Cursor(BEGINNING, 0).position()
        running = source.open(mo.SourceContext("in", 0, 1, 1))
        running.add_splits({"a": position})
        with pytest.raises(StorageError, match="could not read streams from Redis at 127") as caught:
            eventually(lambda: running.read(10), "it gave up")
        running.close()
        assert caught.value.can_pass is True

    def test_reading_does_not_wait_for_a_server_that_hangs(self, server, client, stream):
        source = mo.read_redis_stream(server.url, stream, timeout=0.5)
        with reading(source) as running:
            running.read(20)
            server.process.send_signal(signal.SIGSTOP)
            try:
                eventually(lambda: running.reader.read(10) or running.outages, "it was noticed")
                assert running.snapshot()[0][stream]["id"] == "20-0"
            finally:
                server.process.send_signal(signal.SIGCONT)
            fill(client, stream, 20, 21)
            assert numbers(running.read(1)) == [20]

    def test_the_thread_ends_with_its_reader(self, server, stream):
        def threads():
            return [t for t in threading.enumerate() if t.name == "moorline-redis-read"]

        eventually(lambda: not threads(), "those of other tests ended")
        with reading(mo.read_redis_stream(server.url, stream)) as running:
            running.read(5)
            assert len(threads()) == 1
        eventually(lambda: not threads(), "it ended")


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({}, "Give the name of a stream"),
            ({"streams": []}, "Give the name of a stream"),
            ({"streams": ["a", ""]}, "Give the name of a stream"),
            ({"streams": "a", "pattern": "b*"}, "Give the name of a stream"),
            ({"pattern": ""}, "pattern of names"),
            ({"streams": "a", "start": "yesterday"}, "datetime with a time zone"),
            ({"streams": "a", "start": datetime(2026, 1, 1)}, "datetime with a time zone"),
            ({"streams": "a", "start": 7}, "datetime with a time zone"),
            ({"streams": "a", "end": "5-0"}, 'It is "latest"'),
            ({"streams": "a", "start": "latest", "end": "latest"}, "nothing to read"),
            ({"streams": "a", "on_lost": "ignore"}, '"fail" or "skip"'),
            ({"streams": "a", "on_error": "ignore"}, "OutputTag"),
            ({"streams": "a", "format": "jsn"}, "json"),
            ({"streams": "a", "format": "json", "field": ""}, "name of the field"),
            ({"streams": "a", "patience": -1}, "in seconds"),
            ({"streams": "a", "timeout": 0}, "in seconds"),
        ],
    )
    def test_options_that_mean_nothing_are_refused(self, options, words):
        with pytest.raises(InvalidArgument, match=words):
            mo.read_redis_stream("redis://localhost", **options)

    @pytest.mark.parametrize("url", ["localhost:6379", "http://localhost", "redis://x?decode_responses=True", ""])
    def test_addresses_of_something_else_are_refused(self, url):
        with pytest.raises(InvalidArgument):
            mo.read_redis_stream(url, "a")

    def test_something_else_than_a_stream_is_refused_before_the_start(self, server, client):
        name = new_name()
        client.hset(name, "a", "b")
        with pytest.raises(InvalidArgument, match="it is a hash and not a stream"):
            mo.read_redis_stream(server.url, name).check()

    def test_a_stream_that_becomes_something_else_ends_it(self, server, client, stream):
        with reading(mo.read_redis_stream(server.url, stream)) as running:
            running.read(20)
            client.delete(stream)
            client.hset(stream, "a", "b")
            with pytest.raises(StorageError, match="WRONGTYPE") as caught:
                running.read(1)
        assert caught.value.can_pass is False

    def test_a_bounded_source_of_nothing_is_refused_before_the_start(self, server):
        with pytest.raises(StorageError, match="there is no such stream"):
            mo.read_redis_stream(server.url, new_name(), end="latest").check()

    def test_a_cluster_must_be_called_one(self, server, redis_cluster):  # noqa: F811
        with pytest.raises(InvalidArgument, match="cluster=True"):
            mo.read_redis_stream(redis_cluster.url, "a").check()
        with pytest.raises((InvalidArgument, StorageError), match=r"no cluster|[Cc]luster"):
            mo.read_redis_stream(server.url, "a", cluster=True, patience=0.2).check()

    def test_a_wrong_password_is_refused_at_once_and_shown_nowhere(self, server, stream):
        wrong = mo.read_redis_stream(server.url.replace(PASSWORD, "wr0ng-word"), stream)
        with pytest.raises(StorageError) as caught:
            wrong.check()
        assert caught.value.can_pass is False
        shown = [str(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__), repr(wrong)]
        shown += [repr(mo.read_redis_stream(server.url, stream))]
        assert not [text for text in shown if PASSWORD in text or "wr0ng-word" in text]

    @pytest.mark.parametrize(
        "position",
        [
            None,
            "5-0",
            {"id": "5-0"},
            {"id": "five", "added": 1, "end": None},
            {"id": "5-0", "added": "1", "end": None},
            {"id": "5-0", "added": 1, "end": "99999999999999999999-0"},
        ],
    )
    def test_a_position_that_is_none_is_refused(self, server, position):
        reader = mo.read_redis_stream(server.url, "a").open(mo.SourceContext("in", 0, 1, 1))
        with pytest.raises(SnapshotCorrupt, match="not a position in a Redis stream"):
            reader.add_splits({"a": position})
        with pytest.raises(SnapshotCorrupt, match="not the name"):
            reader.add_splits({7: Cursor(BEGINNING, 0).position()})

    @pytest.mark.parametrize("known", [7, "a", ["a", 7], {"a": 1}])
    def test_names_that_are_none_are_refused(self, server, known):
        source = mo.read_redis_stream(server.url, "a")
        with pytest.raises(SnapshotCorrupt, match="names of Redis streams"):
            source.open_enumerator(mo.EnumeratorContext("job", "in", 1, {}, known))
