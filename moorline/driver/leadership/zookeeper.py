"""The terms of a job's leader in ZooKeeper. Needs the extra zookeeper (kazoo).

    <path>/<job>            the last term, which outlives its holder
    <path>/<job>/leader     the same while it is held: an ephemeral node, which ZooKeeper removes with its session

A dead leader is noticed by ZooKeeper and not by waiting: when its session has expired the node is gone, the last term
stands there as if it had been given back, and the next driver takes over at its next look. A leader that lives renews
by writing to its own node: that the write is answered proves that the session lived after it was sent, so it cannot
expire before ``ttl`` has passed since. That is the same rule as for files, and ``protocol/supervision/leadership.py``
keeps it.

Errors of kazoo become StorageError here. Used by ``driver/leadership/election.py``, from one thread.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL

from moorline.errors import StorageError
from moorline.model.config.leadership import ZooKeeper
from moorline.model.facts import YIELDED, Term
from moorline.storage.layout import safe_name
from moorline.storage.lease import TermFile

T = TypeVar("T")


class ZooKeeperLease:
    """The lease of one job. Connects at first use."""

    def __init__(self, config: ZooKeeper, job: str) -> None:
        self._config = config
        self._path = f"{config.path.rstrip('/')}/{safe_name(job)}"
        self._node = f"{self._path}/leader"
        self._client: Any = None
        self._is_closed = False
        self.leader = ""

    def look(self) -> Term | None:
        def ask(client: Any) -> Term | None:
            try:
                return self._read(client.get(self._node)[0])
            except NoNodeError:
                pass
            try:
                last = self._read(client.get(self._path)[0])
            except NoNodeError:
                return None
            # It is not held: if its holder has not said how it ended, it is gone.
            return replace(last, ended=last.ended or YIELDED) if last.holder != "?" else None

        return self._call("look who leads in", ask)

    def take(self, term: Term) -> bool:
        def create(client: Any) -> bool:
            client.ensure_path(self._path)
            data = _bytes(term)
            both = client.transaction()
            both.create(self._node, data, ephemeral=True)
            both.set_data(self._path, data)
            answers = both.commit()
            if any(isinstance(answer, NodeExistsError) for answer in answers):
                return self._is_ours(client, term)
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            return True

        return self._call("take the lead in", create)

    def renew(self, term: Term) -> bool:
        return self._call("renew the lead in", lambda client: self._replace(client, term, delete=False))

    def record(self, term: Term) -> None:
        self._call("give up the lead in", lambda client: self._replace(client, term, delete=True))

    def close(self) -> None:
        self._is_closed = True
        if self._client is not None:
            self._client.stop()
            self._client.close()

    # --- inside -------------------------------------------------------------------------------

    def _replace(self, client: Any, term: Term, *, delete: bool) -> bool:
        """Write the next term, if the last one is ours still."""
        try:
            data, status = client.get(self._node)
        except NoNodeError:
            return False
        if status.ephemeralOwner != client.client_id[0] or self._read(data).holder != term.holder:
            return False
        both = client.transaction()
        if delete:
            both.delete(self._node, version=status.version)
        else:
            both.set_data(self._node, _bytes(term), version=status.version)
        both.set_data(self._path, _bytes(term))
        for answer in both.commit():
            if isinstance(answer, (BadVersionError, NoNodeError)):
                return False
            if isinstance(answer, Exception):
                raise answer
        return True

    def _is_ours(self, client: Any, term: Term) -> bool:
        """Did an earlier request of ours, whose answer was lost, create the node in this very session?"""
        try:
            data, status = client.get(self._node)
        except NoNodeError:
            return False
        return status.ephemeralOwner == client.client_id[0] and self._read(data) == term

    def _call(self, operation: str, request: Callable[[Any], T]) -> T:
        where = f"zookeeper {self._config.hosts}{self._path}"
        try:
            return request(self._connected())
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise StorageError(where, operation, str(error) or type(error).__name__) from error

    def _connected(self) -> Any:
        if self._is_closed:
            raise StorageError(f"zookeeper {self._config.hosts}", "reach", "the driver has closed its connection")
        if self._client is None:
            config, seconds = self._config, self._config.ttl_ms / 1000
            client = KazooClient(
                config.hosts,
                timeout=seconds,
                auth_data=[config.auth] if config.auth else None,
                default_acl=CREATOR_ALL_ACL if config.auth else None,
            )
            try:
                client.start(timeout=max(seconds, 5.0))
                self._client = client
            finally:
                # A close() while we connect, from another thread, finds no client to stop.
                if self._client is None or self._is_closed:
                    client.stop()
                    client.close()
        if not self._client.connected:
            # A request would wait for the line to come back, for an unknown time.
            raise StorageError(f"zookeeper {self._config.hosts}", "reach", "there is no connection at the moment")
        return self._client

    def _read(self, data: bytes) -> Term:
        try:
            term = msgspec.json.decode(data, type=TermFile)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Term(0, "?", "")
        self.leader = f"process {term.pid} on {term.host}"
        return Term(term.number, term.holder, term.run, term.ended)


def _bytes(term: Term) -> bytes:
    record = TermFile(term.number, term.holder, term.run, term.ended, socket.gethostname(), os.getpid())
    return msgspec.json.encode(record)
