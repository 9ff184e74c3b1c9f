"""The address of a Redis, and its form for people: without the client library, because jobs are declared without it.

The URL may hold a password, so it is in no repr and in no message.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from moorline.errors import InvalidArgument


@dataclass(frozen=True)
class RedisAddress:
    """One server or cluster, and how long a command may take.

    >>> address = RedisAddress("redis://me:secret@cache.example:6379/0")
    >>> address.where, address.hidden("ERR not secret enough")
    ('Redis at cache.example:6379/0', 'ERR not *** enough')
    """

    url: str = field(repr=False)
    cluster: bool = False
    timeout: float = 10.0

    def __post_init__(self) -> None:
        place_of(self.url)
        if "decode_responses" in urlsplit(self.url).query:
            raise InvalidArgument("url of Redis", "decode_responses", "Leave it out: what is stored are bytes.")
        if self.timeout <= 0:
            raise InvalidArgument("timeout", self.timeout, "Give it in seconds.")

    @property
    def where(self) -> str:
        """The server, for people."""
        return f"Redis at {place_of(self.url)}"

    def hidden(self, text: str) -> str:
        """A text of the server or the client without the password, should it be there."""
        password = urlsplit(self.url).password
        for secret in {password, unquote(password)} if password else ():
            text = text.replace(secret, "***")
        return text


def place_of(url: str) -> str:
    """Host and database, without who and the password.

    >>> place_of("redis://me:secret@cache.example:6379/0")
    'cache.example:6379/0'
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except (ValueError, AttributeError):
        parts = None
    if parts is None or parts.scheme not in ("redis", "rediss", "unix"):
        raise InvalidArgument("url of Redis", "(not shown)", "Give redis://host:port/database.")
    return f"{parts.hostname or ''}{port}{parts.path}"


def needs_client(module: str, what: str) -> Any:
    """A module of this package that imports the client library, or advice on how to install it."""
    try:
        return importlib.import_module(f"moorline.connectors.redis.{module}")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "redis":
            raise
        advice = "Install it where the job and its workers run: pip install 'moorline[redis]'."
        raise InvalidArgument(what, "no redis", advice) from None
