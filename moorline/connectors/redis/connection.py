"""Connections to Redis, and the meaning of its errors. State, source and sink share it.

error                                             is_transient
server away, time-out, loading, fail-over         yes: tried again while there is patience
password, permission, a command that is refused   no
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from moorline.connectors import retry
from moorline.connectors.redis.address import RedisAddress
from moorline.errors import StorageError

T = TypeVar("T")

#: What a call can raise that is the server's or the line's.
ERRORS = (redis.RedisError, redis.exceptions.RedisClusterException, OSError)
#: Short of memory or of replicas: it may have them in a moment.
_PASSING_WORDS = ("NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "BUSY ", "UNKILLABLE")


def connect(address: RedisAddress) -> Any:
    """A client. It repeats nothing by itself: not every command may be."""
    limits = {"socket_timeout": address.timeout, "socket_connect_timeout": address.timeout}
    if address.cluster:
        return RedisCluster.from_url(address.url, **limits)
    return redis.Redis.from_url(address.url, **limits, retry=Retry(NoBackoff(), 0), single_connection_client=True)


def is_transient(error: Exception) -> bool:
    """May the same call succeed later?

    >>> is_transient(redis.BusyLoadingError()), is_transient(redis.AuthenticationError())
    (True, False)
    """
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.AuthorizationError)):
        return False
    passing = (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError, redis.OutOfMemoryError, OSError)
    if isinstance(error, (*passing, redis.exceptions.ClusterError, redis.exceptions.TryAgainError)):
        return True
    if isinstance(error, redis.exceptions.RedisClusterException):
        return not isinstance(error, redis.exceptions.CrossSlotTransactionError)
    return isinstance(error, redis.ResponseError) and str(error).startswith(_PASSING_WORDS)


def words_of(address: RedisAddress, error: Exception) -> str:
    """The error in its own words, without the password."""
    return address.hidden(" ".join(str(error).split()) or type(error).__name__)


class RedisConnection:
    """One client for as long as it works, and a new one after an error."""

    def __init__(
        self, address: RedisAddress, patience: float, outage: Callable[[str | None], None] = lambda cause: None
    ) -> None:
        self.address, self._patience = address, patience
        self._outage = lambda cause: outage(None if cause is None else address.hidden(cause))
        self._client: Any = None

    def client(self) -> Any:
        """The client, connected on its first command."""
        if self._client is None:
            self._client = connect(self.address)
        return self._client

    def once(self, work: Callable[[Any], T]) -> T:
        """The result of ``work``; after an error the next call has a new client."""
        try:
            return work(self.client())
        except ERRORS:
            self.close()
            raise

    def run(self, operation: str, work: Callable[[Any], T]) -> T:
        """The result of ``work``, which is repeated while the server is away."""
        try:
            return retry.call(lambda: self.once(work), is_transient, self._patience, self._outage)
        except ERRORS as error:
            raise self.failure(operation, error) from None

    def failure(self, operation: str, error: Exception) -> StorageError:
        """The error that is raised, in the server's words."""
        return StorageError(self.address.where, operation, words_of(self.address, error), is_transient(error))

    def close(self) -> None:
        """Let go of the client."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*ERRORS):
                client.close()


def server_info(client: Any) -> dict[str, Any]:
    """The server's account of itself; of a cluster, one of its nodes. Empty if it may not be asked."""
    try:
        info = client.info()
    except redis.exceptions.NoPermissionError:
        return {}
    found: dict[str, Any] = info if "redis_version" in info else next(iter(info.values()))
    return found


def evicts(info: dict[str, Any]) -> str:
    """The policy by which the server throws away keys without an expiry; empty if it does not."""
    policy = str(info.get("maxmemory_policy", ""))
    return policy if policy.startswith("allkeys") else ""


def has_append_only_file(info: dict[str, Any]) -> bool:
    """Does what was acknowledged outlive the process? Taken to be so if the server may not be asked."""
    return bool(info.get("aof_enabled", True))
