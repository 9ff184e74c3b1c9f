"""A sink into a JetStream stream, on a real server: each message once, whatever is killed and whoever else commits."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import signal
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import pytest
from nats_server import PASSWORD, USER
from real_servers import free_port
from services import Proxy
from waiting import PATIENCE, eventually

import moorline as mo
from moorline.connectors.nats import batches, stream_sink
from moorline.connectors.nats.subjects import as_part
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError
from moorline.testing.contracts.sink import SinkContract


@pytest.fixture
def server(nats_server):
    return nats_server


@pytest.fixture
def stream(server):
    return server.new_stream()


@pytest.fixture
def sink(server, stream):
    return mo.write_nats(server.url, f"{stream}.out", stream=stream)


@pytest.fixture
def small(monkeypatch):
    """Batches of ten messages."""
    monkeypatch.setattr(stream_sink, "MESSAGES_AT_ONCE", 10)


def context(subtask=0, attempt=1, lineage="5f1e", restored=(), **more):
    return mo.SinkContext("job", "out", subtask, 2, attempt, tuple(restored), lineage, **more)


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


def copy_of(sink):
    return cloudpickle.loads(cloudpickle.dumps(sink))


def marks_in(server, stream):
    """The last mark of each subject, as a text."""
    subjects = server.api(f"STREAM.INFO.{stream}", {"subjects_filter": "moorline.>"})["state"].get("subjects") or {}
    found = {}
    for subject in subjects:
        message = server.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})["message"]
        found[subject] = base64.b64decode(message["data"]).decode()
    return found, sum(subjects.values())


class TestNats(SinkContract):
    can_roll_back = False

    @pytest.fixture
    def sink(self, server, stream):
        return mo.write_nats(server.url, f"{stream}.out", stream=stream)

    @pytest.fixture
    def visible(self, server, stream):
        return lambda: server.payloads(stream)


@pytest.mark.parametrize("seed", range(5))
def test_batches_of_three_keep_the_promises_too(server, monkeypatch, seed):
    """And older marks are removed by newer ones."""
    monkeypatch.setattr(stream_sink, "MESSAGES_AT_ONCE", 3)
    stream, contract = server.new_stream(allow_rollup_hdrs=True), TestNats()
    sink = mo.write_nats(server.url, f"{stream}.out", stream=stream)
    contract.test_each_record_comes_out_once_whatever_crashes(sink, lambda: server.payloads(stream), seed)


class TestRecords:
    def test_formats(self, server, stream):
        for n, (format, record) in enumerate([("json", {"a": [1, None]}), ("text", "[2]"), (lambda r: b"[%d]" % r, 3)]):
            sink = mo.write_nats(server.url, f"{stream}.out", stream=stream, format=format)
            commit(sink, stage(sink, [record], n))
        assert server.payloads(stream) == [{"a": [1, None]}, [2], [3]]

    def test_a_function_chooses_the_subject_and_another_one_the_headers(self, server, stream):
        subject = lambda record: f"{stream}.{record['to']}"  # noqa: E731
        headers = lambda record: {"trace": str(record["n"])}  # noqa: E731
        sink = mo.write_nats(server.url, subject, stream=stream, headers=headers)
        sink.check()
        commit(sink, stage(sink, [{"to": "a", "n": 1}, {"to": "b", "n": 2}]))
        messages = server.messages(stream)
        assert [message["subject"] for message in messages] == [f"{stream}.a", f"{stream}.b"]
        assert [b"trace: %d\r\n" % n in base64.b64decode(m["hdrs"]) for n, m in enumerate(messages, 1)] == [True, True]

    def test_the_order_of_a_subtask_is_kept(self, server, stream, sink):
        records = list(range(1_300))
        commit(sink, stage(sink, records) + stage(sink, [1_300], 2))
        assert server.payloads(stream) == [*records, 1_300]

    def test_large_records_go_into_batches_of_their_own(self, server, stream, sink):
        staged = stage(sink, ["x" * 700_000 for _ in range(4)])
        assert len(staged) == 2
        commit(sink, staged)
        assert len(server.payloads(stream)) == 4

    @pytest.mark.parametrize(
        ("record", "options", "words"),
        [
            (object(), {}, "TypeError"),
            ("x" * (1 << 20), {}, "and the server takes 1048576"),
            ({"to": "a b"}, {"subject": lambda r: r["to"]}, "'a b' is not a subject"),
            ({"to": "a.*"}, {"subject": lambda r: r["to"]}, "is not a subject"),
            ({"to": "other"}, {"subject": lambda r: r["to"]}, "the subject other is not one of the stream's"),
            ({"x": "other"}, {"subject": lambda r: r["to"]}, "KeyError"),
            (1, {"headers": lambda r: {"a": r}}, "is not a text with a text"),
            (1, {"headers": lambda r: {"Nats-Rollup": "all"}}, "not ours to give"),
            (1, {"headers": lambda r: {"moorline-mark": "1"}}, "not ours to give"),
            (1, {"headers": lambda r: {"a": "b\r\nNats-Rollup: all"}}, "would come out as another text"),
        ],
        ids=lambda value: value if isinstance(value, str) and len(value) < 50 else "",
    )
    def test_a_record_that_does_not_fit_is_named(self, server, stream, record, options, words):
        sink = mo.write_nats(server.url, options.pop("subject", f"{stream}.out"), stream=stream, **options)
        sink.check()
        with pytest.raises(UnfitRecord, match=words):
            sink.open(context()).write([record])

    def test_a_record_cannot_pass_for_a_mark(self, server, stream):
        sink = mo.write_nats(server.url, lambda record: f"moorline.{stream}.x", stream=stream)
        with pytest.raises(UnfitRecord, match="is not one of the stream's"):
            sink.open(context()).write([1])

    def test_the_largest_record_that_fits_is_taken(self, server, stream, sink):
        sink.check()
        commit(sink, stage(sink, ["x" * ((1 << 20) - 122)]))
        assert len(server.payloads(stream)) == 1


class TestMarks:
    def test_a_mark_is_kept_for_each_slot_and_lineage(self, server, stream, sink):
        for checkpoint in range(1, 4):
            commit(sink, stage(sink, [1], checkpoint) + stage(sink, [1], checkpoint, subtask=1))
        commit(sink, stage(sink, [1], 1, lineage="b2"))
        last, number = marks_in(server, stream)
        assert last == {
            f"moorline.{stream}.job.out.5f1e.0": '{"checkpoint": 3, "chunk": 0}',
            f"moorline.{stream}.job.out.5f1e.1": '{"checkpoint": 3, "chunk": 0}',
            f"moorline.{stream}.job.out.b2.0": '{"checkpoint": 1, "chunk": 0}',
        }
        assert number == 7 == len(server.payloads(stream))

    def test_older_marks_are_removed_where_the_stream_permits_it(self, server):
        stream = server.new_stream(allow_rollup_hdrs=True)
        sink = mo.write_nats(server.url, f"{stream}.out", stream=stream)
        for checkpoint in range(1, 6):
            commit(sink, stage(sink, [checkpoint], checkpoint))
        assert marks_in(server, stream) == ({f"moorline.{stream}.job.out.5f1e.0": '{"checkpoint": 5, "chunk": 0}'}, 1)
        assert server.payloads(stream) == [1, 2, 3, 4, 5]

    def test_names_of_jobs_cannot_run_into_each_other(self):
        assert as_part("a.b") == "a%2Eb" and as_part("") == "%" and as_part("a%2Eb") == "a%252Eb"

    def test_what_was_staged_before_a_rescale_is_committed_by_another_subtask(self, server, stream, sink):
        old = [c for slot in range(3) for n in (1, 2) for c in stage(sink, [n], n, subtask=slot)]
        commit(sink, old, subtask=0, attempt=2)
        commit(sink, old, subtask=1, attempt=3)
        assert len(server.payloads(stream)) == 6

    def test_committers_that_race_publish_each_message_once(self, server, stream, sink, small):
        staged = [c for n in range(1, 11) for c in stage(sink, list(range(n * 30, n * 30 + 30)), n)]
        start = threading.Barrier(5)

        def race():
            copy = copy_of(sink)
            start.wait()
            commit(copy, staged)

        with ThreadPoolExecutor(5) as zombies:
            for done in [zombies.submit(race) for _ in range(5)]:
                done.result()
        assert server.payloads(stream) == list(range(30, 330))

    def test_a_batch_for_which_there_is_no_place_is_tried_again(self, server, stream, sink):
        """A stream takes fifty at a time, and forgets those that are not continued."""

        async def occupy(client):
            batches = [{"Nats-Batch-Id": uuid.uuid4().hex, "Nats-Batch-Sequence": "1"} for _ in range(50)]
            asked = [client.request(f"{stream}.other", b"", headers=headers, timeout=PATIENCE) for headers in batches]
            await asyncio.gather(*asked)

        outages, checkpoint = [], 0
        while not outages:  # on a busy machine they may be forgotten before we come
            checkpoint += 1
            staged = stage(sink, [checkpoint], checkpoint)
            server.run(occupy)
            commit(sink, staged, outage=outages.append)
        assert server.payloads(stream) == list(range(1, checkpoint + 1))
        assert "batch is incomplete" in outages[0] and outages[-1] is None

    def test_a_stream_that_is_full_is_waited_for(self, server):
        stream = server.new_stream(discard="new", max_msgs=3)
        sink = mo.write_nats(server.url, f"{stream}.out", stream=stream)
        server.publish(stream, [0])
        staged, outages = stage(sink, [1, 2]), []
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(commit, sink, staged, outage=outages.append)
            eventually(lambda: outages, "it was noticed")
            config = server.api(f"STREAM.INFO.{stream}")["config"]
            server.api(f"STREAM.UPDATE.{stream}", {**config, "max_msgs": 10})
            done.result()
        assert server.payloads(stream) == [{"number": 0}, 1, 2] and "maximum messages exceeded" in outages[0]


class TestMarksThatAreGone:
    """Limits take marks away like any other message. What cannot be told is said."""

    @pytest.fixture
    def stream(self, server):
        return server.new_stream(max_msgs=20)

    def test_a_chunk_whose_mark_may_have_been_taken_away_is_refused(self, server, stream, sink):
        staged = stage(sink, [1], 7)
        commit(sink, staged)
        server.publish(stream, range(100, 130))
        with pytest.raises(StorageError, match="it cannot be told whether checkpoint 7 was written") as caught:
            commit(copy_of(sink), staged, attempt=2)
        assert caught.value.can_pass is False
        assert server.payloads(stream) == [{"number": n} for n in range(110, 130)]

    @pytest.mark.parametrize(("on_unknown", "expected"), [("write", [1]), ("skip", [])])
    def test_unless_the_user_says_what_to_do(self, server, stream, on_unknown, expected):
        sink = mo.write_nats(server.url, f"{stream}.out", stream=stream, on_unknown=on_unknown)
        staged = stage(sink, [1], 7)
        server.publish(stream, range(100, 130))
        commit(sink, staged)
        assert [p for p in server.payloads(stream) if not isinstance(p, dict)] == expected
        commit(sink, stage(sink, [2], 8))
        assert server.payloads(stream)[-1] == 2

    def test_a_chunk_that_was_staged_later_is_surely_new(self, server, stream, sink):
        """How far the stream has come is looked at beside all else, so a job that was idle for long can go on."""
        writer, committer = sink.open(context()), sink.open_subtask_committer(context())
        writer.write([1])
        committer.commit(writer.prepare(1))
        server.publish(stream, range(100, 130))
        assert marks_in(server, stream) == ({}, 0)
        known = sink.known.of(context())
        later = sink.open_subtask_committer(context())  # it looks when it is opened, and every ten seconds
        eventually(lambda: known.floor >= 32, "it was looked")
        later.close()
        writer.write([2])
        committer.commit(writer.prepare(2))
        committer.close()
        assert server.payloads(stream)[-1] == 2

    def test_a_mark_that_was_removed_is_an_error(self, server, stream, sink):
        committer = sink.open_subtask_committer(context())
        committer.commit(stage(sink, [1], 3))
        server.api(f"STREAM.PURGE.{stream}", {"filter": "moorline.>"})
        with pytest.raises(StorageError, match=r"checkpoint 3 was committed to it, .* and is not there") as caught:
            committer.commit(stage(sink, [2], 4))
        committer.close()
        assert caught.value.can_pass is False and server.payloads(stream) == [1]

    def test_a_server_that_has_lost_data_is_an_error(self, server, stream, sink):
        server.publish(stream, range(10))
        sink.check()
        committer = sink.open_subtask_committer(context())
        committer.commit(stage(sink, [1], 3))
        fresh = copy_of(sink)
        server.api(f"STREAM.DELETE.{stream}")
        subjects = [f"{stream}.>", f"moorline.{stream}.>"]
        server.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": subjects, "allow_atomic": True})
        with pytest.raises(StorageError, match=r"and the last message is 0"):
            committer.commit(stage(sink, [2], 4))
        committer.close()
        with pytest.raises(StorageError, match=r"would come after message 10, and the last is 0"):
            commit(fresh, stage(fresh, [2], 4))

    def test_a_mark_that_went_back_is_an_error(self, server, stream, sink):
        committer = sink.open_subtask_committer(context())
        committer.commit(stage(sink, [1], 2))
        committer.commit(stage(sink, [1], 3))
        last = server.api(f"STREAM.INFO.{stream}")["state"]["last_seq"]
        server.api(f"STREAM.MSG.DELETE.{stream}", {"seq": last})
        with pytest.raises(StorageError, match="has come to checkpoint 2"):
            committer.commit(stage(sink, [1], 4))
        committer.close()

    def test_what_was_seen_goes_through_snapshots_to_whichever_subtask(self, server, stream, sink):
        writer, committer = sink.open(context()), sink.open_subtask_committer(context())
        writer.write([1])
        committer.commit(writer.prepare(3))
        committer.close()
        snapshot = writer.snapshot()
        assert snapshot == [[stream, f"moorline.{stream}.job.out.5f1e.0", 3, 0, 2]]
        place = {"subtask": 1, "attempt": 2, "restored": snapshot}
        again = copy_of(sink)
        commit(again, stage(again, [2], 4, **place), **place)
        server.api(f"STREAM.PURGE.{stream}", {"filter": "moorline.>"})
        with pytest.raises(StorageError, match="checkpoint 3 was committed to it"):
            commit(copy_of(sink), stage(sink, [3], 5, **place), **place)

    def test_a_message_that_is_no_mark_is_refused(self, server, stream, sink):
        async def publish(client):
            await client.request(f"moorline.{stream}.job.out.5f1e.0", b"hello", timeout=PATIENCE)

        server.run(publish)
        with pytest.raises(StorageError, match="its message 1 is not a mark of this sink"):
            commit(sink, stage(sink, [1]))

    @pytest.mark.parametrize("element", [None, 7, ["a", "b", 1, 2], ["a", "b", 1, 2, "3"]])
    def test_marks_in_a_snapshot_that_are_none_are_refused(self, sink, element):
        with pytest.raises(SnapshotCorrupt, match="not a mark"):
            sink.open(context(restored=[element]))

    @pytest.mark.parametrize(
        "committable", [None, [], ["s", "m", 1, 0, 0], ["s", "m", "1", 0, 0, b"\x90"], ["s", "m", 1, 0, 0, b"\xc1"]]
    )
    def test_what_nobody_has_staged_is_refused(self, sink, committable):
        with pytest.raises(SnapshotCorrupt, match="not what a sink of NATS has staged"):
            commit(sink, [committable])


KILLED = """
import os, signal, sys
import cloudpickle
from moorline.connectors.nats import connection
folder, moment = sys.argv[1:]
sink, context, staged = cloudpickle.loads(open(folder + "/job", "rb").read())
committer = sink.open_subtask_committer(context)
committer.commit(staged[: len(staged) // 2])
if moment == "during":
    # The last message of a batch goes out, and the answer finds nobody.
    async def last_words(self, subject, payload, headers=None):
        if headers is None:
            return await request(self, subject, payload)
        await self.client.publish(subject, payload, reply=self.client.new_inbox(), headers=headers)
        await self.client.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    request, connection.NatsConnection.request = connection.NatsConnection.request, last_words
    committer.commit(staged)
os.kill(os.getpid(), signal.SIGKILL)
"""


class TestKills:
    @pytest.mark.parametrize("moment", ["between", "during"])
    def test_a_worker_that_is_killed_is_made_good_by_the_next(self, server, stream, sink, tmp_path, small, moment):
        staged = stage(sink, list(range(95)), 7)
        (tmp_path / "job").write_bytes(cloudpickle.dumps((sink, context(), staged)))
        environment = {**os.environ, "PYTHONPATH": str(Path(mo.__file__).parents[1])}
        command = [sys.executable, "-c", KILLED, str(tmp_path), moment]
        assert subprocess.run(command, env=environment, timeout=600, check=False).returncode == -signal.SIGKILL
        assert len(server.payloads(stream)) == {"between": 50, "during": 60}[moment]
        commit(sink, staged, attempt=2)
        assert server.payloads(stream) == list(range(95))

    def test_a_server_that_is_killed_in_the_middle_of_a_commit_and_comes_back(self, server, stream, sink, small):
        staged = [c for n in range(1, 41) for c in stage(sink, list(range(n * 50, n * 50 + 50)), n)]
        outages = []

        def last():
            return server.api(f"STREAM.INFO.{stream}")["state"]["last_seq"]

        committer = sink.open_subtask_committer(context(outage=outages.append))
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(committer.commit, staged)
            for _ in range(3):
                wanted = last() + 50
                # A fast machine may have done it all by then.
                eventually(lambda wanted=wanted: last() > wanted or done.done(), "it goes on")
                server.stop(signal.SIGKILL)
                server.start()
            done.result()
        committer.close()
        assert server.payloads(stream) == list(range(50, 2_050))
        assert outages and outages[-1] is None

    def test_a_line_that_is_cut_when_the_batch_is_complete_is_asked_about(self, server, stream):
        proxy = Proxy(server.port)
        url = server.url.replace(str(server.port), str(proxy.port))
        sink = mo.write_nats(url, f"{stream}.out", stream=stream)
        staged = stage(sink, list(range(10)))
        proxy.cut_after = b"Nats-Batch-Commit"
        commit(sink, staged)
        proxy.close()
        assert proxy.cuts >= 1
        assert server.payloads(stream) == list(range(10))

    def test_a_server_that_stays_away_fails_the_attempt(self):
        sink = mo.write_nats(f"nats://{USER}:{PASSWORD}@127.0.0.1:{free_port()}", "s.x", stream="s", patience=0.2)
        with pytest.raises(StorageError, match="commit checkpoint 1 to stream s in NATS") as caught:
            commit(sink, stage(sink, [1]))
        assert caught.value.can_pass is True and PASSWORD not in str(caught.value)

    def test_threads_end_with_their_committer(self, sink):
        others = set(threading.enumerate())

        def threads():
            return [t for t in threading.enumerate() if t.name.startswith("moorline-nats") and t not in others]

        committer = sink.open_subtask_committer(context())
        committer.commit(stage(sink, [1]))
        assert len(threads()) == 1
        committer.close()
        eventually(lambda: not threads(), "it ended")


class TestAtLeastOnce:
    def test_ids_make_a_repeat_harmless_within_the_window_of_the_server(self, server, small):
        stream = server.new_stream(allow_atomic=False, subjects=["unused"])
        server.api(f"STREAM.UPDATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"]})
        sink = mo.write_nats(server.url, f"{stream}.out", exactly_once=False)
        sink.check()
        assert sink.guarantee is mo.DeliveryGuarantee.AT_LEAST_ONCE and sink.stream == stream
        staged = [c for n in (1, 2) for c in stage(sink, list(range(n * 25, n * 25 + 25)), n)]
        for _ in range(2):
            commit(sink, staged)
        assert server.payloads(stream) == list(range(25, 75))
        commit(sink, stage(sink, [1], 1, lineage="b2"))
        assert server.payloads(stream)[-1] == 1


class TestCheck:
    def test_it_finds_the_stream_and_leaves_nothing_behind(self, server, stream):
        sink = mo.write_nats(server.url, f"{stream}.out")
        sink.check()
        assert sink.stream == stream and sink.found.max_payload == 1 << 20
        assert server.api(f"STREAM.INFO.{stream}")["state"]["last_seq"] == 0

    def test_a_subject_that_no_stream_has_is_refused(self, server):
        with pytest.raises(InvalidArgument, match=r"No stream in NATS at .* has it"):
            mo.write_nats(server.url, "nowhere.at.all").check()

    def test_a_subject_that_the_stream_does_not_have_is_refused(self, server, stream):
        with pytest.raises(InvalidArgument, match=f"The stream {stream} has the subjects"):
            mo.write_nats(server.url, "nowhere.at.all", stream=stream).check()

    def test_a_stream_that_is_not_there_is_refused(self, server):
        with pytest.raises(StorageError, match="stream not found") as caught:
            mo.write_nats(server.url, "a", stream="none").check()
        assert caught.value.can_pass is False

    @pytest.mark.parametrize("lacks", ["batches", "marks"])
    def test_a_stream_that_is_not_made_for_it_is_refused_with_the_command_that_does_it(self, server, lacks):
        name = server.new_stream()
        subject = f"{name}.out" if lacks == "batches" else f"plain-{name}"
        changed = {"allow_atomic": False} if lacks == "batches" else {"subjects": [subject]}
        server.api(f"STREAM.UPDATE.{name}", {**server.api(f"STREAM.INFO.{name}")["config"], **changed})
        with pytest.raises(
            InvalidArgument, match=f"nats stream edit {name} --subjects=.*moorline.{name}.>' --allow-batch"
        ):
            mo.write_nats(server.url, subject, stream=name).check()
        with pytest.raises(InvalidArgument, match="--allow-batch"):
            sink = mo.write_nats(server.url, subject, stream=name)
            commit(sink, stage(sink, [1]))
        assert server.payloads(name) == []
        sink = mo.write_nats(server.url, subject, stream=name, adjust_stream=True)
        for _ in range(2):
            sink.check()
        commit(sink, stage(sink, [1]))
        assert server.payloads(name) == [1]

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ({"retention": "workqueue"}, "its retention is workqueue"),
            ({"retention": "interest"}, "its retention is interest"),
            ({"max_age": 179 * 10**9}, "less than patience and 120 s, which are 180 s"),
            ({"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}, "refuses a new message"),
            ({"subject_transform": {"src": ">", "dest": "x.>"}}, "it changes the subject"),
        ],
    )
    def test_a_stream_that_marks_cannot_be_kept_in_is_refused(self, server, config, words):
        name = server.new_stream(**config)
        with pytest.raises(InvalidArgument, match=f"Marks cannot be kept in it: .*{words}"):
            mo.write_nats(server.url, f"{name}.out").check()

    def test_a_stream_in_memory_is_warned_about(self, server, caplog):
        name = server.new_stream(storage="memory")
        with caplog.at_level(logging.WARNING, "moorline"):
            mo.write_nats(server.url, f"{name}.out").check()
        assert "is in memory" in caplog.text

    def test_a_user_who_may_not_publish_is_refused(self, server, stream):
        url = f"nats://reader:{PASSWORD}@127.0.0.1:{server.port}"
        with pytest.raises(StorageError, match=r"(?i)permissions violation") as caught:
            mo.write_nats(url, f"{stream}.deny.a", timeout=1).check()
        assert caught.value.can_pass is False and PASSWORD not in str(caught.value)

    def test_a_wrong_password_is_refused_at_once_and_shown_nowhere(self, server, stream):
        wrong = mo.write_nats(server.url.replace(PASSWORD, "wr0ng-word"), f"{stream}.out")
        with pytest.raises(StorageError, match="Authorization Violation") as caught:
            wrong.check()
        assert caught.value.can_pass is False
        good = mo.write_nats(server.url, f"{stream}.out", stream=stream)
        shown = [str(caught.value), repr(caught.value.__cause__), repr(wrong), repr(good), repr(stage(good, [1]))]
        assert not [text for text in shown if PASSWORD in text or "wr0ng-word" in text]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"subject": ""}, "Give a subject"),
            ({"subject": "a.*"}, "Give a subject"),
            ({"subject": str}, "Give the stream"),
            ({"stream": "a.b"}, "name of a stream"),
            ({"format": "jsn"}, "json"),
            ({"headers": {"a": "b"}}, "a function from a record"),
            ({"marks": "a.>"}, "the beginning of a subject"),
            ({"on_unknown": "ignore"}, '"fail", "write" or "skip"'),
            ({"on_roll_back": "undo"}, '"fail" or "repeat"'),
            ({"patience": -1}, "in seconds"),
        ],
    )
    def test_options_that_mean_nothing_are_refused(self, options, words):
        given = {"subject": "s", **options}
        with pytest.raises(InvalidArgument, match=words):
            mo.write_nats("localhost", given.pop("subject"), **given)

    def test_a_writer_wants_to_know_the_stream(self, server):
        with pytest.raises(InvalidArgument, match="Give stream="):
            mo.write_nats(server.url, "s").open(context())

    def test_what_was_published_cannot_be_taken_back_and_the_user_says_what_then(self):
        assert mo.write_nats("localhost", "s").on_roll_back == "fail"
        assert mo.write_nats("localhost", "s", on_roll_back="repeat").on_roll_back == "repeat"


def test_how_far_the_stream_has_come_is_looked_at_again_and_again(server, stream, sink, monkeypatch):
    monkeypatch.setattr(batches, "LOOK_SECONDS", 0.05)
    committer = sink.open_subtask_committer(context())
    known = sink.known.of(context())
    for last in (5, 10):
        server.publish(stream, range(5))
        eventually(lambda last=last: known.floor == last, "it was looked")
    committer.close()
