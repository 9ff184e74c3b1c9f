"""A sink into Redis streams: entries are staged in checkpoints, and added by a script that moves a mark with them.

    <prefix>:<job>/<uid>            a hash: by "<lineage>/<slot>", "<checkpoint> <chunk> <entries>"
    <prefix>:{<tag>}:<job>/<uid>    the same in a cluster, where a script sees one hash slot: that of the stream's tag

What a subtask (a *slot*) writes between two barriers is cut into chunks, so that no script keeps the server for long. A
script adds the entries of one chunk and writes the mark; Redis runs it alone. A chunk that was added before, also by a
half-dead attempt at the same moment, finds its mark or a later one and does nothing. Chunks of a slot come in order.

A script that fails half-way is not undone by Redis (a stream that the user may not write to, among others), so the mark
also says how many entries of its chunk were added, and the next try goes on after them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

import msgspec
import redis

from moorline.api.sinks import Sink, SinkCommitter, SinkContext, SinkWriter
from moorline.connectors.formats.base import Format
from moorline.connectors.known_marks import KnownBySubtask, KnownMarks, Mark
from moorline.connectors.redis.address import RedisAddress
from moorline.connectors.redis.connection import RedisConnection, evicts, has_append_only_file, server_info
from moorline.connectors.redis.records import encoder
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, MoorlineError, SnapshotCorrupt, StorageError
from moorline.failpoints import failpoint

log = logging.getLogger("moorline")

#: A script adds so many entries, or bytes of them: while it runs no other client is served.
ENTRIES_AT_ONCE, BYTES_AT_ONCE = 500, 1 << 20
#: The mark before anything was committed.
_NOTHING = (-1, -1)
#: A script of Redis hands at most 8,000 values to a command.
MOST_FIELDS = 3_900

#: KEYS: the marks, then the streams. ARGV: the name of the mark; checkpoint and chunk; how many entries; the checkpoint
#: and the chunk that the mark has at least; the length to trim to, or nothing; then for each entry the number of its
#: stream, the number of its parts, and the parts.
_ADD = """
local text = redis.call('HGET', KEYS[1], ARGV[1])
local checkpoint, chunk, entries = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local c, k, done = -1, -1, 0
if text then
    c, k, done = string.match(text, '^(%d+) (%d+) (%d+)$')
    if c == nil then return {'strange', text} end
    c, k, done = tonumber(c), tonumber(k), tonumber(done)
end
local least_c, least_k = tonumber(ARGV[5]), tonumber(ARGV[6])
if c < least_c or (c == least_c and k < least_k) then return {'behind', text or ''} end
if c > checkpoint or (c == checkpoint and (k > chunk or (k == chunk and done >= entries))) then
    return {'done', text}
end
if c < checkpoint or k < chunk then done = 0 end
for n = 2, #KEYS do
    local kind = redis.call('TYPE', KEYS[n]).ok
    if kind ~= 'stream' and kind ~= 'none' then
        return redis.error_reply('WRONGTYPE ' .. KEYS[n] .. ' is a ' .. kind .. ' and not a stream')
    end
end
local mark = ARGV[2] .. ' ' .. ARGV[3] .. ' '
redis.call('HSET', KEYS[1], ARGV[1], mark .. done)
local at = 8
for entry = 1, entries do
    local stream, parts = KEYS[tonumber(ARGV[at])], tonumber(ARGV[at + 1])
    if entry > done then
        local id
        if ARGV[7] == '' then
            id = redis.pcall('XADD', stream, '*', unpack(ARGV, at + 2, at + 1 + parts))
        else
            id = redis.pcall('XADD', stream, 'MAXLEN', '~', ARGV[7], '*', unpack(ARGV, at + 2, at + 1 + parts))
        end
        if id.err then
            redis.call('HSET', KEYS[1], ARGV[1], mark .. (entry - 1))
            return id
        end
    end
    at = at + 2 + parts
end
redis.call('HSET', KEYS[1], ARGV[1], mark .. entries)
return {'added', mark .. entries}
"""
#: Scripts, and this key, are ours to use. Leaves nothing behind.
_TRIAL = """
redis.call('HSET', KEYS[1], 'trial', '0 0 0')
return redis.call('HDEL', KEYS[1], 'trial')
"""


class RedisStreamSink(Sink):
    """See :func:`moorline.write_redis_stream`."""

    commits_in_background = True

    def __init__(
        self,
        address: RedisAddress,
        stream: str | Callable[[Any], str],
        format: Format[Any] | None,
        field: str,
        maxlen: int | None,
        prefix: str,
        on_roll_back: Literal["fail", "repeat"],
        patience: float,
    ) -> None:
        self.address, self.stream, self.format, self.field = address, stream, format, field
        self.maxlen, self.prefix, self.patience = maxlen, prefix, patience
        self.on_roll_back = on_roll_back
        self.known = KnownBySubtask(numbers=2)

    def __repr__(self) -> str:
        return f"write_redis_stream({self.where})"

    @property
    def where(self) -> str:
        """The stream or streams, for people."""
        named = f"stream {self.stream}" if isinstance(self.stream, str) else "streams"
        return f"{named} in {self.address.where}"

    def check(self) -> None:
        """Is the server there, does it keep what it gets, and may we write?"""
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
        if int(str(info.get("redis_version", "7")).partition(".")[0]) < 7:
            advice = "Streams are written from Redis 7.0 on: scripts of older ones are repeated at replicas."
            raise InvalidArgument("Redis server", info["redis_version"], advice)
        if policy := evicts(info):
            cause = f"its maxmemory-policy is {policy}, so it throws marks away when it is full. Set it to noeviction"
            raise StorageError(self.address.where, "write to", cause, can_pass=False)
        if not has_append_only_file(info):
            log.warning(
                "write_redis_stream: %s has no append-only file (appendonly no): what it loses in a crash was "
                "committed, and the job will be refused then",
                self.address.where,
            )
        stream = self.stream if isinstance(self.stream, str) else "moorline"
        client.eval(_TRIAL, 1, self.marks(hash_tag(stream) if self.address.cluster else "", "trial", "trial"))
        if isinstance(self.stream, str):
            _try_to_add(client, self.stream)

    def marks(self, tag: str, job: str, uid: str) -> str:
        """The name of the hash with the marks."""
        place = f"{{{tag}}}:" if tag else ""
        return f"{self.prefix}:{place}{quote(job, safe='')}/{quote(uid, safe='')}"

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that keeps its records until the next barrier."""
        return _StreamWriter(self, ctx)

    def open_subtask_committer(self, ctx: SinkContext) -> SinkCommitter:
        """A committer with a connection of its own."""
        return _StreamCommitter(self, ctx)


def _try_to_add(client: Any, stream: str) -> None:
    """Could an entry be added? With an id that Redis always refuses, after it has looked at all the rest."""
    kind = client.type(stream).decode()
    if kind not in ("stream", "none"):
        raise InvalidArgument("stream", stream, f"The server has a {kind} under this name.")
    try:
        client.execute_command("XADD", stream, "0-0", "trial", "")
    except redis.ResponseError as error:
        if "0-0" not in str(error):
            raise


def hash_tag(stream: str) -> str:
    """The part of a name that decides where in a cluster it is.

    >>> hash_tag("orders"), hash_tag("{eu}.orders"), hash_tag("a}b")
    ('orders', 'eu', '')
    """
    _, opened, rest = stream.partition("{")
    tag, closed, _ = rest.partition("}")
    if opened and closed and tag:
        return tag
    # The whole name; but there are names that cannot stand in braces.
    return "" if "}" in stream else stream


class _StreamWriter(SinkWriter):
    def __init__(self, sink: RedisStreamSink, ctx: SinkContext) -> None:
        self._sink, self._ctx = sink, ctx
        self._known = sink.known.of(ctx)
        self._encode = encoder(sink.format, sink.field)
        #: By hash tag: entries, each with its stream, and the bytes of them.
        self._entries: dict[str, list[tuple[str, list[bytes]]]] = {}

    def write(self, records: list[Any]) -> None:
        stream_of = self._sink.stream
        for record in records:
            try:
                parts = self._encode(record)
                stream = stream_of if isinstance(stream_of, str) else stream_of(record)
                tag = self._tag(stream)
            except MoorlineError:
                raise
            except Exception as error:  # of the user's functions and format
                raise self._unfit(record, f"{type(error).__name__}: {error}") from error
            if len(parts) > 2 * MOST_FIELDS:
                raise self._unfit(record, f"it has {len(parts) // 2} fields, and at most {MOST_FIELDS} can be added")
            self._entries.setdefault(tag, []).append((stream, parts))

    def _tag(self, stream: Any) -> str:
        if not isinstance(stream, str) or not stream:
            raise TypeError(f"{stream!r:.80} is not the name of a stream")
        if not self._sink.address.cluster:
            return ""
        tag = hash_tag(stream)
        if not tag:
            raise ValueError(f"the name {stream!r} has a closing brace, and no mark can be kept beside it in a cluster")
        return tag

    def _unfit(self, record: Any, cause: str) -> UnfitRecord:
        advice = "Map the records to dicts of texts and numbers." if self._sink.format is None else ""
        return UnfitRecord(self._sink.where, f"{record!r:.200}", cause, advice)

    def prepare(self, checkpoint: int) -> list[Any]:
        ctx, staged = self._ctx, []
        for tag, entries in self._entries.items():
            marks = self._sink.marks(tag, ctx.job, ctx.uid)
            for number, chunk in enumerate(_chunks(entries)):
                content = msgspec.msgpack.encode(chunk)
                staged.append(_Committable(marks, f"{ctx.lineage}/{ctx.subtask}", checkpoint, number, content).plain())
        self._entries = {}
        return staged

    def snapshot(self) -> list[Any]:
        return self._known.snapshot()


def _chunks(entries: list[tuple[str, list[bytes]]]) -> Iterator[list[tuple[str, list[bytes]]]]:
    """Entries that go into one script."""
    chunk: list[tuple[str, list[bytes]]] = []
    size = 0
    for entry in entries:
        chunk.append(entry)
        size += sum(map(len, entry[1]))
        if len(chunk) >= ENTRIES_AT_ONCE or size >= BYTES_AT_ONCE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class _Committable(msgspec.Struct, frozen=True):
    """A chunk of what one slot has written before a barrier."""

    #: The hash with its mark, and the name of the mark in it: lineage and slot.
    marks: str
    name: str
    checkpoint: int
    chunk: int
    content: bytes

    def plain(self) -> list[Any]:
        """As plain data: it goes through snapshots."""
        return [self.marks, self.name, self.checkpoint, self.chunk, self.content]

    @classmethod
    def restored(cls, committable: Any) -> _Committable:
        match committable:
            case [str(marks), str(name), int(checkpoint), int(chunk), bytes(content)]:
                return cls(marks, name, checkpoint, chunk, content)
        raise _strange(committable)

    def entries(self) -> list[tuple[str, list[bytes]]]:
        """Each with its stream."""
        try:
            return msgspec.msgpack.decode(self.content, type=list[tuple[str, list[bytes]]])
        except msgspec.DecodeError:
            raise _strange(self.content) from None


def _strange(committable: Any) -> SnapshotCorrupt:
    return SnapshotCorrupt("the manifest", f"{committable!r:.80} is not what a sink of Redis streams has staged")


def _mark_of(marks: str, name: str, client: Any) -> bytes | None:
    text: bytes | None = client.hget(marks, name)
    return text


class _StreamCommitter(SinkCommitter):
    def __init__(self, sink: RedisStreamSink, ctx: SinkContext) -> None:
        self._sink = sink
        self._connection = RedisConnection(sink.address, sink.patience, ctx.outage)
        self._known: KnownMarks = sink.known.of(ctx)
        self._has_compared = False

    def commit(self, committables: list[Any]) -> None:
        if not self._has_compared:
            self._compare_restored()
            self._has_compared = True
        for plain in committables:
            self._add(_Committable.restored(plain))

    def close(self) -> None:
        self._connection.close()

    def _add(self, chunk: _Committable) -> None:
        entries = chunk.entries()
        keys: dict[str, int] = {}
        values: list[Any] = []
        for stream, parts in entries:
            values += [keys.setdefault(stream, len(keys) + 2), len(parts), *parts]
        least = self._known.least(chunk.marks, chunk.name) or _NOTHING
        maxlen = "" if self._sink.maxlen is None else self._sink.maxlen
        first = [chunk.name, chunk.checkpoint, chunk.chunk, len(entries), *least, maxlen]
        arguments = [chunk.marks, *keys, *first, *values]
        outcome, text = self._connection.run(
            f"commit checkpoint {chunk.checkpoint} to {self._sink.where} with",
            lambda client: client.eval(_ADD, 1 + len(keys), *arguments),
        )
        failpoint("sink.commit.middle")
        if outcome == b"behind":
            raise self._lost(chunk.marks, chunk.name, least, text.decode())
        if outcome == b"strange":
            raise self._unreadable(chunk.marks, text)
        self._known.note(chunk.marks, chunk.name, self._mark(chunk.marks, text))

    def _compare_restored(self) -> None:
        """Has the server what an earlier attempt knew?"""
        for (marks, name), least in self._known.restored.items():
            text = self._connection.run("compare marks in", partial(_mark_of, marks, name))
            if (_NOTHING if text is None else self._mark(marks, text)) < least:
                raise self._lost(marks, name, least, (text or b"").decode())

    def _mark(self, marks: str, text: bytes) -> Mark:
        try:
            checkpoint, chunk, _ = map(int, text.split())
        except ValueError:
            raise self._unreadable(marks, text) from None
        return checkpoint, chunk

    def _unreadable(self, marks: str, text: bytes) -> StorageError:
        cause = f"{text!r:.80} is not a mark of this sink"
        return StorageError(f"{marks} in {self._sink.address.where}", "read the mark in", cause, can_pass=False)

    def _lost(self, marks: str, name: str, least: Mark, text: str) -> StorageError:
        has = f"has come to checkpoint {text.split()[0]}" if text else "is not there"
        cause = (
            f"checkpoint {least[0]} was committed to it, but its mark {name} in {marks} {has}. It has lost data (it "
            "came back without its append-only file, or as a replica that had not seen the last writes), or it is "
            "another server. Bring its data back; or go on without, by giving the sink another uid"
        )
        return StorageError(self._sink.address.where, "commit to", cause, can_pass=False)
