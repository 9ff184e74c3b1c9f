"""A session with PostgreSQL that keeps state: the contract of ``api/state/external.py`` in SQL.

    take_over   one transaction under the operator's lock: read the marks, decide, clear, set the mark
    apply       one transaction under a share of that lock: check the mark, write the documents, move the mark
    read        one statement for all states and keys of a batch

Appliers share the lock, a subtask that takes over has it alone: so a transaction of an older attempt has either
committed before the takeover, and is seen by it, or will find a higher attempt's mark and write nothing. A commit whose
answer got lost is repeated from the start; the mark says that it was done. All names are identifiers made by psycopg
and all data are parameters.

Keys may be long, and an index entry may not: in place of a key above 500 bytes its digest is the primary key's part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import sql

from moorline.api.state.external import NOT_YET, Change, Document, Mark, Owner, Place, TakeOver, own_mark
from moorline.connectors import retry
from moorline.connectors.change_batches import batches
from moorline.connectors.postgres.connection import LIMITS, Connection, Database, is_transient
from moorline.connectors.watchdog import Watchdog
from moorline.errors import StorageError

if TYPE_CHECKING:
    from moorline.connectors.postgres.state import PostgresState

T = TypeVar("T")

LONG_KEY = 500
#: A statement writes so many documents, or bytes of them. All statements of a checkpoint are one transaction.
ROWS_AT_ONCE, BYTES_AT_ONCE = 5_000, 8 << 20
PAGE_ROWS = 500
#: Removing all there is may take so many times as long as anything else.
CLEARING = 60

_DOCUMENTS = """
CREATE TABLE IF NOT EXISTS {documents} (
    job text, uid text, state text, key_group integer, key bytea, long_key bytea, key_text text,
    value bytea NOT NULL, value_json jsonb, checkpoint bigint NOT NULL, attempt integer NOT NULL,
    PRIMARY KEY (job, uid, state, key_group, key))"""
_MARKS = """
CREATE TABLE IF NOT EXISTS {marks} (
    job text, uid text, attempt integer, first_group integer, end_group integer NOT NULL, token text NOT NULL,
    reaching bigint NOT NULL, reached bigint NOT NULL, types text NOT NULL,
    PRIMARY KEY (job, uid, attempt, first_group))"""
#: OFFSET 0 keeps the planner from turning the join round, which it would while it has no statistics of the table:
#: one look into the index for each key it is to be, whatever the table's size.
_READ = """
SELECT d.state, d.key_group, coalesce(d.long_key, d.key), d.value
FROM unnest(%b::text[], %b::integer[], %b::bytea[]) AS w(state, key_group, key)
CROSS JOIN LATERAL (
    SELECT * FROM {documents} f WHERE f.job = %s AND f.uid = %s
        AND f.state = w.state AND f.key_group = w.key_group AND f.key = w.key OFFSET 0) AS d"""
_SCAN = """
SELECT key_group, key, coalesce(long_key, key), value FROM {documents}
WHERE job = %s AND uid = %s AND state = %s AND key_group >= %s AND key_group < %s AND (key_group, key) > (%s, %s)
ORDER BY key_group, key LIMIT %s"""
_COUNT = """
SELECT count(*) FROM (
    SELECT FROM {documents} WHERE job = %s AND uid = %s AND key_group >= %s AND key_group < %s LIMIT %s) AS found"""
_WRITE = """
INSERT INTO {documents} (job, uid, state, key_group, key, long_key, key_text, value, value_json, checkpoint, attempt)
SELECT %s, %s, w.state, w.key_group, w.key, nullif(w.long_key, ''), w.key_text, w.value,
    nullif(w.value_json, '')::jsonb, %s, %s
FROM unnest(%b::text[], %b::integer[], %b::bytea[], %b::bytea[], %b::text[], %b::bytea[], %b::text[])
    AS w(state, key_group, key, long_key, key_text, value, value_json)
ON CONFLICT (job, uid, state, key_group, key) DO UPDATE SET
    key_text = excluded.key_text, value = excluded.value, value_json = excluded.value_json,
    checkpoint = excluded.checkpoint, attempt = excluded.attempt"""
_REMOVE = """
DELETE FROM {documents} WHERE ctid = ANY(ARRAY(
    SELECT d.place
    FROM unnest(%b::text[], %b::integer[], %b::bytea[]) AS w(state, key_group, key)
    CROSS JOIN LATERAL (
        SELECT f.ctid AS place FROM {documents} f WHERE f.job = %s AND f.uid = %s
            AND f.state = w.state AND f.key_group = w.key_group AND f.key = w.key OFFSET 0) AS d))"""
_CLEAR = """
DELETE FROM {documents}
WHERE job = %s AND uid = %s AND state = ANY(%s) AND key_group >= %s AND key_group < %s"""
_ALL_MARKS = """
SELECT attempt, first_group, end_group, token, reaching, reached, types FROM {marks} WHERE job = %s AND uid = %s"""
#: The own mark, if it is there, and of the others one of the highest attempt.
_TWO_MARKS = _ALL_MARKS + " ORDER BY (attempt, first_group) = (%s, %s) DESC, attempt DESC LIMIT 2"
_LOCK_MARK = "SELECT FROM {marks} WHERE job = %s AND uid = %s AND attempt = %s AND first_group = %s FOR UPDATE"
_DROP_MARK = "DELETE FROM {marks} WHERE job = %s AND uid = %s AND attempt = %s AND first_group = %s AND token = %s"
_SET_MARK = """
INSERT INTO {marks} (job, uid, attempt, first_group, end_group, token, reaching, reached, types)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (job, uid, attempt, first_group) DO UPDATE SET
    end_group = excluded.end_group, token = excluded.token, reaching = excluded.reaching,
    reached = excluded.reached, types = excluded.types"""


class PostgresSession:
    """One subtask's connection to PostgreSQL. It is opened at the first command, and again when it breaks."""

    def __init__(self, store: PostgresState, owner: Owner) -> None:
        self._store, self._owner = store, owner
        self._whose = (owner.job, owner.uid)
        names = store.table.split(".")
        self._names = {
            "documents": sql.Identifier(*names),
            "marks": sql.Identifier(*names[:-1], f"{names[-1]}_marks"),
        }
        self._statements: dict[str, sql.Composed] = {}
        self._connection: Connection | None = None
        self._is_checked = False
        self._database = Database(store.url, store.timeout)
        self._watchdog = Watchdog(store.timeout)
        #: Where this session has left its mark; None before it has one.
        self._reached: int | None = None

    # --- the contract ---------------------------------------------------------------------------

    def take_over(self, decide: Callable[[Sequence[Mark]], TakeOver]) -> None:
        def work(connection: Connection) -> int:
            with self._transaction(connection, "pg_advisory_xact_lock", times=CLEARING):
                rows = self._do(connection, _ALL_MARKS, self._whose).fetchall()
                decision = decide([_mark(row) for row in rows])
                mark, owner = decision.mark, self._owner
                for old in decision.drop:
                    self._do(connection, _DROP_MARK, (*self._whose, old.attempt, old.first, old.token))
                if decision.clear:
                    states = list(decision.clear)
                    self._do(connection, _CLEAR, (*self._whose, states, owner.first, owner.end), CLEARING)
                self._set_mark(connection, mark)
                return mark.reached

        self._reached = None
        self._reached = self._run("take over state in", work)

    def read(self, places: Sequence[Place]) -> list[Document]:
        states, groups, long_keys = [p.state for p in places], [p.key_group for p in places], [p.key for p in places]
        wanted = (states, groups, [_short(key) for key in long_keys], *self._whose)

        def work(connection: Connection) -> list[Document]:
            with self._watchdog.watching(connection), connection.cursor(binary=True) as cursor:
                rows = cursor.execute(self._sql(_READ), wanted).fetchall()
            return [Document(Place(state, group, key), value) for state, group, key, value in rows]

        return self._run("read state from", work)

    def scan(self, state: str) -> Iterator[list[Document]]:
        owner = self._owner
        after: tuple[int, bytes] = (owner.first - 1, b"")
        while True:
            wanted = (*self._whose, state, owner.first, owner.end, *after, PAGE_ROWS)

            def work(connection: Connection, wanted: tuple[Any, ...] = wanted) -> list[tuple[Any, ...]]:
                with self._watchdog.watching(connection), connection.cursor(binary=True) as cursor:
                    return cursor.execute(self._sql(_SCAN), wanted).fetchall()

            rows = self._run("read state from", work)
            if rows:
                yield [Document(Place(state, group, key), value) for group, _, key, value in rows]
                after = rows[-1][:2]
            if len(rows) < PAGE_ROWS:
                return

    def count(self, limit: int) -> int:
        wanted = (*self._whose, self._owner.first, self._owner.end, limit)

        def work(connection: Connection) -> int:
            with self._watchdog.watching(connection):
                return int(connection.execute(self._sql(_COUNT), wanted).fetchall()[0][0])

        return self._run("count state in", work)

    def apply(self, checkpoint: int, changes: Sequence[Change]) -> None:
        what = f"apply checkpoint {checkpoint} to"

        def work(connection: Connection) -> None:
            try:
                self._apply(connection, checkpoint, changes)
            except psycopg.DataError:
                # The readable form of a document may be something that PostgreSQL does not take.
                bare = [Change(change.place, change.content, change.key_text) for change in changes]
                self._apply(connection, checkpoint, bare)

        self._run(what, work)
        self._reached = checkpoint

    def _apply(self, connection: Connection, checkpoint: int, changes: Sequence[Change]) -> None:
        owner = self._owner
        own = (*self._whose, owner.attempt, owner.first)
        with self._transaction(connection, "pg_advisory_xact_lock_shared"):
            # A transaction of ours that was given up may still be running; it has this row.
            self._do(connection, _LOCK_MARK, own)
            marks = self._do(connection, _TWO_MARKS, own).fetchall()
            mark = own_mark([_mark(row) for row in marks], owner, self._store.where, self._reached)
            if mark.reached >= checkpoint:
                return
            for batch in batches(changes, ROWS_AT_ONCE, BYTES_AT_ONCE):
                self._write(connection, checkpoint, batch)
            self._set_mark(connection, mark.at(checkpoint))
            self._before_the_end()

    def _before_the_end(self) -> None:
        """Everything is written and nothing is committed. Tests stop here."""

    def _write(self, connection: Connection, checkpoint: int, changes: Sequence[Change]) -> None:
        gone = [c.place for c in changes if c.content is None]
        if gone:
            keys = [_short(p.key) for p in gone]
            wanted = ([p.state for p in gone], [p.key_group for p in gone], keys, *self._whose)
            self._do(connection, _REMOVE, wanted)
        kept = [(c, c.place) for c in changes if c.content is not None]
        if kept:
            columns = (
                [p.state for _, p in kept],
                [p.key_group for _, p in kept],
                [_short(p.key) for _, p in kept],
                [p.key if len(p.key) > LONG_KEY else b"" for _, p in kept],
                [c.key_text for c, _ in kept],
                [c.content for c, _ in kept],
                [c.json or "" for c, _ in kept],
            )
            self._do(connection, _WRITE, (*self._whose, checkpoint, self._owner.attempt, *columns))

    def close(self) -> None:
        self._drop()
        self._watchdog.stop()

    # --- the connection -------------------------------------------------------------------------

    def _sql(self, statement: str) -> sql.Composed:
        made = self._statements.get(statement)
        if made is None:
            made = self._statements[statement] = sql.SQL(statement).format(**self._names)
        return made

    def _set_mark(self, connection: Connection, mark: Mark) -> None:
        where = (mark.attempt, mark.first, mark.end, mark.token, mark.reaching, mark.reached)
        self._do(connection, _SET_MARK, (*self._whose, *where, json.dumps(mark.types)))

    def _do(self, connection: Connection, statement: str, data: Sequence[Any] = (), times: int = 1) -> Any:
        """One statement of a transaction. It may take the time limit, however much the whole transaction takes."""
        self._watchdog.extend(times)
        cursor = connection.execute(self._sql(statement), data)
        self._watchdog.extend(1)
        return cursor

    @contextmanager
    def _transaction(self, connection: Connection, lock: str, times: int = 1) -> Iterator[None]:
        limit = round(1000 * self._store.timeout)
        with self._watchdog.watching(connection), connection.transaction():
            connection.execute(LIMITS, (str(times * limit), str(limit), str(limit)))
            name = "\0".join((self._store.table, *self._whose)).encode()
            number = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big", signed=True)
            self._watchdog.extend(2)
            connection.execute(sql.SQL("SELECT {}(%s::bigint)").format(sql.Identifier(lock)), (number,))
            yield

    def _run(self, what: str, work: Callable[[Connection], T]) -> T:
        def once() -> T:
            try:
                return work(self._connected())
            except (psycopg.Error, OSError):
                self._drop()
                raise

        try:
            return retry.call(once, is_transient, self._store.patience)
        except (psycopg.Error, OSError) as error:
            raise StorageError(self._store.where, what, self._database.text_of(error)) from None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._database.connect(self._owner.job)
            self._watchdog.begin()
            if not self._is_checked:
                self._make_tables(self._connection)
                self._is_checked = True
            if self._reached is not None:
                # Perhaps another server has come back than the one that went away.
                marks = self._connection.execute(
                    self._sql(_TWO_MARKS), (*self._whose, self._owner.attempt, self._owner.first)
                ).fetchall()
                own_mark([_mark(row) for row in marks], self._owner, self._store.where, self._reached)
        return self._connection

    def _make_tables(self, connection: Connection) -> None:
        """Both tables, if they are not there. Several subtasks start at once, and CREATE IF NOT EXISTS may collide."""
        if None in self._columns_of_tables(connection):
            with self._transaction(connection, "pg_advisory_xact_lock"):
                connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (0x6D6F6F726C696E65,))
                self._do(connection, _DOCUMENTS)
                self._do(connection, _MARKS)
        needed = ({"job", "uid", "state", "key_group", "key", "value", "value_json"}, {"token", "reaching", "types"})
        for present, columns in zip(self._columns_of_tables(connection), needed, strict=True):
            if present is None or not columns <= present:
                cause = "a table of that name is there and was not made by Moorline. Give another name"
                raise StorageError(self._store.where, "keep state in", cause)

    def _columns_of_tables(self, connection: Connection) -> list[set[str] | None]:
        tables: list[set[str] | None] = []
        for name in self._names.values():
            rows = connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
                (name.as_string(connection),),
            ).fetchall()
            tables.append({row[0] for row in rows} or None)
        return tables

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:  # it is given up anyway
                return


def forget(store: PostgresState, job: str, uid: str | None) -> None:
    """Remove what is kept for a job, or for one operator of it."""
    session = PostgresSession(store, Owner(job, uid or "", 0, 0, 0, ""))

    def work(connection: Connection) -> None:
        with session._watchdog.watching(connection), connection.transaction():
            for table in ("{documents}", "{marks}"):
                statement = f"DELETE FROM {table} WHERE job = %s AND (%s::text IS NULL OR uid = %s)"
                session._do(connection, statement, (job, uid, uid), CLEARING)

    try:
        session._run(f"forget job {job!r} in", work)
    finally:
        session.close()


def _mark(row: tuple[Any, ...]) -> Mark:
    attempt, first, end, token, reaching, reached, types = row
    try:
        states = tuple((str(state), str(stored)) for state, stored in json.loads(types))
    except (ValueError, TypeError) as error:
        raise StorageError("a row of its marks", "read", f"{types!r:.200} is not what was written there") from error
    return Mark(attempt, first, end, token, reaching, max(reached, NOT_YET), states)


def _short(key: bytes) -> bytes:
    """The form of a key in the index. No key begins with the letter H."""
    return key if len(key) <= LONG_KEY else b"H" + hashlib.blake2b(key, digest_size=32).digest()
