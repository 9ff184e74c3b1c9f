"""Redis streams as a source: which streams there are, and where each of them begins.

A stream is a split. The driver finds them, by name or by pattern, and says where reading begins; a subtask reads its
streams in turn (``stream_reader.py``). There are no consumer groups: what was read is in the job's checkpoints alone.

    position      see ``entries.py``
    enumerator    the names of all streams that were found
"""

from __future__ import annotations

import logging
import re
from typing import Any, Literal

from moorline.api.sources import EnumeratorContext, Positions, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.connectors.broken import OnError
from moorline.connectors.formats.base import Format
from moorline.connectors.redis.address import RedisAddress
from moorline.connectors.redis.connection import RedisConnection, server_info
from moorline.connectors.redis.entries import BEGINNING, Cursor, EntryId, StreamFacts
from moorline.connectors.redis.records import decoder
from moorline.connectors.redis.stream_reader import RedisStreamReader, look
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError

log = logging.getLogger("moorline")


class RedisStreamSource(Source):
    """See :func:`moorline.read_redis_stream`."""

    enumerates = True

    def __init__(
        self,
        address: RedisAddress,
        streams: list[str],
        pattern: str | None,
        start: EntryId | None,
        is_bounded: bool,
        format: Format[Any] | None,
        field: str,
        as_records: bool,
        on_error: OnError,
        on_lost: Literal["fail", "skip"],
        interval_ms: int,
        patience: float,
    ) -> None:
        self.address, self.streams, self.pattern = address, streams, pattern
        #: The last id that is not read; None: whichever is the last at the first start.
        self.start, self.is_bounded = start, is_bounded
        self.format, self.field, self.as_records = format, field, as_records
        self.on_error, self.on_lost = on_error, on_lost
        self.interval_ms, self.patience = interval_ms, patience

    def __repr__(self) -> str:
        return f"read_redis_stream({self.pattern or ', '.join(self.streams)} in {self.address.where})"

    def place(self, stream: str) -> str:
        """A stream, for people."""
        return f"stream {stream} in {self.address.where}"

    def is_chosen(self, stream: str) -> bool:
        """Is it one of those that are to be read?"""
        return stream in self.streams if self.pattern is None else is_match(stream, self.pattern)

    def check(self) -> None:
        """Is the server there, is it new enough, and are the streams streams?"""
        if self.format is not None:
            self.format.check()
        connection = RedisConnection(self.address, self.patience)
        try:
            connection.run("reach", self._check)
        finally:
            connection.close()

    def _check(self, client: Any) -> None:
        info = server_info(client)
        is_cluster = bool(info.get("cluster_enabled", self.address.cluster))
        if is_cluster is not self.address.cluster:
            advice = "The server is a node of a cluster: cluster=True." if is_cluster else "It is no cluster."
            raise InvalidArgument("cluster", self.address.cluster, advice)
        names = self._matching(client) if self.pattern is not None else self.streams
        if not names:
            log.warning("read_redis_stream: no stream matches %s in %s so far", self.pattern, self.address.where)
        for name in names:
            kind = client.type(name).decode()
            if kind not in ("stream", "none"):
                raise InvalidArgument("streams", name, f"In {self.address.where} it is a {kind} and not a stream.")
            if kind == "none" and self.is_bounded:
                raise StorageError(self.place(name), "read", "there is no such stream", can_pass=False)
            if kind == "none":
                log.warning("read_redis_stream: there is no %s so far; it is waited for", self.place(name))
            else:
                look(client, name)  # raises if the server is too old, or does not let us

    def _matching(self, client: Any) -> list[str]:
        names = set()
        for name in client.scan_iter(match=self.pattern, count=1000, _type="stream"):
            try:
                names.add(name.decode())
            except UnicodeDecodeError:
                log.warning("read_redis_stream: passes over the stream %r, whose name is not UTF-8", name)
        return sorted(names)

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader, with a thread that fetches."""
        return RedisStreamReader(self, ctx, decoder(self.format, self.field, self.as_records))

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        """The finder of streams."""
        return _Streams(self, ctx)


class _Streams(SplitEnumerator):
    def __init__(self, source: RedisStreamSource, ctx: EnumeratorContext) -> None:
        self._source, self.interval_ms = source, source.interval_ms
        self._connection = RedisConnection(source.address, source.patience)
        restored = ctx.restored
        if restored is not None and not (isinstance(restored, list) and all(isinstance(n, str) for n in restored)):
            raise SnapshotCorrupt("the manifest", f"{restored!r:.80} are not the names of Redis streams")
        #: None: it was never looked.
        self._known: set[str] | None = None if restored is None else set(restored)
        self._has_looked = False

    def discover(self) -> Positions | None:
        source = self._source
        if self._has_looked and (source.pattern is None or source.is_bounded):
            return None
        found = self._connection.run("look for streams in", self._look)
        self._has_looked = True
        self._known = {*(self._known or ()), *found}
        return found

    def snapshot(self) -> list[str] | None:
        return None if self._known is None else sorted(self._known)

    def close(self) -> None:
        self._connection.close()

    def _look(self, client: Any) -> dict[str, Any]:
        source, known = self._source, self._known
        names = source._matching(client) if source.pattern is not None else source.streams
        # A stream that a pattern matches later is new, and read from its beginning.
        is_first = known is None or source.pattern is None
        found = {}
        for name in names:
            if name not in (known or ()):
                found[name] = self._begin(look(client, name), is_first).position()
        return found

    def _begin(self, facts: StreamFacts | None, is_first: bool) -> Cursor:
        last = BEGINNING if facts is None else facts.last
        first = self._source.start if is_first else BEGINNING
        end = last if self._source.is_bounded else None
        return Cursor.at(last if first is None else first, facts, end)


def is_match(name: str, pattern: str) -> bool:
    """Does a name match a pattern of Redis?

    >>> is_match("orders:eu", "orders:*"), is_match("a*", "a\\\\*"), is_match("ab", "a\\\\*"), is_match("b", "[^a-]?")
    (True, True, False, False)
    """
    return re.fullmatch(_WILDCARD.sub(_as_regex, pattern), name, re.DOTALL) is not None


#: A wildcard, a class of characters, a character that is taken as it is, or any other one.
_WILDCARD = re.compile(r"\*|\?|\[(\^?)((?:\\.|[^\]\\])*)\]|\\(.)|(.)", re.DOTALL)


def _as_regex(match: re.Match[str]) -> str:
    if match[0] in "*?":
        return ".*" if match[0] == "*" else "."
    if match[2] is not None:
        inside = re.sub(r"\\(.)|([\[&~|^])", lambda m: "\\" + (m[1] or m[2]), match[2])
        return f"[{match[1]}{inside}]"
    return re.escape(match[3] or match[4])
