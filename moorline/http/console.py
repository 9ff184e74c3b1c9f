"""The options of a job's HTTP endpoint, its console: where it listens, who may ask, and where its token is."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

#: A request is here, whole, within so many seconds, or it is cut off.
REQUEST_SECONDS = 5.0
#: A token of fewer characters might be guessed.
SHORTEST_TOKEN = 32
#: What can stand in an ``Authorization`` header as it is.
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/=-]{{{SHORTEST_TOKEN},1000}}")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})")


@checks_options()
@dataclass(frozen=True)
class HttpEndpoint:
    """The HTTP endpoint of a job: the address that it listens on, and the file of its token.

    >>> HttpEndpoint("127.0.0.1:8090").address
    '127.0.0.1:8090'

    Port 0 means any free one. A new token is made for each start and written into ``token_file``, readable for its
    owner alone; without it a file in a new folder of the machine's temporary one is used
    (``handle.console.token_file``). It is removed when the job ends.

    ``token_from`` is a file with a token of yours instead, such as a mounted secret: for Prometheus and others that
    have to know it before. It stays, and is the same after a restart. ``hosts`` are names beside this machine's own
    by which the console is asked for, such as that of a Kubernetes service.
    """

    address: str = "127.0.0.1:0"
    token_file: str | None = None
    #: Below these locations a savepoint may be asked for, beside the one of the checkpoints. Nowhere else.
    savepoints: Sequence[str] = ()
    #: A request is here, whole, within so many seconds, or it is cut off.
    request_seconds: float = REQUEST_SECONDS
    token_from: str | None = None
    hosts: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.savepoints, str):
            raise InvalidArgument("savepoints", self.savepoints, "Give a list of locations.")
        if isinstance(self.hosts, str) or not all(_NAME.fullmatch(host) for host in self.hosts):
            raise InvalidArgument("hosts", self.hosts, "Give a list of names, without ports, such as ['shop-driver'].")
        if self.token_file is not None and self.token_from is not None:
            raise InvalidArgument("token_from", self.token_from, "Give one of token_file and token_from.")

    @classmethod
    def of(cls, console: HttpEndpoint | str | bool) -> HttpEndpoint:
        """The endpoint for the ``console=`` of a start."""
        return console if isinstance(console, HttpEndpoint) else cls() if console is True else cls(str(console))

    def parts(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            raise InvalidArgument("console", self.address, "Write host:port, such as '127.0.0.1:0' for any free port.")
        return host.strip("[]"), int(port)

    def given_token(self) -> str | None:
        """The token in ``token_from``; None if a new one is to be made."""
        if self.token_from is None:
            return None
        try:
            token = Path(self.token_from).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument("token_from", self.token_from, f"It cannot be read: {error}.") from error
        if not _TOKEN.fullmatch(token):
            advice = f"It should hold one line of at least {SHORTEST_TOKEN} characters: openssl rand -hex 32 makes one."
            raise InvalidArgument("token_from", self.token_from, advice)
        return token


#: The name that it had first.
Console = HttpEndpoint


def write_private(path: str, token: str) -> None:
    """Write a file that no other user can read, at no moment; a link that is in the way is not followed."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
