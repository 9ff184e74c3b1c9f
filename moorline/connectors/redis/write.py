"""``mo.write_redis_stream``: a sink into Redis streams, as it is declared. Needs ``pip install moorline[redis]``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from moorline.api.sinks import Sink
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.choosing import FormatName, format_for_writing
from moorline.connectors.redis.address import RedisAddress, needs_client
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

_PREFIX = re.compile(r"[\w.:-]{1,100}", re.ASCII)


@checks_options()
def write_redis_stream(
    url: str,
    stream: str | Callable[[Any], str],
    *,
    format: FormatName | Format[Any] | Callable[[Any], bytes] | None = None,
    field: str = "value",
    maxlen: int | None = None,
    prefix: str = "moorline:sink",
    on_roll_back: Literal["fail", "repeat"] = "fail",
    cluster: bool = False,
    timeout: float = 10.0,
    patience: float = 60.0,
) -> Sink[Any]:
    """Add the records to a Redis stream, exactly once, when their checkpoint is complete.

    ``stream`` is a name, or a function from a record to one. Records are dicts of texts, numbers and bytes, whose keys
    become the fields of an entry; with ``format`` a record is anything that the format can encode, and goes into the
    field ``field``. ``maxlen`` trims a stream to about so many entries.

    How far the sink has come is kept beside the streams, in a hash whose name begins with ``prefix``. ``on_roll_back``:
    a job that has to go back past damaged checkpoints is refused, because what was added cannot be taken back;
    ``"repeat"`` adds it once more. ``cluster``, ``timeout`` and ``patience`` are those of :func:`read_redis_stream`.
    What Redis has acknowledged is as durable as it is set up to be: see the guide.

    >>> write_redis_stream("redis://me:secret@cache.example:6379/0", "orders", maxlen=1_000_000)
    write_redis_stream(stream orders in Redis at cache.example:6379/0)
    """
    if not (callable(stream) or (isinstance(stream, str) and stream)):
        raise InvalidArgument("stream", stream, "Give the name of a stream, or a function from a record to one.")
    if maxlen is not None and (not isinstance(maxlen, int) or maxlen < 1):
        raise InvalidArgument("maxlen", maxlen, "Give the number of entries to keep, at least 1.")
    if not isinstance(field, str) or not field:
        raise InvalidArgument("field", field, "Give the name of the field that the format is for.")
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise InvalidArgument("prefix", prefix, "Use letters, digits and _ . : - only, at most 100.")
    if on_roll_back not in ("fail", "repeat"):
        raise InvalidArgument("on_roll_back", on_roll_back, 'It is "fail" or "repeat".')
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    module = needs_client("stream_sink", "write_redis_stream")
    if cluster and isinstance(stream, str) and not module.hash_tag(stream):
        raise InvalidArgument("stream", stream, "In a cluster a name with a closing brace needs an opening one before.")
    sink: Sink[Any] = module.RedisStreamSink(
        RedisAddress(url, cluster, timeout),
        stream,
        None if format is None else format_for_writing(format),
        field,
        maxlen,
        prefix,
        on_roll_back,
        patience,
    )
    return sink
