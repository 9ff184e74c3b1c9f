"""``mo.write_nats``: a sink into a JetStream stream, as it is declared. Needs ``pip install moorline[nats]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from moorline.api.sinks import Sink
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.choosing import FormatName, format_for_writing
from moorline.connectors.nats.address import NatsAddress, Option, needs_client
from moorline.connectors.nats.read import Servers
from moorline.connectors.nats.subjects import is_subject
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options


@checks_options()
def write_nats(
    servers: Servers,
    subject: str | Callable[[Any], str],
    *,
    stream: str | None = None,
    format: FormatName | Format[Any] | Callable[[Any], bytes] = "json",
    headers: Callable[[Any], Mapping[str, str]] | None = None,
    exactly_once: bool = True,
    marks: str = "moorline",
    adjust_stream: bool = False,
    on_unknown: Literal["fail", "write", "skip"] = "fail",
    on_roll_back: Literal["fail", "repeat"] = "fail",
    timeout: float = 10.0,
    patience: float = 60.0,
    options: Mapping[str, Option] | None = None,
) -> Sink[Any]:
    """Publish the records to a JetStream stream, exactly once, when their checkpoint is complete.

    ``subject`` is one, or a function from a record to one; then give the ``stream`` too, which has all of them.
    ``format`` makes the payload, and ``headers`` is a function from a record to its headers.

    Records are published in atomic batches, each with a mark in the same stream that says how far the sink has come.
    The stream has to be made for it: NATS 2.12 or newer, ``allow_atomic``, and the subjects ``<marks>.<stream>.>``;
    ``adjust_stream`` does that at the start. ``exactly_once=False`` wants none of it: then records of a commit that is
    repeated come twice, unless the server remembers their ids (its ``duplicate_window``).

    ``on_unknown``: what to do after a restart if the limits of the stream have taken away what would tell whether
    something was published. ``on_roll_back``: a job that has to go back past damaged checkpoints is refused, because
    what was published cannot be taken back; ``"repeat"`` publishes it once more. ``timeout``, ``patience`` and
    ``options`` are those of :func:`read_nats`.

    >>> write_nats("nats://me:secret@n1.example:4222", "orders.eu", stream="ORDERS")
    write_nats(stream ORDERS in NATS at n1.example:4222)
    """
    if not (callable(subject) or is_subject(subject)):
        raise InvalidArgument("subject", subject, "Give a subject, or a function from a record to one.")
    if stream is not None and (not is_subject(stream) or "." in stream):
        raise InvalidArgument("stream", stream, "Give the name of a stream.")
    if stream is None and not isinstance(subject, str):
        raise InvalidArgument("stream", stream, "Give the stream that has the subjects of all records.")
    if headers is not None and not callable(headers):
        raise InvalidArgument("headers", headers, "Give a function from a record to its headers.")
    if not is_subject(marks):
        raise InvalidArgument("marks", marks, 'Give the beginning of a subject, such as "moorline".')
    if on_unknown not in ("fail", "write", "skip"):
        raise InvalidArgument("on_unknown", on_unknown, 'It is "fail", "write" or "skip".')
    if on_roll_back not in ("fail", "repeat"):
        raise InvalidArgument("on_roll_back", on_roll_back, 'It is "fail" or "repeat".')
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    sink: Sink[Any] = needs_client("stream_sink", "write_nats").NatsSink(
        NatsAddress.of(servers, options, timeout),
        subject,
        stream,
        format_for_writing(format),
        headers,
        marks,
        adjust_stream,
        exactly_once,
        on_unknown,
        on_roll_back,
        patience,
    )
    return sink
