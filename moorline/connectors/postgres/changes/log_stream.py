"""The log of a replication slot as a stream of messages, over a connection of its own.

psycopg has no calls for it, but libpq's are there: the log comes as COPY data, in both directions.

    from the server    w  LSN, LSN, time; a message of pgoutput        k  end of the log so far, time, whether to answer
    to the server      r  LSN written, LSN flushed, LSN applied, time, whether to answer

The server forgets what lies before the LSN that is reported as flushed, for good. It ends the connection if it hears
nothing for a minute (``wal_sender_timeout``).
"""

from __future__ import annotations

import select
import struct
import time
from typing import NamedTuple

import psycopg
from psycopg import pq, sql

from moorline.connectors.postgres.changes.position import lsn_text
from moorline.connectors.postgres.connection import Connection, Database

_data = struct.Struct("!QQQ").unpack_from
_keepalive = struct.Struct("!QQ?").unpack_from
_status = struct.Struct("!QQQq?").pack
#: Seconds from 1970 to 2000, where PostgreSQL's time begins.
EPOCH_SECONDS = 946_684_800
#: Messages that are handed over at a time.
MAX_MESSAGES = 2_000
#: The text forms of values must not depend on the settings of a role or a server. And what we write into the log, which
#: is nothing but marks, waits for no standby. Rows that are hidden from a role are an error, and not left out.
SETTINGS = """
SET DateStyle = 'ISO, YMD'; SET TimeZone = 'UTC'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 1;
SET bytea_output = 'hex'; SET synchronous_commit = 'local'; SET row_security = off"""


class Keepalive(NamedTuple):
    """All transactions that end before this LSN were sent."""

    end: int


class LogStream:
    """The messages from one LSN on. Opening it fails while another connection reads the slot."""

    def __init__(self, database: Database, name: str, slot: str, publication: str, start: int) -> None:
        self._timeout = database.timeout
        self._connection: Connection = database.connect(name, replication="database")
        self._pgconn = self._connection.pgconn
        #: The latest end of the log that the server has spoken of, and what was received.
        self.end, self.received = start, start
        #: Does the server want to hear from us?
        self.must_answer = False
        self._heard = time.monotonic()
        try:
            self._execute(SETTINGS.encode(), pq.ExecStatus.COMMAND_OK)
            # Its own parser knows neither parameters nor our way of quoting names in options.
            options = sql.SQL("proto_version '1', publication_names {}").format(
                sql.Literal(sql.Identifier(publication).as_string(self._connection))
            )
            command = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})").format(
                sql.Identifier(slot),
                sql.SQL(lsn_text(start)),
                options,
            )
            self._execute(command.as_bytes(self._connection), pq.ExecStatus.COPY_BOTH)
        except BaseException:
            self._connection.close()
            raise

    def _execute(self, command: bytes, expected: pq.ExecStatus) -> None:
        self._pgconn.send_query(command)
        self._flush()
        while True:
            while self._pgconn.is_busy():
                if not select.select([self._pgconn.socket], [], [], self._timeout)[0]:
                    raise psycopg.OperationalError(f"the server has not answered for {self._timeout:g} s")
                self._pgconn.consume_input()
            result = self._pgconn.get_result()
            if result is None:
                return
            if result.status not in (expected, pq.ExecStatus.COMMAND_OK):
                raise psycopg.errors.error_from_result(result)
            if result.status == pq.ExecStatus.COPY_BOTH:
                return

    def _flush(self) -> None:
        while self._pgconn.flush():
            if not select.select([], [self._pgconn.socket], [], self._timeout)[1]:
                raise psycopg.OperationalError(f"the server has taken nothing for {self._timeout:g} s")

    @property
    def is_silent(self) -> bool:
        """Has nothing come for so long that the server should be asked whether it is there?"""
        return time.monotonic() - self._heard > self._timeout / 2

    def receive(self, seconds: float) -> list[bytes | Keepalive]:
        """The messages that are there; waits a while for the first."""
        messages: list[bytes | Keepalive] = []
        self._take(messages)
        if not messages:
            select.select([self._pgconn.socket], [], [], seconds)
            self._pgconn.consume_input()
            self._take(messages)
        now = time.monotonic()
        if messages:
            self._heard = now
        elif now - self._heard > self._timeout:
            raise psycopg.OperationalError(f"the server has sent nothing for {self._timeout:g} s")
        return messages

    def _take(self, messages: list[bytes | Keepalive]) -> None:
        while len(messages) < MAX_MESSAGES:
            size, content = self._pgconn.get_copy_data(1)
            if size == 0:
                return
            if size < 0:
                raise self._ended()
            data = bytes(content)
            if data[:1] == b"w":
                start, end, _ = _data(data, 1)
                self.received = max(self.received, start)
                self.end = max(self.end, end)
                messages.append(data[25:])
            elif data[:1] == b"k":
                end, _, must_answer = _keepalive(data, 1)
                self.end = max(self.end, end)
                messages.append(Keepalive(end))
                self.must_answer |= must_answer

    def _ended(self) -> Exception:
        result = self._pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return psycopg.errors.error_from_result(result)
        return psycopg.OperationalError("the server has ended the stream")

    def report(self, confirmed: int, wants_answer: bool = False) -> None:
        """Tell the server that we are there, and what it may forget: what lies before ``confirmed``; 0 for nothing."""
        now = int((time.time() - EPOCH_SECONDS) * 1_000_000)
        self._pgconn.put_copy_data(b"r" + _status(self.received, confirmed, confirmed, now, wants_answer))
        self._flush()
        self.must_answer = False

    def close(self) -> None:
        self._connection.close()
