"""``mo.schema_registry``: a schema registry that speaks Confluent's HTTP, and the header before each message.

    byte 0     0
    bytes 1-4  the number of the schema, big-endian
    then       the message (Protobuf: after the path of the message in its file)

A schema never changes under its number, so each is fetched once by each process. A registry that is away is no fault of
a message: the error says that it can pass, and the source tries again.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import struct
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from moorline.errors import InvalidArgument, StorageError
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options

T = TypeVar("T")

#: An answer of more bytes is not read.
_MOST_BYTES = 16 << 20
#: Statuses of a registry, or of what stands before it, that a later try may not meet.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_HEADER = struct.Struct(">bI")
HEADER_BYTES = _HEADER.size


class UnknownSchema(ValueError):
    """The registry has no such schema."""


@dataclass(frozen=True)
class Schema:
    """A schema as the registry has it. ``references``: the schemas that it names, those they name first."""

    kind: str
    text: str
    references: tuple[Schema, ...] = ()
    #: The name under which another schema refers to it.
    name: str = ""


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry, as :func:`moorline.schema_registry` makes it."""

    url: str
    authorization: str = field(default="", repr=False)
    ca_file: str | None = field(default=None, repr=False)
    timeout: float = field(default=5.0, repr=False)
    _known: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return SchemaRegistry, (self.url, self.authorization, self.ca_file, self.timeout)

    def schema(self, number: int, serialized: bool = False) -> Schema:
        """The schema of a number, with those that it refers to. ``serialized``: Protobuf as a descriptor in base64.

        Raises :class:`UnknownSchema`, or StorageError if the registry cannot be asked.
        """
        as_what = "?format=serialized" if serialized else ""
        return self._once(
            ("id", number, serialized), lambda: self._with_references(f"/schemas/ids/{number}{as_what}", as_what)
        )

    def number_of(
        self, subject: str, kind: str, text: str, *, register: bool, references: Sequence[dict[str, Any]] = ()
    ) -> int:
        """The number of a schema under a subject; ``register`` adds it if it is not there."""
        return self._once(
            ("number", subject, kind, text, register),
            lambda: self._number_of(subject, kind, text, register, references),
        )

    def version_of(self, subject: str, kind: str, text: str, references: Sequence[dict[str, Any]] = ()) -> int:
        """The version that a schema has among those of a subject, for others to refer to."""
        body = _schema_body(kind, text, references)
        return int(self._ask(f"/subjects/{_quoted(subject)}", body)["version"])

    def subjects(self) -> list[str]:
        """The names of all subjects: shows that the registry can be reached."""
        return list(self._ask("/subjects"))

    def _number_of(
        self, subject: str, kind: str, text: str, register: bool, references: Sequence[dict[str, Any]]
    ) -> int:
        path = f"/subjects/{_quoted(subject)}" + ("/versions" if register else "")
        try:
            return int(self._ask(path, _schema_body(kind, text, references))["id"])
        except UnknownSchema as error:
            advice = f"{error} Register it, or pass register=True to have the job do it."
            raise InvalidArgument("subject", subject, advice) from None

    def _with_references(self, path: str, as_what: str, name: str = "") -> Schema:
        answer = self._ask(path)
        references = tuple(
            self._with_references(
                f"/subjects/{_quoted(r['subject'])}/versions/{int(r['version'])}{as_what}", as_what, r["name"]
            )
            for r in answer.get("references") or ()
        )
        return Schema(answer.get("schemaType") or "AVRO", answer["schema"], references, name)

    def _once(self, key: Any, ask: Callable[[], T]) -> T:
        found: T | None = self._known.get(key)
        if found is None:
            with self._lock:
                found = self._known.get(key)
                if found is None:
                    found = self._known[key] = ask()
        return found

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
            data = json.dumps(body).encode()
        if self.authorization:
            headers["Authorization"] = self.authorization
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with self._opener().open(request, timeout=self.timeout) as answer:
                content = answer.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise self._failure(path, f"its answer has more than {_MOST_BYTES >> 20} MiB", can_pass=False)
            return json.loads(content)
        except urllib.error.HTTPError as error:
            said = _message(error)
            if error.code == 404:
                raise UnknownSchema(f"The registry {self.url} does not know it: {said}") from None
            raise self._failure(path, f"{error.code}: {said}", error.code in _PASSING) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            lasting = isinstance(reason, ssl.SSLCertVerificationError)
            raise self._failure(path, f"{type(reason).__name__}: {reason}", not lasting) from None
        except ValueError as error:
            raise self._failure(path, f"its answer is not JSON: {error}", can_pass=False) from None

    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=self.ca_file)
        return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())

    def _failure(self, path: str, cause: str, can_pass: bool) -> StorageError:
        return StorageError(f"schema registry {self.url}", f"get {path.partition('?')[0]} from the", cause, can_pass)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Refuse: the password is for the registry alone, not for wherever a redirect leads."""


@checks_options()
def schema_registry(
    url: str,
    *,
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
    timeout: Duration = "5s",
) -> SchemaRegistry:
    """A schema registry with Confluent's HTTP interface, for the formats of JSON, Avro and Protobuf.

    ``username`` and ``password``, or a bearer ``token``, are sent with each request and shown nowhere. ``ca_file``: the
    certificate of who has signed the registry's, if the system does not know them. ``timeout``: of one request.

    >>> schema_registry("https://registry.example", token="hush")
    SchemaRegistry(url='https://registry.example')
    """
    parts = urllib.parse.urlsplit(url if isinstance(url, str) else "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument("url", _without_password(url), "Write one such as 'https://registry.example:8081'.")
    if parts.username or parts.password:
        raise InvalidArgument("url", _without_password(url), "Give username= and password= beside it, and not in it.")
    if token is not None and (username is not None or password is not None):
        raise InvalidArgument("token", "***", "Give a token, or a username and a password, and not both.")
    if (username is None) != (password is None):
        raise InvalidArgument("username", username, "Give both, a username and a password.")
    authorization = f"Bearer {token}" if token is not None else ""
    if username is not None:
        authorization = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
    return SchemaRegistry(url.rstrip("/"), authorization, ca_file, milliseconds(timeout, "timeout") / 1000)


def with_header(number: int, message: bytes) -> bytes:
    """A message with the number of its schema before it.

    >>> with_header(258, b"...")
    b'\\x00\\x00\\x00\\x01\\x02...'
    """
    return _HEADER.pack(0, number) + message


def read_header(data: bytes) -> int:
    """The number of the schema of a message.

    >>> read_header(b"\\x00\\x00\\x00\\x01\\x02...")
    258
    """
    if len(data) < HEADER_BYTES or data[0] != 0:
        raise ValueError(
            f"it does not begin with the five bytes that name a schema, a zero and a number, but with {data[:5]!r}. "
            f"If messages have no such header, leave out registry="
        )
    number: int = _HEADER.unpack_from(data)[1]
    return number


def _schema_body(kind: str, text: str, references: Sequence[dict[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text}
    if kind != "AVRO":
        body["schemaType"] = kind
    if references:
        body["references"] = list(references)
    return body


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(10_000))["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _without_password(url: Any) -> Any:
    if not isinstance(url, str) or "@" not in url:
        return url
    return url.partition("://")[0] + "://***@" + url.rpartition("@")[2]
