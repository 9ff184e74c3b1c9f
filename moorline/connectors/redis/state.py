"""State in Redis: how it is configured. What is done with the connection is in ``session.py``.

    <prefix>:{<job>/<uid>}:<state>:<key group>   a hash: from the encoded key to [checkpoint, attempt, JSON, document]
    <prefix>:{<job>/<uid>}:marks                 a hash: how far each writing subtask has come
    (``api/state/external.py``) <prefix>:{<job>/<uid>}:states                a set: the states that have anything

Names are percent-encoded. The braces make Redis Cluster keep all state of one operator on one node, where a script can
see its marks. Needs ``pip install moorline[redis]``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from moorline.api.state.external import ExternalStore, FreshStart, Owner, StoreSession, check_settings
from moorline.connectors.redis.address import RedisAddress, needs_client, place_of
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

_PREFIX = re.compile(r"[\w.:-]{1,100}", re.ASCII)


@dataclass(frozen=True)
class RedisState(ExternalStore):
    """Hashes in Redis that keep state. Made by :func:`redis_state`."""

    #: May hold a password, so it is never shown.
    url: str = field(repr=False)
    prefix: str = "moorline"
    on_fresh_start: FreshStart = "error"
    readable: bool = False
    cluster: bool = False
    timeout: float = 10.0
    patience: float = 30.0
    cache_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        check_settings(self)
        if not _PREFIX.fullmatch(self.prefix):
            raise InvalidArgument("prefix for state", self.prefix, "Use letters, digits and _ . : - only, at most 100.")
        if self.timeout <= 0 or self.patience < 0:
            raise InvalidArgument("timeout and patience", (self.timeout, self.patience), "Give them in seconds.")
        place_of(self.url)

    @property
    def wants_text(self) -> bool:  # type: ignore[override]
        return self.readable

    @property
    def address(self) -> RedisAddress:
        """The server, as connections want it."""
        return RedisAddress(self.url, self.cluster, self.timeout)

    @property
    def label(self) -> str:
        return f"redis.{self.prefix}"

    @property
    def where(self) -> str:
        return f"Redis keys {self.prefix}:* at {place_of(self.url)}"

    def open(self, owner: Owner) -> StoreSession:
        session: StoreSession = needs_client("session", "state in Redis").RedisSession(self, owner)
        return session

    def forget(self, job: str, uid: str | None = None) -> None:
        needs_client("session", "state in Redis").forget(self, job, uid)


@checks_options()
def redis_state(
    url: str,
    *,
    prefix: str = "moorline",
    on_fresh_start: FreshStart = "error",
    readable: bool = False,
    cluster: bool = False,
    timeout: float = 10.0,
    patience: float = 30.0,
    cache_bytes: int = 32 << 20,
) -> RedisState:
    """Keep a state in Redis: ``ValueState(int, store=redis_state(url, prefix="shop"))``.

    >>> redis_state("redis://me:secret@cache.example:6379/0", prefix="shop").where
    'Redis keys shop:* at cache.example:6379/0'

    ``url`` begins with redis://, rediss:// or unix://. ``readable``: keep the values as JSON too. ``cluster``: it is a
    node of a Redis Cluster. ``timeout`` and ``patience`` are seconds: for one command, and for repeating it while the
    server is away. What Redis has acknowledged is as durable as it is set up to be; see the guide.
    """
    return RedisState(url, prefix, on_fresh_start, readable, cluster, timeout, patience, cache_bytes)
