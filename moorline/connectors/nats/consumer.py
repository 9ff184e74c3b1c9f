"""A consumer that replays a stream from a sequence on: made anew whenever anything is unclear.

It is a pull consumer without acknowledgements, kept in the server's memory, which goes away when it is not used.
Nothing depends on what it remembers: a message that did not arrive shows as a gap in the numbers that the consumer
gives to its messages, and then there is another consumer, which begins after the last message that did.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections import deque
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from moorline.connectors.nats.connection import ERRORS, SHUTDOWN_SECONDS, NatsConnection
from moorline.connectors.nats.records import StoredMessage

_SECOND = 1_000_000_000
#: A request for messages stands so long; while there are none the server says twice as often that it is still there.
PULL_SECONDS, HEARTBEAT_SECONDS = 6.0, 2.0
#: The server forgets a consumer that is not used, such as that of a reader that was killed.
FORGOTTEN_SECONDS = 30.0


class ConsumerGone(nats.errors.Error):
    """The server does not have the consumer any more, or a message of it has not arrived."""


class Consumer:
    """Messages of a stream in their order, from a sequence on."""

    def __init__(self, connection: NatsConnection, stream: str) -> None:
        self._connection, self._stream = connection, stream
        self._name = f"moorline-{uuid.uuid4().hex}"
        self._inbox = ""
        self._arrived: deque[Msg] = deque()
        self._news = asyncio.Event()
        #: Of the request that stands, messages that may still come.
        self._due = 0
        #: The number of the last message that has arrived, among those of this consumer.
        self._number = 0
        #: Messages that the server has for it, as far as it has said.
        self.pending = 0

    @classmethod
    async def open(cls, connection: NatsConnection, stream: str, subject: str | None, start: Any) -> Consumer:
        """Make one. ``start``: where it begins, in JetStream's words."""
        consumer = cls(connection, stream)
        config = {
            "name": consumer._name,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(FORGOTTEN_SECONDS * _SECOND),
            **({} if subject is None else {"filter_subject": subject}),
            **start,
        }
        place = f"{stream}.{consumer._name}" + ("" if subject is None else f".{subject}")
        answer = await connection.api(f"CONSUMER.CREATE.{place}", {"stream_name": stream, "config": config})
        consumer.pending = answer["num_pending"]
        consumer.before_first = answer["delivered"]["stream_seq"]
        consumer._inbox = connection.client.new_inbox()
        await connection.client.subscribe(consumer._inbox, cb=consumer.deliver)
        return consumer

    #: The sequence before the one it begins with.
    before_first = 0

    async def deliver(self, message: Msg) -> None:
        """Take what the server has sent."""
        self._arrived.append(message)
        self._news.set()

    async def messages(self, count: int) -> list[StoredMessage]:
        """Those that have arrived, up to ``count``; waits for some. None: there are none just now."""
        if not self._arrived and not self._due:
            await self._pull(count)
        if not self._arrived:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), 2 * HEARTBEAT_SECONDS + 1)
            except TimeoutError:
                raise ConsumerGone("the consumer does not answer") from None
        found: list[StoredMessage] = []
        while self._arrived and len(found) < count:
            message = self._arrived.popleft()
            if message.reply:
                found.append(self._stored(message))
            else:
                self._status(message)
        return found

    async def _pull(self, count: int) -> None:
        request = {
            "batch": count,
            "expires": int(PULL_SECONDS * _SECOND),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * _SECOND),
        }
        place = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._connection.client.publish(place, json.dumps(request).encode(), reply=self._inbox)
        self._due = count

    def _status(self, message: Msg) -> None:
        """The status that the server sends instead of a message."""
        headers = message.headers or {}
        match headers.get("Status"):
            case "100":  # still there
                if int(headers.get("Nats-Last-Consumer", self._number)) != self._number:
                    raise ConsumerGone("a message has not arrived")
            case "404" | "408":  # the request is over
                self._due = 0
            case status:
                raise ConsumerGone(f"the consumer is gone (status {status})")

    def _stored(self, message: Msg) -> StoredMessage:
        # $JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.number.nanoseconds.pending[.token]
        parts = message.reply.split(".")
        at = 5 if len(parts) == 9 else 7
        sequence, number, nanoseconds, self.pending = map(int, parts[at : at + 4])
        if number != self._number + 1:
            raise ConsumerGone("a message has not arrived")
        self._number, self._due = number, self._due - 1
        return StoredMessage(sequence, nanoseconds // 1_000_000, message.subject, message.data, message.headers)

    async def close(self) -> None:
        """Have the server forget it."""
        with contextlib.suppress(*ERRORS):
            forget = self._connection.api(f"CONSUMER.DELETE.{self._stream}.{self._name}")
            await asyncio.wait_for(forget, SHUTDOWN_SECONDS)
