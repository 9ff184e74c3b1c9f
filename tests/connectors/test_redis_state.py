"""State in Redis, on a real server."""

import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import msgspec
import pytest
import redis
from external_worker import add_one, backend_over, checkpoint
from services import PASSWORD, Proxy, free_port, redis_cluster, redis_server  # noqa: F401
from waiting import PATIENCE

from moorline.connectors.redis import session as redis_session
from moorline.connectors.redis.state import redis_state
from moorline.errors import ExternalStateBehind, InvalidArgument, StorageError
from moorline.model import keys
from moorline.testing.contracts.external import ExternalStoreContract, change, owner
from moorline.testing.contracts.external_runs import ExternalRun

names = itertools.count(1)
WORKER = Path(__file__).parent / "external_worker.py"


@pytest.fixture
def server(redis_server):  # noqa: F811
    return redis_server


@pytest.fixture
def store(server):
    return redis_state(server.url, prefix=f"state-{next(names)}")


def counts(server, store):
    """What somebody sees who reads in Redis: by key, the count and the checkpoint it is from."""
    client, found = redis.Redis.from_url(server.url), {}
    for name in client.scan_iter(match=f"{store.prefix}:{{killed/op}}:count:*"):
        for field, row in client.hgetall(name).items():
            number, _, _, document = msgspec.msgpack.decode(row)
            found[keys.decode(field)] = (msgspec.msgpack.decode(msgspec.msgpack.decode(document)), number)
    client.close()
    return found


class TestRedisStore(ExternalStoreContract):
    @pytest.fixture
    def store(self, store):
        return store


@pytest.mark.parametrize(
    "promise",
    [
        "test_what_is_applied_is_read",
        "test_a_subtask_sees_and_counts_its_own_key_groups",
        "test_clearing_is_for_the_own_key_groups_and_the_named_states",
        "test_forgetting_a_job_or_an_operator_leaves_the_others",
        "test_large_documents_and_many_of_them",
        "test_an_attempt_that_was_taken_over_writes_nothing",
        "test_a_store_that_has_lost_its_data_is_noticed",
    ],
)
def test_a_cluster_keeps_the_promises_too(redis_cluster, promise):  # noqa: F811
    """All keys of an operator are on one node, whatever its name."""
    store = redis_state(redis_cluster.url, prefix=f"state-{next(names)}", cluster=True)
    getattr(TestRedisStore(), promise)(store)


class TestSetup:
    def test_values_can_be_read_as_json(self, server):
        store = redis_state(server.url, prefix=f"state-{next(names)}", readable=True)
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["ann"])
        checkpoint(backend, 3, 0)
        backend.confirmed(3)
        client = redis.Redis.from_url(server.url)
        name = f"{store.prefix}:{{killed/op}}:count:{keys.key_group('ann', 16)}"
        checkpoint_, attempt, text, _ = msgspec.msgpack.decode(client.hget(name, b"sann"))
        assert (checkpoint_, attempt, json.loads(text)) == (3, 1, 1)
        backend.close()

    def test_a_redis_that_throws_state_away_is_refused(self, server, store):
        client = redis.Redis.from_url(server.url)
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(StorageError, match="Set it to noeviction"):
                backend_over(store, 1)
        finally:
            client.config_set("maxmemory-policy", "noeviction")

    def test_a_redis_without_an_append_only_file_is_warned_about(self, server, store, caplog):
        client = redis.Redis.from_url(server.url)
        client.config_set("appendonly", "no")
        try:
            with caplog.at_level(logging.WARNING, "moorline"):
                backend_over(store, 1)[0].close()
        finally:
            client.config_set("appendonly", "yes")
        assert "no append-only file" in caplog.text

    def test_the_password_is_not_shown(self, server, store):
        wrong = redis_state(server.url.replace(PASSWORD, "wr0ng-word"), patience=0.2)
        away = redis_state(f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0", patience=0.2)
        told = [repr(store), store.where, store.label, repr(wrong)]
        for refused in (wrong, away):
            with pytest.raises(StorageError) as caught:
                backend_over(refused, 1)
            told += [str(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__)]
        for url in (f"http://{PASSWORD}@x", f"redis://me:{PASSWORD}@host:port/0", PASSWORD):
            with pytest.raises(InvalidArgument) as bad:
                redis_state(url)
            told.append(str(bad.value))
        assert not [text for text in told if PASSWORD in text or "wr0ng-word" in text]
        assert f"at 127.0.0.1:{server.port}/0" in store.where

    @pytest.mark.parametrize("prefix", ["", "a b", "{a}", "a*", "größe", "x" * 101])
    def test_prefixes_that_could_mean_anything_else_are_refused(self, prefix):
        with pytest.raises(InvalidArgument, match="prefix for state"):
            redis_state("redis://localhost", prefix=prefix)


class TestFaults:
    @pytest.mark.parametrize("moment", ["before", "during", "after"])
    def test_a_worker_that_is_killed_while_it_applies_loses_nothing(self, server, store, tmp_path, moment):
        (tmp_path / "store").write_bytes(cloudpickle.dumps(store))
        killed = subprocess.run([sys.executable, str(WORKER), str(tmp_path), moment], timeout=600, check=False)
        assert killed.returncode == -signal.SIGKILL
        seen = sorted(counts(server, store).values())
        # A part of a complete checkpoint may be there: what is seen is covered by it.
        assert seen == {"before": 20 * [(1, 1)], "during": 6 * [(1, 1)] + 14 * [(2, 2)], "after": 20 * [(2, 2)]}[moment]
        parts = cloudpickle.loads((tmp_path / "parts-2").read_bytes())
        backend, count = backend_over(store, 2, parts, restored=2)
        assert set(counts(server, store).values()) == {(2, 2)}
        add_one(backend, count, range(20))
        checkpoint(backend, 3, 2)
        backend.confirmed(3)
        assert counts(server, store) == dict.fromkeys(range(20), (3, 3))
        backend.close()

    def test_a_line_that_is_cut_while_a_script_runs_is_asked_about(self, server):
        proxy = Proxy(server.port)
        store = redis_state(server.url.replace(str(server.port), str(proxy.port)), prefix=f"state-{next(names)}")
        backend, count = backend_over(store, 1)
        for number in range(1, 6):
            add_one(backend, count, ["a", "b"])
            checkpoint(backend, number, number - 1)
            proxy.cut_after = b"EVALSHA"
            backend.confirmed(number)
        assert proxy.cuts == 5
        assert counts(server, store) == {"a": (5, 5), "b": (5, 5)}
        backend.close()
        proxy.close()

    def test_a_script_that_comes_late_writes_nothing(self, store):
        with TestRedisStore().session(store, owner()) as session:
            session.apply(5, [change(b"a", b"5"), change(b"b", b"5")])
            late = session._mark.at(5)
            session.apply(7, [change(b"a", None), change(b"b", b"7")])
            assert session._write(5, [change(b"a", b"5"), change(b"b", b"5")], late) == b"done"
        assert TestRedisStore().documents(store) == {b"b": b"7"}
        assert [m.reached for m in TestRedisStore().marks(store)] == [7]

    def test_a_checkpoint_in_many_parts_is_reached_with_the_last(self, store, monkeypatch):
        monkeypatch.setattr(redis_session, "ROWS_AT_ONCE", 10)
        with TestRedisStore().session(store, owner()) as session:
            seen = []
            monkeypatch.setattr(session, "_before_the_end", lambda: seen.extend(TestRedisStore().marks(store)))
            session.apply(3, [change(b"%d" % n, b"3") for n in range(35)])
            assert [(m.reaching, m.reached) for m in seen] == [(3, 0)]
            assert [(m.reaching, m.reached) for m in TestRedisStore().marks(store)] == [(3, 3)]
            assert len(TestRedisStore().documents(store)) == 35

    def test_a_server_that_is_restarted_is_waited_for(self, server, store):
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        checkpoint(backend, 1, 0)
        server.stop(signal.SIGKILL)
        with ThreadPoolExecutor(1) as pool:
            confirmed = pool.submit(backend.confirmed, 1)
            time.sleep(0.3)
            server.start()
            confirmed.result(PATIENCE)
        add_one(backend, count, ["a", "b"])
        checkpoint(backend, 2, 1)
        backend.confirmed(2)
        assert counts(server, store) == {"a": (2, 2), "b": (1, 2)}
        backend.close()

    def test_a_server_that_comes_back_empty_is_noticed_at_the_next_read(self, server, store):
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        parts = checkpoint(backend, 1, 0)
        backend.confirmed(1)
        redis.Redis.from_url(server.url).flushall()
        with pytest.raises(ExternalStateBehind):
            backend.prefetch(["b"])
        add_one_more = checkpoint(backend, 2, 1)
        backend.close()
        again, _ = backend_over(store, 2, parts, restored=1)  # it holds all there was before it
        assert counts(server, store) == {"a": (1, 1)}
        again.close()
        store.forget("killed")
        with pytest.raises(ExternalStateBehind):
            backend_over(store, 3, add_one_more, restored=2)

    def test_a_server_that_stays_away_fails_the_attempt(self, server):
        store = redis_state(server.url, prefix=f"state-{next(names)}", patience=0.5)
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        checkpoint(backend, 1, 0)
        server.stop()
        try:
            with pytest.raises(StorageError, match="could not apply checkpoint 1 to Redis keys"):
                backend.confirmed(1)
        finally:
            server.start()
        backend.close()

    def test_a_server_that_hangs_is_given_up(self, server):
        store = redis_state(server.url, prefix=f"state-{next(names)}", timeout=2.0, patience=3.0)
        backend, count = backend_over(store, 1)
        add_one(backend, count, ["a"])
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StorageError, match="could not read state from Redis keys"):
                backend.prefetch(["b"])
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        backend.close()

    def test_each_record_counts_once_while_connections_are_cut(self, server, store):
        client = redis.Redis.from_url(server.url)
        run = ExternalRun(store, 3)
        for _ in range(60):
            run.play(1)
            for connection in client.client_list():
                if int(connection["id"]) != client.client_id():
                    client.client_kill_filter(_id=connection["id"])
        run.finish()
