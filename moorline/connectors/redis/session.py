"""A session with Redis that keeps state: the contract of ``api/state/external.py`` in scripts.

    take_over   read the marks, decide, and one script: if the marks are as they were, clear and set the mark
    apply       scripts of bounded size, each of which checks the mark before it writes; the first says ``reaching``,
                the last ``reached``
    read        one pipeline for all states and keys of a batch, and the mark with it

Redis runs a script alone, so nothing comes between the check and the writing. A script that arrives late, on a line
that was given up long ago, finds that the mark has gone past it and does nothing. A Redis that has come back without
its data, or as a replica that had not seen the last writes, is noticed by the mark, at the next read already.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from moorline.api.state.external import Change, Document, Mark, Owner, Place, TakeOver, own_mark
from moorline.connectors import retry
from moorline.connectors.change_batches import batches
from moorline.connectors.redis.connection import (
    ERRORS,
    connect,
    evicts,
    has_append_only_file,
    is_transient,
    server_info,
    words_of,
)
from moorline.errors import StorageError

if TYPE_CHECKING:
    from moorline.connectors.redis.state import RedisState

log = logging.getLogger("moorline")
T = TypeVar("T")

#: A script writes so many documents, or bytes of them: while it runs no other client is served.
ROWS_AT_ONCE, BYTES_AT_ONCE = 1_000, 1 << 20
PAGE_ROWS, GROUPS_AT_ONCE = 500, 64

#: KEYS: marks, then what to clear. ARGV: the number of marks seen, and each with its value; how many to drop, and
#: which; the own mark and its value.
_TAKE_OVER = """
local seen = tonumber(ARGV[1])
if redis.call('HLEN', KEYS[1]) ~= seen then return 0 end
local at = 2
for _ = 1, seen do
    if redis.call('HGET', KEYS[1], ARGV[at]) ~= ARGV[at + 1] then return 0 end
    at = at + 2
end
local dropped = tonumber(ARGV[at])
for n = 1, dropped do redis.call('HDEL', KEYS[1], ARGV[at + n]) end
at = at + dropped + 1
for n = 2, #KEYS do redis.call('UNLINK', KEYS[n]) end
redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
return 1
"""
#: KEYS: marks, states, then the hashes. ARGV: the own mark, its token, attempt, checkpoint, where it was left (or
#: nothing), its new value; then for each change the state, the number of its hash, its field, and 1 and the value or 0.
_APPLY = """
local all, own, highest = redis.call('HGETALL', KEYS[1]), nil, 0
for n = 1, #all, 2 do
    local mark = cjson.decode(all[n + 1])
    if mark.attempt > highest then highest = mark.attempt end
    if all[n] == ARGV[1] and mark.token == ARGV[2] then own = mark end
end
if own == nil or highest > tonumber(ARGV[3]) or (ARGV[5] ~= '' and own.reached < tonumber(ARGV[5])) then
    return all
end
if own.reached >= tonumber(ARGV[4]) then return 'done' end
local at = 7
while at <= #ARGV do
    local hash = KEYS[tonumber(ARGV[at + 1])]
    if ARGV[at + 3] == '1' then
        redis.call('SADD', KEYS[2], ARGV[at])
        redis.call('HSET', hash, ARGV[at + 2], ARGV[at + 4])
        at = at + 5
    else
        redis.call('HDEL', hash, ARGV[at + 2])
        at = at + 4
    end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[6])
return 'written'
"""


class RedisSession:
    """One subtask's connection to Redis."""

    def __init__(self, store: RedisState, owner: Owner) -> None:
        self._store, self._owner = store, owner
        self._base = f"{store.prefix}:{{{_name(owner.job)}/{_name(owner.uid)}}}:"
        self._marks, self._states = f"{self._base}marks", f"{self._base}states"
        self._own = f"{owner.attempt}:{owner.first}"
        self._client: Any = None
        self._scripts: dict[str, Any] = {}
        #: The own mark, as this session has left it.
        self._mark: Mark | None = None

    # --- the contract ---------------------------------------------------------------------------

    def take_over(self, decide: Callable[[Sequence[Mark]], TakeOver]) -> None:
        def work() -> Mark | None:  # None: another subtask was quicker
            seen = self._connected().hgetall(self._marks)
            decision = decide([_mark(text) for text in seen.values()])
            groups = range(self._owner.first, self._owner.end)
            cleared = [self._hash(state, group) for state in decision.clear for group in groups]
            dropped = [f"{m.attempt}:{m.first}" for m in decision.drop]
            arguments = [len(seen), *(part for pair in seen.items() for part in pair), len(dropped), *dropped]
            own = [self._own, _text(decision.mark)]
            return decision.mark if self._script(_TAKE_OVER)([self._marks, *cleared], [*arguments, *own]) else None

        self._mark = None
        while self._mark is None:
            self._mark = self._run("take over state in", work)

    def read(self, places: Sequence[Place]) -> list[Document]:
        by_hash: dict[tuple[str, int], list[Place]] = {}
        for place in places:
            by_hash.setdefault((place.state, place.key_group), []).append(place)

        def work() -> list[Any]:
            pipeline = self._connected().pipeline(transaction=False)
            pipeline.hget(self._marks, self._own)
            for (state, group), wanted in by_hash.items():
                pipeline.hmget(self._hash(state, group), [place.key for place in wanted])
            values: list[Any] = pipeline.execute()
            return values

        text, *values = self._run("read state from", work)
        mark = None if text is None else _mark(text)
        if self._mark is None or mark is None or mark.token != self._mark.token or mark.reached < self._mark.reached:
            self._refuse(self._run("read state from", lambda: self._connected().hvals(self._marks)))
        wanted = [place for group in by_hash.values() for place in group]
        flat = [value for group in values for value in group]
        return [Document(place, _content(value)) for place, value in zip(wanted, flat) if value is not None]

    def scan(self, state: str) -> Iterator[list[Document]]:
        groups = range(self._owner.first, self._owner.end)
        for n in range(0, len(groups), GROUPS_AT_ONCE):
            part = groups[n : n + GROUPS_AT_ONCE]

            def begin(part: range = part) -> list[Any]:
                pipeline = self._connected().pipeline(transaction=False)
                for group in part:
                    pipeline.hscan(self._hash(state, group), 0, count=PAGE_ROWS)
                page: list[Any] = pipeline.execute()
                return page

            for group, (cursor, page) in zip(part, self._run("read state from", begin)):
                seen: set[bytes] = set()
                while True:
                    # Redis may show an entry twice while it makes a hash larger.
                    new = {key: value for key, value in page.items() if key not in seen}
                    seen |= new.keys()
                    if new:
                        yield [Document(Place(state, group, key), _content(value)) for key, value in new.items()]
                    if not cursor:
                        break
                    cursor, page = self._scan_on(self._hash(state, group), cursor)

    def _scan_on(self, name: str, cursor: int) -> tuple[int, dict[bytes, bytes]]:
        def work() -> tuple[int, dict[bytes, bytes]]:
            page: tuple[int, dict[bytes, bytes]] = self._connected().hscan(name, cursor, count=PAGE_ROWS)
            return page

        return self._run("read state from", work)

    def count(self, limit: int) -> int:
        def work() -> int:
            states = [state.decode() for state in self._connected().smembers(self._states)]
            pipeline = self._connected().pipeline(transaction=False)
            for state in states:
                for group in range(self._owner.first, self._owner.end):
                    pipeline.hlen(f"{self._base}{state}:{group}")
            return sum(pipeline.execute()) if states else 0

        return self._run("count state in", work)

    def apply(self, checkpoint: int, changes: Sequence[Change]) -> None:
        mark = self._mark or Mark(self._owner.attempt, self._owner.first, self._owner.end, self._owner.token, 0, 0)
        half = Mark(mark.attempt, mark.first, mark.end, mark.token, checkpoint, mark.reached, mark.types)
        scripts = list(batches(changes, ROWS_AT_ONCE, BYTES_AT_ONCE)) or [()]
        for number, batch in enumerate(scripts, 1):
            is_last = number == len(scripts)
            if is_last:
                self._before_the_end()
            answer = self._write(checkpoint, batch, mark.at(checkpoint) if is_last else half)
            if answer == b"done":
                break
        self._mark = mark if mark.reached > checkpoint else mark.at(checkpoint)

    def _before_the_end(self) -> None:
        """All but the last batch is written. Tests stop here."""

    def _write(self, checkpoint: int, changes: Sequence[Change], mark: Mark) -> bytes:
        owner, names = self._owner, [self._marks, self._states]
        left = "" if self._mark is None else self._mark.reached
        arguments: list[Any] = [self._own, owner.token, owner.attempt, checkpoint, left, _text(mark)]
        numbers: dict[str, int] = {}
        for change in changes:
            place, name = change.place, self._hash(change.place.state, change.place.key_group)
            if name not in numbers:
                names.append(name)
                numbers[name] = len(names)
            arguments += [_name(place.state), numbers[name], place.key]
            if change.content is None:
                arguments.append(0)
            else:
                row = [checkpoint, owner.attempt, change.json, change.content]
                arguments += [1, msgspec.msgpack.encode(row)]
        answer = self._run(f"apply checkpoint {checkpoint} to", lambda: self._script(_APPLY)(names, arguments))
        if isinstance(answer, list):
            self._refuse(answer[1::2])
        outcome: bytes = answer
        return outcome

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*ERRORS):
                client.close()

    # --- the connection -------------------------------------------------------------------------

    def _hash(self, state: str, key_group: int) -> str:
        return f"{self._base}{_name(state)}:{key_group}"

    def _refuse(self, marks: Sequence[bytes]) -> None:
        reached = None if self._mark is None else self._mark.reached
        own_mark([_mark(text) for text in marks], self._owner, self._store.where, reached)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = connect(self._store.address)
            self._check_server()
        return self._client

    def _script(self, text: str) -> Any:
        client = self._connected()
        if text not in self._scripts:
            self._scripts[text] = client.register_script(text)
        return self._scripts[text]

    def _check_server(self) -> None:
        info = server_info(self._client)
        if policy := evicts(info):
            cause = f"its maxmemory-policy is {policy}, so it throws state away when it is full. Set it to noeviction"
            raise StorageError(self._store.where, "keep state in", cause)
        if not has_append_only_file(info):
            log.warning(
                "%s has no append-only file: state that it loses in a crash will be missed, and the job refused",
                self._store.where,
            )

    def _run(self, what: str, work: Callable[[], T]) -> T:
        def once() -> T:
            try:
                return work()
            except ERRORS:
                self._scripts = {}
                self.close()
                raise

        try:
            return retry.call(once, is_transient, self._store.patience)
        except ERRORS as error:
            raise StorageError(self._store.where, what, words_of(self._store.address, error)) from None


def forget(store: RedisState, job: str, uid: str | None) -> None:
    """Remove what is kept for a job, or for one operator of it."""
    session = RedisSession(store, Owner(job, uid or "", 0, 0, 0, ""))
    # Names are percent-encoded, so nothing in them means anything to Redis.
    pattern = f"{store.prefix}:{{{_name(job)}/{'*' if uid is None else _name(uid)}}}:*"

    def work() -> None:
        client = session._connected()
        for name in client.scan_iter(match=pattern, count=1000):
            client.unlink(name)

    try:
        session._run(f"forget job {job!r} in", work)
    finally:
        session.close()


def _name(text: str) -> str:
    return quote(text, safe="")


def _text(mark: Mark) -> str:
    return msgspec.json.encode(mark).decode()


def _mark(text: bytes) -> Mark:
    try:
        fields = json.loads(text)
        types = tuple((str(state), str(stored)) for state, stored in fields.pop("types"))
        return Mark(**fields, types=types)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError("one of its marks", "read", f"{text!r:.200} is not what was written there") from error


def _content(row: bytes) -> bytes:
    try:
        _, _, _, content = msgspec.msgpack.decode(row, type=tuple[int, int, str | None, bytes])
    except msgspec.DecodeError as error:
        raise StorageError("one of its documents", "read", f"{row!r:.200} is not what was written there") from error
    return content
