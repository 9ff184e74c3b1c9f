"""The address of NATS servers, its options, and its form for people: without the client library.

Options go through to the client, but for those that the connectors set themselves; and three of our own, because a TLS
context cannot be sent to workers: ``tls_ca``, ``tls_cert`` and ``tls_key`` are paths of files that are there on all of
them. Passwords, tokens and seeds, in URLs too, are in no repr and in no message.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from moorline.errors import InvalidArgument
from moorline.model.spelling import did_you_mean

Option = str | bool
_SECRET = ("password", "token", "nkeys_seed_str")
_PASSED = ("user", "user_credentials", "nkeys_seed", "tls_hostname", "tls_handshake_first", "inbox_prefix", "name")
_FILES = ("tls_ca", "tls_cert", "tls_key")
_SCHEMES = ("nats", "tls", "ws", "wss")


@dataclass(frozen=True)
class NatsAddress:
    """The servers of one cluster or of one machine, and how long a request may take.

    >>> address = NatsAddress.of("nats://me:hush-hush@n1.example:4222,n2.example", {"token": "abcdef"})
    >>> address, address.hidden("hush-hush, abcdef")
    (NatsAddress(where='NATS at n1.example:4222, n2.example'), '***, ***')
    """

    servers: tuple[str, ...] = field(repr=False)
    options: Mapping[str, Option] = field(repr=False)
    timeout: float = field(default=10.0, repr=False)
    #: The servers, for people.
    where: str = ""

    @classmethod
    def of(
        cls, servers: str | Sequence[str], options: Mapping[str, Option] | None = None, timeout: float = 10.0
    ) -> NatsAddress:
        """Check what a user has given."""
        given = servers.split(",") if isinstance(servers, str) else list(servers)
        urls = tuple(text if "://" in text else f"nats://{text}" for text in (t.strip() for t in given) if text)
        try:
            places = [urlsplit(url) for url in urls]
            hosts = [f"{p.hostname}:{p.port}" if p.port else p.hostname for p in places]
        except ValueError:
            places, hosts = [], []
        if not places or not all(p.scheme in _SCHEMES and p.hostname for p in places):
            raise InvalidArgument("servers", "(not shown)", 'Give "nats://host:port" of one server or of several.')
        if timeout <= 0:
            raise InvalidArgument("timeout", timeout, "Give it in seconds.")
        return cls(urls, _checked(options or {}), timeout, f"NATS at {', '.join(map(str, hosts))}")

    def settings(self) -> dict[str, Any]:
        """The arguments of a client."""
        found: dict[str, Any] = {name: value for name, value in self.options.items() if name not in _FILES}
        if any(name in self.options for name in _FILES):
            context = ssl.create_default_context(cafile=self._file("tls_ca"))
            if cert := self._file("tls_cert"):
                context.load_cert_chain(cert, self._file("tls_key"))
            found["tls"] = context
        return found

    def _file(self, name: str) -> str | None:
        return str(self.options[name]) if name in self.options else None

    def hidden(self, text: str) -> str:
        """A text of the server or the client without the secrets that may be in it."""
        secrets = {str(self.options[name]) for name in _SECRET if name in self.options}
        for url in self.servers:
            parts = urlsplit(url)
            # Without a password, the user is a token.
            secret = parts.password or parts.username
            secrets |= {secret, unquote(secret)} if secret else set()
        for secret in secrets - {""}:
            text = text.replace(secret, "***")
        return text


def _checked(options: Mapping[str, Any]) -> dict[str, Option]:
    known = (*_PASSED, *_SECRET, *_FILES)
    for name, value in options.items():
        if name not in known:
            meant = did_you_mean(name, known) if isinstance(name, str) else ""
            raise InvalidArgument("options", name, f"It is one of {', '.join(known)}.{meant}")
        if not isinstance(value, (str, bool)):
            raise InvalidArgument("options", name, "Values are texts, or True and False.")
    return dict(options)


def needs_client(module: str, what: str) -> Any:
    """A module of this package that imports the client library, or advice on how to install it."""
    try:
        return importlib.import_module(f"moorline.connectors.nats.{module}")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "nats":
            raise
        advice = "Install it where the job and its workers run: pip install 'moorline[nats]'."
        raise InvalidArgument(what, "no nats-py", advice) from None
