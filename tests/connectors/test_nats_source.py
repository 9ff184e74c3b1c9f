"""A JetStream stream as a source, on a real server."""

from __future__ import annotations

import json
import signal
import threading
from datetime import UTC, datetime

import pytest
from hand_driven import Waiting, reading
from nats_server import PASSWORD, USER
from real_servers import free_port
from waiting import eventually

import moorline as mo
from moorline.connectors.nats import consumer, stream_reader
from moorline.connectors.nats.cursors import Cursor, lost_between
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError, UnreadableRecord
from moorline.testing.contracts.source import SourceContract


@pytest.fixture
def server(nats_server):
    return nats_server


@pytest.fixture
def stream(server):
    """A stream with the messages 0 to 19, whose sequences are one more."""
    name = server.new_stream()
    server.publish(name, range(20))
    return name


def numbered(first, end):
    return [{"number": n} for n in range(first, end)]


def numbers(records):
    return [record["number"] for record in records]


class TestEndless(SourceContract):
    @pytest.fixture
    def source(self, server):
        name = server.new_stream()
        server.publish(name, range(120))
        return Waiting(mo.read_nats(server.url, name))

    @pytest.fixture
    def expected(self):
        return numbered(0, 120)


class TestBoundedBySubjects(SourceContract):
    @pytest.fixture
    def source(self, server):
        name = server.new_stream()
        for first in range(0, 120, 10):
            server.publish(name, range(first, first + 10), part=f"p{first // 10 % 4}")
        server.publish(name, range(500, 510), part="others")
        return Waiting(mo.read_nats(server.url, name, subjects=[f"{name}.p{n}" for n in range(4)], end="latest"))

    @pytest.fixture
    def expected(self):
        return numbered(0, 120)


class TestStart:
    def test_from_the_latest_on(self, server, stream):
        with reading(mo.read_nats(server.url, stream, start="latest")) as source:
            assert source.reader.read(10) == []
            server.publish(stream, range(20, 22))
            assert numbers(source.read(2)) == [20, 21]

    def test_from_a_sequence_on(self, server, stream):
        with reading(mo.read_nats(server.url, stream, start=18, end="latest")) as source:
            assert numbers(source.read_to_the_end()) == [17, 18, 19]

    def test_from_a_time_on(self, server, stream):
        times = [message["time"] for message in server.messages(stream)]
        at = datetime.fromisoformat(times[15][:26] + "+00:00")
        expected = [n for n, text in enumerate(times) if text[:26] >= times[15][:26]]
        with reading(mo.read_nats(server.url, stream, start=at, end="latest")) as source:
            assert numbers(source.read_to_the_end()) == expected

    def test_from_a_time_after_the_last_message(self, server, stream):
        with reading(mo.read_nats(server.url, stream, start=datetime.now(UTC))) as source:
            server.publish(stream, [20])
            assert numbers(source.read(1)) == [20]

    def test_a_sequence_that_is_not_there_yet_is_refused(self, server, stream):
        with pytest.raises(InvalidArgument, match=r"The last message of stream .* is 20"):
            mo.read_nats(server.url, stream, start=22).open_enumerator(mo.EnumeratorContext("j", "in", 1)).discover()

    def test_the_end_is_what_was_there_at_the_first_start(self, server, stream):
        source = mo.read_nats(server.url, stream, end="latest")
        with reading(source) as running:
            snapshot = running.snapshot()
        server.publish(stream, range(20, 30))
        with reading(source, snapshot) as again:
            assert numbers(again.read_to_the_end()) == list(range(20))
            assert again.snapshot()[0] == {stream: {**snapshot[0][stream], "next": 21}}

    def test_a_source_that_had_an_end_can_go_on_without_one(self, server, stream):
        with reading(mo.read_nats(server.url, stream, end="latest")) as running:
            server.publish(stream, range(20, 23))
            assert len(running.read_to_the_end()) == 20
            snapshot = running.snapshot()
        with reading(mo.read_nats(server.url, stream), snapshot) as again:
            assert numbers(again.read(3)) == [20, 21, 22]

    def test_a_source_without_an_end_can_be_given_one(self, server, stream):
        with reading(mo.read_nats(server.url, stream)) as running:
            running.read(20)
            snapshot = running.snapshot()
        server.publish(stream, range(20, 23))
        with reading(mo.read_nats(server.url, stream, end="latest"), snapshot) as again:
            assert numbers(again.read_to_the_end()) == [20, 21, 22]

    def test_an_empty_stream_ends_at_once_or_is_waited_for(self, server):
        name = server.new_stream()
        with reading(mo.read_nats(server.url, name, end="latest")) as bounded:
            assert bounded.read_to_the_end() == []
        with reading(mo.read_nats(server.url, name)) as running:
            assert running.reader.read(10) == []
            server.publish(name, [0])
            assert numbers(running.read(1)) == [0]

    def test_a_bounded_source_ends_where_the_last_messages_were_deleted(self, server, stream):
        for sequence in (19, 20):
            server.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
        with reading(mo.read_nats(server.url, stream, end="latest")) as running:
            assert numbers(running.read_to_the_end()) == list(range(18))


class TestRecords:
    def test_formats(self, server, stream):
        for format, expected in (("json", {"number": 0}), ("text", '{"number": 0}'), (len, 13)):
            with reading(mo.read_nats(server.url, stream, format=format)) as running:
                assert running.read(1)[0] == expected

    def test_a_record_can_have_subject_headers_time_and_sequence(self, server, stream):
        async def publish(client):
            await client.publish(f"{stream}.y", b"{}", headers={"trace": "7"})

        server.run(publish)
        with reading(mo.read_nats(server.url, stream, as_records=True, start=21)) as running:
            (message,) = running.read(1)
            stored = datetime.fromisoformat(server.messages(stream)[-1]["time"][:26] + "+00:00")
            assert message == mo.NatsMessage(f"{stream}.y", {}, {"trace": "7"}, message.timestamp, stream, 21)
            assert message.timestamp == int(stored.timestamp() * 1000)
            assert running.reader.timestamps == [message.timestamp] and running.reader.split == stream

    @pytest.fixture
    def poisoned(self, server):
        name = server.new_stream()

        async def publish(client):
            for payload in (b"1", b"{oops", b"2", b"\xff", b"3"):
                await client.publish(f"{name}.a", payload, headers={"from": "x"})

        server.run(publish)
        return name

    def test_a_poison_message_fails_the_job(self, server, poisoned):
        refused = pytest.raises(UnreadableRecord, match=f"stream {poisoned}.* message 2 cannot be decoded: DecodeError")
        with reading(mo.read_nats(server.url, poisoned)) as running, refused as caught:
            running.read(5)
        assert caught.value.position == 2 and caught.value.can_pass is False

    def test_poison_messages_can_be_skipped_and_are_counted(self, server, poisoned):
        with reading(mo.read_nats(server.url, poisoned, on_error="skip", end="latest")) as running:
            assert running.read_to_the_end() == [1, 2, 3]
            assert running.counters == {"broken_records": 2}

    def test_poison_messages_can_go_to_a_side_output(self, server, poisoned):
        tag, broken, found = mo.OutputTag("broken"), [], []
        with reading(mo.read_nats(server.url, poisoned, on_error=tag, end="latest")) as running:
            while (records := running.reader.read(100)) is not None:
                found += records
                broken += (running.reader.side_outputs or {}).get("broken", [])
                running.look()
        assert found == [1, 2, 3]
        assert [(record.position, record.content) for record in broken] == [(2, b"{oops"), (4, b"\xff")]
        assert broken[0].details == {"subject": f"{poisoned}.a", "headers": {"from": "x"}}

    def test_a_format_whose_server_is_away_is_waited_for(self, server, stream):
        tries = []

        def decode(data):
            tries.append(data)
            if len(tries) < 4:
                raise StorageError("registry", "ask", "away")
            return json.loads(data)

        with reading(mo.read_nats(server.url, stream, format=decode)) as running:
            assert numbers(running.read(20)) == list(range(20))
            assert running.outages[-1] is None and "away" in running.outages[0]

    def test_large_messages_are_fetched_a_few_at_a_time(self, server, monkeypatch):
        name = server.new_stream()

        async def publish(client):
            for n in range(100):
                await client.publish(f"{name}.a", f"{n:05}".encode() * 20_000)

        server.run(publish)
        asked = []
        pull = consumer.Consumer.messages
        monkeypatch.setattr(consumer.Consumer, "messages", lambda self, n: asked.append(n) or pull(self, n))
        with reading(mo.read_nats(server.url, name, format=lambda data: int(data[:5]))) as running:
            assert running.read(100) == list(range(100))
        assert asked[0] == stream_reader.FIRST_MESSAGES and set(asked[1:]) == {(1 << 20) // 100_100}

    def test_marks_of_a_sink_are_no_records(self, server):
        name = server.new_stream()
        sink = mo.write_nats(server.url, f"{name}.out", stream=name)
        place = mo.SinkContext("job", "out", 0, 1, 1, lineage="5f1e")
        writer = sink.open(place)
        committer = sink.open_subtask_committer(place)
        for checkpoint in (1, 2, 3):
            writer.write(numbered(checkpoint, checkpoint + 1))
            committer.commit(writer.prepare(checkpoint))
        committer.close()
        with reading(mo.read_nats(server.url, name, end="latest")) as running:
            assert numbers(running.read_to_the_end()) == [1, 2, 3]
            assert running.snapshot()[0][name]["next"] == 7


class TestSubjects:
    def test_subjects_that_are_added_begin_at_the_start_and_those_taken_out_are_said(self, server):
        name = server.new_stream()
        for part in "abc":
            server.publish(name, [ord(part)], part=part)
        with reading(mo.read_nats(server.url, name, subjects=[f"{name}.a", f"{name}.b"])) as running:
            assert sorted(numbers(running.read(2))) == [97, 98]
            snapshot = running.snapshot()
        server.publish(name, [1], part="a")
        with reading(mo.read_nats(server.url, name, subjects=[f"{name}.b", f"{name}.c"]), snapshot) as again:
            assert numbers(again.read(1)) == [99]
            assert [kind for kind, _ in again.notices] == [f"dropped {name} {name}.a"]

    def test_the_position_moves_over_messages_of_other_subjects(self, server, stream, monkeypatch):
        """Or limits that take those away would look like a loss."""
        monkeypatch.setattr(consumer, "HEARTBEAT_SECONDS", 0.1)
        monkeypatch.setattr(stream_reader, "HEARTBEAT_SECONDS", 0.1)
        server.publish(stream, [20], part="rare")
        server.publish(stream, range(21, 30))
        source = mo.read_nats(server.url, stream, subjects=f"{stream}.rare")
        with reading(source) as running:
            assert numbers(running.read(1)) == [20]
            eventually(
                lambda: running.reader.read(1) or running.snapshot()[0][f"{stream} {stream}.rare"]["next"] == 31, ""
            )
            snapshot = running.snapshot()
        server.api(f"STREAM.PURGE.{stream}", {"seq": 31})
        with reading(source, snapshot) as again:
            server.publish(stream, [30], part="rare")
            assert numbers(again.read(1)) == [30]


class TestLostMessages:
    @pytest.fixture
    def half_read(self, server, stream):
        """A stream of 20 messages, of which the first 7 were read."""
        with reading(mo.read_nats(server.url, stream)) as running:
            found = []
            while len(found) < 7:
                found += running.reader.read(7 - len(found))
            return stream, running.snapshot()

    def refused(self, server, half_read, match):
        stream, snapshot = half_read
        source, refused = mo.read_nats(server.url, stream), pytest.raises(StorageError, match=match)
        with reading(source, snapshot) as running, refused as caught:
            running.read(13)
        assert caught.value.can_pass is False and f"stream {stream}" in caught.value.path
        return str(caught.value)

    def test_messages_that_were_read_may_go(self, server, half_read):
        stream, snapshot = half_read
        server.api(f"STREAM.PURGE.{stream}", {"seq": 8})
        with reading(mo.read_nats(server.url, stream), snapshot) as running:
            assert numbers(running.read(13)) == list(range(7, 20))

    def test_messages_that_were_not_are_an_error_that_says_how_many(self, server, half_read):
        server.api(f"STREAM.PURGE.{half_read[0]}", {"seq": 11})
        text = self.refused(server, half_read, "messages 8 to 10 were taken away")
        assert "Up to 3 messages from 8 on are gone" in text and 'on_lost="skip"' in text

    def test_so_are_all_of_them(self, server, half_read):
        server.api(f"STREAM.PURGE.{half_read[0]}")
        self.refused(server, half_read, "Up to 13 messages from 8 on are gone")

    def test_messages_that_were_deleted_by_themselves_are_no_loss(self, server, half_read):
        stream, snapshot = half_read
        for sequence in (8, 12, 13, 20):
            server.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
        with reading(mo.read_nats(server.url, stream), snapshot) as running:
            assert numbers(running.read(9)) == [n for n in range(7, 20) if n not in (7, 11, 12, 19)]

    def test_a_stream_that_was_made_anew_is_an_error(self, server, half_read):
        stream = half_read[0]
        server.api(f"STREAM.DELETE.{stream}")
        server.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"]})
        server.publish(stream, range(30))
        self.refused(server, half_read, "made anew")

    def test_a_server_that_has_lost_data_is_an_error(self, server, stream, half_read):
        snapshot = half_read[1]
        snapshot[0][stream]["next"] = 50
        self.refused(server, half_read, "the server has lost data: its last message is 20")

    def test_a_stream_that_is_gone_is_an_error(self, server, half_read):
        server.api(f"STREAM.DELETE.{half_read[0]}")
        self.refused(server, half_read, "stream not found")

    def test_it_reads_on_without_them_if_that_was_chosen_and_counts_them(self, server, half_read):
        stream, snapshot = half_read
        server.api(f"STREAM.PURGE.{stream}", {"seq": 11})
        with reading(mo.read_nats(server.url, stream, on_lost="skip"), snapshot) as running:
            assert numbers(running.read(10)) == list(range(10, 20))
            assert running.counters == {"lost_messages": 3}
            assert "taken away" in running.notices[0][1]
            snapshot = running.snapshot()
        server.api(f"STREAM.DELETE.{stream}")
        server.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"]})
        server.publish(stream, range(3))
        with reading(mo.read_nats(server.url, stream, on_lost="skip"), snapshot) as again:
            assert numbers(again.read(3)) == [0, 1, 2]

    def test_limits_that_overtake_a_slow_reader_are_noticed(self, server, monkeypatch):
        monkeypatch.setattr(stream_reader, "BUFFERED_BYTES", 500)
        name = server.new_stream(max_msgs=100)
        server.publish(name, range(50))
        refused = pytest.raises(StorageError, match="were taken away by a limit or a purge")
        with reading(mo.read_nats(server.url, name)) as running:
            first = running.read(1)
            server.publish(name, range(50, 1_000))
            with refused:
                first += running.read(1_000)

    def test_a_purge_that_overtakes_a_reader_at_the_end_is_no_loss(self, server, stream, monkeypatch):
        monkeypatch.setattr(consumer, "HEARTBEAT_SECONDS", 0.1)
        monkeypatch.setattr(stream_reader, "HEARTBEAT_SECONDS", 0.1)
        with reading(mo.read_nats(server.url, stream)) as running:
            running.read(20)
            server.api(f"STREAM.PURGE.{stream}")
            server.publish(stream, [20])
            assert numbers(running.read(1)) == [20]

    def test_gaps_are_counted_up_to_the_head(self):
        live = set(range(1, 21))
        for next in range(1, 21):
            for first in range(1, 22):
                came = sorted(n for n in live if n >= max(next, first))
                expected = 0 if not came else max(0, first - next)
                assert lost_between(next, came, first) == expected


class TestOutages:
    def test_a_server_that_is_killed_and_comes_back_loses_and_repeats_nothing(self, server):
        name, end = server.new_stream(), 3_000
        server.publish(name, range(end // 2))
        with reading(mo.read_nats(server.url, name)) as running:
            found = running.read(300)
            server.stop(signal.SIGKILL)
            try:
                eventually(lambda: found.extend(running.reader.read(100)) or running.outages, "it was noticed")
            finally:
                server.start()
            server.publish(name, range(end // 2, end))
            found += running.read(end - len(found))
            assert numbers(found) == list(range(end))
            assert running.outages[0] is not None and running.outages[-1] is None

    def test_a_consumer_that_the_server_forgets_is_made_anew(self, server, stream):
        with reading(mo.read_nats(server.url, stream)) as running:
            running.read(20)
            for _ in range(3):
                (name,) = server.api(f"CONSUMER.NAMES.{stream}")["consumers"]
                server.api(f"CONSUMER.DELETE.{stream}.{name}")
                server.publish(stream, [20])
                assert numbers(running.read(1)) == [20]

    def test_a_message_that_does_not_arrive_is_fetched_again(self, server, stream, monkeypatch):
        dropped = []
        take = consumer.Consumer.deliver

        async def lose(self, message):
            if b'"number": 11' in message.data and not dropped:
                dropped.append(message)
            else:
                await take(self, message)

        monkeypatch.setattr(consumer.Consumer, "deliver", lose)
        with reading(mo.read_nats(server.url, stream)) as running:
            assert numbers(running.read(20)) == list(range(20))
        assert len(dropped) == 1

    def test_a_server_that_stays_away_ends_the_attempt_and_not_the_job(self):
        source = mo.read_nats(f"nats://{USER}:{PASSWORD}@127.0.0.1:{free_port()}", "s", patience=0.3)
        running = source.open(mo.SourceContext("in", 0, 1, 1))
        running.add_splits({"s": Cursor(1, None, "").position()})
        with pytest.raises(
            StorageError, match=r"could not read stream s in NATS at 127.*Connect call failed"
        ) as caught:
            eventually(lambda: running.read(10), "it gave up")
        running.close()
        assert caught.value.can_pass is True and PASSWORD not in str(caught.value)

    def test_reading_does_not_wait_for_a_server_that_hangs(self, server, stream, monkeypatch):
        monkeypatch.setattr(consumer, "HEARTBEAT_SECONDS", 0.2)
        with reading(mo.read_nats(server.url, stream, timeout=0.5)) as running:
            running.read(20)
            server.process.send_signal(signal.SIGSTOP)
            try:
                eventually(lambda: running.reader.read(10) or running.outages, "it was noticed")
                assert running.snapshot()[0][stream]["next"] == 21
            finally:
                server.process.send_signal(signal.SIGCONT)
            server.publish(stream, [20])
            assert numbers(running.read(1)) == [20]

    def test_the_thread_and_the_consumer_end_with_their_reader(self, server, stream):
        others = set(threading.enumerate())

        def threads():
            return [t for t in threading.enumerate() if t.name.startswith("moorline-nats") and t not in others]

        with reading(mo.read_nats(server.url, stream)) as running:
            running.read(5)
            assert len(threads()) == 1
        eventually(lambda: not threads(), "it ended")
        assert not server.api(f"CONSUMER.NAMES.{stream}")["consumers"]


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"stream": ""}, "name of a stream"),
            ({"stream": "a.b"}, "name of a stream"),
            ({"stream": "a*"}, "name of a stream"),
            ({"servers": ""}, "host:port"),
            ({"servers": "http://localhost"}, "host:port"),
            ({"servers": "nats://localhost:x"}, "host:port"),
            ({"subjects": []}, "subjects such as"),
            ({"subjects": "a b"}, "subjects such as"),
            ({"subjects": ["a.*", "a.b"]}, "read twice"),
            ({"start": "yesterday"}, "datetime with a time zone"),
            ({"start": datetime(2026, 1, 1)}, "datetime with a time zone"),
            ({"start": 0}, "datetime with a time zone"),
            ({"start": True}, "datetime with a time zone"),
            ({"end": 7}, 'It is "latest"'),
            ({"start": "latest", "end": "latest"}, "nothing to read"),
            ({"on_lost": "ignore"}, '"fail" or "skip"'),
            ({"on_error": "ignore"}, "OutputTag"),
            ({"format": "jsn"}, "json"),
            ({"patience": -1}, "in seconds"),
            ({"timeout": 0}, "in seconds"),
            ({"options": {"pasword": "x"}}, "Did you mean 'password'"),
            ({"options": {"password": 7}}, "Values are texts"),
        ],
    )
    def test_options_that_mean_nothing_are_refused(self, options, words):
        given = {"servers": "localhost", "stream": "s", **options}
        with pytest.raises(InvalidArgument, match=words):
            mo.read_nats(given.pop("servers"), given.pop("stream"), **given)

    def test_a_stream_that_is_not_there_is_refused_before_the_start(self, server):
        with pytest.raises(StorageError, match="stream not found") as caught:
            mo.read_nats(server.url, "none").check()
        assert caught.value.can_pass is False

    @pytest.mark.parametrize("retention", ["workqueue", "interest"])
    def test_a_stream_that_forgets_what_others_have_read_is_refused(self, server, retention):
        with pytest.raises(InvalidArgument, match=f"Its retention is {retention}"):
            mo.read_nats(server.url, server.new_stream(retention=retention)).check()

    def test_subjects_that_the_stream_does_not_have_are_refused(self, server, stream):
        mo.read_nats(server.url, stream, subjects=f"{stream}.*").check()
        with pytest.raises(InvalidArgument, match=f"The stream has the subjects {stream}.>"):
            mo.read_nats(server.url, stream, subjects="other.>").check()

    def test_a_wrong_password_is_refused_at_once_and_shown_nowhere(self, server, stream):
        wrong = mo.read_nats(server.url.replace(PASSWORD, "wr0ng-word"), stream)
        token = mo.read_nats(f"nats://t0ken-word@127.0.0.1:{server.port}", stream, options={"password": "pass-w0rd"})
        shown = []
        for source in (wrong, token):
            with pytest.raises(StorageError, match="Authorization Violation") as caught:
                source.check()
            assert caught.value.can_pass is False
            shown += [str(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__), repr(source)]
            shown += [repr(source.address)]
        assert not [t for t in shown if any(word in t for word in (PASSWORD, "wr0ng-word", "t0ken-word", "pass-w0rd"))]

    @pytest.mark.parametrize(
        "position",
        [
            None,
            7,
            {"next": 1},
            {"next": "1", "end": None, "created": ""},
            {"next": 0, "end": None, "created": ""},
            {"next": 1, "end": "2", "created": ""},
        ],
    )
    def test_a_position_that_is_none_is_refused(self, server, position):
        reader = mo.read_nats(server.url, "s").open(mo.SourceContext("in", 0, 1, 1))
        with pytest.raises(SnapshotCorrupt, match="not a position"):
            reader.add_splits({"s": position})
        with pytest.raises(SnapshotCorrupt, match="not a stream"):
            reader.add_splits({7: Cursor(1, None, "").position()})

    @pytest.mark.parametrize("known", [7, "a", ["a", 7], {"a": 1}])
    def test_splits_that_are_none_are_refused(self, server, known):
        with pytest.raises(SnapshotCorrupt, match="not splits"):
            mo.read_nats(server.url, "s").open_enumerator(mo.EnumeratorContext("job", "in", 1, {}, known))
